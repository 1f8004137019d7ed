"""OTM-k in closed form: the minimum cut over prefixes in q/p, and the cap that attains it.

OTM-k is a maximum flow from draft tuples to tokens.  A finite cut is a set H of tokens, and for
k i.i.d. drafts the best one is a prefix in the order of q/p, so that

    α_k(p, q) = min over H of  q(H) + 1 − p(H)^k

is a minimum over n + 1 numbers.  Along the prefixes it is not unimodal: all of them are scanned.
The same value was found by Hu et al., "Towards Optimal Multi-draft Speculative Decoding",
ICLR 2025.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from otm._core.arithmetic import Frozen, Number, at_least_once, at_most_one, is_exact
from otm._core.ratio_order import RatioOrder
from otm.problem import Problem

ROUNDING = 2.0**-50
"""A float value this close to q(supp p) is taken to be equal to it: then no cap is needed."""


@dataclass(frozen=True, eq=False)
class Cut(Frozen):
    """A set H of tokens with its upper bound on α_k; a minimum one proves optimality.

    Theorem 2.1 of docs/theory/minimum-cut.md.

    Attributes
    ----------
    value : float or Fraction
        q(H) + 1 − Pr(S ⊆ H), which is q(H) + 1 − p(H)^k for i.i.d. drafts: at least the optimum
        for every H, and equal to it for a minimum cut.
    tokens : int array [|H|]
        The tokens of H.

    Examples
    --------
    >>> cut = minimum_cut(Problem([0.75, 0.25], [0.25, 0.75], k=1))
    >>> cut.value, cut.tokens.tolist()  # q(0) + 1 − p(0)
    (0.5, [0])
    """

    value: Number
    tokens: npt.NDArray[np.int64]


def optimal_value(order: RatioOrder, k: int) -> tuple[Number, int]:
    """Optimal acceptance probability α_k and the size of the prefix that attains it.

    Theorem 3.1 of docs/theory/closed-form.md; in floats its relative accuracy is that of
    Theorem 3.4.

    Parameters
    ----------
    order : RatioOrder
        The two distributions along q/p.
    k : int
        The number of drafts, at least 1; not checked here.

    Returns
    -------
    tuple of (float or Fraction, int)
        α_k, and the number j of tokens in a minimum cut: the first j of the order.

    Examples
    --------
    >>> optimal_value(RatioOrder(np.array([0.75, 0.25]), np.array([0.25, 0.75])), k=1)
    (0.5, 1)
    """
    values = order.target_below + at_least_once(order.draft_above, k)
    size = int(values.argmin())
    return at_most_one(values[size]), size


def minimum_cut(problem: Problem) -> Cut:
    """Minimum cut H of the problem; its value is α_k.

    Parameters
    ----------
    problem : Problem
        The distributions and k.

    Returns
    -------
    Cut
        The smallest prefix that attains α_k, with the value α_k (Theorem 3.1 of
        docs/theory/closed-form.md).

    Examples
    --------
    >>> cut = minimum_cut(Problem([0.75, 0.25], [0.25, 0.75], k=2))
    >>> round(cut.value, 12), cut.tokens.tolist()
    (0.6875, [0])
    """
    value, size = optimal_value(problem.by_ratio, problem.k)
    return Cut(value, problem.by_ratio.tokens[:size])


def optimal_cap(problem: Problem) -> Number:
    """Cap c* such that the accepted mass min(q, c* p) is optimal: 1 ≤ c* ≤ k.

    Theorems 4.2 and 4.3 of docs/theory/cap.md.

    The same family holds the other rules: c = 1 is the maximal coupling, c = ρ* is k-Seq.

    Parameters
    ----------
    problem : Problem
        The distributions and k.

    Returns
    -------
    float or Fraction
        c*; k where all target mass that can be drafted is accepted, since no cap is needed there.

    Examples
    --------
    >>> round(optimal_cap(Problem([0.75, 0.25], [0.25, 0.75], k=2)), 12)
    1.75
    """
    value, _ = optimal_value(problem.by_ratio, problem.k)
    return cap_of_value(problem.by_ratio, value, problem.k)


def cap_of_value(order: RatioOrder, value: Number, k: int) -> Number:
    """Optimal cap of two distributions along q/p for k drafts, if α_k is known.

    Parameters
    ----------
    order : RatioOrder
        The two distributions along q/p.
    value : float or Fraction
        α_k.
    k : int
        The number of drafts.

    Returns
    -------
    float or Fraction
        c*, as from `optimal_cap`.

    Examples
    --------
    >>> order = Problem([0.75, 0.25], [0.25, 0.75], k=2).by_ratio
    >>> cap_of_value(order, 0.6875, 2)
    1.75
    """
    exact = is_exact(order.draft)
    largest = 0 * value + k
    everything = order.target_below[-1] * (1 if exact else 1 - ROUNDING)
    cap = None if value >= everything else order.cap_of_mass(value)
    # rounding aside c* is at least 1
    return largest if cap is None else min(max(cap, 0 * value + 1), largest)
