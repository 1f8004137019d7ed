"""What exponential clocks have done by the time of the output: the integrals of list coupling.

Letters: list m has a clock S_i^m ~ Exp(1) for each token i, all independent; its draft is
X^m = argmin_i S_i^m/p_i, and Y = argmin_i min_m S_i^m/q_i.  Let t be that last minimum, attained
in list m*.  As S_i^m/q_i is exponential of rate q_i, t ~ Exp(k), Y ~ q and m* (uniform) are
independent.  Given them, S_Y^{m*} = q_Y t, and all other clocks have S_i^m > q_i t: what exceeds
q_i t is again Exp(1), independently (memorylessness).  With r = q/p, the time S_i^m/p_i is
therefore r_i t + Exp(p_i): that of a clock of rate p_i which starts at r_i t.

Sort the tokens with p > 0 by r ascending, and let P_l be the mass p of the first l.  Between r_l t
and r_{l+1} t the first l clocks run, so none has rung by r_l t with probability e^(−D_l t) ::

    D_1 = 0,   D_{l+1} = D_l + P_l (r_{l+1} − r_l),   D_{m+1} = ∞

and the first to ring does so between r_l t and r_{l+1} t, and is i ≤ l, with probability p_i F_l,
F_l = (e^(−D_l t) − e^(−D_{l+1} t)) / P_l.  Hence, with Ĝ_i = Σ_{l ≥ i} F_l,

- a list m ≠ m* drafts x with probability p_x Ĝ_x;
- list m* drafts x with probability p_x (Ĝ_x − Ĝ_y) if x comes before y, e^(−D_y t) if x = y, and 0
  if x comes after y (where p_y = 0, y comes last, Ĝ_y = 0, and y is not drafted).

Given the drafts x the distribution of Y is therefore q_y W_y with

    W_y = ∫ e^(−kt) Σ_{m*} (Ĝ_{x_m*} − Ĝ_y, or e^(−D_y t)/p_y, or 0) Π_{m ≠ m*} Ĝ_{x_m} dt

and Pr(Y = y, accepted) = q_y ∫ k e^(−kt) [1 − (1 − e^(−D_y t)) (1 − p_y Ĝ_y)^(k−1)] dt.  Here are
the integrals, in floats and in fractions.
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

from otm._core.arithmetic import Frozen, Probs, at_least_once, read_only, running_sum, zeros
from otm._core.quadrature import log_trapezoid, node_chunks
from otm._core.ratios.order import RatioOrder
from otm.errors import ProblemTooLargeError
from otm.optimum.multisets import scientific

Floats: TypeAlias = npt.NDArray[np.float64]
Places: TypeAlias = npt.NDArray[np.int64]

LARGEST_RATIO = 2.0**900
"""Float ratios q/p above this are taken as this; otherwise times would leave the floats."""

LONGEST_TIME = 100.0
"""Given any drafts, t is above this with probability 1e-20 at most.

