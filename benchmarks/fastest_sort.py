"""The unit of time: `np.argsort` of random numbers, by NumPy's fastest code on this processor.

NumPy chooses code by the features of the processor, not by speed.  On AMD's Zen 4, its AVX-512 sort
takes more than twice as long as its AVX2 sort.  The sort runs in a separate process, so that the
choice does not affect the code that it is compared with.
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
    """A process that sorts n random numbers at each call and returns its processor time."""

    def __init__(self, n: int) -> None:
        # NumPy reads the variable when it is imported, and accepts only features that it knows.
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
        """Sort once, and return the processor seconds."""
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
