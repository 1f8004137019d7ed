"""Mistakes with a size or a position; many appear only on larger instances.

The list of known bugs has mistakes of some sizes, as tests of the audit.
`otm.audit.diagnose.mistake_sizes` makes mistakes of other sizes.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from functools import cache, partial
from typing import Any

import numpy as np

from otm._core.arithmetic import Probs
from otm.audit.adapters.base import Instance
from otm.audit.diagnose.known_bugs.known_bug import KnownBug
from otm.audit.diagnose.known_bugs.steps import (
    Chain,
    Rows,
    Siblings,
    Uniforms,
    accepts,
    residual,
    sharpened,
)
from otm.decoding.reading import Path

DRAFTS = 6
"""Largest position of a mistake in the list; the audit also tries other positions."""


@dataclass(frozen=True, eq=False)
class _Placed(Chain):
    """Chain verification with a mistake at some positions."""

    # Whether the draft at a position is accepted without a test.
    passes: Callable[[int], bool] = lambda _: False
    # The target row at a position, as the verifier sees it.
    aims: Callable[[int, Probs], Probs] = lambda _, probs: probs
    # First position that is verified by the previous draft row.
    behind: int = sys.maxsize

    def verify(self, rows: Rows, uniforms: Uniforms) -> Path:
        aims = [self.aims(i, probs) for i, probs in enumerate(rows.target)]
        draft = [rows.draft[max(i - (i >= self.behind), 0)] for i in range(len(rows.draft))]
        coins = [Fraction(-1) if self.passes(i) else u for i, u in enumerate(uniforms.coins)]
        return super().verify(
            rows._replace(target=aims, draft=draft), uniforms._replace(coins=coins)
        )


@cache
def passes_at(place: int) -> KnownBug:
    """Accept the draft at a position without a test; positions count from 1."""
    return _Placed(f"draft {place} always accepted", passes=lambda i: i == place - 1).as_bug(
        mistake="draft that is not verified",
        summary=f"Draft {place} of a chain is accepted without a test.",
    )


@cache
def temperature_lost_at(place: int) -> KnownBug:
    """Ignore the temperature of the target from a position on."""

    def aims(i: int, probs: Probs) -> Probs:
        return sharpened(probs) if i >= place - 1 else probs

    return _Placed(f"temperature lost from position {place} on", aims=aims).as_bug(
        mistake="one-sided temperature",
        summary=f"From position {place} on, the target's temperature is read from stale memory.",
        threads=("vllm-project/vllm #55005",),
    )


@cache
def previous_row_from(place: int) -> KnownBug:
    """From a position on, verify drafts by the draft row of the previous position."""
    name = f"draft rows of the positions before, from draft {place} on"
    return _Placed(name, behind=place - 1).as_bug(
        mistake="draft not sampled from its stated distribution",
        summary=f"From draft {place} on, a draft is verified by the previous position's row.",
    )


@cache
def residual_cut_to(kept: int) -> KnownBug:
    """Replace a rejected draft by one of the `kept` largest tokens of the residual."""

    def largest(rows: Rows, i: int) -> Probs:
        rest = residual(rows, i)
        ranks = np.argsort(np.argsort(-rest, kind="stable"), kind="stable")
        return np.where(ranks < kept, rest, 0 * rest)

    return Chain(f"residual of its {kept} largest tokens", residual=largest).as_bug(
        mistake="residual cut off",
        summary=f"A rejected draft is replaced by one of the {kept} largest of the residual.",
    )


def _by_tiles(weights: Probs, uniform: Any, size: int) -> int:
    """Carry the sum of a tile to the next tile, but not to later tiles."""
    point, before = uniform * weights.sum(), 0 * weights.sum()
    for start in range(0, weights.size, size):
        sums = before + weights[start : start + size].cumsum()
        if point < sums[-1]:
            return start + int(np.searchsorted(sums, point, side="right"))
        before = sums[-1] - before
    return int(weights.size - 1)


@cache
def tile_sums_of(size: int) -> KnownBug:
    """Sum rows in tiles of `size` tokens; add to each tile only the sum of the tile before it."""
    return Chain(f"sums of tiles of {size} tokens", draw_last=partial(_by_tiles, size=size)).as_bug(
        mistake="sums of tiles",
        summary=f"A row is summed in tiles of {size} tokens, and only the last sum is carried on.",
    )


class _FewTokens(Chain):
    """Chain verification on small vocabularies, because rows without zeros have many paths."""

    def supports(self, instance: Instance) -> bool:
        return super().supports(instance) and instance.vocabulary <= 8


@cache
def target_floor_at(least: Fraction) -> KnownBug:
    """Raise the target's probabilities to at least `least`."""

    def aim(probs: Probs) -> Probs:
        return np.where(probs < least, least + 0 * probs, probs)

    return _FewTokens(f"target probabilities of at least {least}", aim=aim).as_bug(
        mistake="floor under probabilities",
        summary=f"Probabilities of the target below {least} are raised to it.",
    )


