"""Rules that a comparison leaves out, because they need too much memory or time."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from numbers import Real

from otm._core.display.text import shown
from otm.errors import InvalidParameterError, ProblemTooLargeError

SLOW = 0.1
"""A rule that takes at least this number of seconds for a row is named as slow."""

NAMED = 2
"""Largest number of slow rules that a line of progress names."""

MEASURED_ROWS = 2
"""Number of timed rows that decide if a rule is left out; the first time includes imports."""


def left_out_lines(reasons: Mapping[str, str]) -> list[str]:
    """Build one line for each rule that is left out."""
    return [f"left out: {name}: {reason}" for name, reason in reasons.items()]


def memory_reason(error: MemoryError) -> str:
    """Return why a rule ran out of memory; a plain MemoryError has no text."""
    return str(error) or "not enough memory"


def none_left(reasons: Mapping[str, str]) -> ProblemTooLargeError:
    """Build the error for a comparison whose rules are all left out."""
    return ProblemTooLargeError(f"no rule is small enough; {'; '.join(left_out_lines(reasons))}")


class RuleTimes:
    """Time of each rule for the rows that are finished, and the estimate for all rows."""

    def __init__(self, rows: int, max_seconds: float | None) -> None:
        self._rows, self._max_seconds = rows, math.inf if max_seconds is None else max_seconds
        is_number = isinstance(self._max_seconds, Real) and not isinstance(max_seconds, bool)
        if not (is_number and self._max_seconds > 0):
            raise InvalidParameterError(
                f"max_seconds = {shown(max_seconds)}; give a number of seconds above 0"
            )
        self._max_seconds = float(self._max_seconds)
        self._of_rows: dict[str, list[float]] = {}

    @contextmanager
    def measuring(self, rule: str) -> Iterator[None]:
        """Measure the time of a rule at one row."""
        begin = time.perf_counter()
        yield
        self._of_rows.setdefault(rule, []).append(time.perf_counter() - begin)

    def too_slow(self, rule: str) -> str | None:
        """Return why a rule would take too long for all rows, or None.

        Only the times of the first rows count, so that no rule is left out when it has almost
        finished.
        """
        seconds = self._of_rows[rule]
        if len(seconds) > MEASURED_ROWS or len(seconds) == self._rows:
            return None
        spent, row = sum(seconds), min(seconds)
        total = spent + row * (self._rows - len(seconds))
        limit = self._max_seconds
        if spent <= limit and (total <= limit or len(seconds) < MEASURED_ROWS):
            return None
        del self._of_rows[rule]
        return (
            f"about {total:,.3g} s for {self._rows:,} rows ({row:.2g} s a row), above "
            f"max_seconds = {limit:g}"
        )

    def slowest(self) -> str:
        """Describe the slowest rules and their time for a row; empty if all are fast."""
        rows = {rule: min(seconds) for rule, seconds in self._of_rows.items()}
        slow = sorted((rule for rule in rows if rows[rule] >= SLOW), key=rows.__getitem__)
        named = slow[::-1][:NAMED]
        if not named:
            return ""
        return ", ".join(f"{rule} {rows[rule]:.1f} s" for rule in named) + " a row; "
