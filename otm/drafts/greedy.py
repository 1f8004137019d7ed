"""Greedy drafts: the k − 1 most probable tokens and one random draft from the other tokens."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from otm._core.arithmetic import Number, Probs, read_only, zeros
from otm._core.checks import Drafts, Uniforms
from otm._core.probs.distribution import mass_beyond
from otm._core.probs.sampling import InverseCdf
from otm._core.ratios.order import places_along
from otm.drafts.base import DifferentTokens
from otm.drafts.top import most_probable


@dataclass(frozen=True, eq=False)
class Greedy(DifferentTokens):
    """The k − 1 most probable tokens of p, then one draft from p restricted to the other tokens.

    These are the greedy drafts of [hu2025]_.

    Parameters
    ----------
    probs : array-like [n]
        The distribution p; stored normalised and read-only.
    k : int
        Number of drafts, at least 1.  If only m < k tokens have p > 0, all m are drafted and the
        attribute `k` is m.
    tokens : int array [n], optional
        Token ids of the entries of p, ascending; 0 to n − 1 by default.

    Raises
    ------
    InvalidDistributionError, InvalidDraftCountError
        If p or k is not valid.

    References
    ----------
    .. [hu2025] Hu et al., "Towards Optimal Multi-draft Speculative Decoding", ICLR 2025.

    Examples
    --------
    >>> drafts = Greedy([0.125, 0.5, 0.25, 0.125], k=3)
    >>> drafts.sure
    array([1, 2])
    >>> list(drafts.tuples())
    [((1, 2, 0), 0.5), ((1, 2, 3), 0.5)]
    """

    uniforms_per_draw = 1
    """One uniform, which draws the last draft."""

    @cached_property
    def sure(self) -> npt.NDArray[np.int64]:
        """Positions of the k − 1 deterministic drafts, by descending p: array [k − 1].

        In a tie, the lowest id comes first.
        """
        return read_only(most_probable(self.probs, self.k - 1))

    @cached_property
    def last(self) -> Probs:
        """Distribution of the last draft, p restricted to the tokens outside `sure`: array [n]."""
        others = self.probs.copy()
        others[self.sure] = zeros(1, others)[0]
        return read_only(others / others.sum())

    @property
    def tuple_count(self) -> int:
        """Number of tokens that can be the last draft."""
        return int(np.count_nonzero(self.last))

    def position_tuples(self) -> Iterator[tuple[tuple[int, ...], Number]]:
        """Yield each tuple of drafts with positive probability, and its probability."""
        sure = tuple(self.sure.tolist())
        for token in np.flatnonzero(self.last).tolist():
            yield (*sure, token), self.last.item(token)

    def miss_probability(self, order: npt.NDArray[np.int64]) -> Probs:
        """Return the probability that a prefix H of an order misses a draft.

        The result is 1 if H lacks a deterministic draft, otherwise the probability that H lacks the
        last draft.
        """
        missed = mass_beyond(self.last, order)
        place = places_along(order, self.n)
        missed[: place[self.sure].max(initial=-1) + 1] = 1 + zeros(1, self.probs)[0]
        return missed

    def __str__(self) -> str:
        return f"top {self.k - 1} and 1 more"

    def _is_possible(self, drafts: Drafts) -> npt.NDArray[np.bool_]:
        in_order = (drafts[..., :-1] == self.sure).all(axis=-1)
        return np.asarray(in_order & (self.last[drafts[..., -1]] > 0))

    def _draw(self, uniforms: Uniforms) -> Drafts:
        sure = np.broadcast_to(self.sure, (len(uniforms), self.k - 1))
        return np.hstack([sure, self._cdf.locate(uniforms)])

    @cached_property
    def _cdf(self) -> InverseCdf:
        return InverseCdf.from_weights(self.last)
