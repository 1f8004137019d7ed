"""The distribution of a function of uniforms in floats: where its steps lie, by bisection.

As a function of its uniforms a verifier is constant between breakpoints.  Uniform by uniform, these
are searched for in every piece that the ones before leave; the later uniforms are held at a few
random values meanwhile.  That this misses nothing is not proved but checked, on random runs.
"""

from __future__ import annotations

import dataclasses
import math
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import suppress
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from otm.audit.adapters.base import (
    Adapter,
    Instance,
    Outcome,
    OutOfUniformsError,
    Source,
    longer,
    max_tokens,
    run_rows,
)
from otm.audit.intercept.draws import OwnDraws, runs
from otm.audit.observe.observation import NOT_REPEATED, Observation, UnsuitedError
from otm.audit.observe.pace import Pace, check_time
from otm.audit.observe.precision import FINE, LARGEST, Floats, Looks, Precision
from otm.audit.observe.run_cache import Cells, Memory, Recorded
from otm.errors import ProblemTooLargeError
from otm.testing.symbolic import MAX_UNIFORMS

Numbers: TypeAlias = npt.NDArray[np.int64]

REPEATED = 16
"""Random runs that are made twice, of a verifier of which it is known what it draws."""

TAKE = "its breakpoints take"
"""Subject of the message that time is up."""

SLOW = 0.002
"""Seconds of a run from which on draws that nothing seems to come of are followed once at first."""

ROUNDING = 2.0**-20
"""A distance up to this is rounding of float32."""

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
    if answers.memory is not None:
        tries = tries[:REPEATED]  # all other runs are compared with those that begin alike
    before, tries = answers.first(tries, rng)
    start = time.monotonic()
    if (answers.fresh(tries) != before).any():
        raise UnsuitedError(NOT_REPEATED)
    slow = time.monotonic() - start > SLOW * len(tries)
    answers.depth = answers.depth or _uniforms_taken(adapter, instance, tries, deadline)
    more = [Looks(number) for number in precision.probes]
    few = [Looks(1, few=True, merged=True)] if slow else []
    for looks in [*few, Looks(1, few=True), *more] if answers.shows_coins else more:
        pieces = _Pieces(answers, rng.random((looks.number, tries.shape[1])), precision, looks)
        while pieces.depth < answers.depth:  # which is more when a run has taken more
            pieces.split()
        checks = rng.random((precision.checks, tries.shape[1]))
        found = answers(pieces.points)  # once: a run is all that costs
        if answers.outcomes(answers.fresh(checks)) == answers.outcomes(found[pieces.of(checks)]):
            seen = _observed(answers, pieces, found, instance, max_tokens(adapter, instance))
            # merged cells find nobody guilty: what deviates is looked at again without them
            sound = not seen.is_off(ROUNDING) and seen.impossible is None
            if not looks.merged or (sound and pieces.hold(found)):
                return dataclasses.replace(seen, runs=answers.runs)
        if getattr(adapter, "looked", False):  # at values of noise, which more probes do not mend
            raise UnsuitedError("its output depends on the values of random noise")
    raise UnsuitedError("its output is not constant on the pieces between its breakpoints")


def _observed(
    answers: _Answers, pieces: _Pieces, found: Numbers, instance: Instance, length: int
) -> Observation:
    """Add up the pieces of each outcome."""
    probs: dict[Outcome, float] = defaultdict(float)
    examples: dict[Outcome, tuple[float, ...]] = {}
    outcomes = answers.outcomes(found)
    for i in np.argsort(-pieces.weights, kind="stable").tolist():
        outcome = outcomes[i]
        probs[outcome] += float(pieces.weights[i])
        examples.setdefault(outcome, tuple(pieces.points[i, : pieces.depth].tolist()))
    return Observation(
        instance, dict(probs), length, examples,
        error=pieces.error, uniforms=pieces.depth, pieces=len(pieces.points),
    )  # fmt: skip


