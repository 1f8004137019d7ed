"""Independent drafts with different distributions, for example from several draft models."""

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
    """k independent drafts, where draft i has its own distribution p_i.

    Parameters
    ----------
    probs : array-like [k, n]
        The distribution of each draft; stored normalised and read-only.  If one distribution has
        floats, all are converted to floats.
    tokens : int array [n], optional
        Token ids of the entries, ascending; 0 to n − 1 by default.

    Attributes
    ----------
    k : int
        The number of distributions.

    Raises
    ------
    InvalidDistributionError
        If the list of distributions is empty, or one is not valid, or their lengths differ.

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
        """Number of draft tuples: the product of the support sizes of all p_i."""
        return math.prod(int(np.count_nonzero(probs)) for probs in self.probs)

    def position_tuples(self) -> Iterator[tuple[tuple[int, ...], Number]]:
        """Yield each tuple of drafts with positive probability, and its probability."""
        return independent_tuples(list(self.probs))

    def miss_probability(self, order: npt.NDArray[np.int64]) -> Probs:
        """Return the probability 1 − Π p_i(H) that a prefix H of an order misses a draft."""
        missed = zeros(order.size + 1, self.probs)
        for probs in self.probs:
            missed = missed + (1 - missed) * mass_beyond(probs, order)
        return missed

    def distribution_of_last(self, order: npt.NDArray[np.int64]) -> Probs:
        """Return the distribution of the draft that comes last in a given order of the tokens.

        Draft i is the last one if drafts 1 to i − 1 come strictly before it in the order, and none
        of drafts i + 1 to k comes after it.  So the distribution is a sum of products of masses.
        """
        masses = self.probs[:, order]
        below = running_sum(masses, from_zero=True)
        # Entry i is the probability that no draft after i comes later in the order.
        none_later = np.ones_like(below[:, 1:])
        for i in range(self.k - 1, 0, -1):
            none_later[i - 1] = none_later[i] * below[i, 1:]
        last, before = zeros(order.size, masses), 1 + zeros(order.size, masses)
        for i in range(self.k):
            last = last + before * masses[i] * none_later[i]
            before = before * below[i, :-1]
        return last

    def distribution_of_one(self) -> Probs:
        """Return the distribution Σ p_i / k of a draft picked uniformly at random."""
        return np.asarray(self.probs.sum(axis=0) / self.k)

    def __str__(self) -> str:
        return f"{self.k} independent, of different distributions"

    def _is_possible(self, drafts: Drafts) -> npt.NDArray[np.bool_]:
        possible = self.probs[range(self.k), drafts] > 0
        return np.asarray(possible.all(axis=-1), dtype=np.bool_)

    def _draw(self, uniforms: Uniforms) -> Drafts:
        drafts = [cdf.locate(uniforms[:, i]) for i, cdf in enumerate(self._cdfs)]
        return np.stack(drafts, axis=1)

    @cached_property
    def _cdfs(self) -> list[InverseCdf]:
        return [InverseCdf.from_weights(probs) for probs in self.probs]


def _as_rows(probs: Any) -> Probs:
    """Return the distributions as normalised rows, all in floats or all in fractions."""
    try:
        rows = list(probs)
    except TypeError as error:
        raise InvalidDistributionError(
            f"the draft distributions are not a sequence of distributions ({error})"
        ) from None
    if not rows:
        raise InvalidDistributionError(
            "there are no draft distributions; give an array [k, n], one distribution for each "
            "draft"
        )
    checked = [as_probs(row, "draft") for row in rows]
    sizes = sorted({probs.size for probs in checked})
    if len(sizes) > 1:
        raise InvalidDistributionError(
            f"the draft distributions have {' and '.join(map(str, sizes))} tokens; all must have "
            "the same vocabulary: give missing tokens probability 0"
        )
    exact = [probs for probs in checked if is_exact(probs)]
    # If one row has fractions, rows of integers stay exact as well.
    if exact:
        checked = [as_probs_pair(row, exact[0])[0] for row in rows]
    if all(map(is_exact, checked)):
        return np.array(checked)
    return np.array(checked, dtype=np.float64)
