"""Measure blocks of positions on many processes or machines, and save each finished block."""

from __future__ import annotations

import contextlib
import io
import json
import warnings
from collections.abc import Iterator
from concurrent.futures import BrokenExecutor
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from otm._core.digest import digest_of_code
from otm._core.display.interrupts import ignore_sigint
from otm._core.display.progress import Progress, watching
from otm._core.display.text import shown
from otm._core.files.headers import open_arrays
from otm._core.files.paths import read_json, write_atomically
from otm._core.numbers import as_integer
from otm._core.optional import require
from otm.errors import InvalidInputError, InvalidParameterError, OTMError, ProblemTooLargeError
from otm.gain.reports.pairs import Measured
from otm.gain.reports.score_files import BLOCK_BYTES, Bounds, PositionBlock, Source
from otm.gain.reports.settings import Settings

MANIFEST = "manifest.json"

MAX_WORKERS = 2**15
"""Largest allowed number of processes; beyond it joblib fails with an unclear error."""

DIGEST = "sha1"
"""Name of the array that has the digest of all other arrays in the file of a block."""

_PARTS = {"code": "code: another version of OTM, Python or a package"}
"""Names that messages use for parts of the manifest, if these names differ from the keys."""

_CLUSTERS = ("distributed", "dask", "ray")
"""Packages that report a lost worker by an exception class of their own."""


def measure_all(
    source: Source,
    settings: Settings,
    folder: Path,
    *,
    workers: int | None = None,
    progress: Progress | None = None,
) -> Measured:
    """Measure all positions, except blocks that the folder already has.

    Every block is computed in the same way on any worker, so the numbers do not depend on the
    workers. `workers` = −1 uses one process per core, and None uses `joblib.parallel_config` or 1.
    """
    if workers is not None and as_integer(workers, "workers", -1, MAX_WORKERS) == 0:
        raise InvalidParameterError("workers = 0; give at least 1, or −1 for one per core")
    joblib = require("joblib")
    bounds = source.bounds
    key = {
        "code": digest_of_code(),
        "source": source.key,
        "settings": settings.key,
        "blocks": {"bytes": BLOCK_BYTES, "count": len(bounds), "first": bounds[0][1]},
    }
    made = _claim(folder, key)
    paths = [folder / f"block-{i:06d}.npz" for i in range(len(bounds))]
    parts = {i: part for i, block in enumerate(bounds) if (part := load_part(paths[i], block))}
    todo = [i for i in range(len(bounds)) if i not in parts]
    blocks = zip(todo, source.blocks([bounds[i] for i in todo]), strict=True)
    if todo:
        # workers of Dask or Ray must see the source's files under the same paths
        pool = joblib.Parallel(
            n_jobs=workers,
            batch_size=1,
            # memory-mapped copies of blocks would stay on disk after an error
            max_nbytes=None,
            return_as="generator_unordered",
        )
        results = None
        try:
            # workers that start during Ctrl-C would print tracebacks
            with ignore_sigint():
                started = pool([joblib.delayed(int)()])
            list(started)
            results = pool(joblib.delayed(_measure)(i, block, settings) for i, block in blocks)
            with watching(progress, "report") as watch:
                watch.tell("finished blocks", len(parts), len(bounds))
                for i, part in results:
                    save_part(paths[i], part)
                    parts[i] = part
                    watch.tell("finished blocks", len(parts), len(bounds))
        except OTMError:
            raise
        except Exception as error:
            package = type(error).__module__.partition(".")[0]
            if not isinstance(error, BrokenExecutor) and package not in _CLUSTERS:
                raise
            raise ProblemTooLargeError(
                "a worker was ended from outside, which often means too little memory; finished "
                "blocks are kept: continue with fewer workers"
            ) from None
        finally:
            with warnings.catch_warnings(), ignore_sigint():
                # after an error, joblib warns about unfinished blocks
                warnings.simplefilter("ignore")
                if results is not None:
                    results.close()
            if not parts:
                # stop at the first folder that another process uses
                with contextlib.suppress(OSError):
                    for place in made:
                        place.rmdir() if place.is_dir() else place.unlink()
    # `pop` frees each block after its copy
    return {
        name: np.concatenate([parts[i].pop(name) for i in range(len(bounds))])
        for name in list(parts[0])
    }


def _measure(number: int, block: PositionBlock, settings: Settings) -> tuple[int, Measured]:
    """Measure a block in a worker, and return it with its number."""
    return number, block.measure(settings)


def _claim(folder: Path, key: dict[str, Any]) -> list[Path]:
    """Write the key of a report to its folder; raise if the folder has another report.

    Return the created paths, in the order in which they are removed if no block is computed.
    """
    text = json.dumps(key, indent=1)
    manifest = folder / MANIFEST
    with writing(folder):
        made = [place for place in (folder, *folder.parents) if not place.exists()]
        folder.mkdir(parents=True, exist_ok=True)
        if not manifest.exists():
            # without a manifest, old blocks may belong to another report
            for old in folder.glob("block-*.npz"):
                old.unlink()
            write_atomically(manifest, text.encode())
            return [manifest, *made]
    stored, expected = read_json(manifest), json.loads(text)
    if stored != expected:
        there = stored if isinstance(stored, dict) else {}
        what = [_PARTS.get(part, part) for part in expected if there.get(part) != expected[part]]
        raise InvalidInputError(
            f"the folder {_shown(folder)} has results of another report, which differs in its "
            f"{' and '.join(what) or 'manifest'}; give a new folder (--output), or remove this "
            "one to start again"
        )
    return []


@contextlib.contextmanager
def writing(folder: Path) -> Iterator[None]:
    """Turn an error while writing to a folder into an `InvalidInputError`."""
    try:
        yield
    except OSError as error:
        why = f"cannot be written to: {error.strerror}"
        raise InvalidInputError(f"the folder {_shown(folder)} {why}") from None


def _shown(folder: Path) -> str:
    """Write a folder's name and its parent's name, because all "positions" folders share a name."""
    return shown(str(Path(folder.parent.name) / folder.name))


def save_part(path: Path, part: Measured) -> None:
    """Save a block with the digest of its arrays."""
    content = io.BytesIO()
    np.savez(content, **part, **{DIGEST: _digest(part)})  # type: ignore[arg-type]
    with writing(path.parent):
        write_atomically(path, content.getvalue())


def load_part(path: Path, bounds: Bounds) -> Measured | None:
    """Load a saved block; None if it is missing, incomplete or damaged."""
    if not path.exists():
        return None
    try:
        part = {name: rows.read(0, rows.shape[0]) for name, rows in open_arrays(path).items()}
    except InvalidInputError:
        # a damaged block is computed again
        return None
    sound = np.array_equal(part.pop(DIGEST, np.empty(0)), _digest(part))
    complete = all(len(array) == bounds[1] - bounds[0] for array in part.values())
    return part if sound and complete else None


def _digest(part: Measured) -> npt.NDArray[np.uint8]:
    """Return the SHA-1 digest of names, types, shapes and numbers."""
    digest: str = require("joblib").hash(part, hash_name="sha1")
    return np.frombuffer(bytes.fromhex(digest), dtype=np.uint8)