@cache
def lenient(factor: Fraction) -> KnownBug:
    """Multiply the acceptance ratio by a factor."""

    def passes(coin: Any, draft: Probs, target: Probs, x: int) -> Any:
        return accepts(coin, draft, factor * target, x)

    return Chain(f"ratio times {factor}", accepts=passes).as_bug(
        mistake="lossy acceptance",
        summary=f"A draft is accepted with probability min(1, {factor} t(x)/d(x)).",
    )


SIZED = (
    _Placed("all drafts accepted", passes=lambda _: True).as_bug(
        mistake="draft that is not verified",
        summary="Every draft is accepted without a test.",
    ),
    *map(passes_at, range(1, DRAFTS + 1)),
    *map(temperature_lost_at, range(2, DRAFTS + 1)),
    *map(previous_row_from, range(3, DRAFTS + 1)),
    *map(residual_cut_to, range(2, 10)),
    *map(tile_sums_of, (4, 8, 16, 32, 64, 128)),
    lenient(Fraction(1, 2)),
    lenient(Fraction(2)),
    *(target_floor_at(Fraction(1, least)) for least in (10, 20, 50, 100)),
)


@dataclass(frozen=True, eq=False)
class _PassingSibling(Siblings):
    """Recursive rejection that accepts one of the drafts without a test."""

    # Position of this draft, from 1.
    passes: int = 1

    def supports(self, instance: Instance) -> bool:
        return instance.k >= max(2, self.passes)


@cache
def passing(place: int) -> KnownBug:
    """Accept the draft at a position of a node without a test; positions count from 1."""

    def passes(i: int, *draft: Any) -> Any:
        return i == place - 1 or accepts(*draft)

    name = f"sibling {place} always accepted"
    return _PassingSibling(name, accepts=passes, passes=place).as_bug(
        mistake="draft that is not verified",
        summary=f"Draft {place} of a node is accepted without a test.",
    )


def _top(draft: Probs, uniforms: Any) -> list[int]:
    ranked = np.argsort(-draft, kind="stable").tolist()
    return [ranked[min(i, draft.size - 1)] for i in range(len(uniforms))]


TREES = (
    *map(passing, range(1, 5)),
    Siblings("residual of the first rejection alone", updates=1).as_bug(
        mistake="residual of the wrong sibling",
        summary="From the third sibling on, the target is not updated after a rejection.",
    ),
    Siblings("residual of the first sibling", residuals=1).as_bug(
        mistake="residual of the wrong sibling",
        summary="The last token is drawn from the residual after the first rejected sibling.",
    ),
    Siblings("most probable siblings verified as samples", drafts=_top).as_bug(
        mistake="greedy draft reported as softmax",
        summary="The most probable tokens become siblings, and are verified as if sampled.",
        threads=("NVIDIA/TensorRT-LLM #15098",),
    ),
)
