"""The time of an audit: the number of runs between two looks at the clock, and the deadline."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import numpy.typing as npt

from otm.errors import ProblemTooLargeError

SECONDS = 0.25
"""Longest time of the runs between two looks at the clock, about."""

GROWTH = 16
"""Largest factor by which the number of runs grows from one look to the next."""


class TimeIsUpError(ProblemTooLargeError):
    """No time is left, and the work is not finished."""


def check_time(deadline: float, what: str) -> None:
    """Raise `TimeIsUpError` past a time of `time.monotonic`; `what` begins the message."""
    if time.monotonic() > deadline:
        raise TimeIsUpError(f"{what} more than the time that is left")


class Pace:
    """Divide rows of uniforms into parts: a single run first, then as many as run times allow."""

    def __init__(self, deadline: float = math.inf, most: int = 2**20) -> None:
        self.deadline, self.size, self._most = deadline, 1, most

    def parts(self, rows: npt.NDArray[np.float64], what: str) -> Iterator[npt.NDArray[np.float64]]:
        """Hand out rows part by part; raise `TimeIsUpError` between two of them."""
        start = 0
        while start < len(rows):
            check_time(self.deadline, what)
            with self.measured(len(rows) - start) as count:
                yield rows[start : start + count]
            start += count

    @contextmanager
    def measured(self, left: int) -> Iterator[int]:
        """Yield the number of runs to make now, out of those left, and time them."""
        count, begin = min(self.size, left), time.monotonic()
        yield count
        seconds = max(time.monotonic() - begin, 1e-9)
        fitting = int(min(count * SECONDS / seconds, GROWTH * self.size, self._most))
        if count == self.size or fitting < self.size:
            self.size = max(fitting, 1)
