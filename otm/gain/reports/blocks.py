"""Blocks worked on by many processes or machines, each saved as soon as it is finished."""

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
from otm._core.display.interrupts import deaf_to_interrupts
from otm._core.display.progress import Progress, watching
from otm._core.display.text import shown
from otm._core.files.headers import open_arrays
from otm._core.files.paths import read_json, write_whole
from otm._core.numbers import as_integer
from otm._core.optional import require
from otm.errors import InvalidInputError, InvalidParameterError, OTMError, ProblemTooLargeError
from otm.gain.reports.pairs import Measured
from otm.gain.reports.score_files import BLOCK_BYTES, Bounds, PositionBlock, Source
from otm.gain.reports.settings import Settings

MANIFEST = "manifest.json"

MAX_WORKERS = 2**15
"""More processes than machines can start; beyond it joblib fails in words of its own."""

DIGEST = "sha1"
"""Name, in the file of a block, of the digest of its arrays."""

_PARTS = {"code": "code: another version of OTM, Python or a package"}
"""What parts of the manifest are called in messages, where their names do not say it."""

_CLUSTERS = ("distributed", "dask", "ray")
"""Packages whose own errors tell of workers that are gone."""


def measure_all(
    source: Source,
    settings: Settings,
    folder: Path,
    *,
    workers: int | None = None,
    progress: Progress | None = None,
) -> Measured:
    """Measure all positions; blocks that were saved in the folder before are not computed again.

    A block is computed by itself, in the same steps anywhere: numbers do not depend on the workers.
    −1 workers are one a core, None those of `joblib.parallel_config` or 1.
    """
    if workers is not None and as_integer(workers, "workers", -1, MAX_WORKERS) == 0:
        raise InvalidParameterError("workers = 0; give at least 1, or −1 for one a core")
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
    parts = {i: part for i, block in enumerate(bounds) if (part := _load(paths[i], block))}
    todo = [i for i in range(len(bounds)) if i not in parts]
    blocks = zip(todo, source.blocks([bounds[i] for i in todo]), strict=True)
    if todo:
        # workers of Dask or Ray must see the source's files under the same paths
        pool = joblib.Parallel(
            n_jobs=workers,
            batch_size=1,
            max_nbytes=None,  # no copies of blocks in files that an error would leave behind
            return_as="generator_unordered",
        )
        results = None
        try:
            with deaf_to_interrupts():  # or workers that begin as Ctrl-C comes write tracebacks
                begun = pool([joblib.delayed(int)()])
            list(begun)
            results = pool(joblib.delayed(_measure)(i, block, settings) for i, block in blocks)
            with watching(progress, "report") as watch:
                watch.tell("finished blocks", len(parts), len(bounds))
                for i, part in results:
                    _save(paths[i], part)
                    parts[i] = part
                    watch.tell("finished blocks", len(parts), len(bounds))
        except OTMError:
            raise
        except Exception as error:
            package = type(error).__module__.partition(".")[0]
            if not isinstance(error, BrokenExecutor) and package not in _CLUSTERS:
                raise
            raise ProblemTooLargeError(
                "a worker was ended from outside, as systems do that run out of memory; what was "
                "finished is kept: go on with fewer workers"
            ) from None
        finally:
            with warnings.catch_warnings(), deaf_to_interrupts():
                warnings.simplefilter("ignore")  # of what was begun in vain if there is an error
                if results is not None:
                    results.close()
            if not parts:
                with contextlib.suppress(OSError):  # up to the first that another process uses
                    for place in made:
                        place.rmdir() if place.is_dir() else place.unlink()
    return {  # blocks are let go as they are copied
        name: np.concatenate([parts[i].pop(name) for i in range(len(bounds))])
        for name in list(parts[0])
    }


def _measure(number: int, block: PositionBlock, settings: Settings) -> tuple[int, Measured]:
    return number, block.measure(settings)


def _claim(folder: Path, key: dict[str, Any]) -> list[Path]:
    """Write what the folder is for, or refuse one that is for something else.

    Returns the paths that were made, in the order to remove them in if nothing is computed.
    """
    text = json.dumps(key, indent=1)
    manifest = folder / MANIFEST
    with writing(folder):
        made = [place for place in (folder, *folder.parents) if not place.exists()]
        folder.mkdir(parents=True, exist_ok=True)
        if not manifest.exists():
            for old in folder.glob("block-*.npz"):  # of which report is not known
                old.unlink()
            write_whole(manifest, text.encode())
            return [manifest, *made]
    stored, expected = read_json(manifest), json.loads(text)
    if stored != expected:
        there = stored if isinstance(stored, dict) else {}
        what = [_PARTS.get(part, part) for part in expected if there.get(part) != expected[part]]
        raise InvalidInputError(
            f"the folder {_shown(folder)} has results of another report, which differs in its "
            f"{' and '.join(what) or 'manifest'}; give a new folder, or remove this one to begin "
            "anew"
        )
    return []


@contextlib.contextmanager
def writing(folder: Path) -> Iterator[None]:
    """Refuse a folder that cannot be written to."""
    try:
        yield
    except OSError as error:
        why = f"cannot be written to: {error.strerror}"
        raise InvalidInputError(f"the folder {_shown(folder)} {why}") from None


def _shown(folder: Path) -> str:
    """Name a folder with the one that it is in, since all are called alike."""
    return shown(str(Path(folder.parent.name) / folder.name))


def _save(path: Path, part: Measured) -> None:
    content = io.BytesIO()
    np.savez(content, **part, **{DIGEST: _digest(part)})  # type: ignore[arg-type]
    with writing(path.parent):
        write_whole(path, content.getvalue())


def _load(path: Path, bounds: Bounds) -> Measured | None:
    """Read what was saved of a block; None if it is not there, or not as it was saved."""
    if not path.exists():
        return None
    try:
        part = {name: rows.read(0, rows.shape[0]) for name, rows in open_arrays(path).items()}
    except InvalidInputError:  # damaged since: computed again
        return None
    sound = np.array_equal(part.pop(DIGEST, np.empty(0)), _digest(part))
    complete = all(len(array) == bounds[1] - bounds[0] for array in part.values())
    return part if sound and complete else None


def _digest(part: Measured) -> npt.NDArray[np.uint8]:
    """SHA-1 of names, types, shapes and numbers."""
    digest: str = require("joblib").hash(part, hash_name="sha1")
    return np.frombuffer(bytes.fromhex(digest), dtype=np.uint8)
