"""The bounds on α_k that the SpecTr paper proves, each with its theorem."""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import chain, combinations, product
from typing import Any, Literal

import numpy as np

from otm._core.arithmetic import Number, as_number, at_least_once, at_most_one, total
from otm.errors import ProblemTooLargeError
from otm.optimum.cut import optimal_value
from otm.optimum.division_factor import optimal_division_factor
from otm.problem import Problem

LARGEST_ENUMERATION = 2_000_000
"""Largest number of (subset, draft tuple) pairs that `lemma_3_by_definition` enumerates."""


@dataclass(frozen=True)
class Bound:
    """One proved bound on the optimal acceptance probability α_k.

    Attributes
    ----------
    kind : "lower" or "upper"
        Side of α_k on which the value lies.
    value : float or Fraction
        The bound, a probability.
    formula : str
        Formula of the bound, in the notation of the SpecTr paper.
    source : str
        Lemma, theorem or equation of the SpecTr paper that proves the bound.

    Examples
    --------
    >>> first = spectr_bounds(Problem([0.75, 0.25], [0.25, 0.75], k=2))[0]
    >>> first.kind, first.value, first.source
    ('lower', 0.5, 'Lemma 1, monotonicity')
    """

    kind: Literal["lower", "upper"]
    value: Number
    formula: str
    source: str


def spectr_bounds(problem: Problem) -> tuple[Bound, ...]:
    """Compute all bounds of [sun2023]_ on α_k, at any vocabulary size.

    The paper states Lemma 3's upper bound as a minimum over all sets of tokens.  This minimum
    equals α_k (Theorem 4.6 of docs/theory/cap.md), so the prefix formula of `otm.optimum.cut`
    computes it in O(n log n).  `lemma_3_by_definition` evaluates the minimum over all sets.
    Bounds in fractions are exact; bounds in floats hold up to rounding.

    Parameters
    ----------
    problem : Problem
        The distributions p and q, and k.

    Returns
    -------
    tuple of Bound
        Ten bounds, in the order of the paper.

    References
    ----------
    .. [sun2023] Sun et al., "SpecTr: Fast Speculative Decoding via Optimal Transport",
       NeurIPS 2023, Lemmas 1 and 3, Theorem 1, equation 11 and appendix C.1.

    Examples
    --------
    >>> for bound in spectr_bounds(Problem([0.75, 0.25], [0.25, 0.75], k=2)):
    ...     print(f"{bound.kind} {bound.value:.4f}  {bound.source}")
    lower 0.5000  Lemma 1, monotonicity
    upper 1.0000  Lemma 1, consistency
    upper 0.6875  Lemma 3
    lower 0.5156  Lemma 3
    lower 0.5625  appendix C.1
    lower 0.6483  Theorem 1
    upper 0.8644  Theorem 1
    upper 1.0000  Theorem 1
    upper 0.6875  equation 11
    upper 0.7500  equation 11
    """
    p, q, k = problem.draft, problem.target, problem.k
    factor = guarantee(problem)
    one_draft = optimal_value(problem, 1)
    lemma_3 = optimal_value(problem)
    rho = optimal_division_factor(problem)
    k_seq = at_least_once(problem.bins.capped_mass(rho) / rho, k)
    supported = q[p > 0].sum()
    membership = np.minimum(q, at_least_once(p, k)).sum()
    union = np.minimum(q, k * p).sum()
    # 1 − 1/e is rounded down, so that the bound also holds for fractions.
    limit = type(factor)(math.nextafter(1 - math.exp(-1), 0))
    return (
        Bound("lower", one_draft, "α_1", "Lemma 1, monotonicity"),
        Bound("upper", at_most_one(supported), "Σ q(x) over p(x) > 0", "Lemma 1, consistency"),
        Bound("upper", lemma_3, "ᾱ_k", "Lemma 3"),
        Bound("lower", factor * lemma_3, "(1 − (1 − 1/k)^k) ᾱ_k", "Lemma 3"),
        Bound(
            "lower", at_most_one(factor * union), "(1 − (1 − 1/k)^k) Σ min(q, kp)", "appendix C.1"
        ),
        Bound("lower", k_seq, "α of k-Seq at ρ*", "Theorem 1"),
        Bound("upper", at_most_one(k_seq / factor), "α of k-Seq / (1 − (1 − 1/k)^k)", "Theorem 1"),
        Bound("upper", at_most_one(k_seq / limit), "α of k-Seq / (1 − 1/e)", "Theorem 1"),
        Bound("upper", at_most_one(membership), "Σ min(q, 1 − (1 − p)^k)", "equation 11"),
        Bound("upper", at_most_one(union), "Σ min(q, kp)", "equation 11"),
    )


def guarantee(problem: Problem) -> Number:
    """Compute the fraction 1 − (1 − 1/k)^k of α_k that k-Seq is guaranteed to accept.

    The fraction exceeds 1 − 1/e for every k ([sun2023]_, Theorem 1; Theorem 6.5 of
    docs/theory/k-seq.md).

    Parameters
    ----------
    problem : Problem
        Only k and the type of the numbers matter.

    Returns
    -------
    float or Fraction
        The fraction, in (0, 1]; it is 1 for k = 1.

    References
    ----------
    .. [sun2023] Sun et al., "SpecTr: Fast Speculative Decoding via Optimal Transport",
       NeurIPS 2023.

    Examples
    --------
    >>> guarantee(Problem([0.75, 0.25], [0.25, 0.75], k=2))
    0.75
    """
    return at_least_once((0 * as_number(problem.draft[0]) + 1) / problem.k, problem.k)


def lemma_3_by_definition(problem: Problem) -> Number:
    """Compute Lemma 3's upper bound ᾱ_k as a minimum over all sets Ω_0 of tokens.

    Equation 9 of [sun2023]_ defines ᾱ_k in this way.

    Parameters
    ----------
    problem : Problem
        A problem for which 2^n · n^k is at most `LARGEST_ENUMERATION`.

    Returns
    -------
    float or Fraction
        ᾱ_k.  It equals α_k, up to rounding in floats (Theorem 4.6 of docs/theory/cap.md).

    Raises
    ------
    ProblemTooLargeError
        If the number of pairs of a set and a tuple exceeds `LARGEST_ENUMERATION`.

    References
    ----------
    .. [sun2023] Sun et al., "SpecTr: Fast Speculative Decoding via Optimal Transport",
       NeurIPS 2023.

    Examples
    --------
    >>> lemma_3_by_definition(Problem([0.75, 0.25], [0.25, 0.75], k=2))
    0.6875
    """
    n, k = problem.n, problem.k
    p, q = problem.draft.tolist(), problem.target.tolist()
    digits = n * math.log10(2) + k * math.log10(n)
    if digits > math.log10(LARGEST_ENUMERATION):
        raise ProblemTooLargeError(
            f"n = {n} tokens and k = {k} drafts have 2^n n^k pairs of a set and a tuple, about "
            f"10^{digits:.1f}; the limit is {LARGEST_ENUMERATION}.  The bound equals α_k: use "
            "otm.alpha"
        )
    tuples = [(set(x), math.prod(p[i] for i in x)) for x in product(range(n), repeat=k)]
    drafted = [min(q[y], at_least_once(p[y], k)) for y in range(n)]
    subsets = chain.from_iterable(combinations(range(n), size) for size in range(n + 1))

    def value(chosen: tuple[int, ...]) -> Any:
        others = set(range(n)) - set(chosen)
        first = total(drafted[y] for y in chosen)
        return first + total(min(mass, total(q[y] for y in x & others)) for x, mass in tuples)

    smallest: Number = min(map(value, subsets))
    return smallest
