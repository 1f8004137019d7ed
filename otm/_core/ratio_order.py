"""Two distributions seen along the likelihood ratio q/p.

Optimal cuts, caps, k-Seq's division factor and the optimal plan all depend on the tokens only
through their order by q/p and the cumulative masses along it.  They are computed here, once.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from otm._core.arithmetic import Frozen, Number, Probs, as_number, is_exact, read_only, running_sum


@dataclass(frozen=True, eq=False)
class RatioOrder(Frozen):
    """The m tokens that can be drafted, ascending by q/p, with cumulative masses.

    "The first j" are the j of least ratio; tokens with p = 0 appear nowhere.  Ties are in no
    particular order.
    """

    draft_probs: Probs  # [n], the distribution p, normalised
    target_probs: Probs  # [n], the distribution q, normalised

    @cached_property
    def tokens(self) -> npt.NDArray[np.int64]:
        """Token ids with p > 0, ascending by q/p: array [m]."""
        if self.draft_probs.min() > 0:
            return read_only(np.argsort(_divide(self.target_probs, self.draft_probs)))
        support = np.flatnonzero(self.draft_probs)
        ratio = _divide(self.target_probs[support], self.draft_probs[support])
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
        """Ratio q/p along the order, infinite where it overflows: array [m]."""
        return read_only(_divide(self.target, self.draft))

    @cached_property
    def draft_below(self) -> Probs:
        """Draft mass P_j of the first j tokens: array [m + 1]."""
        return read_only(running_sum(self.draft, from_zero=True))

    @cached_property
    def draft_above(self) -> Probs:
        """Draft mass T_j = 1 − P_j of all but the first j tokens: array [m + 1]."""
        return read_only(running_sum(self.draft[::-1], from_zero=True)[::-1])

    @cached_property
    def target_below(self) -> Probs:
        """Target mass Q_j of the first j tokens: array [m + 1]."""
        return read_only(running_sum(self.target, from_zero=True))

    @cached_property
    def place(self) -> npt.NDArray[np.int64]:
        """Place of each token along the order: array [n]; m where p = 0."""
        return read_only(places_along(self.tokens, self.draft_probs.size))

    def capped_mass(self, cap: Number) -> Number:
        """Capped mass Σ min(q, cap · p) over all tokens, in O(log n)."""
        below = int(np.searchsorted(self.ratio, np.asarray(cap), side="right"))
        return as_number(self.target_below[below] + cap * self.draft_above[below])

    def cap_of_mass(self, mass: Number) -> Number | None:
        """Smallest cap c with Σ min(q, c p) = mass; None if every c < max q/p falls short."""
        below = bisect_right(range(self.tokens.size), mass, key=self._capped_mass_at)
        if below == self.tokens.size:
            return None
        cap = (mass - self.target_below[below]) / self.draft_above[below]
        # the difference can cancel where little mass is above: never leave the piece downwards
        return as_number(max(cap, self.ratio[below - 1]) if below else cap)

    def _capped_mass_at(self, j: int) -> Number:
        """Capped mass at the cap q/p of the token at place j; ascends with j."""
        mass: Number = self.target_below[j] + self.ratio[j] * self.draft_above[j]
        return mass


def places_along(order: npt.NDArray[np.int64], n: int) -> npt.NDArray[np.int64]:
    """Place of each of n tokens in an order of m different ones: [m] → [n]; m where it is not."""
    place = np.full(n, order.size)
    place[order] = np.arange(order.size)
    return place


def scale_of_weights(draft: Probs) -> Number:
    """Factor for the weights of drafts without replacement, so that no ratio to them overflows.

    Subnormal weights can be all that is left once the others are drawn; fractions keep theirs.
    """
    # a power of two rounds nothing
    return 1 if is_exact(draft) else 2.0**512


def _divide(target: Probs, draft: Probs) -> Probs:
    with np.errstate(over="ignore"):
        ratio: Probs = target / draft
    return ratio
