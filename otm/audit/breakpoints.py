"""The distribution of a function of uniforms in floats: where its steps lie, by bisection.

As a function of its uniforms a verifier is constant between breakpoints.  Uniform by uniform, these
are searched for in every piece that the ones before leave; the later uniforms are held at a few
random values meanwhile.  That this misses nothing is not proved but checked, on random runs.
"""

from __future__ import annotations

import math
import time
from collections import defaultdict
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from otm.audit.adapter import Adapter, Instance, Outcome, Source, max_tokens, run_rows
from otm.audit.observation import Observation, UnsuitedError
from otm.errors import ProblemTooLargeError
from otm.testing.symbolic import MAX_UNIFORMS

Floats: TypeAlias = npt.NDArray[np.float64]
Numbers: TypeAlias = npt.NDArray[np.int64]

LARGEST = 1 - 2.0**-24
"""The largest uniform that float32 holds."""


@dataclass(frozen=True, eq=False)
class Precision:
    """How closely a verifier is looked at."""

    grid: Floats  # where a uniform is put first
    # random values of the later uniforms among which a breakpoint must show; more if they miss
    # some; besides them stand both edges: drafts show where all coins are 0, which accept them
    probes: tuple[int, ...]
    resolution: float  # how closely a breakpoint is located
    tries: int  # random runs that are made twice
    checks: int  # random runs that the pieces must predict
    batch: int  # most runs between two looks at the time

    @property
    def unseen(self) -> float:
        """What is done in this share of all runs is missed with probability 10^−3."""
        return float(1 - 1e-3 ** (1 / self.checks))


FINE = Precision(
    np.append(np.arange(8) / 8, LARGEST), (2, 8, 32), 2.0**-34, MAX_UNIFORMS, 400, 2**20
)

COARSE = Precision(np.array([0, LARGEST]), (1, 4), 2.0**-16, 4, 64, 16)
"""For code that takes hundredths of a second and more for a run."""

MAX_PIECES = 64
"""Most pieces of one uniform; a generator that is seeded by it has no end of them."""


def by_breakpoints(
    adapter: Adapter,
    instance: Instance,
    rng: np.random.Generator,
    max_runs: int,
    *,
    precision: Precision = FINE,
    deadline: float = math.inf,
) -> Observation:
    """Output distribution of a verifier in floats, from the breakpoints of all its uniforms.

    What only the edges u = 0 and u = 1 − 2^−24 give has their tiny probability.  Raises
    `UnsuitedError` if the pieces fail to predict the output at random uniforms, or are too many,
    `ProblemTooLargeError` after so many runs or the time of a clock, `time.monotonic`.
    """
    if not adapter.repeatable:
        raise UnsuitedError("it draws random numbers of its own")
    tries = rng.random((precision.tries, MAX_UNIFORMS))
    answers = _Answers(adapter, instance, max_runs, precision.batch, deadline)
    if (answers(tries) != answers(tries)).any():
        raise UnsuitedError("the same uniforms do not always give the same output")
    depth = _uniforms_taken(adapter, instance, tries)
    edges = np.repeat([[0.0], [LARGEST]], MAX_UNIFORMS, axis=1)
    for number in precision.probes:
        probes = np.append(edges, rng.random((number, MAX_UNIFORMS)), axis=0)
        pieces = _Pieces(answers, probes, precision)
        for place in range(depth):
            pieces.split(place)
        checks = rng.random((precision.checks, MAX_UNIFORMS))
        found = answers(pieces.points)  # once: a run is all that costs
        if (answers(checks) == found[pieces.of(checks)]).all():
            break
        if getattr(adapter, "looked", False):  # at values of noise, which more probes do not mend
            raise UnsuitedError("its output depends on the values of random noise")
    else:
        raise UnsuitedError("its output is not constant on the pieces between its breakpoints")
    probs: dict[Outcome, float] = defaultdict(float)
    examples: dict[Outcome, tuple[float, ...]] = {}
    outcomes = answers.outcomes
    for i in np.argsort(-pieces.weights, kind="stable").tolist():
        outcome = outcomes[found[i]]
        probs[outcome] += float(pieces.weights[i])
        examples.setdefault(outcome, tuple(pieces.points[i, : pieces.depth].tolist()))
    return Observation(
        instance,
        dict(probs),
        max_tokens(adapter, instance),
        examples,
        error=pieces.error,
        runs=answers.runs,
    )


class _Answers:
    """A verifier as a function from rows of uniforms to numbers of outcomes."""

    def __init__(
        self, adapter: Adapter, instance: Instance, max_runs: int, batch: int, deadline: float
    ) -> None:
        self._adapter, self._instance, self._max_runs = adapter, instance, max_runs
        self._batch, self._deadline = batch, deadline
        self._numbers: dict[Outcome, int] = {}
        self.runs = 0

    @property
    def outcomes(self) -> list[Outcome]:
        """The outcomes by number."""
        return list(self._numbers)

    def __call__(self, rows: Floats) -> Numbers:
        self.runs += len(rows)
        if self.runs > self._max_runs:
            raise ProblemTooLargeError(
                f"its breakpoints take more than the {self._max_runs:,} runs that are left"
            )
        outcomes: list[Outcome] = []
        for start in range(0, len(rows), self._batch):
            if time.monotonic() > self._deadline:
                raise ProblemTooLargeError("its breakpoints take more than the time that is left")
            part = rows[start : start + self._batch]
            outcomes += run_rows(self._adapter, self._instance, part)
        numbers = self._numbers
        return np.array([numbers.setdefault(o, len(numbers)) for o in outcomes], dtype=np.int64)


