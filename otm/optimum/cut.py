"""OTM-k in closed form: the minimum cut over prefixes in the order of q/p, and the optimal cap.

OTM-k is a maximum flow from draft tuples to tokens.  A finite cut is a set H of tokens, and for
k i.i.d. drafts the best cut is a prefix in the order of q/p, so that

    α_k(p, q) = min over H of  q(H) + 1 − p(H)^k

is a minimum over n + 1 numbers.  The values along the prefixes may have several local minima, so
the code scans all prefixes.  Hu et al. found the same formula ("Towards Optimal Multi-draft
Speculative Decoding", ICLR 2025).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from weakref import WeakKeyDictionary

import numpy as np
import numpy.typing as npt

from otm._core.arithmetic import (
    Frozen,
    Number,
    Probs,
    at_least_once,
    at_most_one,
    is_exact,
)
from otm._core.ratios.bins import RatioBins
from otm.problem import Problem

_PREFIXES: WeakKeyDictionary[Problem, tuple[Number, int, RatioBins]] = WeakKeyDictionary()
"""Cache of the best prefix of each problem that is still in use."""

FULL_SUPPORT_TOLERANCE = 2.0**-50
"""Relative tolerance within which a float value counts as q(supp p); then no cap is needed."""


@dataclass(frozen=True, eq=False)
class Cut(Frozen):
    """A set H of tokens with its upper bound on α_k; a minimum cut proves optimality.

    Theorem 2.1 of docs/theory/minimum-cut.md.

    Attributes
    ----------
    value : float or Fraction
        q(H) + 1 − Pr(S ⊆ H), where S is the set of drafts.  For i.i.d. drafts the value is
        q(H) + 1 − p(H)^k.  The value is at least α_k for every H, and equals α_k for a minimum cut.
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


def optimal_value(problem: Problem, k: int | None = None) -> Number:
    """Compute the optimal acceptance probability α_k, without its cut.

    The formula is Theorem 3.1 of docs/theory/closed-form.md.  Theorem 3.4 bounds the relative error
    of the value in floats.

    Parameters
    ----------
    problem : Problem
        The distributions and k.
    k : int, optional
        Number of drafts to use instead of `problem.k`; at least 1, which is not checked.

    Returns
    -------
    float or Fraction
        α_k.

    Examples
    --------
    >>> problem = Problem([0.75, 0.25], [0.25, 0.75], k=1)
    >>> optimal_value(problem), optimal_value(problem, k=2)
    (0.5, 0.6875)
    """
    if k is None or k == problem.k:
        return best_prefix(problem)[0]
    return cut_in_bins(problem.bins, k)[0]


def minimum_cut(problem: Problem) -> Cut:
    """Compute a minimum cut H of the problem; its value is α_k.

    Parameters
    ----------
    problem : Problem
        The distributions and k.

    Returns
    -------
    Cut
        The smallest prefix whose value is α_k (Theorem 3.1 of docs/theory/closed-form.md).

    Examples
    --------
    >>> cut = minimum_cut(Problem([0.75, 0.25], [0.25, 0.75], k=2))
    >>> round(cut.value, 12), cut.tokens.tolist()
    (0.6875, [0])
    """
    value, size, bins = best_prefix(problem)
    return Cut(value, bins.tokens_below(size))


def best_prefix(problem: Problem) -> tuple[Number, int, RatioBins]:
    """Return `cut_in_bins` of a problem from a cache, which value, cut and plan share."""
    prefix = _PREFIXES.get(problem)
    if prefix is None:
        prefix = _PREFIXES[problem] = cut_in_bins(problem.bins, problem.k)
    return prefix


def cut_in_bins(bins: RatioBins, k: int) -> tuple[Number, int, RatioBins]:
    """Compute the optimal acceptance probability, without sorting many tokens.

    The method is Theorem 3.5 of docs/theory/closed-form.md.

    Returns
    -------
    tuple of (float or Fraction, int, RatioBins)
        α_k, the number of bins in a minimum cut, and all bins.  The cut consists of the first bins.
    """
    (value,), (size,), bins = cuts_in_bins(bins, [k])
    return value, size, bins


