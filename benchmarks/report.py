"""Measure the positions per second of a report, and the memory of all its processes.

    python -m benchmarks.report

The input is two files of float32 logits, with 2,000 positions over 50,000 tokens: a Zipfian target
and a noisy draft.  The report has α_1 … α_8 of the optimum, k-Seq and recursive rejection.  It uses
all cores, with one thread each.  Workers start from bytecode, as for an installed package.  Memory
is the sum of the resident memory of the process and its workers, sampled ten times a second; each
process counts its shared libraries.  With --save the record also goes to
benchmarks/results/report.json, with the time of an `np.argsort` of one position's numbers.
"""

import json
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np  # imported after the variable that sets one thread

from benchmarks.command import command, keep, options_of
from benchmarks.fastest_sort import FastestSort
from benchmarks.machine import machine
from otm.gain import Lenience, Settings, Typical, from_files
from otm.gain.reports.blocks import measure_all

WARM_UP = """
from joblib import Parallel, delayed
import otm.gain.reports.blocks
Parallel(2)(delayed(int)() for _ in range(2))
"""

RESULTS = Path(__file__).parent / "results" / "report.json"

SORTS = 25
KNOBS = Lenience(0.9), Lenience(0.7), Lenience(0.5), Typical()


def write_logits(folder: Path, positions: int, vocabulary: int) -> tuple[Path, Path]:
    """Write both files row by row, so that this process never holds them in memory."""
    rng = np.random.default_rng(3)
    paths = folder / "draft.npy", folder / "target.npy"
    shape = positions, vocabulary
    files = [
        np.lib.format.open_memmap(path, mode="w+", dtype=np.float32, shape=shape) for path in paths
    ]
    base = -1.2 * np.log(np.arange(1, vocabulary + 1))
    for row in range(positions):
        target = rng.permutation(base) + rng.normal(size=vocabulary)
        files[1][row] = target
        files[0][row] = target + 0.7 * rng.normal(size=vocabulary)
        if row % 100 == 99:
            for file in files:
                file.flush()
    return paths


def family(process: int) -> Iterator[Path]:
    """Yield the /proc folders of a process and of all its children."""
    waiting = [process]
    while waiting:
        folder = Path(f"/proc/{waiting.pop()}")
        try:
            for task in list((folder / "task").iterdir()):
                waiting += map(int, (task / "children").read_text(encoding="ascii").split())
        except OSError:  # the process has ended
            continue
        yield folder


def resident(process: int) -> int:
    """Return the resident bytes of a process and of all its children."""
    pages = 0
    for folder in family(process):
        with suppress(OSError):
            pages += int((folder / "statm").read_text(encoding="ascii").split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def processor_seconds(process: int) -> float:
    """Return the processor time of a process and its children, over all cores."""
    ticks = 0
    for folder in family(process):
        with suppress(OSError):
            fields = (folder / "stat").read_text(encoding="ascii").rpartition(")")[2].split()
            ticks += int(fields[11]) + int(fields[12])
    return ticks / os.sysconf("SC_CLK_TCK")


class PeakMemory:
    """A context that records the maximum of `resident` in MiB."""

    def __enter__(self) -> "PeakMemory":
        self.mebibytes, self._stop = 0.0, threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._stop.wait(0.1):
            self.mebibytes = max(self.mebibytes, resident(os.getpid()) / 2**20)


def run(paths: tuple[Path, Path], folder: Path, settings: Settings, workers: int) -> dict[str, Any]:
    """Measure one report over all positions, including the start of the workers."""
    source = from_files(*paths)
    with PeakMemory() as memory:
        begun, used = time.perf_counter(), processor_seconds(os.getpid())
        measure_all(source, settings, folder, workers=workers)
        seconds = time.perf_counter() - begun
        # The workers are still alive here, so their time counts.
        used = processor_seconds(os.getpid()) - used
    positions = source.prompts.size
    return {
        "workers": workers,
        "lossy_settings": len(settings.lossy_settings),
        "positions": positions,
        "seconds": seconds,
        "positions per second": positions / seconds,
        "processor ms per position": used / positions * 1e3,
        "peak MiB": memory.mebibytes,
    }


def compile_once(folder: Path) -> None:
    """Write bytecode into a folder; otherwise each worker may compile all of OTM."""
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    os.environ["PYTHONPYCACHEPREFIX"] = str(folder)
    subprocess.run([sys.executable, "-c", WARM_UP], check=True)


def argsort_milliseconds(vocabulary: int) -> float:
    """Return the time to sort `vocabulary` numbers, the unit of a position's time."""
    with FastestSort(vocabulary) as sort_once:
        return 1e3 * statistics.median(sort_once() for _ in range(SORTS))


def main() -> None:
    options = options_of(command(__doc__))
    positions, vocabulary = (40, 1_000) if options.quick else (2_000, 50_000)
    cores = os.cpu_count() or 1
    measured = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        compile_once(folder / "bytecode")
        paths = write_logits(folder, positions, vocabulary)
        for number, (workers, lossy_settings) in enumerate([(cores, ()), (cores, KNOBS), (1, ())]):
            settings = Settings(lossy_settings=lossy_settings)
            measured.append(run(paths, folder / str(number), settings, workers))
            print(json.dumps(measured[-1]))
    sort = argsort_milliseconds(vocabulary)
    print(f"np.argsort of {vocabulary:,} numbers: {sort:.2f} ms")
    if options.save:
        record = {
            **machine("numpy", "joblib"),
            "vocabulary": vocabulary,
            "argsort ms": sort,
            "results": measured,
        }
        keep(record, RESULTS)


if __name__ == "__main__":
    main()
