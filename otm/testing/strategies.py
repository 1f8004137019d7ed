"""Hypothesis strategies for distributions, problems, drafts, uniforms and blocks of drafts.

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

import itertools
from collections.abc import Sequence
from fractions import Fraction
from typing import NamedTuple

import numpy as np

from otm._core.arithmetic import Number, Probs, is_exact
from otm._core.numbers import check_name
from otm._core.optional import require
from otm._core.probs.distribution import to_exact
from otm.drafts import IID, DraftDistribution
from otm.models import TableModel
from otm.problem import Problem

require("hypothesis")
from hypothesis import strategies as st  # noqa: E402

from otm.testing.distribution_kinds import (  # noqa: E402
    DISTRIBUTIONS,
    ULP,
    choice,
    edges_or_any,
    integers,
    kept,
    lists,
    moved_by_one_rounding,
    probs_on,
)

__all__ = [
    "BLOCK_KINDS",
    "DISTRIBUTION_KINDS",
    "PAIR_KINDS",
    "Block",
    "blocks",
    "distributions",
    "drafts",
    "pairs",
    "problems",
    "uniforms",
]

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

BLOCK_KINDS = (
    "independent",  # two models whose distributions have nothing in common
    "equal",  # the same model twice
    "partly equal",  # both have the same distribution after some contexts, others after others
    "one token",  # after each context the draft, the target or both are sure of one token
)
"""Kinds of pairs of models."""


class Block(NamedTuple):
    """Two small models, and how paths are drafted from one for the other.

    Attributes
    ----------
    draft, target : TableModel
        Distributions by context, on the same tokens.
    k : int
        Number of i.i.d. draft paths.
    length : int
        Tokens of each path.
    end : int or None
        Token that ends a sequence, if any does.

    Examples
    --------
    >>> model = TableModel({(): [Fraction(1, 4), Fraction(3, 4)]})
    >>> Block(draft=model, target=model, k=2, length=3, end=None).target.vocabulary
    2
    """

    draft: TableModel
    target: TableModel
    k: int
    length: int
    end: int | None


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
    n = draw(integers(max(min_tokens, min(DISTRIBUTION_KINDS[k] for k in kinds)), max_tokens))
    kind = draw(choice(tuple(kind for kind in kinds if DISTRIBUTION_KINDS[kind] <= n)))
    probs: Probs = draw(kept(DISTRIBUTIONS[kind], n))
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
    n = draw(integers(max(min_tokens, min(PAIR_KINDS[kind] for kind in kinds)), max_tokens))
    kind = draw(choice(tuple(kind for kind in kinds if PAIR_KINDS[kind] <= n)))
    if kind == "independent":
        return draw(kept(distributions, n, n, exact=exact)), draw(
            kept(distributions, n, n, exact=exact)
        )
    if kind in {"equal", "near"}:
        probs = draw(kept(distributions, n, n, exact=exact))
        return probs, probs.copy() if kind == "equal" else moved_by_one_rounding(draw, probs)
    order = draw(kept(st.permutations, range(n)))
    overlapping = kind == "overlapping"
    first = draw(integers(1, n - 1 - overlapping))
    shared = draw(integers(1, n - 1 - first)) if overlapping else 0
    supports = order[: first + shared], order[first:]
    draft, target = (probs_on(draw, support, n) for support in supports)
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
    draft, target = draw(kept(pairs, max_tokens=max_tokens, exact=exact, kinds=tuple(kinds)))
    return Problem(draft, target, draw(integers(1, max_drafts)))


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
        return kept(lists, choice(tuple(support)), distribution.k)
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
    return kept(edges_or_any, tuple(inside), exact)


@st.composite
def blocks(
    draw: st.DrawFn,
    max_tokens: int = 4,
    max_length: int = 3,
    max_paths: int = 3,
    *,
    exact: bool = False,
    kinds: Sequence[str] = BLOCK_KINDS,
    max_ways: int = 64,
) -> Block:
    """Strategy of pairs of models for drafts of several tokens.

    `otm.solve_block` takes them as they are, `otm.decoding.spectr` with any prompt, and the audit
    as an `otm.audit.Instance`, if they are exact.

    Parameters
    ----------
    max_tokens, max_length, max_paths : int
        Largest size V of the vocabulary, number L of tokens of a path and number K of paths.
    exact : bool
        Whether the probabilities are fractions.
    kinds : sequence of str
        Kinds of pairs of models, see `BLOCK_KINDS`.
    max_ways : int
        Largest V^(L K), the number of ways to draft.

    Returns
    -------
    strategy of Block
        With 2 ≤ V, 1 ≤ L and 1 ≤ K.  The distributions depend on up to L − 1 tokens; zeros and
        ties occur, but no probabilities that differ by rounding only.

    Examples
    --------
    >>> from hypothesis import find
    >>> from otm import solve_block
    >>> block = find(blocks(exact=True, kinds=["independent"]), lambda block: block.length == 2)
    >>> solution = solve_block(block.draft, block.target, block.k, block.length)
    >>> solution.certificate.gap
    Fraction(0, 1)
    """
    sizes = itertools.product(
        range(2, max_tokens + 1), range(1, max_length + 1), range(1, max_paths + 1)
    )
    shapes = tuple((v, n, k) for v, n, k in sizes if v ** (n * k) <= max_ways)
    vocabulary, length, k = draw(choice(shapes))
    contexts = [
        context for n in range(length) for context in itertools.product(range(vocabulary), repeat=n)
    ]
    kind = check_name("kind", draw(choice(tuple(kinds))), BLOCK_KINDS)
    any_form = draw(choice((("dense",), ("dense", "sparse", "one token", "ties"))))
    of_draft, of_target = {}, {}
    for context in contexts[: draw(integers(1, len(contexts)))]:
        certain = draw(choice(((0,), (1,), (0, 1)))) if kind == "one token" else ()
        draft, target = (
            draw(
                kept(
                    distributions,
                    vocabulary,
                    vocabulary,
                    exact=exact,
                    kinds=("one token",) if side in certain else any_form,
                )
            )
            for side in range(2)
        )
        if kind == "equal" or (kind == "partly equal" and draw(kept(st.booleans))):
            target = draft
        of_draft[context], of_target[context] = draft, target
    end = draw(choice((None, *range(vocabulary))))
    return Block(TableModel(of_draft), TableModel(of_target), k, length, end)
