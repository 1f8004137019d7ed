"""Represent a verifier as a function from rows of uniforms to numbers of outcomes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from otm.audit.adapters.base import Instance, Outcome, OutOfUniformsError
from otm.audit.observe.precision import Floats
from otm.audit.observe.run_cache import Cells, Recorded, RunCache
from otm.audit.runs import Runner, add_uniforms
from otm.audit.scope import Pace, check_time
from otm.errors import ProblemTooLargeError

Numbers: TypeAlias = npt.NDArray[np.int64]

TAKE = "its breakpoints take"
"""Subject of the message that the time is up."""


class NumberedOutcomes:
    """Runs on rows of uniforms, with a number for each outcome.

    Runs that draw from different cells have different numbers.
    """

    def __init__(
        self, runner: Runner, instance: Instance, max_runs: int, batch: int, deadline: float
    ) -> None:
        self._runner, self._instance, self._max_runs = runner, instance, max_runs
        self._pace = Pace(deadline, batch)
        # A vectorized verifier is fast, but does not report its draws.
        self.cache = None if runner.is_vectorized else RunCache()
        self._numbers: dict[tuple[Outcome, tuple[Cells | None, ...]], int] = {}
        # The outcome of each number.
        self._outcomes: list[Outcome] = []
        # Number of runs so far, and largest number of uniforms of a run.
        self.runs = self.depth = 0
        # Whether the later cells show every decision of a coin.
        self.shows_coins = self.cache is not None

    def outcomes(self, numbers: Numbers) -> list[Outcome]:
        """Return the outcomes that have these numbers."""
        return [self._outcomes[number] for number in numbers.tolist()]

    def __call__(self, rows: Floats) -> Numbers:
        """Return numbers of outcomes; run only if the outcome is not cached."""
        return self.fresh(rows) if self.cache is None else self._follow(rows, self.cache)

    def first(self, rows: Floats, rng: np.random.Generator) -> tuple[Numbers, Floats]:
        """Run on rows, lengthened as the runs need; return outcomes and rows."""
        while True:
            try:
                return self.fresh(rows), rows
            except OutOfUniformsError as error:
                rows = add_uniforms(rows, error, rng)

    def fresh(self, rows: Floats) -> Numbers:
        """Run on all rows, without the cache."""
        if self.cache is not None:
            return self._follow(rows, None)
        self._count(len(rows))
        numbers: list[int] = []
        for part in self._pace.parts(rows, TAKE):
            outcomes = self._runner.run_rows(self._instance, part)
            numbers += [self._number(outcome, ()) for outcome in outcomes]
        return np.array(numbers, dtype=np.int64)

    def _follow(self, rows: Floats, known: RunCache | None) -> Numbers:
        """Run on one row after another, unless the cache has the outcome by then."""
        numbers: list[Any] = []

        def sources() -> Iterator[Recorded]:
            for row in rows:
                numbers.append(None if known is None else known.outcome(row.tolist()))
                if numbers[-1] is None:
                    self._count(1)
                    check_time(self._pace.deadline, TAKE)
                    yield Recorded(row)

        for source, outcome in self._runner.run_each(self._instance, sources()):
            cells = tuple(ends for ends, _ in source.draws)
            numbers[-1] = self._number(outcome, cells)
            self.depth = max(self.depth, len(cells))
            self.shows_coins = self.shows_coins and not (cells and cells[-1] is None)
            if self.cache is not None:
                self.cache.add(source.draws, numbers[-1])
        return np.array(numbers, dtype=np.int64)

    def _number(self, outcome: Outcome, cells: tuple[Cells | None, ...]) -> int:
        number = self._numbers.setdefault((outcome, cells), len(self._outcomes))
        if number == len(self._outcomes):
            self._outcomes.append(outcome)
        return number

    def _count(self, more: int) -> None:
        self.runs += more
        if self.runs > self._max_runs:
            raise ProblemTooLargeError(
                f"its breakpoints take more than the remaining {self._max_runs:,} runs"
            )
