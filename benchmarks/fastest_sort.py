"""The unit of the times: `np.argsort` of random numbers, by the fastest code that NumPy has here.

NumPy picks its code by what the processor offers, not by what is faster: on AMD's Zen 4 its sort
for AVX-512 takes more than twice as long as that for AVX2.  The sort runs in a process of its own,
so that whatever is compared with it runs as everywhere else.
"""

import os
import statistics
import subprocess
import sys

import numpy as np

__all__ = ["FastestSort"]

TRIALS = 7

SORT = """
import sys, time
import numpy as np
keys = np.random.default_rng(1).random(int(sys.argv[1]))
for _ in sys.stdin:
    start = time.process_time()
    np.argsort(keys)
    print(time.process_time() - start, flush=True)
"""


class FastestSort:
    """A process that sorts n random numbers whenever it is called, and says how long it took."""

    def __init__(self, n: int) -> None:
        # NumPy wants to be told before it is loaded, and to be told only what it knows
        found = np.show_config(mode="dicts")["SIMD Extensions"].get("found", [])
        wide = [name for name in found if name.startswith("AVX512") or name == "X86_V4"]
        choices = [{}, {"NPY_DISABLE_CPU_FEATURES": " ".join(wide)}] if wide else [{}]
        command = [sys.executable, "-c", SORT, str(n)]
        pipe = subprocess.PIPE
        self._processes = [
            subprocess.Popen(command, env=os.environ | choice, stdin=pipe, stdout=pipe, text=True)
            for choice in choices
        ]
        self._fastest = min(
            self._processes,
            key=lambda process: statistics.median(_sort(process) for _ in range(TRIALS)),
        )

    def __call__(self) -> float:
        """Sort once: processor seconds."""
        return _sort(self._fastest)

    def __enter__(self) -> "FastestSort":
        return self

    def __exit__(self, *_: object) -> None:
        for process in self._processes:
            process.communicate()


def _sort(process: "subprocess.Popen[str]") -> float:
    if process.stdin is None or process.stdout is None:
        raise RuntimeError("the process has no pipes")
    process.stdin.write("\n")
    process.stdin.flush()
    return float(process.stdout.readline())