def cuts_in_bins(bins: RatioBins, ks: Sequence[int]) -> tuple[list[Number], list[int], RatioBins]:
    """Compute `cut_in_bins` for several k with one set of bins; return lists [K] and the bins.

    A bin is split if a prefix that ends inside it may be better than the best prefix that ends at
    an edge.  A bin that is split for one k adds candidate cuts for every other k, so values for
    other k may change by rounding.
    """
    while True:
        found, sizes, doubtful = [], [], []
        for k in ks:
            values, rough = prefix_values(bins, k)
            sizes.append(int(values.argmin()))
            found.append(at_most_one(values[sizes[-1]]))
            if bins.wide.size:
                limit = values[sizes[-1]] * (1 - FULL_SUPPORT_TOLERANCE)
                places = bins.wide[rough < limit]
                doubtful.append(places[cut_lower_bounds(bins, k, places) < limit])
        if not sum(places.size for places in doubtful):
            return found, sizes, bins
        bins = bins.split(np.concatenate(doubtful))


def prefix_values(bins: RatioBins, k: int) -> tuple[Probs, Probs]:
    """Compute the values of the cuts at the edges of bins, and lower bounds on cuts inside bins.

    Returns
    -------
    tuple of (array [m + 1], array [w])
        q(H) + 1 − p(H)^k where H is the first j bins; and for each bin with several ratios
        (`bins.wide`) a rough lower bound on the value of a prefix that ends inside the bin.
    """
    hit, below = at_least_once(bins.draft_above, k), bins.target_below
    return below + hit, below[bins.wide] + hit[bins.wide + 1]


def cut_lower_bounds(bins: RatioBins, k: int, places: npt.NDArray[np.int64]) -> Probs:
    """Compute tighter lower bounds than those of `prefix_values`, for the bins at `places`."""
    if not places.size:
        return bins.least[:0]
    draft_above, target_below = bins.corners(places)
    values: Probs = target_below + at_least_once(draft_above, k)
    return values


def optimal_cap(problem: Problem) -> Number:
    """Compute the cap c* for which the accepted mass min(q, c* p) is optimal; 1 ≤ c* ≤ k.

    Theorems 4.2 and 4.3 of docs/theory/cap.md.

    Two other rules accept min(q, c p) with a smaller cap: maximal coupling has c = 1, and k-Seq
    has c = ρ*.

    Parameters
    ----------
    problem : Problem
        The distributions and k.

    Returns
    -------
    float or Fraction
        c*, or k if the optimum accepts all target mass on tokens that can be drafted: then no cap
        is needed.

    Examples
    --------
    >>> round(optimal_cap(Problem([0.75, 0.25], [0.25, 0.75], k=2)), 12)
    1.75
    """
    value, _, bins = best_prefix(problem)
    return cap_in_bins(bins, value, problem.k)[0]


def cap_in_bins(bins: RatioBins, value: Number, k: int) -> tuple[Number, RatioBins]:
    """Compute the optimal cap for k drafts from a known α_k.

    Parameters
    ----------
    bins : RatioBins
        Draft and target distribution, in bins of q/p.
    value : float or Fraction
        α_k.
    k : int
        Number of drafts.

    Returns
    -------
    tuple of (float or Fraction, RatioBins)
        c* as `optimal_cap` returns it, and the bins, in which the bin around c* is split.

    Examples
    --------
    >>> bins = Problem([0.75, 0.25], [0.25, 0.75], k=2).bins
    >>> cap_in_bins(bins, 0.6875, 2)[0]
    1.75
    """
    largest = 0 * value + k
    everything = bins.target_below[-1] * (1 if is_exact(bins.least) else 1 - FULL_SUPPORT_TOLERANCE)
    cap, bins = (None, bins) if value >= everything else bins.cap_of_mass(value)
    # c* is at least 1, but rounding may put the computed value below 1.
    return largest if cap is None else min(max(cap, 0 * value + 1), largest), bins
