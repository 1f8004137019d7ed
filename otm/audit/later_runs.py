"""Whether a run changes later runs: runs on the same uniforms and seeds are made again and again.

Code that keeps something from run to run, such as a cache that grows, gives outputs that depend on
the runs before.  Draws of its own that nothing controls differ from run to run as well, but do not
depend on what came before: that is what is tested.  A cache that changes no output changes no run.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator
from itertools import pairwise
from statistics import median

import numpy as np
from scipy.stats import hypergeom

from otm.audit import written
from otm.audit.adapter import (
    Adapter,
    Instance,
    Outcome,
    OutOfUniformsError,
    longer,
    run_rows,
    seed_generators,
    undisturbed,
)
from otm.audit.observation import Observation, UnsuitedError
from otm.testing.symbolic import MAX_UNIFORMS

ROWS, TIMES = 4, 48
"""So many rows of uniforms are run so often, in random order."""

ENOUGH = 64
"""After so many runs a look is over if each row has had a single output."""

TOLD = 2
"""An output is compared with all others of its row if it is among so many of the commonest."""

SLOWER = 4
"""Runs that take so many times longer than the first ones are told."""


class LaterRuns:
    """Runs on a few rows of uniforms, with the seeds of global generators a row's own.

    `look` now and then: what `changed` says is true but for the probability that it is given.
    """

    def __init__(self, adapter: Adapter, instance: Instance, seed: int) -> None:
        self._adapter, self._instance, self._seed = adapter, instance, seed
        self._rng = np.random.default_rng(seed)
        self._rows = self._rng.random((ROWS, MAX_UNIFORMS))
        self._looks: list[list[tuple[int, Outcome]]] = []  # of each run its row and its outcome
        self._seconds: list[float] = []  # of a run, in the middle of each look

    def look(self, until: float) -> None:
        """Run on all rows in random order: less often if nothing varies, or the time is over."""
        seen: list[tuple[int, Outcome]] = []
        seconds: list[float] = []
        with undisturbed(self._seed):
            for row in self._rng.permutation(np.repeat(np.arange(ROWS), TIMES)).tolist():
                begin = time.monotonic()
                seen.append((row, self._run(row)))
                seconds.append(time.monotonic() - begin)
                alike = len(seen) == ENOUGH and len(set(seen)) <= ROWS
                if alike or begin > until:
                    break
        self._looks.append(seen)
        self._seconds.append(median(seconds))

    def _run(self, row: int) -> Outcome:
        while True:
            seed_generators(self._seed + row)
            try:
                return run_rows(self._adapter, self._instance, self._rows[row : row + 1])[0]
            except OutOfUniformsError as error:
                self._rows = longer(self._rows, error, self._rng)

    @property
    def slower(self) -> float | None:
        """How many times longer a run takes in the last look than in the first, if many."""
        ratio = self._seconds[-1] / max(self._seconds[0], 1e-9)
        return ratio if ratio >= SLOWER else None

    def changed(self, level: float) -> str | None:
        """Say how outputs depend on the runs before them; by chance with at most this probability.

        Outputs of a row that are independent of what came before are in random order, so that of
        those after one row, or in the first look, each is as likely to be there as in any others.
        """
        tests = list(self._tests())
        if not tests:
            return None
        of_it, of_these, all_of_it, runs = np.array([test[2:] for test in tests]).T
        law = hypergeom(runs, all_of_it, of_these)
        by_chance = 2 * np.minimum(law.cdf(of_it), law.sf(of_it - 1)) * len(tests)
        place = int(by_chance.argmin())
        if by_chance[place] > level:
            return None
        outcome, where, there, these, everywhere, total = tests[place]
        return (
            f"the same uniforms and seeds give {written.outcome(outcome)} in {there} of {these} "
            f"runs {where}, and in {everywhere - there} of {total - these} others"
        )

    def _tests(self) -> Iterator[tuple[Outcome, str, int, int, int, int]]:
        """Count an outcome of a row in some of its runs, these, the outcome in all, and all."""
        after: dict[tuple[int, int], Counter[Outcome]] = {}
        within: dict[tuple[int, int], Counter[Outcome]] = {}
        second: dict[tuple[int, int], Counter[Outcome]] = {}
        for number, look in enumerate(self._looks):
            for place, (row, outcome) in enumerate(look):
                within.setdefault((row, number), Counter())[outcome] += 1
                second.setdefault((row, place % 2), Counter())[outcome] += 1
            for (before, _), (row, outcome) in pairwise(look):
                after.setdefault((row, before), Counter())[outcome] += 1
        for groups, where in (
            (after, "after one other run"),
            (within, "at one time"),
            (second, "of each second one"),
        ):
            for row in range(ROWS):
                of_row = {key: counts for key, counts in groups.items() if key[0] == row}
                together = sum(of_row.values(), Counter[Outcome]())
                if len(together) < 2:
                    continue
                for outcome, all_of_it in together.most_common(TOLD):
                    for counts in of_row.values():
                        these, total = counts.total(), together.total()
                        yield outcome, where, counts[outcome], these, all_of_it, total


class Again:
    """A few runs of a verifier that repeats itself, which must do so in the end as well."""

    def __init__(self, adapter: Adapter, seen: Observation, seed: int) -> None:
        width = max(seen.uniforms, MAX_UNIFORMS)
        self._rows = np.random.default_rng(seed).random((ROWS, width))
        self._adapter, self._instance = adapter, seen.instance
        self._first = self._outcomes()

    def _outcomes(self) -> list[Outcome]:
        return run_rows(self._adapter, self._instance, self._rows)

    def check(self) -> None:
        """Raise `UnsuitedError` if an output is another one now; values of noise do not count."""
        for before, now in zip(self._first, self._outcomes(), strict=True):
            if before != now and not getattr(self._adapter, "looked", False):
                a, b = map(written.outcome, (before, now))
                raise UnsuitedError(f"the same uniforms give {a} at first, and {b} after many runs")
