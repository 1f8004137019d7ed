"""SpecHub's pairs of drafts: one draft of each pair is the hub, the most probable token."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import numpy.typing as npt

from otm._core.arithmetic import Number, Probs, read_only
from otm._core.checks import Drafts, Uniforms
from otm._core.probs.sampling import InverseCdf
from otm.drafts.base import SingleDistribution
from otm.drafts.greedy import Greedy


@dataclass(frozen=True, eq=False)
class HubPairs(SingleDistribution):
    """Two drafts; one is the hub a, the most probable token (in a tie, the lowest id).

    For every other token i, the drafts are (i, a) with probability p(i), and (a, i) with
    probability p(a) p(i) / (1 − p(a)) ([sun2024spechub]_).  So the first draft has distribution p,
    and the set of drafts has the same distribution as for `Greedy` with k = 2 (Theorem 9.5 of
    docs/theory/other-drafts.md).

    Parameters
    ----------
    probs : array-like [n]
        The distribution p; stored normalised and read-only.
    tokens : int array [n], optional
        Token ids of the entries of p, ascending; 0 to n − 1 by default.

    Attributes
    ----------
    k : int
        The number of drafts: 2, or 1 if the hub has probability 1 and is the only draft.

    Raises
    ------
    InvalidDistributionError
        If p is not valid.

    References
    ----------
    .. [sun2024spechub] Sun et al., "SpecHub: Provable Acceleration to Multi-Draft Speculative
       Decoding", EMNLP 2024.

    Examples
    --------
    >>> list(HubPairs([0.25, 0.5, 0.25]).tuples())
    [((0, 1), 0.25), ((2, 1), 0.25), ((1, 0), 0.25), ((1, 2), 0.25)]
    """

    k: int = field(init=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "k", self.as_greedy.k)

    uniforms_per_draw = 1
    """One uniform, which draws the pair."""

    @cached_property
    def as_greedy(self) -> Greedy:
        """The `Greedy` drafts with the same distribution of the set of drafts."""
        return Greedy(self.probs, 2, tokens=self.tokens)

    @property
    def tuple_count(self) -> int:
        """Number of pairs: two for each token with p > 0 except the hub; 1 for the hub alone."""
        return len(self._pairs)

    def position_tuples(self) -> Iterator[tuple[tuple[int, ...], Number]]:
        """Yield each pair of drafts with positive probability, and its probability."""
        probabilities = map(self._weights.item, range(self.tuple_count))
        return zip(map(tuple, self._pairs.tolist()), probabilities, strict=True)

    def miss_probability(self, order: npt.NDArray[np.int64]) -> Probs:
        """Return the probability that a prefix of an order misses a draft."""
        return self.as_greedy.miss_probability(order)

    def __str__(self) -> str:
        return f"{self.k} with the hub"

    def _is_possible(self, drafts: Drafts) -> npt.NDArray[np.bool_]:
        hubs = np.count_nonzero(drafts == self._hub, axis=-1)
        return np.asarray(hubs == 1, dtype=np.bool_)

    def _draw(self, uniforms: Uniforms) -> Drafts:
        return self._pairs[self._cdf.locate(uniforms[:, 0])]

    @property
    def _hub(self) -> int:
        return int(self.probs.argmax())

    @cached_property
    def _pairs(self) -> Drafts:
        """All pairs of drafts: array [2 m, 2] for m tokens other than the hub; [1, 1] if m = 0."""
        others = np.flatnonzero(self.draftable)
        others = others[others != self._hub]
        if others.size == 0:
            return read_only(np.array([[self._hub]]))
        hub = np.full(others.size, self._hub)
        pairs = [np.column_stack([others, hub]), np.column_stack([hub, others])]
        return read_only(np.vstack(pairs))

    @cached_property
    def _weights(self) -> Probs:
        """Probability of each entry of `_pairs`."""
        others = self.probs[self._pairs[: len(self._pairs) // 2, 0]]
        if others.size == 0:
            return read_only(self.probs[[self._hub]])
        return read_only(np.append(others, self.probs[self._hub] * (others / others.sum())))

    @cached_property
    def _cdf(self) -> InverseCdf:
        return InverseCdf.from_weights(self._weights)
