"""Tokens sorted by the likelihood ratio q/p, for computations that need single tokens.

Computations that need only masses use `otm._core.ratios.bins`.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from otm._core.arithmetic import Frozen, Number, Probs, is_exact, read_only, running_sum
from otm._core.ratios.keys import ratio_of


@dataclass(frozen=True, eq=False)
class RatioOrder(Frozen):
    """The m tokens with p > 0, ascending by q/p; tokens with equal ratios are in any order."""

    draft_probs: Probs  # [n]: the distribution p, normalised.
    target_probs: Probs  # [n]: the distribution q, normalised.

    @cached_property
    def tokens(self) -> npt.NDArray[np.int64]:
        """Token ids with p > 0, ascending by q/p: array [m]."""
        if self.draft_probs.min() > 0:
            return read_only(np.argsort(ratio_of(self.draft_probs, self.target_probs)))
        support = np.flatnonzero(self.draft_probs)
        ratio = ratio_of(self.draft_probs[support], self.target_probs[support])
        return read_only(support[np.argsort(ratio)])

    @cached_property
    def draft(self) -> Probs:
        """Draft distribution along the order: array [m]."""
        return read_only(self.draft_probs[self.tokens])

    @cached_property
    def target(self) -> Probs:
        """Target distribution along the order: array [m]."""
        return read_only(self.target_probs[self.tokens])

    @cached_property
    def ratio(self) -> Probs:
        """Ratio q/p along the order; overflow gives ∞: array [m]."""
        return read_only(ratio_of(self.draft, self.target))

    @cached_property
    def draft_below(self) -> Probs:
        """Draft mass P_j of the first j tokens: array [m + 1]."""
        return read_only(running_sum(self.draft, from_zero=True))

    @cached_property
    def place(self) -> npt.NDArray[np.int64]:
        """Position of each token in the order: array [n]; m for tokens with p = 0."""
        return read_only(places_along(self.tokens, self.draft_probs.size))


def places_along(order: npt.NDArray[np.int64], n: int) -> npt.NDArray[np.int64]:
    """Return the position of each of n tokens in an order [m]: array [n]; m for missing tokens."""
    place = np.full(n, order.size)
    place[order] = np.arange(order.size)
    return place


def scale_of_weights(draft: Probs) -> Number:
    """Return a factor for the weights of drafts without replacement that prevents overflow.

    Once the other tokens are drawn, the remaining weights may all be subnormal, and ratios to them
    could overflow.  For fractions the factor is 1.
    """
    # Multiplying by a power of two does not round.
    return 1 if is_exact(draft) else 2.0**512