class _Answers:
    """A verifier as a function from rows of uniforms to numbers of outcomes.

    Runs that differ in the cells that they draw from have different numbers.
    """

    def __init__(
        self, adapter: Adapter, instance: Instance, max_runs: int, batch: int, deadline: float
    ) -> None:
        self._adapter, self._instance, self._max_runs = adapter, instance, max_runs
        self._pace = Pace(deadline, batch)
        # one that runs on many rows at once is fast, and does not say what it draws
        self.memory = None if _runs_on_rows(adapter) else Memory()
        self._numbers: dict[tuple[Outcome, tuple[Cells | None, ...]], int] = {}
        self._outcomes: list[Outcome] = []  # by number
        self.runs = self.depth = 0  # how many were made; most uniforms that one has taken
        # whether what coins decide shows in the cells that are drawn from after them
        self.shows_coins = self.memory is not None

    def outcomes(self, numbers: Numbers) -> list[Outcome]:
        """Tell the outcomes that have these numbers."""
        return [self._outcomes[number] for number in numbers.tolist()]

    def __call__(self, rows: Floats) -> Numbers:
        """Recall the outcomes, and run for those that are not known."""
        return self.fresh(rows) if self.memory is None else self._follow(rows, self.memory)

    def first(self, rows: Floats, rng: np.random.Generator) -> tuple[Numbers, Floats]:
        """Run on rows, lengthen these as the runs need, and return both."""
        while True:
            try:
                return self.fresh(rows), rows
            except OutOfUniformsError as error:
                rows = longer(rows, error, rng)

    def fresh(self, rows: Floats) -> Numbers:
        """Run on all rows, whatever was run before."""
        if self.memory is not None:
            return self._follow(rows, None)
        self._count(len(rows))
        numbers: list[int] = []
        for part in self._pace.parts(rows, TAKE):
            outcomes = run_rows(self._adapter, self._instance, part)
            numbers += [self._number(outcome, ()) for outcome in outcomes]
        return np.array(numbers, dtype=np.int64)

    def _follow(self, rows: Floats, known: Memory | None) -> Numbers:
        """Run one after another, but for outcomes that are known when it is their turn."""
        numbers: list[Any] = []

        def sources() -> Iterator[Recorded]:
            for row in rows:
                numbers.append(None if known is None else known.outcome(row.tolist()))
                if numbers[-1] is None:
                    self._count(1)
                    check_time(self._pace.deadline, TAKE)
                    yield Recorded(row)

        for source, outcome in runs(self._adapter, self._instance, sources()):
            cells = tuple(ends for ends, _ in source.draws)
            numbers[-1] = self._number(outcome, cells)
            self.depth = max(self.depth, len(cells))
            self.shows_coins = self.shows_coins and not (cells and cells[-1] is None)
            if self.memory is not None:
                self.memory.add(source.draws, numbers[-1])
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
                f"its breakpoints take more than the {self._max_runs:,} runs that are left"
            )


