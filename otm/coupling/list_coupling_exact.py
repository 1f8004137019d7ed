"""The integrals of list coupling in fractions; `otm.coupling.list_coupling_float` derives them."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from otm._core.arithmetic import Frozen, Law, read_only, running_sum, zeros
from otm._core.ratio_order import RatioOrder
from otm.errors import ProblemTooLargeError
from otm.optimum.multisets import scientific

Places: TypeAlias = npt.NDArray[np.int64]

ExponentialSum: TypeAlias = dict[Fraction, Fraction]
"""The sum Σ c e^(−a t): coefficients c by rates a."""

LARGEST_EXPANSION = 200_000
"""Most terms that a product of sums of exponentials may have, times tokens."""


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
    def rates(self) -> Law:
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
    def _laws(self) -> dict[tuple[int, ...], Law]:
        """Laws that have been asked for, by places."""
        return {}

    def laws_given(self, places: Places) -> Law:
        """Law of Y along the order for drafts at these places, ascending: [B, k] → [B, m + 1].

        The last column is W for the tokens with p = 0, to be multiplied by their target law.
        """
        laws = zeros(len(places) * (self.rates.size + 1), self.order.draft)
        laws = laws.reshape(len(places), -1)
        for row, drafts in enumerate(map(tuple, places.tolist())):
            if drafts not in self._laws:
                self._laws[drafts] = read_only(self._law_given(drafts))
            laws[row] = self._laws[drafts]
        return laws

    def _law_given(self, places: tuple[int, ...]) -> Law:
        of_list = zeros(self.rates.size + 1, self.order.draft)  # W but for the draft of m*
        law = zeros(self.rates.size + 1, self.order.draft)
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
            law[place] += count * self.order.ratio[place] * integrals[0]
        of_list[:-1] *= self.order.target
        law += of_list
        return law

    def _product(self, places: tuple[int, ...]) -> ExponentialSum:
        if places not in self._products:
            product = _times(self._product(places[1:]), self._rung[places[0]])
            self._products[places] = product
        return self._products[places]

    def accepted_mass(self) -> Law:
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
