"""Blocks worked on by many processes or machines, each saved as soon as it is finished."""

from __future__ import annotations

import hashlib
import io
import json
import os
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np

from otm.errors import InvalidInputError, MissingDependencyError
from otm.files import named, open_arrays, read_json
from otm.reporting.pairs import Measured
from otm.reporting.settings import Settings
from otm.reporting.sources import Block, Bounds, Source

__all__ = ["Progress", "measure_all"]

Progress = Callable[[int, int], None]
"""Told the number of blocks that are finished, and of all."""

FORMAT = 1
"""Changes whenever what is saved does."""

MANIFEST = "manifest.json"


def measure_all(
    source: Source,
    settings: Settings,
    folder: Path,
    *,
    workers: int | None = None,
    progress: Progress | None = None,
) -> Measured:
    """Measure all positions; what an earlier run has saved in the folder is not computed again.

    Every block is computed by itself, by the same steps wherever that is, and put in its place: the
    numbers do not depend on the workers.

    Parameters
    ----------
    source : Source
        The positions.
    settings : Settings
        What to compute.
    folder : Path
        Where results are saved, one file a block; made if it is not there.
    workers : int, optional
        Number of processes, −1 for one a core; left out, what `joblib.parallel_config` says, or 1.
        With its backends for Dask or Ray, workers on other machines must see the source's files
        under the same paths; results come back and are saved here.
    progress : callable, optional
        Called as blocks are finished.

    Returns
    -------
    dict of arrays
        What the blocks' `measure` returned, along all positions.

    Raises
    ------
    InvalidInputError
        If the source has a row that cannot be used, or the folder has results of other files or
        settings.
    MissingDependencyError
        If joblib is not installed.
    """
    joblib = _import_joblib()
    bounds = source.bounds
    _claim(folder, {"format": FORMAT, "source": source.key, "settings": settings.key})
    saved = {number for number, block in enumerate(bounds) if _load(folder, number, block)}
    todo = [number for number in range(len(bounds)) if number not in saved]
    count = len(saved)
    if todo:
        _check_first(source, settings, bounds[todo[0]])
        pool = joblib.Parallel(n_jobs=workers, return_as="generator_unordered")
        for number, found in pool(_tasks(joblib.delayed, source, settings, bounds, todo)):
            if isinstance(found, str):
                raise InvalidInputError(found)
            _save(folder, number, found)
            count += 1
            if progress is not None:
                progress(count, len(bounds))
    parts = [_load(folder, number, block) for number, block in enumerate(bounds)]
    names = parts[0] if parts[0] else {}
    return {name: np.concatenate([part[name] for part in parts if part]) for name in names}
