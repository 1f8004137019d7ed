"""Top drafts: the k most probable tokens, without randomness."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from otm._core.arithmetic import Number, Probs, is_exact, read_only, zeros
from otm._core.checks import Drafts, Uniforms
from otm._core.probs.largest import near_largest
from otm._core.ratios.order import places_along
from otm.drafts.base import DifferentTokens


@dataclass(frozen=True, eq=False)
class Top(DifferentTokens):
    """The k most probable tokens of p, without randomness.

    The draft trees of EAGLE ([li2024]_) and Medusa ([cai2024]_) choose their drafts in this way.

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
    .. [cai2024] Cai et al., "Medusa: Simple LLM Inference Acceleration Framework with Multiple
       Decoding Heads", ICML 2024.
    .. [li2024] Li et al., "EAGLE-2: Faster Inference of Language Models with Dynamic Draft Trees",
       EMNLP 2024.

    Examples
    --------
    >>> drafts = Top([0.125, 0.5, 0.25, 0.125], k=3)
    >>> list(drafts.tuples())  # tokens 0 and 3 have equal p, so the lower id is a draft
    [((1, 2, 0), 1.0)]
    """

    uniforms_per_draw = 0
    """Zero uniforms, because the drafts are not random."""

    tuple_count = 1
    """One tuple, because the drafts are not random."""

    @cached_property
    def sure(self) -> npt.NDArray[np.int64]:
        """Positions of the drafts, by descending p (in a tie, lowest id first): array [k]."""
        return read_only(most_probable(self.probs, self.k))

    @cached_property
    def draftable(self) -> npt.NDArray[np.bool_]:
        """Whether each token is a draft: array [n]."""
        drafted = np.zeros(self.n, dtype=np.bool_)
        drafted[self.sure] = True
        return read_only(drafted)

    def position_tuples(self) -> Iterator[tuple[tuple[int, ...], Number]]:
        """Yield the only tuple of drafts, with probability 1."""
        yield tuple(self.sure.tolist()), 1 + zeros(1, self.probs).item(0)

    def miss_probability(self, order: npt.NDArray[np.int64]) -> Probs:
        """Return, for each prefix of an order, 1 if a draft is outside the prefix, and 0 if not."""
        missed = zeros(order.size + 1, self.probs)
        missed[: places_along(order, self.n)[self.sure].max() + 1] = 1 + missed.item(0)
        return missed

    def __str__(self) -> str:
        return f"top {self.k}"

    def _is_possible(self, drafts: Drafts) -> npt.NDArray[np.bool_]:
        return np.asarray((drafts == self.sure).all(axis=-1))

    def _draw(self, uniforms: Uniforms) -> Drafts:
        return np.tile(self.sure, (len(uniforms), 1))


def most_probable(probs: Probs, count: int) -> npt.NDArray[np.int64]:
    """Return the positions of the largest probabilities, descending; in a tie, lowest id first."""
    if is_exact(probs) or count >= probs.size:
        places = np.arange(probs.size)
    else:
        # Only few tokens of a large vocabulary are sorted.
        places = near_largest(probs, count)[0] if count > 0 else np.arange(0)
    order: npt.NDArray[np.int64] = places[np.argsort(-probs[places], kind="stable")]
    return order[:count]
