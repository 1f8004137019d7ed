"""The division factor ρ* of k-Seq (SpecTr Theorem 1, Lemma 4)."""

from __future__ import annotations

import math

import numpy as np

from otm._core.arithmetic import Number, as_number, at_least_once
from otm._core.ratios.bins import RatioBins, in_bins
from otm.errors import InvalidParameterError
from otm.problem import Problem

DEFAULT_DELTA = 2.0**-50
"""Default width of the final bracket of ρ*; the spacing of float64 near k is not much smaller."""


def optimal_division_factor(problem: Problem, delta: float | None = None) -> Number:
    """Compute the smallest valid division factor ρ* of k-Seq by bisection, rounded up.

    ρ* solves 1 − (1 − β(ρ))^k = ρ β(ρ) with β(ρ) = Σ min(p, q/ρ) ([sun2023]_, equation 6).  The
    left side of this equation minus the right side decreases in ρ and changes sign in
    [1, min(k, max q/p)] (Lemma 4; Theorem 6.2 of docs/theory/k-seq.md).
    The **upper** end of the final bracket is returned, since k-Seq is valid for every ρ ≥ ρ*.

    Parameters
    ----------
    problem : Problem
        The draft distribution, the target distribution and the number of drafts.
    delta : float, optional
        Width of the final bracket, 2^−50 by default.  The result is in [ρ*, ρ* + delta].  Each of
        the `bisection_steps(k, delta)` steps takes O(log n) time once the bin with ρ* is known.

    Returns
    -------
    float or Fraction
        ρ*, a Fraction if the distributions are fractions; 1 for equal or disjoint distributions.

    Raises
    ------
    InvalidParameterError
        If delta is not positive and finite.  If ρ* = 1, no bisection is needed, and `delta` is not
        checked.

    References
    ----------
    .. [sun2023] Sun et al., "SpecTr: Fast Speculative Decoding via Optimal Transport",
       NeurIPS 2023, section 6 and appendix C.1.

    Examples
    --------
    >>> from otm import Problem
    >>> uniform = Problem([0.25] * 4, [0.5, 0.5, 0, 0], k=2)  # U(4) and U(4/2)
    >>> round(optimal_division_factor(uniform), 12)  # r (1 − (1 − 1/r)^k) at r = 2
    1.5
    """
    delta = DEFAULT_DELTA if delta is None else delta
    bins, k = problem.bins, problem.k
    low = as_number(0 * bins.draft_above[0] + 1)
    if _excess(bins, k, low) <= 0:
        return low
    high = low * k
    if in_bins(problem.draft):
        # The bin that contains ρ* is the last one whose least ratio is below ρ*.
        bins, size = bins.resolve(lambda bins: _bins_below(bins, k))
        size = max(size, 1)
        low, high = max(low, bins.least[size - 1]), min([high, *bins.least[size : size + 1]])
    # If the target has mass where the draft has none, max q/p is infinite and bounds nothing.
    elif problem.target[problem.draft == 0].sum() == 0:
        high = max(low, min(high, as_number(bins.least[-1])))
    for _ in range(bisection_steps(k, delta)):
        middle = (low + high) / 2
        if _excess(bins, k, middle) > 0:
            low = middle
        else:
            high = middle
    return high


def bisection_steps(k: int, delta: float) -> int:
    """Count the bisection steps that bracket ρ* ∈ [1, k] to a width of delta.

    Parameters
    ----------
    k : int
        Number of drafts, at least 1.
    delta : float
        Width of the final bracket, positive.

    Returns
    -------
    int
        ⌈log2((k − 1)/delta)⌉, at least 0.

    Raises
    ------
    InvalidParameterError
        If delta is not positive and finite.

    Examples
    --------
    >>> bisection_steps(9, 2**-10)
    13
    """
    if not 0 < delta < math.inf:
        raise InvalidParameterError(
            f"delta = {delta}; the width of the bracket must be positive and finite"
        )
    return max(0, math.ceil(math.log2(k - 1) - math.log2(delta))) if k > 1 else 0


def excess(problem: Problem, rho: Number) -> Number:
    """Compute f(ρ) = 1 − (1 − β)^k − ρβ with β = Σ min(p, q/ρ); k-Seq is valid if f(ρ) ≤ 0.

    [sun2023]_, Lemma 4; Theorem 6.2 of docs/theory/k-seq.md.

    Parameters
    ----------
    problem : Problem
        The distributions and k.
    rho : float or Fraction
        The division factor ρ, which must be positive; this is not checked.

    Returns
    -------
    float or Fraction
        f(ρ), a Fraction if the distributions and `rho` are fractions.

    References
    ----------
    .. [sun2023] Sun et al., "SpecTr: Fast Speculative Decoding via Optimal Transport",
       NeurIPS 2023.

    Examples
    --------
    >>> from otm import Problem
    >>> problem = Problem([0.75, 0.25], [0.25, 0.75], k=2)
    >>> excess(problem, 1.5) > 0 > excess(problem, 1.6)  # ρ* = 1.593
    True
    """
    return _excess(problem.bins, problem.k, rho)


def _excess(bins: RatioBins, k: int, rho: Number) -> Number:
    accepted = bins.capped_mass(rho)  # ρβ(ρ) = Σ min(q, ρp)
    return at_least_once(accepted / rho, k) - accepted


def _bins_below(bins: RatioBins, k: int) -> int:
    """Count the bins for which max(least ratio, 1) is below ρ*."""
    rho = np.maximum(bins.least, 1)
    # This is Σ min(q, ρp) only for bins with a least ratio of at least 1.
    accepted = bins.target_below[:-1] + bins.least * bins.draft_above[:-1]
    valid = (at_least_once(accepted / rho, k) <= accepted) & (bins.least >= 1)
    return int(valid.argmax()) if valid.any() else valid.size
