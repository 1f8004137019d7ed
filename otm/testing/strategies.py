"""Hypothesis strategies for distributions, problems, drafts, uniforms and pairs of models.

The strategies prefer cases that break selection rules.  Examples are zeros, ties, subnormal
probabilities, uniforms exactly on a boundary, and pairs of distributions that are equal, disjoint
or one rounding apart.  Each kind has a name, so that a test can request it.

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
    # Every token has a probability of at least 10^−4.
    "dense": 1,
    # At least one token has probability zero.
    "sparse": 2,
    # One token has probability one.
    "one token": 1,
    # At least two tokens have the same positive probability.
    "ties": 2,
    # The probabilities of two tokens differ by one unit in the last place of a float64.
    "one ulp": 2,
    # A probability is positive and below 2^−1022.
    "subnormal": 2,
    # The ratio of the largest and the smallest probability is at least 10^6.
    "skewed": 2,
}
"""Kinds of distributions, with the minimum number of tokens of each kind."""

PAIR_KINDS = {
    # Two distributions of any kind.
    "independent": 1,
    # The same distribution twice.
    "equal": 1,
    # No token has positive probability in both distributions.
    "disjoint": 2,
    # Some tokens have positive probability in both distributions, some only in one.
    "overlapping": 3,
    # Two different distributions, at most one rounding apart at each token.
    "near": 2,
}
"""Kinds of pairs of distributions, with the minimum number of tokens of each kind."""

BLOCK_KINDS = (
    # Two models with independent distributions.
    "independent",
    # The same model twice.
    "equal",
    # The models have the same distribution after some contexts only.
    "partly equal",
    # After each context the draft, the target or both have a token of probability one.
    "one token",
)
"""Kinds of pairs of models."""


class Block(NamedTuple):
    """A small problem of block verification: two models, and the number and length of paths.

    Attributes
    ----------
    draft, target : TableModel
        Draft model and target model, on the same tokens.
    k : int
        Number of i.i.d. draft paths.
    length : int
        Number of tokens of a path.
    end : int or None
        Token that ends a sequence, or None.

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
    """Generate probability distributions.

    Parameters
    ----------
    min_tokens, max_tokens : int
        Smallest and largest size of the vocabulary.
    exact : bool
        Whether to generate object arrays of `fractions.Fraction` that sum to exactly 1, instead of
        float64 arrays that sum to 1 up to rounding.
    kinds : sequence of str
        Kinds to choose from, see `DISTRIBUTION_KINDS`; a kind that needs more tokens is skipped.

    Returns
    -------
    strategy of arrays [n]
        Distributions on n tokens, `min_tokens` ≤ n ≤ `max_tokens`.

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
    """Generate pairs of a draft and a target distribution on the same vocabulary.

    Parameters
    ----------
    min_tokens, max_tokens : int
        Smallest and largest size of the vocabulary.
    exact : bool
        Whether to generate fractions instead of floats.
    kinds : sequence of str
        Kinds to choose from, see `PAIR_KINDS`; a kind that needs more tokens is skipped.

    Returns
    -------
    strategy of tuples of two arrays [n]
        Pairs of draft distribution and target distribution.

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
    """Generate problems: a draft distribution, a target distribution and a number of drafts.

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
        Problems with 1 ≤ n ≤ `max_tokens` and 1 ≤ k ≤ `max_drafts`.

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
    """Generate drafts of positive probability; their frequencies differ from the distribution.

    Parameters
    ----------
    distribution : DraftDistribution
        Joint distribution of drafts, such as `plan.drafts`.  It must be small enough to enumerate,
        unless its drafts are i.i.d.

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
    """Generate values of uniforms in [0, 1); half of the values are edge cases.

    Parameters
    ----------
    boundaries : sequence of numbers
        Values at which a decision changes.  Boundaries in [0, 1) and their neighbours are edge
        cases.  The neighbours are the adjacent floats, or the values 2^−53 below and above if
        `exact` is true.
    exact : bool
        Whether to generate fractions instead of floats.

    Returns
    -------
    strategy of float or Fraction
        Values that include 0 and 1 − 2^−53, the largest value of a 53-bit generator.

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
    """Generate pairs of models for draft paths of several tokens.

    `otm.solve_block` accepts these models directly, and `otm.decoding.spectr` accepts them together
    with any prompt.  An audit accepts exact models as an `otm.audit.Instance`.

    Parameters
    ----------
    max_tokens, max_length, max_paths : int
        Largest vocabulary size V, largest number L of tokens of a path and largest number K of
        paths.
    exact : bool
        Whether the probabilities are fractions.
    kinds : sequence of str
        Kinds of pairs of models, see `BLOCK_KINDS`.
    max_ways : int
        Largest V^(L K), the number of combinations of draft paths.

    Returns
    -------
    strategy of Block
        Problems with 2 ≤ V, 1 ≤ L and 1 ≤ K.  The distributions depend on up to L − 1 tokens.
        Zeros and ties occur, but no two probabilities differ only by rounding.

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
