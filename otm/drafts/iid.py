"""Independent drafts from one distribution, as OTM-k assumes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from otm._core.arithmetic import Number, Probs, at_least_once
from otm._core.checks import Drafts, Uniforms, as_draft_count
from otm._core.probs.distribution import mass_beyond
from otm._core.probs.sampling import InverseCdf
from otm.drafts.base import SingleDistribution, independent_tuples


@dataclass(frozen=True, eq=False)
class IID(SingleDistribution):
    """k independent drafts, each from the distribution p.

    Parameters
    ----------
    probs : array-like [n]
        The distribution p of each draft; stored normalised and read-only.
    k : int
        The number of drafts, at least 1.
    tokens : int array [n], optional
        Token ids of the entries of p, ascending; 0 to n − 1 by default.

    Raises
    ------
    InvalidDistributionError, InvalidDraftCountError
        If p or k is not valid.

    Examples
    --------
    >>> list(IID([0.25, 0.75, 0], k=1).tuples())
    [((0,), 0.25), ((1,), 0.75)]
    >>> IID([0.25, 0.75, 0], k=3).draw([0.1, 0.5, 0.2])
    array([0, 1, 0])
    """

    k: int

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "k", as_draft_count(self.k))

    @property
    def tuple_count(self) -> int:
        """Number m^k of draft tuples, for m tokens with p > 0."""
        # Python integers do not overflow, but powers of NumPy integers do.
        tokens = int(np.count_nonzero(self.draftable))
        count: int = tokens**self.k
        return count

    def position_tuples(self) -> Iterator[tuple[tuple[int, ...], Number]]:
        """Yield each tuple of drafts with positive probability, and its probability."""
        return independent_tuples([self.probs] * self.k)

    def miss_probability(self, order: npt.NDArray[np.int64]) -> Probs:
        """Return the probability 1 − p(H)^k that a prefix H of an order misses a draft."""
        return at_least_once(mass_beyond(self.probs, order), self.k)

    def __str__(self) -> str:
        return f"{self.k} i.i.d."

    def _draw(self, uniforms: Uniforms) -> Drafts:
        return self._cdf.locate(uniforms)

    @cached_property
    def _cdf(self) -> InverseCdf:
        return InverseCdf.from_weights(self.probs)
