"""The winner among certain drafts, such as the most probable tokens, and one drawn draft."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from otm._core.arithmetic import Number, Probs
from otm._core.probs.sampling import locate
from otm._core.probs.sparse import SparseProbs, Tokens, of_one_kind, places_of
from otm.coupling.optimal.winner import WinnerRule


class CertainDrafts(WinnerRule):
    """Rule that selects a winner among certain drafts A and at most one draft drawn outside A.

    Let q be the target's distribution and p' the distribution of the drawn draft.  The winner has
    the distribution v = c q on A and v = min(p', c q) elsewhere, with c such that the sum is one.
    It maximises Σ min(s q, v) for every s at once, among all possible distributions of a winner
    (Theorem 23.3 of docs/theory/certain-and-drawn.md).  The drawn draft x wins with probability
    v(x)/p'(x).  Otherwise a certain draft wins, with a probability proportional to q.

    Parameters
    ----------
    certain : int array [a]
        The certain drafts: different tokens, in any order.
    draft : SparseProbs or None
        The distribution p, from which one token outside A was drawn; None if none was drawn.
    target : SparseProbs
        The target's distribution q.
    """

    def __init__(self, certain: Tokens, draft: SparseProbs | None, target: SparseProbs) -> None:
        tokens = np.sort(certain)
        if draft is not None:
            draft, target = of_one_kind(draft, target)
            tokens = _union(tokens, draft.tokens)
        super().__init__(tokens, target)
        self._is_certain = np.zeros(tokens.size, dtype=np.bool_)
        self._is_certain[places_of(tokens, certain)[0]] = True
        self._drawn, self._has_drawn = 0 * self._of_target, draft is not None
        if draft is not None:
            places = slice(None) if tokens is draft.tokens else places_of(tokens, draft.tokens)[0]
            self._drawn[places] = draft.probabilities
            self._drawn[self._is_certain] *= 0
            self._drawn /= self._drawn.sum()
        self.winner_probs = self._winner_law()

    def _winner_law(self) -> Probs:
        """Return the distribution v of the winner."""
        drawn, certain = self._drawn, np.flatnonzero(self._is_certain)
        of_certain = self._of_target[certain]
        total = of_certain.sum()
        if not total > 0:
            # The target excludes all certain drafts.
            return drawn if self._has_drawn else np.eye(1, drawn.size, dtype=int)[0] + drawn
        # At certain drafts, `drawn` is zero, so they are never capped.
        wins: Probs = np.minimum(drawn, _cap(total, drawn, self._of_target) * self._of_target)
        # The certain drafts win the rest, so rounding cannot make the distribution untrue.
        left = 1 - wins.sum()
        wins[certain] = max(left, 0 * left) * (of_certain / total)
        return wins

    def winner(self, places: Sequence[int], uniforms: Probs) -> int:
        """Return the index of the winning draft; the drawn draft comes last."""
        last = len(places) - 1
        if self._has_drawn:
            drawn = places[last]
            wins = uniforms[0] * self._drawn.item(drawn) < self.winner_probs.item(drawn)
            if wins or last == 0:
                return last
            places = places[:last]
        weights = self.winner_probs[places]
        return locate(np.arange(len(places)), weights, uniforms[-1]) if weights.any() else 0

    def winning(self, places: Sequence[int]) -> Probs:
        """Return the probability that each draft wins: `[m] → [m]`; the drawn draft comes last."""
        wins = self.winner_probs[places]
        if self._has_drawn:
            wins[-1] = wins[-1] / self._drawn[places[-1]]
            of_certain = wins[:-1].sum()
            left = 1 - wins[-1]
            wins[:-1] = wins[:-1] * (left / of_certain if of_certain > 0 else 0 * left)
        return wins

    def chosen(self, places: Sequence[int], weight: Number) -> dict[int, Number]:
        """Return the probability to accept each draft, given the drawn draft, for s = `weight`.

        The drawn draft x has min(1, s q/p'), and the certain drafts have s q, scaled by the
        probability that x is rejected, relative to its mean.
        """
        mass = weight * self._of_target
        if not self._has_drawn:
            return {place: mass.item(place) for place in places}
        drawn = places[-1]
        accepts = min(mass.item(drawn) / self._drawn.item(drawn), 1 + 0 * weight)
        rejected = 1 - np.minimum(mass, self._drawn)[~self._is_certain].sum()
        left = (1 - accepts) / rejected if rejected > 0 else 0 * weight
        return {**{place: mass.item(place) * left for place in places[:-1]}, drawn: accepts}

    def agreeing(self, place: int) -> Probs:
        """Return the distribution of the number of drafts that equal the winner, which is 1."""
        zero = 0 * self.winner_probs[:1]
        return np.append(zero, zero + 1)


def _union(few: Tokens, many: Tokens) -> Tokens:
    """Return the ascending union of ascending tokens; usually `many` has all of them."""
    return many if places_of(many, few)[1].all() else np.union1d(few, many)


def _cap(total: Number, drawn: Probs, target: Probs) -> Number:
    """Return the c at which c · total + Σ min(drawn, c · target) is 1."""
    cap = 1 + 0 * total
    # Newton's method from below: as the cap c rises, fewer tokens have c q < p'.
    while True:
        capped = drawn > cap * target
        if capped.all():
            return cap
        drawn, target = drawn[capped], target[capped]
        cap = drawn.sum() / (total + target.sum())
