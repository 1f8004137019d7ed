"""What would these models gain from drafts?  Computed from their distributions, without decoding.

`report` reads pairs of distributions from a source (`from_files`, `from_top_logprobs`,
`from_models`), computes at every position what every rule accepts, and writes the means with their
intervals as JSON and as a page.  It goes on where it was interrupted, and uses as many cores or
machines as it is given.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from otm._core.files.paths import AnyPath, as_path, file_label, read_json, write_whole
from otm._core.numbers import as_level
from otm.decoding.policies import as_gamma
from otm.decoding.sampling_parameters import SamplingParameters
from otm.errors import InvalidInputError, InvalidParameterError
from otm.gain.latency import Latency
from otm.gain.page import check_page, page
from otm.gain.run import Progress, measure_all
from otm.gain.settings import Settings
from otm.gain.sources import Source
from otm.gain.summary import Summary, summarise
from otm.gain.top_lists import TopLogprobs

MAX_GAMMA = 1000
"""Largest γ of a report: tokens of a step are computed for all γ up to it."""


def report(
    source: Source,
    folder: AnyPath,
    settings: Settings | None = None,
    *,
    gammas: Sequence[int] = (1, 2, 3, 4, 5, 6, 7, 8),
    latency: Latency | None = None,
    level: float = 0.95,
    workers: int | None = None,
    progress: Progress | None = None,
) -> Summary:
    """Compute what drafts would gain, and write `report.json` and `report.html`.

    Parameters
    ----------
    source : Source
        Positions, from `from_files`, `from_top_logprobs` or `from_models`.
    folder : str or Path
        Where to write.  What has been computed of the positions is kept in its folder "positions",
        so that a run that was interrupted goes on; with other gammas, latencies or levels nothing
        is computed again.
    settings : Settings, optional
        Rules, numbers of drafts, temperatures, lossy settings.
    gammas : sequence of int, optional
        Most drafts γ of a path.
    latency : Latency, optional
        What steps cost, which decides what is recommended (`read_latency`).
    level : float, optional
        Probability that an interval covers its mean, nearly; above 0 and below 1.
    workers : int, optional
        Number of processes, −1 for one a core; left out, what `joblib.parallel_config` says, or 1.
        The numbers do not depend on it.
    progress : callable, optional
        Called with the numbers of finished blocks and of all.

    Returns
    -------
    Summary
        What was written.

    Raises
    ------
    InvalidInputError
        If an argument, a file or a row in it cannot be used, the folder cannot be written to, or it
        holds a report of other versions; the message names it.
    InvalidParameterError
        If gammas, level or workers are outside their ranges, or a sampling is given beside lists.
    ProblemTooLargeError
        If a rule of the settings has no exact acceptance for so many drafts, or a worker is ended
        from outside, as systems do that run out of memory.
    MissingDependencyError
        If joblib, jinja2 or matplotlib is not installed.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> import numpy as np
    >>> from otm.gain import from_files
    >>> rng = np.random.default_rng(0)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder)
    ...     target = rng.normal(size=(200, 50)).astype(np.float32)
    ...     np.save(path / "target.npy", target)
    ...     np.save(path / "draft.npy", target + rng.normal(size=target.shape).astype(np.float32))
    ...     np.save(path / "prompts.npy", np.repeat(np.arange(10), 20))
    ...     source = from_files(
    ...         path / "draft.npy", path / "target.npy", prompts=path / "prompts.npy"
    ...     )
    ...     summary = report(source, path / "report", latency=Latency.constant(0.1))
    ...     print(*sorted(file.name for file in (path / "report").iterdir()))
    positions report.html report.json
    >>> print(summary.recommendation.best.speedup)
    2.187 ± 0.022
    """
    folder = as_path(folder, "of a folder")
    chosen = settings or Settings()
    lengths = tuple(sorted({as_gamma(gamma) for gamma in gammas} - {0}))
    if not lengths:
        raise InvalidParameterError("gammas has no number above 0; give at least one")
    if lengths[-1] > MAX_GAMMA:
        raise InvalidParameterError(f"γ = {lengths[-1]}; a report takes at most {MAX_GAMMA}")
    plain = replace(chosen, sampling=SamplingParameters(), draft_temperatures=())
    if isinstance(source, TopLogprobs) and chosen != plain:
        raise InvalidParameterError(
            "lists of log-probabilities hold the laws that were sampled from; give neither a "
            "sampling nor temperatures beside them"
        )
    level = as_level(level)
    if latency is not None:
        latency.step_time(lengths[-1], chosen.ks[-1])  # refuses what the table does not reach
    check_page()
    measured = measure_all(source, chosen, folder / "positions", workers=workers, progress=progress)
    summary = summarise(source, measured, chosen, lengths, latency, level=level)
    text = json.dumps(summary.as_json(), ensure_ascii=False, allow_nan=False, indent=1)
    try:
        write_whole(folder / "report.json", f"{text}\n".encode())
        write_whole(folder / "report.html", page(summary).encode())
    except OSError as error:
        raise InvalidInputError(
            f"the folder {folder.name!r:.60} cannot be written to: {error.strerror}"
        ) from None
    return summary


def read_latency(path: AnyPath) -> Latency:
    """Read a latency table from JSON: the arguments of `Latency`, or a number c.

    A number is the time of the draft model for one token over that of the target, whatever the
    number of rows or tokens (`Latency.constant`).

    Parameters
    ----------
    path : str or Path
        The file.

    Returns
    -------
    Latency
        In the unit of the table.

    Raises
    ------
    InvalidInputError
        If it is no such table.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = (Path(folder) / "latency.json").write_text("0.125")
    ...     read_latency(Path(folder) / "latency.json").step_time(gamma=2, k=1)
    1.25
    """
    given: Any = read_json(path)
    names = {"rows", "tokens", "draft", "target", "overhead", "autoregressive_overhead"}
    needed = {"rows", "tokens", "draft", "target"}
    try:
        if isinstance(given, int | float) and not isinstance(given, bool):
            return Latency.constant(given)
        if isinstance(given, dict) and needed <= set(given) <= names:
            return Latency(**given)
    except (InvalidInputError, TypeError, ValueError, OverflowError) as error:
        raise InvalidInputError(
            f"{file_label(path)} is no table of latencies: {error!s:.200}"
        ) from None
    raise InvalidInputError(
        f"{file_label(path)} is no table of latencies; give a number, the time of the draft "
        f"model over that of the target, or an object with {', '.join(sorted(needed))}"
    )