The tokens with p ≤ 2q have half of the mass q or more.  Let E ~ Exp(1) be the first S_i/p_i of one
list.  If its draft is one of these tokens, t ≤ 2E; if not, t is at most 2E plus an exponential time
of rate 1/2 or more that is independent of E and of the draft.
"""

_T = TypeVar("_T")
_Add: TypeAlias = Callable[[_T, _T], _T]

ExponentialSum: TypeAlias = dict[Fraction, Fraction]
"""The sum Σ c e^(−a t): coefficients c by rates a."""

LARGEST_EXPANSION = 200_000
"""Most terms that a product of sums of exponentials may have, times tokens."""


@dataclass(frozen=True, eq=False)
class FloatClocks(Frozen):
    """The integrals in floats, by the trapezoid rule in log t.

    All integrands are mixtures of t^j e^(−a t), 0 ≤ j ≤ k, with positive weights, so that the rule
    has a relative error below 2e-17; rounding leaves an absolute one of about 1e-15.
    """

    order: RatioOrder  # the m tokens with p > 0 in ascending order of q/p
    k: int  # number of drafts

    @cached_property
    def _ratio(self) -> Floats:
        return read_only(np.minimum(self.order.ratio, LARGEST_RATIO))

    @cached_property
    def rates(self) -> Floats:
        """The rates D_1, …, D_m."""
        steps = self.order.draft_below[1:-1] * np.diff(self._ratio)
        return read_only(running_sum(steps, from_zero=True))

    def _tables(self) -> Iterator[tuple[Floats, Floats, Floats, Floats]]:
        """Nodes t and weights, e^(−t − D t) and e^(−t) Ĝ: arrays [T], [T], [T, m] and [T, m + 1].

        They come in chunks of few nodes.  The factor e^(−t) keeps products of Ĝ below one.
        """
        gaps, masses = np.diff(self._ratio), self.order.draft_below
        steps = masses[1:-1] * gaps
        # given any drafts, t is below this with probability k (1 + max r) low at most
        low = 2.0**-60 / (self.k * (1 + self._ratio[-1]))
        nodes, weights = log_trapezoid(low, LONGEST_TIME, self.k)
        for chunk in node_chunks(nodes.size, self.order.tokens.size):
            t = nodes[chunk, None]
            silent = np.exp(-t * (1 + self.rates))
            # F as t (r_{l+1} − r_l) e^(−D t) times the mean of e^(−z u) over u in [0, 1], so that
            # nothing cancels and nothing is divided by P
            z = t * steps
            mean = np.divide(-np.expm1(-z), z, out=np.ones_like(z), where=z > 0)
            rung = np.zeros((len(t), gaps.size + 2))
            rung[:, :-2] = t * gaps * mean * silent[:, :-1]
            rung[:, -2] = silent[:, -1] / masses[-1]
            rung = np.cumsum(rung[:, ::-1], axis=1)[:, ::-1]
            yield nodes[chunk], weights[chunk], silent, rung

    def probs_given(self, places: Places) -> Floats:
        """Distribution of Y along the order, given drafts at ascending places: [B, k] → [B, m + 1].

        The last column is W for the tokens with p = 0, to be multiplied by their target
        distribution.
        """
        of_list = np.zeros((len(places), self.order.tokens.size + 1))  # W but for the draft of m*
        of_draft = np.zeros(places.shape)
        for _, weights, silent, rung in self._tables():
            for row, tokens in enumerate(places):
                others = weights[:, None] * _product_of_others(rung[:, tokens])
                of_draft[row] += (others * silent[:, tokens]).sum(axis=0)
                upto = np.cumsum(others, axis=1)  # the lists whose drafts come before a y
                reached = np.cumsum((others * rung[:, tokens]).sum(axis=0))
                ends = np.append(tokens[1:], len(of_list[row]) - 1)
                for j in range(self.k):
                    later = slice(tokens[j] + 1, ends[j] + 1)
                    of_list[row, later] += reached[j] - upto[:, j] @ rung[:, later]
        output = np.maximum(of_list, 0)
        output[:, :-1] *= self.order.target
        np.add.at(output, (np.arange(len(places))[:, None], places), of_draft * self._ratio[places])
        return output

    def accepted_mass(self) -> Floats:
        """Pr(Y = y, accepted) along the order: array [m]."""
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
        """Pr(Y = y) along the order, summed over all drafts: array [m + 1].

        The last entry is for the tokens with p = 0, to be multiplied by their target distribution.
        """
        output = np.zeros(self.order.tokens.size + 1)
        for t, weights, silent, rung in self._tables():
            growth = np.exp(t)[:, None]
            before = np.cumsum(self.order.draft * rung[:, :-1], axis=1)
            own = np.zeros_like(rung)  # the drafts of m*, summed
            own[:, 1:] = before - self.order.draft_below[1:] * rung[:, 1:]
            own[:, :-1] = own[:, :-1] + silent
            density = weights * self.k * np.exp(-self.k * t)
            output += (density * (before[:, -1] * growth[:, 0]) ** (self.k - 1)) @ (own * growth)
        output[:-1] *= self.order.target
        return output

    def agreeing(self, alive: int) -> Floats:
        """Pr(Y = y, b of the first lists drafted it), b = 0, …, alive, along the order: [b, m]."""
        share = alive / self.k
        law = np.zeros((alive + 1, self.order.tokens.size))
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
                law[b] += density @ (share * with_own[b] + (1 - share) * without[b])
        return law * self.order.target


def _product_of_others(factors: Floats) -> Floats:
    """Product of all but each of the columns: [T, k] → [T, k]."""
    before = np.ones_like(factors)
    after = np.ones_like(factors)
    before[:, 1:] = np.cumprod(factors[:, :-1], axis=1)
    after[:, :-1] = np.cumprod(factors[:, :0:-1], axis=1)[:, ::-1]
    return before * after


@dataclass(frozen=True, eq=False)
class ExactClocks(Frozen):
    """The integrals in fractions: sums of exponentials, multiplied out; refused if too many."""

    order: RatioOrder  # the m tokens with p > 0 in ascending order of q/p, in fractions
    k: int  # number of drafts

    def __post_init__(self) -> None:
        m = self.order.tokens.size
        terms = m * math.comb(m + self.k - 1, self.k)
        if terms > LARGEST_EXPANSION:
            raise ProblemTooLargeError(
                f"list coupling of {m:,} tokens and k = {self.k} drafts in fractions takes "
                f"{scientific(terms)} terms, above the limit of {LARGEST_EXPANSION:,}; in floats "
                "any size works"
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
        """Products of Ĝ that have been needed, by places."""
        return {(): {Fraction(0): Fraction(1)}}

    @cached_property
    def _probs(self) -> dict[tuple[int, ...], Probs]:
        """Distributions that have been asked for, by places."""
        return {}

    def probs_given(self, places: Places) -> Probs:
        """Distribution of Y along the order, given drafts at ascending places: [B, k] → [B, m + 1].

        The last column is W for the tokens with p = 0, to be multiplied by their target
        distribution.
        """
        output = zeros((len(places), self.rates.size + 1), self.order.draft)
        for row, drafts in enumerate(map(tuple, places.tolist())):
            if drafts not in self._probs:
                self._probs[drafts] = read_only(self._probs_given(drafts))
            output[row] = self._probs[drafts]
        return output

    def _probs_given(self, places: tuple[int, ...]) -> Probs:
        of_list = zeros(self.rates.size + 1, self.order.draft)  # W but for the draft of m*
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

    def accepted_mass(self) -> Probs:
        """Pr(Y = y, accepted) along the order: array [m]."""
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
        """Pr(Y = y, b of the first lists drafted it), b = 0, …, alive, along the order: [b, m]."""
        one: ExponentialSum = {Fraction(0): Fraction(1)}
        share = Fraction(alive, self.k)
        law = zeros((alive + 1, self.rates.size), self.order.draft)
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
                    law[b, y] += weight * self.order.target[y] * integral
        return law


def _scaled(a: ExponentialSum, factor: int) -> ExponentialSum:
    return {rate: factor * weight for rate, weight in a.items()}


def _counts(one: _T, hits: Sequence[tuple[_T, _T]], plus: _Add[_T], times: _Add[_T]) -> list[_T]:
    """Law of the number of hits among independent ones, from each one's hit and miss."""
    law = [one]
    for hit, miss in hits:
        missed, found = ([times(of, part) for of in law] for part in (miss, hit))
        inner = [plus(a, b) for a, b in zip(missed[1:], found[:-1], strict=True)]
        law = [missed[0], *inner, found[-1]]
    return law


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
