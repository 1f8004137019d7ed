"""Independent drafts of different distributions, as from several draft models."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from otm._core.arithmetic import Number, Probs, is_exact, read_only, running_sum, zeros
from otm._core.checks import Drafts, Uniforms
from otm._core.probs.distribution import as_probs, as_probs_pair, mass_beyond
from otm._core.probs.sampling import InverseCdf
from otm.drafts.base import FromProbs, independent_tuples
from otm.errors import InvalidDistributionError


@dataclass(frozen=True, eq=False)
class Independent(FromProbs):
    """k independent drafts, the i-th with a distribution p_i of its own.

    Parameters
    ----------
    probs : array-like [k, n]
        The distributions, one a draft; held normalised and read-only.  If one of them holds floats,
        all are taken as floats.
    tokens : int array [n], optional
        Token ids of the entries, ascending; 0 to n − 1 if left out.

    Attributes
    ----------
    k : int
        The number of distributions.

    Raises
    ------
    InvalidDistributionError
        If there is no distribution, one is not valid or the lengths differ.

    Examples
    --------
    >>> drafts = Independent([[0.5, 0.5], [0.25, 0.75]])
    >>> dict(drafts.tuples())[1, 0]
    0.125
    >>> drafts.draw([0.75, 0.0])
    array([1, 0])
    """

    def _checked(self) -> Probs:
        return read_only(_as_rows(self.probs))

    @property
    def k(self) -> int:  # type: ignore[override]
        """Number of drafts."""
        return len(self.probs)

    @cached_property
    def draftable(self) -> npt.NDArray[np.bool_]:
        """Whether each token has p_i > 0 for some i: array [n]."""
        return read_only(np.any(self.probs > 0, axis=0).astype(np.bool_))

    @property
    def tuple_count(self) -> int:
        """Product of the numbers of tokens that each draft can be."""
        return math.prod(int(np.count_nonzero(probs)) for probs in self.probs)

    def position_tuples(self) -> Iterator[tuple[tuple[int, ...], Number]]:
        """All tuples of drafts that can be drawn, with their probabilities."""
        return independent_tuples(list(self.probs))

    def missed(self, order: npt.NDArray[np.int64]) -> Probs:
        """Probability 1 − Π p_i(H) that the first tokens H of an order do not hold all drafts."""
        missed = zeros(order.size + 1, self.probs)
        for probs in self.probs:
            missed = missed + (1 - missed) * mass_beyond(probs, order)
        return missed

    def distribution_of_last(self, order: npt.NDArray[np.int64]) -> Probs:
        """Distribution of the draft that stands last in an order, as a sum of products of masses.

        Draft i is the one if those before it in the tuple stand before it in the order, and those
        after it in the tuple do not stand behind it in the order.
        """
        masses = self.probs[:, order]
        below = running_sum(masses, from_zero=True)
        not_behind = np.ones_like(below[:, 1:])  # the product over the drafts after i
        for i in range(self.k - 1, 0, -1):
            not_behind[i - 1] = not_behind[i] * below[i, 1:]
        last, before = zeros(order.size, masses), 1 + zeros(order.size, masses)
        for i in range(self.k):
            last = last + before * masses[i] * not_behind[i]
            before = before * below[i, :-1]
        return last

    def distribution_of_one(self) -> Probs:
        """Distribution Σ p_i / k of one of the drafts, picked with equal probabilities."""
        return np.asarray(self.probs.sum(axis=0) / self.k)

    def __str__(self) -> str:
        return f"{self.k} independent, of different distributions"

    def _together(self, drafts: Drafts) -> npt.NDArray[np.bool_]:
        possible = self.probs[range(self.k), drafts] > 0
        return np.asarray(possible.all(axis=-1), dtype=np.bool_)

    def _draw(self, uniforms: Uniforms) -> Drafts:
        drafts = [cdf.locate(uniforms[:, i]) for i, cdf in enumerate(self._cdfs)]
        return np.stack(drafts, axis=1)

    @cached_property
    def _cdfs(self) -> list[InverseCdf]:
        return [InverseCdf.from_weights(probs) for probs in self.probs]


def _as_rows(given: Any) -> Probs:
    """Check and normalise distributions of equal length, all in floats or all in fractions."""
    try:
        rows = list(given)
    except TypeError as error:
        raise InvalidDistributionError(
            f"the draft distributions are not a sequence of distributions ({error})"
        ) from None
    if not rows:
        raise InvalidDistributionError(
            "there is no draft distribution; give one distribution a draft, as an array [k, n]"
        )
    checked = [as_probs(row, "draft") for row in rows]
    sizes = sorted({probs.size for probs in checked})
    if len(sizes) > 1:
        raise InvalidDistributionError(
            f"the draft distributions have {' and '.join(map(str, sizes))} tokens; all must be "
            "distributions on the same vocabulary: give absent tokens probability 0"
        )
    exact = [probs for probs in checked if is_exact(probs)]
    if exact:  # whole numbers beside fractions stay exact
        checked = [as_probs_pair(row, exact[0])[0] for row in rows]
    if all(map(is_exact, checked)):
        return np.array(checked)
    return np.array(checked, dtype=np.float64)
