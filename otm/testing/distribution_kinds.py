"""Hypothesis strategies for each kind of distribution, and helpers to build strategies."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from fractions import Fraction
from functools import lru_cache, partial
from typing import Any, TypeVar

import numpy as np

from otm._core.arithmetic import Number, Probs, is_exact
from otm._core.optional import require

require("hypothesis")
from hypothesis import strategies as st  # noqa: E402

T = TypeVar("T")

ULP = Fraction(1, 2**53)


@lru_cache(maxsize=1024)
def kept(
    make: Callable[..., st.SearchStrategy[T]], *arguments: Any, **options: Any
) -> st.SearchStrategy[T]:
    """Build a strategy once and cache it, since Hypothesis examines each new strategy slowly."""
    return make(*arguments, **options)


integers, choice = partial(kept, st.integers), partial(kept, st.sampled_from)


def edges_or_any(inside: tuple[Number, ...], exact: bool) -> st.SearchStrategy[Number]:
    """Draw one of the edge values `inside`, or any number in [0, 1)."""
    interior = st.integers(0, 2**53 - 1).map(lambda i: i * ULP if exact else i * 2.0**-53)
    return st.one_of(st.sampled_from(inside), interior)


def lists(entries: st.SearchStrategy[int], n: int) -> st.SearchStrategy[list[int]]:
    """Draw lists of n entries."""
    return st.lists(entries, min_size=n, max_size=n)


def _from_weights(weights: Sequence[int]) -> Probs:
    """Divide integer weights by their sum, in fractions."""
    return np.array([Fraction(weight, sum(weights)) for weight in weights], dtype=object)


def _dense(n: int) -> st.SearchStrategy[Probs]:
    return lists(st.one_of(integers(1, 9), integers(1, 1000)), n).map(_from_weights)


def probs_on(draw: st.DrawFn, support: Sequence[int], n: int) -> Probs:
    """Draw a distribution on n tokens whose support is `support`."""
    probs = np.full(n, Fraction(0), dtype=object)
    probs[list(support)] = draw(kept(_dense, len(support)))
    return probs


@st.composite
def _sparse(draw: st.DrawFn, n: int) -> Probs:
    return probs_on(draw, draw(kept(st.permutations, range(n)))[: draw(integers(1, n - 1))], n)


def _one_token(n: int) -> st.SearchStrategy[Probs]:
    return integers(0, n - 1).map(lambda token: _from_weights([i == token for i in range(n)]))


@st.composite
def _ties(draw: st.DrawFn, n: int) -> Probs:
    """Draw a distribution with few distinct weights and at least two equal ones."""
    weights: list[int] = draw(kept(lists, integers(0, 3), n))
    i, j, *_ = draw(kept(st.permutations, range(n)))
    weights[i] = weights[j] = draw(integers(1, 3))
    return _from_weights(weights)


@st.composite
def _one_ulp(draw: st.DrawFn, n: int) -> Probs:
    probs: Probs = draw(kept(_dense, n)).astype(np.float64)
    i, j, *_ = draw(kept(st.permutations, range(n)))
    probs[i] = probs[j] = (probs[i] + probs[j]) / 2
    probs[j] = np.nextafter(probs[i], 2)
    return probs


@st.composite
def _subnormal(draw: st.DrawFn, n: int) -> Probs:
    probs: Probs = draw(kept(_dense, n)).astype(np.float64)
    small = draw(kept(st.permutations, range(n)))[: draw(integers(1, n - 1))]
    probs[small] = 0
    probs /= probs.sum()
    probs[small] = draw(kept(lists, integers(1, 100), len(small)))
    probs[small] *= 2.0**-1074
    return probs


@st.composite
def _skewed(draw: st.DrawFn, n: int) -> Probs:
    """Draw a distribution whose weights are powers of two, with max/min at least 2^20."""
    powers: list[int] = draw(kept(lists, integers(0, 60), n))
    i, j, *_ = draw(kept(st.permutations, range(n)))
    powers[j] = powers[i] + draw(integers(20, 60))
    return _from_weights([2**power for power in powers])


def moved_by_one_rounding(draw: st.DrawFn, probs: Probs) -> Probs:
    """Change one probability by one rounding step.

    If the probabilities are fractions, another probability changes by the opposite step.
    """
    i = draw(choice(tuple(np.flatnonzero(probs > 0).tolist())))
    moved = probs.copy()
    if is_exact(probs):
        j = draw(choice(tuple(token for token in range(probs.size) if token != i)))
        step = min(probs[i], ULP)
        moved[i], moved[j] = moved[i] - step, moved[j] + step
    else:
        moved[i] = np.nextafter(moved[i], draw(choice((0, 2))))
    return moved


DISTRIBUTIONS: dict[str, Callable[[int], st.SearchStrategy[Probs]]] = {
    "dense": _dense,
    "sparse": _sparse,
    "one token": _one_token,
    "ties": _ties,
    "one ulp": _one_ulp,
    "subnormal": _subnormal,
    "skewed": _skewed,
}
