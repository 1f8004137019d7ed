"""Integrals of list coupling: distributions of drafts and output from shared exponential clocks.

List m has a clock S_i^m ~ Exp(1) for each token i, all independent.  The draft of list m is
X^m = argmin_i S_i^m/p_i, and the output is Y = argmin_i min_m S_i^m/q_i.  Let m* be the list that
attains the minimum t = min_{i, m} S_i^m/q_i.  Since S_i^m/q_i is exponential of rate q_i, the
variables t ~ Exp(k), Y ~ q and m* (uniform) are independent.  Given t, Y and m*, S_Y^{m*} = q_Y t,
and all other clocks satisfy S_i^m > q_i t.  By memorylessness, the excess of each clock over q_i t
is again Exp(1), independent of the other clocks.  With r = q/p, the time S_i^m/p_i therefore equals
r_i t + Exp(p_i): a clock of rate p_i that starts at r_i t.

Sort the tokens with p > 0 by ascending r, and let P_l be the draft mass of the first l tokens.
Between r_l t and r_{l+1} t the first l clocks run.  With probability e^(−D_l t), no clock has rung
before r_l t, where ::

    D_1 = 0,   D_{l+1} = D_l + P_l (r_{l+1} − r_l),   D_{m+1} = ∞

The first clock to ring does so between r_l t and r_{l+1} t and belongs to token i ≤ l with
probability p_i F_l, where F_l = (e^(−D_l t) − e^(−D_{l+1} t)) / P_l.  Hence, with
Ĝ_i = Σ_{l ≥ i} F_l,

- a list m ≠ m* drafts x with probability p_x Ĝ_x;
- list m* drafts x with probability p_x (Ĝ_x − Ĝ_y) if x comes before y, e^(−D_y t) if x = y, and 0
  if x comes after y (where p_y = 0, y comes last, Ĝ_y = 0, and y is not drafted).

Given the drafts x, the distribution of Y is therefore q_y W_y with

    W_y = ∫ e^(−kt) Σ_{m*} (Ĝ_{x_m*} − Ĝ_y, or e^(−D_y t)/p_y, or 0) Π_{m ≠ m*} Ĝ_{x_m} dt

and Pr(Y = y, accepted) = q_y ∫ k e^(−kt) [1 − (1 − e^(−D_y t)) (1 − p_y Ĝ_y)^(k−1)] dt.  This
module computes these integrals in floats and in fractions.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt

from otm._core.arithmetic import (
    Frozen,
    Number,
    Probs,
    as_number,
    at_least_once,
    read_only,
    running_sum,
    zeros,
)
from otm._core.quadrature import log_trapezoid, node_chunks
from otm._core.ratios.order import RatioOrder
from otm.coupled.grouped_acceptance import grouped_acceptance
from otm.errors import ProblemTooLargeError
from otm.optimum.multisets import scientific

Floats: TypeAlias = npt.NDArray[np.float64]
Places: TypeAlias = npt.NDArray[np.int64]

LARGEST_RATIO = 2.0**900
"""Upper limit for float ratios q/p; larger ratios would make times overflow."""

LEAST_TOKENS = 256
"""Fewer tokens are summed one by one."""

LONGEST_TIME = 100.0
"""Upper limit of t in quadrature; given any drafts, t exceeds it with probability ≤ 1e-20.

