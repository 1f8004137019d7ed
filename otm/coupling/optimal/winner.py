"""Rules that choose the winning draft of a node, for walk and keep.

Walk and keep (docs/theory/walk-and-keep.md) needs three things at a node: a draft that wins, the
probability that each token wins, and the number of drafts that equal the winner.  Branch and keep
(docs/theory/several-paths.md) needs the probability to accept each draft, given all drafts.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

import numpy as np

from otm._core.arithmetic import Number, Probs
from otm._core.probs.sparse import SparseProbs, Tokens, places_of


class WinnerRule(ABC):
    """Rule that lets one of the drafts of a node win, with a known distribution of the winner.

    Attributes
    ----------
    tokens : int array [n]
        The tokens that can be drafted, ascending; methods use positions in this array.
    winner_probs : array [n]
        Probability v that each token wins; the sum is the probability of at least one draft.
    """

    winner_probs: Probs

    def __init__(self, tokens: Tokens, target: SparseProbs) -> None:
        self.tokens, self._target = tokens, target
        # Rows without truncation share their tokens, and need no search.
        self._positions: Any = slice(None)
        self._shared: Any = slice(None)
        self._of_target = target.probabilities
        if tokens is not target.tokens:
            common, self._shared = places_of(target.tokens, tokens)
            self._positions = common[self._shared]
            probs = target.probabilities[common]
            self._of_target = np.where(self._shared, probs, 0 * probs)

    @abstractmethod
    def winner(self, places: Sequence[int], uniforms: Probs) -> int:
        """Return the index of the winning draft, from one uniform for each draft."""

    @abstractmethod
    def winning(self, places: Sequence[int]) -> Probs:
        """Return the probability that each draft wins: `[m] → [m]`."""

    @abstractmethod
    def agreeing(self, place: int) -> Probs:
        """Return the distribution of the number c of drafts that equal a winning token: [k + 1]."""

    def chosen(self, places: Sequence[int], weight: Number) -> dict[int, Number]:
        """Return the probability to accept each distinct draft, given all drafts, for s = `weight`.

        Over all drafts, the mean of the probability of a token is min(s q, v).  So any order of
        the drafts will do, and each distinct draft can have its share of the wins.
        """
        wins: dict[int, Number] = {}
        for place, won in zip(places, self.winning(places).tolist(), strict=True):
            wins[place] = wins.get(place, 0) + won
        return {place: won * self.accepted_share(place, weight) for place, won in wins.items()}

    def accepted_share(self, place: int, weight: Number) -> Number:
        """Return the acceptance probability min(1, s q/v) of a winner, for s = `weight`."""
        mass, wins = weight * self._of_target.item(place), self.winner_probs.item(place)
        # The win probability can underflow to 0.
        return mass / wins if mass < wins else 1 + 0 * weight if mass > 0 else 0 * weight

    def residual_mass(self, weight: Number) -> tuple[Tokens, Probs]:
        """Return the tokens of the target, and their residual mass s q − min(s q, v): [m] each."""
        mass = weight * self._target.probabilities
        left = mass[self._positions] - self.winner_probs[self._shared]
        mass[self._positions] = np.maximum(left, 0 * left[:1])
        return self._target.tokens, mass
