"""Test whether a run changes later runs, by repeated runs on the same uniforms and seeds.

If code keeps state from run to run, such as a growing cache, its outputs may depend on earlier
runs.  Uncontrolled draws also change the output from run to run, but the test only detects outputs
that depend on earlier runs.  The test ignores a cache that changes no output.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator
from itertools import pairwise
from statistics import median

import numpy as np
from scipy.stats import hypergeom

from otm.audit import formatting
from otm.audit.adapters.base import Instance, Outcome, OutOfUniformsError
from otm.audit.runs import Runner, add_uniforms, isolated_rng_state, seed_generators
from otm.testing.symbolic import MAX_UNIFORMS

ROWS, TIMES = 4, 48
"""Number of rows of uniforms, and of runs of each row; their order is random."""

ENOUGH = 64
"""Number of runs after which a series ends early if each row has had only one output."""

COMPARED_OUTPUTS = 2
"""Number of the most common outputs of a row that are compared with its other outputs."""

SLOWER = 4
"""Smallest ratio of last to first run times that is reported."""


class LaterRuns:
    """Repeated runs on a few rows of uniforms; each row has its own seed of the global generators.

    Call `run_series` several times, then `changed`, whose answer is wrong with at most a stated
    probability.
    """

    def __init__(self, runner: Runner, instance: Instance, seed: int) -> None:
        self._runner, self._instance, self._seed = runner, instance, seed
        self._rng = np.random.default_rng(seed)
        self._rows = self._rng.random((ROWS, MAX_UNIFORMS))
        # Row and outcome of each run, for each call of `run_series`.
        self._series: list[list[tuple[int, Outcome]]] = []
        # Median time of a run in each call of `run_series`.
        self._seconds: list[float] = []

    def run_series(self, until: float) -> None:
        """Run on all rows in random order; stop early if no row varies, or after `until`."""
        seen: list[tuple[int, Outcome]] = []
        seconds: list[float] = []
        with isolated_rng_state(self._seed):
            for row in self._rng.permutation(np.repeat(np.arange(ROWS), TIMES)).tolist():
                begin = time.monotonic()
                seen.append((row, self._run(row)))
                seconds.append(time.monotonic() - begin)
                alike = len(seen) == ENOUGH and len(set(seen)) <= ROWS
                if alike or begin > until:
                    break
        self._series.append(seen)
        self._seconds.append(median(seconds))

    def _run(self, row: int) -> Outcome:
        while True:
            seed_generators(self._seed + row)
            try:
                return self._runner.run_rows(self._instance, self._rows[row : row + 1])[0]
            except OutOfUniformsError as error:
                self._rows = add_uniforms(self._rows, error, self._rng)

    @property
    def slower(self) -> float | None:
        """Ratio of run times in the last series to the first; None if below `SLOWER`."""
        ratio = self._seconds[-1] / max(self._seconds[0], 1e-9)
        return ratio if ratio >= SLOWER else None

    def changed(self, level: float) -> str | None:
        """Describe how outputs depend on earlier runs; return None if chance may explain it.

        If the outputs of a row do not depend on earlier runs, their order is random.  In random
        order, the runs after one row, or the runs of one call of `run_series`, are a random sample
        of all runs of a row.
        """
        tests = list(self._tests())
        if not tests:
            return None
        of_it, of_these, all_of_it, runs = np.array([test[2:] for test in tests]).T
        chance = hypergeom(runs, all_of_it, of_these)
        by_chance = 2 * np.minimum(chance.cdf(of_it), chance.sf(of_it - 1)) * len(tests)
        place = int(by_chance.argmin())
        if by_chance[place] > level:
            return None
        outcome, where, there, these, everywhere, total = tests[place]
        return (
            f"the same uniforms and seeds give {formatting.outcome(outcome)} in {there} of {these} "
            f"runs {where}, and in {everywhere - there} of {total - these} others"
        )

    def _tests(self) -> Iterator[tuple[Outcome, str, int, int, int, int]]:
        """Yield an outcome of a row, a group of runs, its counts in the group and in all runs."""
        after: dict[tuple[int, int], Counter[Outcome]] = {}
        within: dict[tuple[int, int], Counter[Outcome]] = {}
        second: dict[tuple[int, int], Counter[Outcome]] = {}
        for number, series in enumerate(self._series):
            for place, (row, outcome) in enumerate(series):
                within.setdefault((row, number), Counter())[outcome] += 1
                second.setdefault((row, place % 2), Counter())[outcome] += 1
            for (before, _), (row, outcome) in pairwise(series):
                after.setdefault((row, before), Counter())[outcome] += 1
        for groups, where in (
            (after, "after one other run"),
            (within, "in one series"),
            (second, "at every second place"),
        ):
            for row in range(ROWS):
                of_row = {key: counts for key, counts in groups.items() if key[0] == row}
                together = sum(of_row.values(), Counter[Outcome]())
                if len(together) < 2:
                    continue
                for outcome, all_of_it in together.most_common(COMPARED_OUTPUTS):
                    for counts in of_row.values():
                        these, total = counts.total(), together.total()
                        yield outcome, where, counts[outcome], these, all_of_it, total