The tokens with p ≤ 2q have at least half of the mass of q.  Let E ~ Exp(1) be the smallest S_i/p_i
of one list.  If the list drafts a token with p ≤ 2q, t ≤ 2E.  For any other draft, t is at most 2E
plus an exponential time of rate at least 1/2, which is independent of E and of the draft.
"""

_T = TypeVar("_T")
_Add: TypeAlias = Callable[[_T, _T], _T]

ExponentialSum: TypeAlias = dict[Fraction, Fraction]
"""The sum Σ c e^(−a t), as a dict from rates a to coefficients c."""

LARGEST_EXPANSION = 200_000
"""Maximum of m C(m + k − 1, k), the number of terms for m tokens and k drafts."""


@dataclass(frozen=True, eq=False)
class FloatClocks(Frozen):
    """The integrals in floats, by the trapezoid rule in log t.

    All integrands are mixtures of t^j e^(−a t), 0 ≤ j ≤ k, with positive weights.  So the rule has
    a relative error below 2e-17; rounding adds an absolute error of about 1e-15.
    """

    # The m tokens with p > 0, in ascending order of q/p.
    order: RatioOrder
    # Number of drafts.
    k: int

    @cached_property
    def _ratio(self) -> Floats:
        return read_only(np.minimum(self.order.ratio, LARGEST_RATIO))

    @cached_property
    def rates(self) -> Floats:
        """The rates D_1, …, D_m."""
        steps = self.order.draft_below[1:-1] * np.diff(self._ratio)
        return read_only(running_sum(steps, from_zero=True))

    def _tables(self) -> Iterator[tuple[Floats, Floats, Floats, Floats]]:
        """Yield nodes t [T], weights [T], e^(−t − D t) [T, m] and e^(−t) Ĝ [T, m + 1].

        Nodes are yielded in small chunks.  The factor e^(−t) keeps products of Ĝ below one.
        """
        gaps, masses = np.diff(self._ratio), self.order.draft_below
        steps = masses[1:-1] * gaps
        # Given any drafts, t is below `low` with probability at most k (1 + max r) low.
        low = 2.0**-60 / (self.k * (1 + self._ratio[-1]))
        nodes, weights = log_trapezoid(low, LONGEST_TIME, self.k)
        for chunk in node_chunks(nodes.size, self.order.tokens.size):
            t = nodes[chunk, None]
            silent = np.exp(-t * (1 + self.rates))
            # F is t (r_{l+1} − r_l) e^(−D t) times the mean of e^(−z u) over u in [0, 1].  This
            # form avoids cancellation and divisions by P.
            z = t * steps
            mean = np.divide(-np.expm1(-z), z, out=np.ones_like(z), where=z > 0)
            rung = np.zeros((len(t), gaps.size + 2))
            rung[:, :-2] = t * gaps * mean * silent[:, :-1]
            rung[:, -2] = silent[:, -1] / masses[-1]
            rung = np.cumsum(rung[:, ::-1], axis=1)[:, ::-1]
            yield nodes[chunk], weights[chunk], silent, rung

    def probs_given(self, places: Places) -> Floats:
        """Return the distributions of Y, given rows of ascending drafts: [B, k] → [B, m + 1].

        The first m columns are the tokens with p > 0, in ratio order.  The last column is W for
        tokens with p = 0; callers multiply it by the target probability of such a token.
        """
        # This array is W without the terms in which Y is the draft of list m*.
        of_list = np.zeros((len(places), self.order.tokens.size + 1))
        of_draft = np.zeros(places.shape)
        for _, weights, silent, rung in self._tables():
            for row, tokens in enumerate(places):
                others = weights[:, None] * _product_of_others(rung[:, tokens])
                of_draft[row] += (others * silent[:, tokens]).sum(axis=0)
                # Sums over the lists whose drafts come before a token y.
                upto = np.cumsum(others, axis=1)
                reached = np.cumsum((others * rung[:, tokens]).sum(axis=0))
                ends = np.append(tokens[1:], len(of_list[row]) - 1)
                for j in range(self.k):
                    later = slice(tokens[j] + 1, ends[j] + 1)
                    of_list[row, later] += reached[j] - upto[:, j] @ rung[:, later]
        output = np.maximum(of_list, 0)
        output[:, :-1] *= self.order.target
        np.add.at(output, (np.arange(len(places))[:, None], places), of_draft * self._ratio[places])
        return output

    def acceptance(self) -> float:
        """Return Pr(Y ∈ {X_1, …, X_k})."""
        if self.order.tokens.size < LEAST_TOKENS:
            return float(self.accepted_mass().sum())
        return grouped_acceptance(self.order, self.rates, self.k)

    def accepted_mass(self) -> Floats:
        """Return Pr(Y = y, accepted) in ratio order: array [m]."""
        accepted = np.zeros(self.order.tokens.size)
        for t, weights, silent, rung in self._tables():
            growth = np.exp(t)[:, None]
            own = silent * growth
            density = weights * self.k * np.exp(-self.k * t)
            if self.k > 1:
                other = np.minimum(self.order.draft * rung[:, :-1] * growth, 1)
                own += (1 - own) * at_least_once(other, self.k - 1)
            accepted += density @ own
        return accepted * self.order.target

    def output_distribution(self) -> Floats:
        """Return Pr(Y = y) in ratio order, summed over all drafts: array [m + 1].

        The last entry is for tokens with p = 0; callers multiply it by the q of each such token.
        """
        output = np.zeros(self.order.tokens.size + 1)
        for t, weights, silent, rung in self._tables():
            growth = np.exp(t)[:, None]
            before = np.cumsum(self.order.draft * rung[:, :-1], axis=1)
            # Sum over the drafts of m*.
            own = np.zeros_like(rung)
            own[:, 1:] = before - self.order.draft_below[1:] * rung[:, 1:]
            own[:, :-1] = own[:, :-1] + silent
            density = weights * self.k * np.exp(-self.k * t)
            output += (density * (before[:, -1] * growth[:, 0]) ** (self.k - 1)) @ (own * growth)
        output[:-1] *= self.order.target
        return output

    def agreeing(self, alive: int) -> Floats:
        """Return Pr(Y = y, b of `alive` lists drafted y) in ratio order: array [alive + 1, m]."""
        share = alive / self.k
        joint = np.zeros((alive + 1, self.order.tokens.size))
        for t, weights, silent, rung in self._tables():
            growth = np.exp(t)[:, None]
            own = silent * growth
            other = np.minimum(self.order.draft * rung[:, :-1] * growth, 1)
            density = weights * self.k * np.exp(-self.k * t)
            others = [(other, 1 - other)]
            one = np.ones_like(own)
            with_own = _counts(one, [(own, 1 - own), *others * (alive - 1)], np.add, np.multiply)
            without = _counts(one, others * alive, np.add, np.multiply)
            for b in range(alive + 1):
                joint[b] += density @ (share * with_own[b] + (1 - share) * without[b])
        return joint * self.order.target


def _product_of_others(factors: Floats) -> Floats:
    """Return, for each column, the product of all other columns: [T, k] → [T, k]."""
    before = np.ones_like(factors)
    after = np.ones_like(factors)
    before[:, 1:] = np.cumprod(factors[:, :-1], axis=1)
    after[:, :-1] = np.cumprod(factors[:, :0:-1], axis=1)[:, ::-1]
    return before * after


@dataclass(frozen=True, eq=False)
class ExactClocks(Frozen):
    """The integrals in fractions, as sums of exponentials; too many terms raise an error."""

    # The m tokens with p > 0, in ascending order of q/p, in fractions.
    order: RatioOrder
    # Number of drafts.
    k: int

    def __post_init__(self) -> None:
        m = self.order.tokens.size
        terms = m * math.comb(m + self.k - 1, self.k)
        if terms > LARGEST_EXPANSION:
            raise ProblemTooLargeError(
                f"list coupling of {m:,} tokens and k = {self.k} drafts in fractions needs "
                f"{scientific(terms)} terms, but the limit is {LARGEST_EXPANSION:,}; floats have "
                "no limit"
            )

    @cached_property
    def rates(self) -> Probs:
        """The rates D_1, …, D_m."""
        steps = self.order.draft_below[1:-1] * np.diff(self.order.ratio)
        return read_only(running_sum(steps, from_zero=True))

    @cached_property
    def _rung(self) -> list[ExponentialSum]:
        """The sums Ĝ_1, …, Ĝ_m."""
        sums: list[ExponentialSum] = []
        for i in range(self.rates.size):
            terms: ExponentialSum = defaultdict(Fraction)
            before = Fraction(0)
            for rate, mass in zip(self.rates[i:], self.order.draft_below[i + 1 :], strict=True):
                terms[rate] += 1 / mass - before
                before = 1 / mass
            sums.append(terms)
        return sums

    @cached_property
    def _products(self) -> dict[tuple[int, ...], ExponentialSum]:
        """Cache for products of Ĝ, by indices of tokens."""
        return {(): {Fraction(0): Fraction(1)}}

    @cached_property
    def _probs(self) -> dict[tuple[int, ...], Probs]:
        """Cache for distributions of Y, by indices of the drafts."""
        return {}

    def probs_given(self, places: Places) -> Probs:
        """Return the distributions of Y, given rows of ascending drafts: [B, k] → [B, m + 1].

        The first m columns are the tokens with p > 0, in ratio order.  The last column is W for
        tokens with p = 0; callers multiply it by the target probability of such a token.
        """
        output = zeros((len(places), self.rates.size + 1), self.order.draft)
        for row, drafts in enumerate(map(tuple, places.tolist())):
            if drafts not in self._probs:
                self._probs[drafts] = read_only(self._probs_given(drafts))
            output[row] = self._probs[drafts]
        return output

    def _probs_given(self, places: tuple[int, ...]) -> Probs:
        # This array is W without the terms in which Y is the draft of list m*.
        of_list = zeros(self.rates.size + 1, self.order.draft)
        probs = zeros(self.rates.size + 1, self.order.draft)
        for place, count in Counter(places).items():
            rest = list(places)
            rest.remove(place)
            others = self._product(tuple(rest)).items()
            integrals = [
                sum(weight / (self.k + rate + other) for rate, weight in others)
                for other in self.rates[place:]
            ]
            falls = -np.diff(np.array([*integrals, Fraction(0)], dtype=object))
            of_list[place + 1 :] += count * np.cumsum(falls / self.order.draft_below[place + 1 :])
            probs[place] += count * self.order.ratio[place] * integrals[0]
        of_list[:-1] *= self.order.target
        probs += of_list
        return probs

    def _product(self, places: tuple[int, ...]) -> ExponentialSum:
        if places not in self._products:
            product = _times(self._product(places[1:]), self._rung[places[0]])
            self._products[places] = product
        return self._products[places]

    def acceptance(self) -> Number:
        """Return Pr(Y ∈ {X_1, …, X_k})."""
        return as_number(self.accepted_mass().sum())

    def accepted_mass(self) -> Probs:
        """Return Pr(Y = y, accepted) in ratio order: array [m]."""
        one = {Fraction(0): Fraction(1)}
        accepted = self.order.target.copy()
        for y, own_rate in enumerate(self.rates):
            share = -self.order.draft[y]
            missed = _plus(one, {rate: share * c for rate, c in self._rung[y].items()})
            rejected = _plus(one, {own_rate: Fraction(-1)})
            for _ in range(self.k - 1):
                rejected = _times(rejected, missed)
            accepted[y] *= 1 - sum(c * self.k / (self.k + rate) for rate, c in rejected.items())
        return accepted

    def agreeing(self, alive: int) -> Probs:
        """Return Pr(Y = y, b of `alive` lists drafted y) in ratio order: array [alive + 1, m]."""
        one: ExponentialSum = {Fraction(0): Fraction(1)}
        share = Fraction(alive, self.k)
        joint = zeros((alive + 1, self.rates.size), self.order.draft)
        for y, own_rate in enumerate(self.rates):
            hit = {rate: self.order.draft[y] * c for rate, c in self._rung[y].items()}
            other = hit, _plus(one, _scaled(hit, -1))
            own = {own_rate: Fraction(1)}, _plus(one, {own_rate: Fraction(-1)})
            mixed = [
                (share, _counts(one, [own, *[other] * (alive - 1)], _plus, _times)),
                (1 - share, _counts(one, [other] * alive, _plus, _times)),
            ]
            for weight, counts in mixed:
                for b, terms in enumerate(counts):
                    integral = sum(c * self.k / (self.k + rate) for rate, c in terms.items())
                    joint[b, y] += weight * self.order.target[y] * integral
        return joint


def _scaled(a: ExponentialSum, factor: int) -> ExponentialSum:
    return {rate: factor * weight for rate, weight in a.items()}


def _counts(one: _T, hits: Sequence[tuple[_T, _T]], plus: _Add[_T], times: _Add[_T]) -> list[_T]:
    """Return the distribution of the number of hits, given (Pr(hit), Pr(miss)) of each trial."""
    counts = [one]
    for hit, miss in hits:
        missed, hit_terms = ([times(count, part) for count in counts] for part in (miss, hit))
        inner = [plus(a, b) for a, b in zip(missed[1:], hit_terms[:-1], strict=True)]
        counts = [missed[0], *inner, hit_terms[-1]]
    return counts


def _plus(a: ExponentialSum, b: ExponentialSum) -> ExponentialSum:
    terms = defaultdict(Fraction, a)
    for rate, weight in b.items():
        terms[rate] += weight
    return terms


def _times(a: ExponentialSum, b: ExponentialSum) -> ExponentialSum:
    terms: ExponentialSum = defaultdict(Fraction)
    for rate, weight in a.items():
        for other, factor in b.items():
            terms[rate + other] += weight * factor
    return terms
