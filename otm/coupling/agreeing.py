"""The winner among drafts of which a random number agree so far, and how many agree with it."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from functools import cache, cached_property
from math import comb

import numpy as np

from otm._core.arithmetic import Number, Probs, as_fractions, is_exact, read_only, zeros
from otm.coupling.optimal import OptimalPlan
from otm.optimum.hull import hull_win_ratio
from otm.optimum.win_ratio import WinRatio


@dataclass(frozen=True, eq=False)
class AgreeingDrafts(OptimalPlan):
    """The rule by which one of M i.i.d. drafts wins, where M is random.

    The winner has the hull law (`otm.optimum.hull`), by bins and swaps.  A rule that accepts it
    with probability min(1, s q/v') accepts as much of s q as any can, and at s = 1 where M is k,
    this is an optimal plan.

    `numbers` [k + 1] has the probabilities that there are m drafts, at most the k of the problem.
    If there are none, nobody wins; `winner_distribution` sums to 1 − `numbers[0]`.
    """

    numbers: Probs
    weight: Number = 1  # s

    @property
    def _numbers(self) -> int | Probs:
        """How many drafts there are, or with which probabilities how many."""
        return self.problem.k if self.numbers[-1] == 1 else self.numbers

    @cached_property
    def _wanted(self) -> WinRatio:
        return hull_win_ratio(self.problem.bins, self._numbers, self.weight)

    @property
    def target_mass(self) -> Probs:
        """Mass s q of each token that is accepted as far as it wins: array [n]."""
        return np.asarray(self.problem.target * self.weight)

    def winner(self, drafts: Probs, uniforms: Probs) -> int:
        """Position of the draft that wins: [m], [m]."""
        places = self._place(self.problem.draft[drafts], self.problem.target[drafts])
        return int(self.slots.slot_of(places[0], uniforms, places[1]).argmax())

    def winning(self, drafts: Probs) -> Probs:
        """Probability that each draft wins: [m] → [m]."""
        return np.asarray(self._winning_per_draft(drafts[None])[0])

    def agreeing(self, token: int) -> Probs:
        """Probability, given that a token wins, that c of the drafts are this token: [k + 1].

        Let Z and R be the masses that the token and all others have up to a point along the slots.
        That the token wins, with c drafts, has probability ∫ Σ_m Pr(m) C(m, c) R^(m − c) d(Z^c).
        """
        places, law = self.slot_law(token)
        below, _, mass = self.slots.realised
        own = law * self.problem.draft[token]
        before = np.cumsum(own) - own
        k = self.problem.k
        nodes, weights = quadrature(k, exact=is_exact(own))
        # within a slot both masses grow evenly: points [s, 1] × [points of a slot]
        token_mass = before[:, None] + own[:, None] * nodes
        others = (below[places] - before)[:, None] + (mass[places] - own)[:, None] * nodes
        others = np.maximum(others, 0 * others)  # but for rounding
        share = (own[:, None] * weights).ravel()
        moments = (_powers(token_mass.ravel(), k) * share) @ _powers(others.ravel(), k).T
        joint = zeros(k + 1, own)
        joint[1:] = (_choices(k, self.numbers) * moments).sum(axis=1)
        return read_only(joint / joint.sum())


def _powers(base: Probs, k: int) -> Probs:
    """Powers 0 to k − 1: [x] → [k, x]."""
    powers = np.empty((k, base.size), dtype=base.dtype)
    powers[0] = 0 * base + 1
    for i in range(1, k):
        powers[i] = powers[i - 1] * base
    return powers


def _choices(k: int, numbers: Probs) -> Probs:
    """Entries c C(m, c) Pr(m) with m = c + j, for c from 1 and j from 0: [k, k]."""
    of_numbers = zeros(2 * k, numbers)
    of_numbers[:k] = numbers[1:]
    places = np.arange(k)
    return np.asarray(_binomials(k, exact=is_exact(numbers)) * of_numbers[places[:, None] + places])


@cache
def _binomials(k: int, *, exact: bool) -> Probs:
    """Numbers c C(c + j, c), for c from 1 to k and j from 0 to k − c; 0 beyond: [k, k]."""
    table = [[c * comb(c + j, c) if c + j <= k else 0 for j in range(k)] for c in range(1, k + 1)]
    return read_only(as_fractions(table) if exact else np.array(table, dtype=np.float64))


@cache
def quadrature(k: int, *, exact: bool) -> tuple[Probs, Probs]:
    """Points and weights that integrate polynomials of degree below k over [0, 1] exactly.

    Those of Gauss and Legendre; in fractions, the points i/k.
    """
    if not exact:
        x, w = np.polynomial.legendre.leggauss((k + 1) // 2)
        return read_only((x + 1) / 2), read_only(w / 2)
    points = [Fraction(i, k) for i in range(k)]
    return read_only(as_fractions(points)), read_only(as_fractions(_integrals(points)))


def _integrals(points: list[Fraction]) -> list[Fraction]:
    """Integrals over [0, 1] of the polynomials that are one at one point and zero at the others."""
    integrals = []
    for point in points:
        polynomial = [Fraction(1)]  # the constant first
        for other in points:
            if other != point:
                shifted, same = [Fraction(0), *polynomial], [*polynomial, Fraction(0)]
                polynomial = [
                    (a - other * b) / (point - other) for a, b in zip(shifted, same, strict=True)
                ]
        integrals.append(sum((a / (i + 1) for i, a in enumerate(polynomial)), Fraction(0)))
    return integrals
