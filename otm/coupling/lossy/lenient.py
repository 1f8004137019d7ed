"""Lenient rules, which accept more often but do not keep the target distribution.

The rules generalise the rule of Leviathan et al., appendix A.5, from one draft to k drafts.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Literal

import numpy as np

from otm._core.arithmetic import (
    Number,
    Probs,
    as_number,
    interval_slopes,
    is_exact,
    read_only,
    running_sum,
    zeros,
)
from otm._core.numbers import check_name
from otm._core.probs.distribution import residual_weights, total_variation
from otm._core.ratios.bins import floor_of
from otm._core.ratios.keys import ratio_of
from otm.coupling.optimal.plan import OptimalPlan
from otm.coupling.optimal.swaps import TargetWinRatio
from otm.coupling.plan import TransportPlan
from otm.coupling.residual import TokenwisePlan, argmax_weights
from otm.optimum.lenience import check_lenience, closest_in_bins, lenient_cap


@dataclass(frozen=True)
class Distance:
    """Distance of the output distribution Y of a plan from a distribution q.

    Attributes
    ----------
    total_variation : float or Fraction
        Σ abs(Y − q) / 2.
    divergence : float
        Kullback–Leibler divergence Σ Y ln(Y/q) in nats; infinite if Y > 0 = q for a token.
    largest_ratio : float or Fraction
        Largest Y/q; infinite if a token has Y > 0 and q = 0, or if a ratio overflows in floats.

    Examples
    --------
    >>> from otm import Problem
    >>> distance_to_target(OptimalPlan(Problem([0.75, 0.25], [0.25, 0.75], k=1)))
    Distance(total_variation=0.0, divergence=0.0, largest_ratio=1.0)
    """

    total_variation: Number
    divergence: float
    largest_ratio: Number


def distance_to_target(plan: TransportPlan) -> Distance:
    """Return the distance of a plan's output distribution from the target distribution.

    Theorem 7.3 of docs/theory/lenience.md bounds the total variation that an acceptance above the
    optimum requires.

    Parameters
    ----------
    plan : TransportPlan
        Any rule, lossless or not.

    Returns
    -------
    Distance
        The distance, with `total_variation`, `divergence` and `largest_ratio`.

    Raises
    ------
    ProblemTooLargeError
        If the sum for `output_distribution` of the plan has too many terms.

    Examples
    --------
    >>> from otm import Problem
    >>> plan = LenientPlan(Problem([0.75, 0.25], [0.25, 0.75], k=1), 0.5)
    >>> distance_to_target(plan)
    Distance(total_variation=0.25, divergence=0.14384103622589042, largest_ratio=2.0)
    """
    probs, target = plan.output_distribution(), plan.problem.target
    support = probs > 0
    if (target[support] == 0).any():
        return Distance(total_variation(probs, target), math.inf, math.inf)
    # The ratio overflows if a target probability is close to the smallest float.
    with np.errstate(over="ignore"):
        ratio = probs[support] / target[support]
    logarithms = _logarithms(ratio, probs, target)
    divergence = float((probs[support].astype(np.float64) * logarithms).sum())
    return Distance(total_variation(probs, target), divergence, as_number(ratio.max()))


def _logarithms(ratio: Probs, probs: Probs, target: Probs) -> Probs:
    """Return ln(probs/target) for tokens with probs > 0, also for ratios that overflow."""
    if is_exact(ratio):
        # For ratios near 1, a difference of logarithms would cancel.
        near = [Fraction(1, 2) < r < 2 for r in ratio]
        return np.array([
            math.log(r) if close else math.log(r.numerator) - math.log(r.denominator)
            for r, close in zip(ratio, near, strict=True)
        ])  # fmt: skip
    support = probs > 0
    logarithms: Probs = np.log(ratio)
    return np.where(np.isinf(ratio), np.log(probs[support]) - np.log(target[support]), logarithms)


@dataclass(frozen=True, eq=False)
class LenientPlan(OptimalPlan):
    """The rule with the largest acceptance such that Pr(Y = y) ≤ q(y)/l for every token y.

    The rule is not lossless for l < 1.  The rule uses slots and swaps like the optimal plan, but
    its accepted mass v is different.  There are two versions:

    - "closest" has v = min(q/l, max(min(q, c* p), B p)) and the residual ∝ max(q − v, 0).  This
      version is optimal in both acceptance and total variation (Theorem 7.4 of
      docs/theory/lenience.md).
    - "paper" has v = min(q/l, c_l p) and the residual ∝ max(q − l c_l p, 0).  For k = 1 it is the
      rule of [leviathan2023]_, appendix A.5: accept with probability min(1, q/(l p)).

    Parameters
    ----------
    problem : Problem
        The draft distribution, the target distribution and the number of drafts.
    lenience : float or Fraction
        The lenience l in (0, 1]; at l = 1 both versions are the optimal lossless plan.
    residual_of : {"closest", "paper"}, optional
        The version.

    Raises
    ------
    InvalidInputError
        If `problem` is not a single `Problem`, or the rule does not support its drafts.
    InvalidParameterError
        If l is not in (0, 1].
    UnknownMethodError
        If `residual_of` is not "closest" or "paper".

    References
    ----------
    .. [leviathan2023] Leviathan, Kalman and Matias, "Fast Inference from Transformers via
       Speculative Decoding", ICML 2023.

    Examples
    --------
    >>> from otm import Problem
    >>> problem = Problem([0.75, 0.25], [0.25, 0.75], k=2)
    >>> for lenience in (1, 0.5, 0.25):
    ...     plan = LenientPlan(problem, lenience)
    ...     print(f"{plan.acceptance:.4f} {distance_to_target(plan).total_variation:.4f}")
    0.6875 0.0000
    0.9375 0.2500
    1.0000 0.3125
    """

    lenience: Number
    residual_of: Literal["closest", "paper"] = "closest"

    def __post_init__(self) -> None:
        self._check_problem()
        object.__setattr__(self, "lenience", check_lenience(self.problem, self.lenience))
        check_name("residual", self.residual_of, ("closest", "paper"))

    @property
    def lossless(self) -> bool:
        """Whether l = 1; for smaller l the rule is lossy."""
        return bool(self.lenience == 1)

    @cached_property
    def accepted_ratio(self) -> Probs:
        """Ratio v/p of accepted mass to draft mass, for each q/p in ascending order: array [m]."""
        if self.residual_of == "closest":
            return read_only(closest_in_bins(self.problem, self.lenience))
        with np.errstate(over="ignore"):
            largest = self.problem._ratios.least / self.lenience
        return read_only(np.minimum(largest, np.asarray(self._cap)))

    @cached_property
    def _cap(self) -> Number:
        """Cap c_l of the version "paper"."""
        return lenient_cap(self.problem, self.lenience)

    @cached_property
    def _target_win_ratio(self) -> TargetWinRatio:
        """Target win ratio for a winner distribution of at least v; each ratio q/p has a bin."""
        bins, k = self.problem._ratios, self.problem.k
        mass = running_sum(self.accepted_ratio * bins.draft, from_zero=True)
        floor = floor_of(self.accepted_ratio, bins.draft_below, mass, 1 - mass[-1])
        raised = np.maximum(self.accepted_ratio, np.asarray(floor))
        slope = interval_slopes(bins.draft_below, bins.draft_above, bins.draft, k)
        none = np.zeros(slope.size, dtype=bool)
        return TargetWinRatio(bins, read_only(slope), read_only(raised), read_only(none))

    @cached_property
    def target_mass(self) -> Probs:
        """Upper bound v on the accepted mass of each token: array [n]."""
        mass, drafted = zeros(self.problem.n, self.problem.draft), self.problem.draft.nonzero()[0]
        draft, target = self.problem.draft[drafted], self.problem.target[drafted]
        place = self.problem._ratios.place(ratio_of(draft, target))
        mass[drafted] = np.minimum(self.accepted_ratio[place] * draft, target / self.lenience)
        return read_only(mass)

    @property
    def _residual_weights(self) -> Probs:
        if self.residual_of == "closest":
            return super()._residual_weights
        accepted = self.lenience * self._cap * self.problem.draft
        return residual_weights(self.problem.target, accepted)


@dataclass(frozen=True, eq=False)
class ArgmaxLenientPlan(TokenwisePlan):
    """Lenient rule for greedy decoding: accept the first draft x with q(x) ≥ l · max q.

    If no draft passes, the output is the most probable token.  So at l = 1, if there are no
    ties, the output is that of greedy decoding.  [leviathan2023]_, appendix A.5, prints the
    opposite inequality, which would accept improbable tokens.

    Parameters
    ----------
    problem : Problem
        The draft distribution, the target distribution (before the argmax) and the number of
        drafts.
    lenience : float or Fraction
        The lenience l in (0, 1].

    Raises
    ------
    InvalidInputError
        If `problem` is not a single `Problem`, or the rule does not support its drafts.
    InvalidParameterError
        If l is not in (0, 1].

    References
    ----------
    .. [leviathan2023] Leviathan, Kalman and Matias, "Fast Inference from Transformers via
       Speculative Decoding", ICML 2023.

    Examples
    --------
    >>> from otm import Problem
    >>> problem = Problem([0.5, 0.3, 0.2], [0.3, 0.6, 0.1], k=1)
    >>> [float(ArgmaxLenientPlan(problem, l).acceptance) for l in (1, 0.5)]
    [0.3, 0.8]
    """

    lenience: Number

    def __post_init__(self) -> None:
        self._check_problem()
        object.__setattr__(self, "lenience", check_lenience(self.problem, self.lenience))

    lossless = False
    """False, because the output does not have the target distribution of the problem."""

    @cached_property
    def accept_probability(self) -> Probs:
        """1 for each token that is accepted if it is a draft, 0 for all other tokens: array [n]."""
        accepted = self.problem.target >= self.lenience * self.problem.target.max()
        ones: Probs = zeros(self.problem.n, self.problem.draft)
        ones[accepted] += 1
        return read_only(ones)

    @property
    def _residual_weights(self) -> Probs:
        return argmax_weights(self.problem.target)
