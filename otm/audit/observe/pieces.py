"""Pieces of the unit cube between the breakpoints of a verifier, found by bisection."""

from __future__ import annotations

from typing import Any

import numpy as np

from otm.audit.observe.numbered_outcomes import NumberedOutcomes, Numbers
from otm.audit.observe.observation import UnsuitedError
from otm.audit.observe.precision import LARGEST, Floats, Precision, ProbeSettings

MAX_PIECES = 64
"""Largest number of pieces of one uniform; a uniform that seeds a generator has no limit."""


class Pieces:
    """Pieces of the unit cube, split coordinate by coordinate, and the output on each piece."""

    def __init__(
        self,
        outcomes: NumberedOutcomes,
        probes: Floats,
        precision: Precision,
        settings: ProbeSettings,
    ) -> None:
        self._outcomes, self._few, self._merged = outcomes, settings.few, settings.merged
        edges = np.repeat([[0.0], [LARGEST]], probes.shape[1], axis=1)
        self._all_probes = np.append(edges, probes, axis=0)
        self._probes = probes if settings.few else self._all_probes
        self._grid = precision.grid[::2] if settings.few else precision.grid
        self._resolution = precision.resolution
        # A point of each piece [N, m], arbitrary in unsplit coordinates, and the piece's limits.
        self.points = self._probes[:1].copy()
        self._low, self._high = np.zeros_like(self.points), np.ones_like(self.points)
        self.error, self.depth = 0.0, 0
        # Ends of the intervals that contain breakpoints.
        self._edges = np.empty(0)

    @property
    def weights(self) -> Floats:
        """Volumes of the pieces [N]."""
        volumes: Floats = (self._high - self._low).prod(axis=1)
        return volumes

    def split(self) -> None:
        """Split all pieces along the next uniform."""
        place = self.depth
        cuts = self._known(place)
        if self._merged:
            cuts = [each and self._shown(place, i, each) for i, each in enumerate(cuts)]
        searched = np.array([i for i, each in enumerate(cuts) if each is None], dtype=np.int64)
        # Search one piece after another, because each search uses earlier breakpoints.
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
        # Use u = 0 itself for the first piece.
        inside = np.where((low == 0) & first, 0.0, (low + high) / 2)
        in_last = last & (low <= LARGEST) & (high > LARGEST)
        self.points[:, place] = np.where(in_last, LARGEST, inside)
        self.depth = place + 1

    def _known(self, place: int) -> list[Any]:
        """Return breakpoints along one uniform for each piece; None where they are unknown."""
        cache = self._outcomes.cache
        if cache is None:
            return [None] * len(self.points)
        self._outcomes(self.points)
        ends = [cache.ends(point) for point in self.points[:, :place].tolist()]
        return [each and sorted({end for end in each if 0 < end < 1}) for each in ends]

    def _shown(self, place: int, piece: int, cuts: list[float]) -> list[float]:
        """Remove breakpoints of draws that change no outcome, such as ones after the last token."""
        middles = _middles([0.0, *cuts, 1.0])
        seen = self._at(np.full(middles.size, piece), middles, place, self._all_probes)
        steps = (seen[:-1] != seen[1:]).any(axis=1)
        return [cut for cut, step in zip(cuts, steps.tolist(), strict=True) if step]

    def are_constant(self, found: Numbers) -> bool:
        """Return whether each piece has one outcome for all cells of its draws."""
        if (cache := self._outcomes.cache) is None:
            return True
        for point, low, high, number in zip(
            self.points, self._low, self._high, found.tolist(), strict=True
        ):
            for place in range(self.depth):
                ends = cache.ends(point[:place].tolist()) or ()
                within = sorted({end for end in ends if low[place] < end < high[place]})
                rows = np.tile(point, (len(within) + 1, 1))
                rows[:, place] = _middles([low[place], *within, high[place]])
                if within and (self._outcomes(rows) != number).any():
                    return False
        return True

    def indices(self, rows: Floats) -> Numbers:
        """Return the index of the piece that contains each point."""
        low, high = self._low[:, : self.depth], self._high[:, : self.depth]
        rows = rows[:, : self.depth]
        inside = [((low <= row) & (row < high)).all(axis=1).argmax() for row in rows]
        return np.array(inside, dtype=np.int64)

    def _search(self, place: int, pieces: Numbers) -> list[list[float]]:
        """Find the breakpoints of some pieces along the uniform with index `place`."""
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
        """Narrow each interval around a breakpoint, by the first probe whose outcomes differ."""
        below, above = ends
        probe = (below != above).argmax(axis=1)
        start = below[np.arange(probe.size), probe]
        low, high = low.copy(), high.copy()
        while (high - low).max() > self._resolution:
            middle = self._middle(low, high)
            rows = self._probes[probe].copy()
            rows[:, :place] = self.points[piece, :place]
            rows[:, place] = middle
            same = self._outcomes(rows) == start
            low, high = np.where(same, middle, low), np.where(same, high, middle)
        self._edges = np.unique(np.concatenate([self._edges, low, high]))
        return low, high

    def _middle(self, low: Floats, high: Floats) -> Floats:
        """Return the middle known breakpoint in each interval, or the midpoint if none is known.

        Known breakpoints are tried first because most breakpoints repeat.
        """
        first = np.searchsorted(self._edges, low, side="right")
        last = np.searchsorted(self._edges, high, side="left")
        edges = np.append(self._edges, 0.0)[(first + last) // 2]
        return np.where(first < last, edges, (low + high) / 2)

    def _at(
        self, piece: Numbers, values: Floats, place: int, probes: Floats | None = None
    ) -> Numbers:
        """Return outcome numbers [R, probes] with one uniform at these values."""
        probes = self._probes if probes is None else probes
        rows = np.tile(probes, (piece.size, 1))
        rows[:, :place] = np.repeat(self.points[piece, :place], len(probes), axis=0)
        rows[:, place] = np.repeat(values, len(probes))
        return self._outcomes(rows).reshape(-1, len(probes))


def _middles(edges: list[float]) -> Floats:
    return (np.array(edges[:-1]) + edges[1:]) / 2
