"""Drawing of many figures in parallel processes."""

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
    """A finished figure.

    Attributes
    ----------
    name : str
        Name of the figure.
    state : str
        Result of `figures.output.write`.
    seconds : float
        Duration in seconds.
    differences : tuple of str or None
        Differences from the committed figure; None if there is no figure to compare.
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
    """Write the named figures, or all figures, and the page that shows them.

    Parameters
    ----------
    names, results, full
        Same as for `write_all`.
    folder : Path
        Folder of the page, created if it does not exist; figures go into its subfolder `drawn`.
        It must not be the folder of the committed page, which serves for comparison.
    jobs : int or None
        Number of processes; None means one per core.
    tell : callable
        Called with each finished figure.

    Returns
    -------
    Path
        The page.

    Raises
    ------
    UnknownMethodError
        If there is no figure of a name; then no file is written.
    InvalidParameterError
        If the number of processes is below 1, or the folder is that of the committed page.
    """
    if folder.resolve() == committed.FOLDER.resolve():
        raise InvalidParameterError(
            f"the committed figures are in {folder}; draw into another folder, and copy "
            "figures that differ with --update"
        )
    if jobs is not None and jobs < 1:
        raise InvalidParameterError(f"jobs = {jobs}; give at least one process")
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
    """Write figures in `jobs` processes, and yield each finished figure.

    Every process uses one thread.  So floats are added in the same order on every machine, and
    processes do not compete for cores.  The digests are computed before the code is loaded, so data
    are never cached under a digest of newer code.

    Parameters
    ----------
    names : sequence of str
        Figures of `figures.registry.FIGURES`.
    folder, results : Path
        Output folder, and folder of the benchmarks' records.
    full : bool, optional
        Compute the longer versions of the data.
    jobs : int, optional
        Number of processes.

    Raises
    ------
    OTMError
        The first error of a figure; no further figure starts after it.
    ProblemTooLargeError
        If a process ends without a result.
    KeyboardInterrupt
        After Ctrl-C.  Then the processes are ended without output, and also if the caller closes
        this generator early.
    """
    # The slowest figures go first, so that no core is idle at the end.
    order = sorted(names, key=_haste)
    context = multiprocessing.get_context("spawn")
    workers = min(jobs, len(order))
    several = workers > 1  # a single process shows the progress of its figure
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
        # GeneratorExit comes if Ctrl-C interrupts the caller's code.
        except (KeyboardInterrupt, GeneratorExit):
            with ignore_sigint():  # a second Ctrl-C would print a traceback
                for process in set(multiprocessing.active_children()) - set(others):
                    process.terminate()
                pool.shutdown(cancel_futures=True)
            raise
        except BrokenExecutor:
            raise ProblemTooLargeError(
                "a process was ended from outside, perhaps because memory ran out; finished data "
                "are kept, so run again with fewer --jobs"
            ) from None
        finally:
            pool.shutdown(cancel_futures=True)


def _haste(name: str) -> tuple[bool, bool]:
    """Sort key that puts figures with a longer version first, then figures that run models."""
    figure = load(name)
    return figure.full is None, figure.kind != Kind.EXPERIMENT


def _timed(name: str, folder: Path, results: Path, full: bool, digest: str | None) -> Done:
    start = time.perf_counter()
    state = write(name, folder, results, full=full, digest=digest)
    longer = full and load(name).full is not None  # only short versions are committed
    differences = None
    if state != "not measured" and not longer:
        differences = committed.differences(name, folder)
    return Done(name, state, time.perf_counter() - start, differences)


@contextmanager
def _one_thread_each() -> Iterator[None]:
    """Set the environment so that processes started in this context use one thread."""
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
