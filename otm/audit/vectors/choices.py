"""Random rows, drafts and uniforms for the test vectors, from a seed.

A row is a list of V integers that sum to `PROBABILITIES`, so its probabilities are exact in
float32.  A uniform is an integer below `UNIFORMS`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from random import Random
from typing import TypeVar

PROBABILITIES, UNIFORMS, FACTOR = 1024, 4096, 16
"""The integers of the file count parts of these sizes: 1/1024, 1/4096 and 1/16."""

MARGIN = 5
"""Smallest distance of a uniform from a threshold that it does not equal: 5/4096 > 0.001."""

Row = list[int]
Item = TypeVar("Item")


class Chooser:
    """Choices from a seed, by `Random.random`, which gives the same values in every Python."""

    def __init__(self, seed: int) -> None:
        self._random = Random(seed)

    def unit(self) -> float:
        """Return a float in [0, 1)."""
        return self._random.random()

    def below(self, number: int) -> int:
        """Return an integer in [0, number)."""
        return int(self.unit() * number)

    def of(self, items: Sequence[Item]) -> Item:
        """Return one of the items."""
        return items[self.below(len(items))]


def row(chooser: Chooser, support: Sequence[int], size: int, parts: int) -> Row:
    """Return a row of `size` tokens in whole parts; each token of the support has at least one."""
    support = support[: max(1, parts // 2)]
    # The weights are integers, because Python 3.12 sums floats differently from 3.11.
    weights = [(1 + chooser.below(30)) ** 2 for _ in support]
    spare = parts - len(support)
    counts = [1 + spare * weight // sum(weights) for weight in weights]
    counts[chooser.below(len(counts))] += parts - sum(counts)
    probs = [0] * size
    for token, count in zip(support, counts, strict=True):
        probs[token] = count * (PROBABILITIES // parts)
    return probs


def pair(chooser: Chooser, size: int, parts: int) -> tuple[Row, Row]:
    """Return a target row and a draft row of one of several kinds."""
    tokens = sorted(range(size), key=lambda _: chooser.unit())
    cut = 1 + chooser.below(size - 1)
    supports = {
        "all": (tokens, tokens),
        "zeros in the target": (tokens[:cut], tokens),
        "zeros in the draft": (tokens, tokens[:cut]),
        "zeros in both": (tokens[:cut], tokens[: 1 + chooser.below(size)][::-1]),
        "disjoint": (tokens[:cut], tokens[cut:]),
        "one-hot draft": (tokens, tokens[:1]),
        "one-hot target": (tokens[:1], tokens),
        "equal": (tokens, tokens),
    }
    # "All" stands five times in the list, because the other kinds often leave nothing to decide.
    kind = chooser.of([*supports, *["all"] * 4])
    of_target, of_draft = supports[kind]
    target, draft = row(chooser, of_target, size, parts), row(chooser, of_draft, size, parts)
    return target, target if kind == "equal" else draft


def sizes(chooser: Chooser, tie: bool) -> tuple[int, int]:
    """Return a vocabulary size and the number of parts of a row; ties need coarse rows."""
    size = chooser.of((2, 2, 3, 3, 4, 4, 5, 6, 8, 12))
    return size, chooser.of((4, 8, 8, 16) if tie else (8, 16, 16, 32, 64, 1024))


def draft_token(chooser: Chooser, draft: Row) -> int:
    """Return a token of positive draft probability."""
    return chooser.of([token for token, parts in enumerate(draft) if parts])


def ratio(target: int | Fraction, draft: int | Fraction) -> Fraction:
    """Return min(1, target/draft)."""
    return min(Fraction(1), Fraction(target) / Fraction(draft))


def is_short(value: Fraction) -> bool:
    """Whether a value is a whole number of 1/4096, so that float32 computes it exactly."""
    return UNIFORMS % value.denominator == 0


def uniform(chooser: Chooser, threshold: Fraction) -> int:
    """Return a uniform that is at least `MARGIN` from the threshold, and often close to it."""
    exact, near = threshold * UNIFORMS, 20 * MARGIN if chooser.unit() < 0.5 else UNIFORMS
    last, first = math.floor(exact - MARGIN), math.ceil(exact + MARGIN)
    low, high = max(0, last - near), min(UNIFORMS, first + near)
    allowed: list[int] = [*range(low, last + 1), *range(first, high)]
    return chooser.of(allowed)


def on(threshold: Fraction) -> int | None:
    """Return the uniform on a threshold below 1, or None if no uniform lies there."""
    return int(threshold * UNIFORMS) if threshold < 1 and is_short(threshold) else None
