"""A cache of runs: the draws of a run determine which other runs have the same output.

If a uniform draws a token by known weights, all uniforms in the token's cell have the same effect.
Therefore a tree of draws, with one level for each uniform, contains the output of many runs without
making them.  The ends of the cells are breakpoints that need no search.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from otm.audit.adapters.base import Source
from otm.audit.observe.observation import NOT_REPEATED, UnsuitedError

Cells: TypeAlias = Sequence[float]
"""Upper ends of the cells that partition [0, 1) for a uniform, ascending; the last end is 1."""


class Recorded(Source):
    """A source that records each draw: the uniform, and the cells if it selects one of them."""

    def __init__(self, uniforms: npt.NDArray[Any]) -> None:
        super().__init__(uniforms)
        self.draws: list[tuple[Cells | None, float]] = []

    def __call__(self, m: int) -> npt.NDArray[Any]:
        """Return the next m uniforms."""
        drawn = super().__call__(m)
        self.draws += [(None, uniform) for uniform in drawn.tolist()]
        return drawn

    def cell(self, ends: Cells) -> int:
        """Draw a cell by the next uniform."""
        place = super().cell(ends)
        self.draws[-1] = ends, self.draws[-1][1]
        return place


def key(ends: Cells | None, uniform: float) -> float:
    """Return a key that differs for uniforms that can lead to different outputs."""
    return uniform if ends is None else bisect_right(ends, uniform)


@dataclass
class _Leaf:
    """The outcome of a run, and its draws after those of the branches that lead to this leaf."""

    draws: Sequence[tuple[Cells | None, float]]
    outcome: int


@dataclass
class _Branch:
    """Several runs with the same draws so far."""

    ends: Cells | None
    after: dict[float, _Branch | _Leaf] = field(default_factory=dict)


class RunCache:
    """Outcomes of runs on one instance, by their draws."""

    def __init__(self) -> None:
        self._root: _Branch | _Leaf | None = None

    def outcome(self, uniforms: Sequence[float]) -> int | None:
        """Return the cached outcome of a run on these uniforms, or None."""
        node, depth = self._follow(uniforms)
        if not isinstance(node, _Leaf):
            return None
        for (ends, drawn), uniform in zip(node.draws, uniforms[depth:], strict=False):
            if key(ends, drawn) != key(ends, uniform):
                return None
        return node.outcome

    def ends(self, uniforms: Sequence[float]) -> Cells | None:
        """Return the ends of the cells of the uniform that follows `uniforms`, or None.

        If the run needs no more uniforms, return a single cell.
        """
        node, depth = self._follow(uniforms)
        if isinstance(node, _Branch):
            return node.ends if depth == len(uniforms) else None
        left = node.draws[len(uniforms) - depth :] if node else ()
        return left[0][0] if left else (1.0,)

    def add(self, draws: Sequence[tuple[Cells | None, float]], outcome: int) -> None:
        """Add a run; raise `UnsuitedError` if it contradicts another run."""
        new = _Leaf(draws, outcome)
        node, before = self._root, None
        while node is not None:
            if isinstance(node, _Leaf):
                if bool(node.draws) != bool(new.draws) or (not new.draws and node != new):
                    raise UnsuitedError(NOT_REPEATED)
                if not new.draws:
                    return
                first, *rest = node.draws
                node = self._put(
                    before, _Branch(first[0], {key(*first): _Leaf(rest, node.outcome)})
                )
            if not new.draws or not _same(node.ends, new.draws[0][0]):
                raise UnsuitedError(NOT_REPEATED)
            before = node, key(*new.draws[0])
            new = _Leaf(new.draws[1:], outcome)
            node = node.after.get(before[1])
        self._put(before, new)

    def _put(self, before: tuple[_Branch, float] | None, node: Any) -> Any:
        if before is None:
            self._root = node
        else:
            before[0].after[before[1]] = node
        return node

    def _follow(self, uniforms: Sequence[float]) -> tuple[_Branch | _Leaf | None, int]:
        """Follow the tree along the uniforms, as far as there are branches."""
        node, depth = self._root, 0
        while isinstance(node, _Branch) and depth < len(uniforms):
            node = node.after.get(key(node.ends, uniforms[depth]))
            depth += 1
        return node, depth


def _same(a: Cells | None, b: Cells | None) -> bool:
    """Return whether cells are the same up to rounding."""
    if a is b or a == b:
        return True
    return a is not None and b is not None and len(a) == len(b) and np.allclose(a, b, 0, 1e-12)
