"""A simple, slow version of the optimal plan for readers and tests: token by token, in fractions.

Steps and variable names follow docs/theory/optimal-plan.md: p and q are the draft and the target
distribution, and k is the number of drafts.  `OptimalPlan` is equivalent but fast.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from fractions import Fraction
from itertools import accumulate

Probs = Sequence[Fraction]
ZERO = Fraction(0)


class ReferencePlan:
    """The optimal plan for k i.i.d. drafts from p and the target q, in fractions.

    Attributes
    ----------
    alpha, cap, floor : Fraction
        The optimal acceptance probability α_k, the cap c* and the floor b.
    slot_of : dict of int to int
        The slot of each token with p > 0; there is one slot for each ratio q/p.
    moves : list of dict of int to Fraction
        For each slot, the probability that its drafts move to each partner slot.
    winner_probs : list of Fraction
        Distribution p t of the winning draft.

    Examples
    --------
    >>> half, quarter = Fraction(1, 2), Fraction(1, 4)
    >>> plan = ReferencePlan([half, quarter, quarter], [quarter, quarter, half], k=2)
    >>> str(plan.alpha), str(plan.cap), str(plan.floor), [str(x) for x in plan.winner_probs]
    ('15/16', '7/4', '5/8', ['5/16', '1/4', '7/16'])
    >>> plan.select([2, 0], [half, quarter, half, half])
    2
    """

    def __init__(self, p: Probs, q: Probs, k: int) -> None:
        ratio = {x: q[x] / p[x] for x in range(len(p)) if p[x] > 0}
        r = sorted(set(ratio.values()))
        slots = range(len(r))
        self.q, self.slot_of = q, {x: r.index(ratio[x]) for x in ratio}
        mass = [sum((p[x] for x in ratio if self.slot_of[x] == j), ZERO) for j in slots]
        P, Q = sums_below(mass), sums_below(mass[j] * r[j] for j in slots)

        # Theorems 3.1 and 4.2: Σ min(q, c p) is the minimum of Q_j + c (1 − P_j) over j, and it
        # equals α_k at c = c*.
        self.alpha = min(below + 1 - edge**k for edge, below in zip(P, Q, strict=True))
        self.cap = max((self.alpha - Q[j]) / (1 - P[j]) for j in slots)
        capped = [min(ratio, self.cap) for ratio in r]
        # Theorem 5.1: Σ p max(t, b) is the maximum of b P_j + Σ_{i>j} p t over j, and it equals 1
        # at the floor b.
        T = sums_below(mass[j] * capped[j] for j in slots)
        self.floor = min((1 - T[-1] + T[j + 1]) / P[j + 1] for j in slots)
        t = [max(ratio, self.floor) for ratio in capped]
        wins = {x: p[x] * t[slot] for x, slot in self.slot_of.items()}
        self.winner_probs = [wins.get(x, ZERO) for x in range(len(p))]

        # Theorem 5.2: match the lacking mass of bins with the excess mass of later bins, in order.
        W = [(P[j + 1] ** k - P[j] ** k) / mass[j] for j in slots]
        lacking = [mass[j] * (t[j] - W[j]) for j in slots]
        self.moves: list[dict[int, Fraction]] = [{} for _ in slots]
        for j in slots:
            for i in slots[j + 1 :]:
                if (amount := min(lacking[j], -lacking[i])) > 0:
                    lacking[j], lacking[i] = lacking[j] - amount, lacking[i] + amount
                    swap = amount / (W[i] - W[j])
                    self.moves[j][i], self.moves[i][j] = swap / mass[j], swap / mass[i]

    def select(self, drafts: Sequence[int], uniforms: Probs) -> int:
        """Return the output; uniforms are for the slots, the test and the residual, in order."""
        *of_drafts, coin, of_residual = uniforms
        taken = [self._slot(x, u) for x, u in zip(drafts, of_drafts, strict=True)]
        # The first draft in the highest slot wins.
        winner = drafts[taken.index(max(taken))]
        if coin * self.winner_probs[winner] < self.q[winner]:
            return winner
        residual = [max(y - v, ZERO) for y, v in zip(self.q, self.winner_probs, strict=True)]
        point = of_residual * sum(residual)
        return next(x for x, end in enumerate(accumulate(residual)) if point < end)

    def _slot(self, token: int, uniform: Fraction) -> int:
        """Return the slot that a draft takes: a partner slot, or the slot of its ratio."""
        own = self.slot_of[token]
        ends = zip(self.moves[own], accumulate(self.moves[own].values()), strict=True)
        return next((partner for partner, end in ends if uniform < end), own)


def sums_below(terms: Iterable[Fraction]) -> list[Fraction]:
    """Return the sum of the first j terms, for each j from 0."""
    return list(accumulate(terms, initial=ZERO))
