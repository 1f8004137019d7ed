"""Many figures, side by side."""

from __future__ import annotations

import multiprocessing
import os
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import BrokenExecutor, ProcessPoolExecutor, as_completed
from contextlib import closing, contextmanager
from pathlib import Path
from typing import NamedTuple

from figures import committed
from figures.gallery import write_gallery
from figures.output import digest_for, write
from figures.progress import beside_others
from figures.registry import FIGURES, Kind, load
from otm._core.display.interrupts import ignore_sigint
from otm._core.display.progress import SILENT, watching
from otm.errors import InvalidParameterError, ProblemTooLargeError

_THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")


class Done(NamedTuple):
    """A figure that is finished.

    Attributes
    ----------
    name : str
        The figure.
    state : str
        From `figures.output.write`.
    seconds : float
        How long it took.
    differences : tuple of str or None
        Differences from the committed figure; None if there is nothing to compare.
    """

    name: str
    state: str
    seconds: float
    differences: tuple[str, ...] | None = None

    def __str__(self) -> str:
        line = f"{self.name:<28} {self.state:<12} {self.seconds:6.1f} s"
        if self.differences is None:
            return line
        if not self.differences:
            return f"{line}  as committed"
        return f"{line}  differs: {', '.join(self.differences)}"


def draw_all(
    names: Sequence[str],
    folder: Path,
    results: Path,
    *,
    full: bool,
    jobs: int | None,
    tell: Callable[[Done], None],
) -> Path:
    """Write figures, or all of them if none is named, and the page that shows them.

    Parameters
    ----------
    names, results, full
        As for `write_all`.
    folder : Path
        Of the page, made if it does not exist; the figures go into the folder `drawn` in it.  Not
        the folder of the committed page, which they are compared with.
    jobs : int or None
        Number of processes; None for one a core.
    tell : callable
        Called with each figure that is finished.

    Returns
    -------
    Path
        The page.

    Raises
    ------
    UnknownMethodError
        If there is no figure of a name; nothing is written then.
    InvalidParameterError
        If the number of processes is below 1, or the folder that of the committed page.
    """
    if folder.resolve() == committed.FOLDER.resolve():
        raise InvalidParameterError(
            f"the committed figures are in {folder}; draw into another folder, and copy "
            "figures that differ with --update"
        )
    if jobs is not None and jobs < 1:
        raise InvalidParameterError(f"{jobs} processes; at least one is needed")
    for name in names:
        load(name)
    folder.mkdir(parents=True, exist_ok=True)
    chosen = list(dict.fromkeys(names or FIGURES))
    workers = jobs or os.cpu_count() or 1
    with closing(write_all(chosen, folder / "drawn", results, full=full, jobs=workers)) as finished:
        for done in finished:
            tell(done)
    return write_gallery(folder)


def write_all(
    names: Sequence[str], folder: Path, results: Path, *, full: bool = False, jobs: int = 1
) -> Generator[Done]:
    """Write figures in so many processes, and yield each as it is finished.

    Every process computes with one thread: sums of floats are then added in the same order on every
    machine, and processes do not fight over cores.  Digests are those of the code when this begins,
    which is no later than it is loaded: data are never kept under a digest of newer code.

    Parameters
    ----------
    names : sequence of str
        Figures of `figures.registry.FIGURES`.
    folder, results : Path
        Where to write, and where the benchmarks' records are.
    full : bool, optional
        Compute the longer versions of the data.
    jobs : int, optional
        Number of processes.

    Raises
    ------
    OTMError
        The first that a figure raises; those that have not begun are not begun any more.
    ProblemTooLargeError
        If a process ends without a result.
    KeyboardInterrupt
        At Ctrl-C; the processes are ended, and say nothing.  So they are if this is closed early.
    """
    # what takes longest goes first, so that no core is idle at the end
    order = sorted(names, key=_haste)
    context = multiprocessing.get_context("spawn")
    workers = min(jobs, len(order))
    several = workers > 1  # otherwise the one process says how far its figure is
    digests = {name: digest_for(name) for name in order}
    others = multiprocessing.active_children()
    with (
        _one_thread_each(),
        ProcessPoolExecutor(workers, context, beside_others if several else None) as pool,
        watching(None if several else SILENT.progress, "figures") as watch,
    ):
        try:
            with ignore_sigint():
                running = [
                    pool.submit(_timed, name, folder, results, full, digests[name])
                    for name in order
                ]
            watch.tell("finished", 0, len(order))
            for number, future in enumerate(as_completed(running), 1):
                done = future.result()
                watch.hide()
                yield done
                watch.tell("finished", number, len(order))
        except (KeyboardInterrupt, GeneratorExit):  # the latter if it reached the caller's code
            with ignore_sigint():  # a second one would be told in a traceback
                for process in set(multiprocessing.active_children()) - set(others):
                    process.terminate()
                pool.shutdown(cancel_futures=True)
            raise
        except BrokenExecutor:
            raise ProblemTooLargeError(
                "a process was ended from outside, as systems do that run out of memory; data that "
                "were finished are kept: go on with fewer --jobs"
            ) from None
        finally:
            pool.shutdown(cancel_futures=True)


def _haste(name: str) -> tuple[bool, bool]:
    """Sort figures that have a longer version first, then all that run models."""
    figure = load(name)
    return figure.full is None, figure.kind != Kind.EXPERIMENT


def _timed(name: str, folder: Path, results: Path, full: bool, digest: str | None) -> Done:
    start = time.perf_counter()
    state = write(name, folder, results, full=full, digest=digest)
    longer = full and load(name).full is not None  # what is committed is the short version
    differences = None
    if state != "not measured" and not longer:
        differences = committed.differences(name, folder)
    return Done(name, state, time.perf_counter() - start, differences)


@contextmanager
def _one_thread_each() -> Iterator[None]:
    """Set what processes that are started meanwhile read when they load NumPy or torch."""
    before = {name: os.environ.get(name) for name in _THREADS}
    os.environ.update(dict.fromkeys(_THREADS, "1"))
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