class _Pieces:
    """Pieces of the unit cube, divided coordinate by coordinate, and the output on each."""

    def __init__(
        self, answers: _Answers, probes: Floats, precision: Precision, looks: Looks
    ) -> None:
        self._ask, self._few, self._merged = answers, looks.few, looks.merged
        edges = np.repeat([[0.0], [LARGEST]], probes.shape[1], axis=1)
        self._looks = np.append(edges, probes, axis=0)
        self._probes = probes if looks.few else self._looks
        self._grid = precision.grid[::2] if looks.few else precision.grid
        self._resolution = precision.resolution
        # [N, m], a point of each piece, arbitrary in coordinates not yet split; its edges
        self.points = self._probes[:1].copy()
        self._low, self._high = np.zeros_like(self.points), np.ones_like(self.points)
        self.error, self.depth = 0.0, 0
        self._edges = np.empty(0)  # of brackets around breakpoints

    @property
    def weights(self) -> Floats:
        """Volumes of the pieces [N]."""
        volumes: Floats = (self._high - self._low).prod(axis=1)
        return volumes

    def split(self) -> None:
        """Divide all pieces along the next uniform."""
        place = self.depth
        cuts = self._known(place)
        if self._merged:
            cuts = [each and self._shown(place, i, each) for i, each in enumerate(cuts)]
        searched = np.array([i for i, each in enumerate(cuts) if each is None], dtype=np.int64)
        # one after another, each learns from those before
        for part in searched[:, None] if self._few else [searched]:
            for i, each in zip(part.tolist(), self._search(place, part), strict=True):
                cuts[i] = each
                self.error += float(self.weights[i]) * len(each) * self._resolution
        counts = np.array([len(c) + 1 for c in cuts])
        self.points, self._low, self._high = (
            np.repeat(edges, counts, axis=0) for edges in (self.points, self._low, self._high)
        )
        self._low[:, place] = low = np.concatenate([[0.0, *each] for each in cuts])
        self._high[:, place] = high = np.concatenate([[*each, 1.0] for each in cuts])
        first, last = high <= 2 * self._resolution, low >= LARGEST - self._resolution
        inside = np.where((low == 0) & first, 0.0, (low + high) / 2)  # u = 0 for itself
        in_last = last & (low <= LARGEST) & (high > LARGEST)
        self.points[:, place] = np.where(in_last, LARGEST, inside)
        self.depth = place + 1

    def _known(self, place: int) -> list[Any]:
        """Breakpoints along one uniform for each piece; None where they have to be searched for."""
        memory = self._ask.memory
        if memory is None:
            return [None] * len(self.points)
        self._ask(self.points)
        ends = [memory.ends(point) for point in self.points[:, :place].tolist()]
        return [each and sorted({end for end in each if 0 < end < 1}) for each in ends]

    def _shown(self, place: int, piece: int, cuts: list[float]) -> list[float]:
        """Leave out the cells of draws that nothing comes of, such as beyond the last token."""
        middles = _middles([0.0, *cuts, 1.0])
        seen = self._at(np.full(middles.size, piece), middles, place, self._looks)
        steps = (seen[:-1] != seen[1:]).any(axis=1)
        return [cut for cut, step in zip(cuts, steps.tolist(), strict=True) if step]

    def hold(self, found: Numbers) -> bool:
        """Whether each piece has one output, with each draw in it put into any of its cells."""
        if (memory := self._ask.memory) is None:
            return True
        for point, low, high, number in zip(
            self.points, self._low, self._high, found.tolist(), strict=True
        ):
            for place in range(self.depth):
                ends = memory.ends(point[:place].tolist()) or ()
                within = sorted({end for end in ends if low[place] < end < high[place]})
                rows = np.tile(point, (len(within) + 1, 1))
                rows[:, place] = _middles([low[place], *within, high[place]])
                if within and (self._ask(rows) != number).any():
                    return False
        return True

    def of(self, rows: Floats) -> Numbers:
        """Tell in which pieces points lie."""
        low, high = self._low[:, : self.depth], self._high[:, : self.depth]
        rows = rows[:, : self.depth]
        inside = [((low <= row) & (row < high)).all(axis=1).argmax() for row in rows]
        return np.array(inside, dtype=np.int64)

    def _search(self, place: int, pieces: Numbers) -> list[list[float]]:
        """Breakpoints along one uniform, for some pieces."""
        n = len(pieces)
        if not n:
            return []
        piece = np.repeat(pieces, self._grid.size)
        seen = self._at(piece, np.tile(self._grid, n), place).reshape(n, self._grid.size, -1)
        cuts: dict[int, list[float]] = {i: [] for i in pieces.tolist()}
        piece = np.repeat(pieces, self._grid.size - 1)
        low, high = np.tile(self._grid[:-1], n), np.tile(self._grid[1:], n)
        below, above = (
            seen[:, part].reshape(-1, len(self._probes)) for part in (slice(-1), slice(1, None))
        )
        while True:
            open_ = (below != above).any(axis=1)
            if not open_.any():
                return list(map(sorted, cuts.values()))
            piece, low, high = piece[open_], low[open_], high[open_]
            below, above = below[open_], above[open_]
            left, right = self._bisect(place, piece, low, high, (below, above))
            for i, cut in zip(piece.tolist(), right.tolist(), strict=True):
                cuts[i].append(cut)
            if max(map(len, cuts.values())) >= MAX_PIECES:
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
            middle = self._middle(low, high)
            rows = self._probes[probe].copy()
            rows[:, :place] = self.points[piece, :place]
            rows[:, place] = middle
            same = self._ask(rows) == start
            low, high = np.where(same, middle, low), np.where(same, high, middle)
        self._edges = np.unique(np.concatenate([self._edges, low, high]))
        return low, high

    def _middle(self, low: Floats, high: Floats) -> Floats:
        """Halve brackets, first by the edges of breakpoints that were found: most come again."""
        first = np.searchsorted(self._edges, low, side="right")
        last = np.searchsorted(self._edges, high, side="left")
        edges = np.append(self._edges, 0.0)[(first + last) // 2]
        return np.where(first < last, edges, (low + high) / 2)

    def _at(
        self, piece: Numbers, values: Floats, place: int, probes: Floats | None = None
    ) -> Numbers:
        """Answers [R, probes] with one uniform at these values."""
        probes = self._probes if probes is None else probes
        rows = np.tile(probes, (piece.size, 1))
        rows[:, :place] = np.repeat(self.points[piece, :place], len(probes), axis=0)
        rows[:, place] = np.repeat(values, len(probes))
        return self._ask(rows).reshape(-1, len(probes))


def _middles(edges: list[float]) -> Floats:
    return (np.array(edges[:-1]) + edges[1:]) / 2


def _runs_on_rows(adapter: Adapter) -> bool:
    """Whether a verifier makes many runs at once, faster than one after another."""
    return not isinstance(adapter, OwnDraws) and type(adapter).outputs is not Adapter.outputs


def _uniforms_taken(adapter: Adapter, instance: Instance, tries: Floats, deadline: float) -> int:
    """Most uniforms that the verifier takes in some runs."""
    sources = [Source(row) for row in tries]
    for source in sources:
        check_time(deadline, TAKE)
        with suppress(Exception):  # the outcome of the run is looked at elsewhere
            adapter.output(instance, source)
    return max(source.taken for source in sources)