class _Pieces:
    """Pieces of the unit cube, divided coordinate by coordinate, and the output on each."""

    def __init__(
        self, answers: Callable[[Floats], Numbers], probes: Floats, precision: Precision
    ) -> None:
        self._ask, self._probes = answers, probes
        self._grid, self._resolution = precision.grid, precision.resolution
        # [N, m], a point of each piece, arbitrary in coordinates not yet split; its edges
        self.points = probes[:1].copy()
        self._low, self._high = np.zeros_like(self.points), np.ones_like(self.points)
        self.error, self.depth = 0.0, 0

    @property
    def weights(self) -> Floats:
        """Volumes of the pieces [N]."""
        volumes: Floats = (self._high - self._low).prod(axis=1)
        return volumes

    def split(self, place: int) -> None:
        """Divide all pieces along one uniform."""
        cuts = self._cuts(place)
        counts = np.array([len(c) + 1 for c in cuts])
        self.error += float((self.weights * (counts - 1)).sum()) * self._resolution
        self.points, self._low, self._high = (
            np.repeat(edges, counts, axis=0) for edges in (self.points, self._low, self._high)
        )
        self._low[:, place] = low = np.concatenate([[0.0, *each] for each in cuts])
        self._high[:, place] = high = np.concatenate([[*each, 1.0] for each in cuts])
        inside = np.where(high <= 2 * self._resolution, 0.0, (low + high) / 2)  # u = 0 for itself
        self.points[:, place] = np.where(low >= LARGEST - self._resolution, LARGEST, inside)
        self.depth = place + 1

    def of(self, rows: Floats) -> Numbers:
        """Tell in which pieces points lie."""
        low, high = self._low[:, : self.depth], self._high[:, : self.depth]
        rows = rows[:, : self.depth]
        inside = [((low <= row) & (row < high)).all(axis=1).argmax() for row in rows]
        return np.array(inside, dtype=np.int64)

    def _cuts(self, place: int) -> list[list[float]]:
        """Breakpoints along one uniform, for each piece."""
        n = len(self.points)
        piece = np.repeat(np.arange(n), self._grid.size)
        seen = self._at(piece, np.tile(self._grid, n), place).reshape(n, self._grid.size, -1)
        cuts: list[list[float]] = [[] for _ in range(n)]
        piece = np.repeat(np.arange(n), self._grid.size - 1)
        low, high = np.tile(self._grid[:-1], n), np.tile(self._grid[1:], n)
        below, above = (
            seen[:, part].reshape(-1, len(self._probes)) for part in (slice(-1), slice(1, None))
        )
        while True:
            open_ = (below != above).any(axis=1)
            if not open_.any():
                return list(map(sorted, cuts))
            piece, low, high = piece[open_], low[open_], high[open_]
            below, above = below[open_], above[open_]
            left, right = self._bisect(place, piece, low, high, (below, above))
            for i, cut in zip(piece.tolist(), right.tolist(), strict=True):
                cuts[i].append(cut)
            if max(map(len, cuts)) >= MAX_PIECES:
                raise UnsuitedError(f"its output has more than {MAX_PIECES} steps in one uniform")
            before, after = self._at(piece, left, place), self._at(piece, right, place)
            piece = np.concatenate([piece, piece])
            low, high = np.concatenate([low, right]), np.concatenate([left, high])
            below, above = np.concatenate([below, after]), np.concatenate([before, above])

    def _bisect(
        self,
        place: int,
        piece: Numbers,
        low: Floats,
        high: Floats,
        ends: tuple[Numbers, Numbers],
    ) -> tuple[Floats, Floats]:
        """Close in on a breakpoint of the first probe that shows one in each bracket."""
        below, above = ends
        probe = (below != above).argmax(axis=1)
        start = below[np.arange(probe.size), probe]
        low, high = low.copy(), high.copy()
        while (high - low).max() > self._resolution:
            middle = (low + high) / 2
            rows = self._probes[probe].copy()
            rows[:, :place] = self.points[piece, :place]
            rows[:, place] = middle
            same = self._ask(rows) == start
            low, high = np.where(same, middle, low), np.where(same, high, middle)
        return low, high

    def _at(self, piece: Numbers, values: Floats, place: int) -> Numbers:
        """Answers [R, probes] with one uniform at these values."""
        rows = np.tile(self._probes, (piece.size, 1))
        rows[:, :place] = np.repeat(self.points[piece, :place], len(self._probes), axis=0)
        rows[:, place] = np.repeat(values, len(self._probes))
        return self._ask(rows).reshape(-1, len(self._probes))


def _uniforms_taken(adapter: Adapter, instance: Instance, tries: Floats) -> int:
    """Most uniforms that the verifier takes in some runs."""
    sources = [Source(row) for row in tries]
    for source in sources:
        with suppress(Exception):  # the outcome of the run is looked at elsewhere
            adapter.output(instance, source)
    return max(source.taken for source in sources)
