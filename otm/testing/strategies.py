"""Hypothesis strategies for distributions, pairs of them, problems, drafts and uniforms.

All of them lean towards what breaks selection rules: zeros, ties, distributions that are equal,
disjoint or one rounding apart, subnormal probabilities, and uniforms that lie exactly on a
boundary.  Each kind has a name, so that a test can ask for it alone.

Examples
--------
>>> from hypothesis import given
>>> @given(problems(max_tokens=3, max_drafts=2, exact=True))
... def test_distributions_sum_to_one(problem):
...     assert problem.draft.sum() == problem.target.sum() == 1
>>> test_distributions_sum_to_one()
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from fractions import Fraction
from functools import lru_cache, partial
from typing import Any, TypeVar

import numpy as np

from otm._core.arithmetic import Number, Probs, is_exact
from otm._core.distribution import to_exact
from otm._core.optional import require
from otm.drafts import IID, DraftDistribution
from otm.problem import Problem

require("hypothesis")
from hypothesis import strategies as st  # noqa: E402

__all__ = [
    "DISTRIBUTION_KINDS",
    "PAIR_KINDS",
    "distributions",
    "drafts",
    "pairs",
    "problems",
    "uniforms",
]

T = TypeVar("T")

DISTRIBUTION_KINDS = {
    "dense": 1,  # every token has a probability of at least 10^−4
    "sparse": 2,  # at least one token has probability zero
    "one token": 1,  # all others have probability zero
    "ties": 2,  # at least two tokens have the same positive probability
    "one ulp": 2,  # two tokens differ by one unit in the last place of a float64
    "subnormal": 2,  # a probability is positive and below 2^−1022
    "skewed": 2,  # the largest and the smallest probability are a factor 10^6 or more apart
}
"""Kinds of distributions, with the least number of tokens that each needs."""

PAIR_KINDS = {
    "independent": 1,  # two distributions of any kind
    "equal": 1,  # the same distribution twice
    "disjoint": 2,  # no token can come from both
    "overlapping": 3,  # some tokens can come from both, some from one or the other alone
    "near": 2,  # not equal, and at most one rounding apart at each token
}
"""Kinds of pairs of distributions, with the least number of tokens that each needs."""

ULP = Fraction(1, 2**53)


@st.composite
def distributions(
    draw: st.DrawFn,
    min_tokens: int = 1,
    max_tokens: int = 5,
    *,
    exact: bool = False,
    kinds: Sequence[str] = tuple(DISTRIBUTION_KINDS),
) -> Probs:
    """Strategy of probability distributions.

    Parameters
    ----------
    min_tokens, max_tokens : int
        Smallest and largest size of the vocabulary.
    exact : bool
        Whether to generate object arrays of `fractions.Fraction` that sum to exactly 1, rather than
        float64 arrays that sum to 1 up to rounding.
    kinds : sequence of str
        Kinds to choose from, see `DISTRIBUTION_KINDS`; those that need more tokens are left out.

    Returns
    -------
    strategy of arrays [n]
        Of n tokens, `min_tokens` ≤ n ≤ `max_tokens`.

    Examples
    --------
    >>> from hypothesis import find
    >>> probs = find(distributions(kinds=["ties"], exact=True), lambda probs: probs.size == 3)
    >>> probs.sum(), len(set(probs)) < 3
    (Fraction(1, 1), True)
    """
    n = draw(_integers(max(min_tokens, min(DISTRIBUTION_KINDS[k] for k in kinds)), max_tokens))
    kind = draw(_choice(tuple(kind for kind in kinds if DISTRIBUTION_KINDS[kind] <= n)))
    probs: Probs = draw(_kept(_DISTRIBUTIONS[kind], n))
    if exact:
        return probs if is_exact(probs) else to_exact(probs)
    return probs.astype(np.float64)


@st.composite
def pairs(
    draw: st.DrawFn,
    min_tokens: int = 1,
    max_tokens: int = 5,
    *,
    exact: bool = False,
    kinds: Sequence[str] = tuple(PAIR_KINDS),
) -> tuple[Probs, Probs]:
    """Strategy of pairs of a draft and a target distribution on the same vocabulary.

    Parameters
    ----------
    min_tokens, max_tokens : int
        Smallest and largest size of the vocabulary.
    exact : bool
        Whether to generate fractions rather than floats.
    kinds : sequence of str
        Kinds to choose from, see `PAIR_KINDS`; those that need more tokens are left out.

    Returns
    -------
    strategy of tuples of two arrays [n]
        The draft distribution first.

    Examples
    --------
    >>> from hypothesis import find
    >>> draft, target = find(pairs(kinds=["disjoint"]), lambda pair: pair[0].size == 2)
    >>> float(draft @ target)
    0.0
    """
    n = draw(_integers(max(min_tokens, min(PAIR_KINDS[kind] for kind in kinds)), max_tokens))
    kind = draw(_choice(tuple(kind for kind in kinds if PAIR_KINDS[kind] <= n)))
    if kind == "independent":
        return draw(_kept(distributions, n, n, exact=exact)), draw(
            _kept(distributions, n, n, exact=exact)
        )
    if kind in {"equal", "near"}:
        probs = draw(_kept(distributions, n, n, exact=exact))
        return probs, probs.copy() if kind == "equal" else _moved_by_one_rounding(draw, probs)
    order = draw(_kept(st.permutations, range(n)))
    overlapping = kind == "overlapping"
    first = draw(_integers(1, n - 1 - overlapping))
    shared = draw(_integers(1, n - 1 - first)) if overlapping else 0
    supports = order[: first + shared], order[first:]
    draft, target = (_probs_on(draw, support, n) for support in supports)
    return (draft, target) if exact else (draft.astype(np.float64), target.astype(np.float64))


@st.composite
def problems(
    draw: st.DrawFn,
    max_tokens: int = 5,
    max_drafts: int = 3,
    *,
    exact: bool = False,
    kinds: Sequence[str] = tuple(PAIR_KINDS),
) -> Problem:
    """Strategy of membership problems: a pair of distributions and a number of drafts.

    Parameters
    ----------
    max_tokens, max_drafts : int
        Largest size n of the vocabulary and largest number k of drafts.
    exact : bool
        Whether the probabilities are fractions.
    kinds : sequence of str
        Kinds of pairs, see `PAIR_KINDS`.

    Returns
    -------
    strategy of Problem
        With 1 ≤ n ≤ `max_tokens` and 1 ≤ k ≤ `max_drafts`.

    Examples
    --------
    >>> from hypothesis import find
    >>> problem = find(problems(exact=True), lambda problem: problem.n == problem.k == 2)
    >>> problem.draft.sum()
    Fraction(1, 1)
    """
    draft, target = draw(_kept(pairs, max_tokens=max_tokens, exact=exact, kinds=tuple(kinds)))
    return Problem(draft, target, draw(_integers(1, max_drafts)))


def drafts(distribution: DraftDistribution) -> st.SearchStrategy[list[int]]:
    """Strategy of drafts that a joint distribution can draw; not distributed like draws.

    Parameters
    ----------
    distribution : DraftDistribution
        Such as `plan.drafts`; small enough to enumerate, unless its drafts are i.i.d.

    Returns
    -------
    strategy of list of k int
        Drafts of positive probability.

    Examples
    --------
    >>> from hypothesis import find
    >>> problem = Problem([0.5, 0, 0.5], [0.25, 0.5, 0.25], k=2)
    >>> sorted(find(drafts(problem.drafts), lambda tokens: len(set(tokens)) == 2))
    [0, 2]
    """
    if isinstance(distribution, IID):
        support = distribution.ids(np.flatnonzero(distribution.draftable)).tolist()
        return _kept(_lists, _choice(tuple(support)), distribution.k)
    return st.sampled_from([list(drawn) for drawn, _ in distribution.tuples()])


def uniforms(
    boundaries: Sequence[Number] = (), *, exact: bool = False
) -> st.SearchStrategy[Number]:
    """Strategy of uniforms in [0, 1), half of them edge values; not distributed uniformly.

    Parameters
    ----------
    boundaries : sequence of numbers
        Values at which a decision changes.  Those in [0, 1) are generated exactly, with their
        neighbours: the next floats, or 2^−53 below and above in exact mode.
    exact : bool
        Whether to generate fractions rather than floats.

    Returns
    -------
    strategy of float or Fraction
        Among them 0 and 1 − 2^−53, the largest that a 53-bit generator gives.

    Examples
    --------
    >>> from hypothesis import find
    >>> find(uniforms([0.25]), lambda u: u == 0.25)
    0.25
    """
    edges: list[Number] = [Fraction(0), 1 - ULP]
    for boundary in boundaries:
        if exact:
            edges += [Fraction(boundary) + step for step in (-ULP, Fraction(0), ULP)]
        else:
            place = float(boundary)
            edges += [np.nextafter(place, -1).item(), place, np.nextafter(place, 2).item()]
    inside = (Fraction(edge) if exact else float(edge) for edge in edges if 0 <= edge < 1)
    return _kept(_edges_or_any, tuple(inside), exact)


@lru_cache(maxsize=1024)
def _kept(
    make: Callable[..., st.SearchStrategy[T]], *arguments: Any, **options: Any
) -> st.SearchStrategy[T]:
    """Make a strategy once: Hypothesis examines each new one, which takes longer than to draw."""
    return make(*arguments, **options)


_integers, _choice = partial(_kept, st.integers), partial(_kept, st.sampled_from)


def _edges_or_any(inside: tuple[Number, ...], exact: bool) -> st.SearchStrategy[Number]:
    interior = st.integers(0, 2**53 - 1).map(lambda i: i * ULP if exact else i * 2.0**-53)
    return st.one_of(st.sampled_from(inside), interior)


def _lists(entries: st.SearchStrategy[int], n: int) -> st.SearchStrategy[list[int]]:
    return st.lists(entries, min_size=n, max_size=n)


def _from_weights(weights: Sequence[int]) -> Probs:
    """Whole weights as fractions of their sum."""
    return np.array([Fraction(weight, sum(weights)) for weight in weights], dtype=object)


def _dense(n: int) -> st.SearchStrategy[Probs]:
    return _lists(st.one_of(_integers(1, 9), _integers(1, 1000)), n).map(_from_weights)


def _probs_on(draw: st.DrawFn, support: Sequence[int], n: int) -> Probs:
    """Draw a distribution on n tokens with the given support."""
    probs = np.full(n, Fraction(0), dtype=object)
    probs[list(support)] = draw(_kept(_dense, len(support)))
    return probs


@st.composite
def _sparse(draw: st.DrawFn, n: int) -> Probs:
    return _probs_on(draw, draw(_kept(st.permutations, range(n)))[: draw(_integers(1, n - 1))], n)


def _one_token(n: int) -> st.SearchStrategy[Probs]:
    return _integers(0, n - 1).map(lambda token: _from_weights([i == token for i in range(n)]))


@st.composite
def _ties(draw: st.DrawFn, n: int) -> Probs:
    """Few different weights, at least two of them equal."""
    weights: list[int] = draw(_kept(_lists, _integers(0, 3), n))
    i, j, *_ = draw(_kept(st.permutations, range(n)))
    weights[i] = weights[j] = draw(_integers(1, 3))
    return _from_weights(weights)


@st.composite
def _one_ulp(draw: st.DrawFn, n: int) -> Probs:
    probs: Probs = draw(_kept(_dense, n)).astype(np.float64)
    i, j, *_ = draw(_kept(st.permutations, range(n)))
    probs[i] = probs[j] = (probs[i] + probs[j]) / 2
    probs[j] = np.nextafter(probs[i], 2)
    return probs


@st.composite
def _subnormal(draw: st.DrawFn, n: int) -> Probs:
    probs: Probs = draw(_kept(_dense, n)).astype(np.float64)
    small = draw(_kept(st.permutations, range(n)))[: draw(_integers(1, n - 1))]
    probs[small] = 0
    probs /= probs.sum()
    probs[small] = draw(_kept(_lists, _integers(1, 100), len(small)))
    probs[small] *= 2.0**-1074
    return probs


@st.composite
def _skewed(draw: st.DrawFn, n: int) -> Probs:
    """Powers of two, the largest and the smallest at least 2^20 apart."""
    powers: list[int] = draw(_kept(_lists, _integers(0, 60), n))
    i, j, *_ = draw(_kept(st.permutations, range(n)))
    powers[j] = powers[i] + draw(_integers(20, 60))
    return _from_weights([2**power for power in powers])


def _moved_by_one_rounding(draw: st.DrawFn, probs: Probs) -> Probs:
    """Draw a distribution that differs in a single token (floats) or two (fractions)."""
    i = draw(_choice(tuple(np.flatnonzero(probs > 0).tolist())))
    moved = probs.copy()
    if is_exact(probs):
        j = draw(_choice(tuple(token for token in range(probs.size) if token != i)))
        step = min(probs[i], ULP)
        moved[i], moved[j] = moved[i] - step, moved[j] + step
    else:
        moved[i] = np.nextafter(moved[i], draw(_choice((0, 2))))
    return moved


_DISTRIBUTIONS: dict[str, Callable[[int], st.SearchStrategy[Probs]]] = {
    "dense": _dense,
    "sparse": _sparse,
    "one token": _one_token,
    "ties": _ties,
    "one ulp": _one_ulp,
    "subnormal": _subnormal,
    "skewed": _skewed,
}
