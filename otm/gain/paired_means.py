"""Means over contexts, and how well they are known: the one kind of estimate of this package.

Contexts of one prompt are alike, so only prompts are taken to be independent.  Several ways of
decoding are measured at the same contexts, so their differences are known better than the means.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from otm._core.numbers import as_level
from otm._core.text import text_table
from otm.decoding.drafting import Branching
from otm.errors import InvalidParameterError, UnknownMethodError

Floats = npt.NDArray[np.float64]


class Setup(NamedTuple):
    """A way of decoding with drafts.

    Attributes
    ----------
    rule : str
        Name of the rule that verifies the drafts.
    k : int or tuple of int
        Number K of chains, or the numbers of children at the levels of a prefix tree.
    gamma : int
        Most drafts γ of a path.

    Examples
    --------
    >>> Setup("k-Seq", 4, 8).gamma
    8
    """

    rule: str
    k: Branching
    gamma: int


AnySetup = Setup | tuple[str, Branching, int]


class Estimate(NamedTuple):
    """A mean and the two ends of its confidence interval; printed without one that is infinite.

    Attributes
    ----------
    mean : float
        The mean.
    low, high : float
        The ends of its interval; infinite if nothing is known of it.

    Examples
    --------
    >>> print(Estimate(2.0, 1.5, 2.5))
    2.000 ± 0.500
    """

    mean: float
    low: float
    high: float

    def __str__(self) -> str:
        known = np.isfinite(self.high)
        return f"{self.mean:.3f} ± {self.high - self.mean:.3f}" if known else f"{self.mean:.3f}"


class Prompts:
    """How N positions belong to P prompts, and the estimates that follow from sums over prompts."""

    def __init__(self, of_position: npt.ArrayLike, level: float = 0.95) -> None:
        _, index, sizes = np.unique(of_position, return_inverse=True, return_counts=True)
        self.level = level  # probability that an interval covers its mean, nearly
        self.index = index  # [N]: the prompt of each position, counted from 0
        self.sizes = sizes.astype(np.float64)  # [P]: number of positions of each
        # positions of each prompt, in their order
        self.places = np.split(np.argsort(index, kind="stable"), np.cumsum(sizes)[:-1])

    def sums(self, values: Floats) -> Floats:
        """Add over the positions of each prompt: [N, ...] → [P, ...]."""
        return np.array([values[places].sum(axis=0) for places in self.places])

    def mean(self, sums: Floats) -> Estimate:
        """Mean over all positions of the values with these sums [P], with its interval."""
        return ratio_of_totals(sums, self.sizes, level=self.level)

    def per(self, counts: Floats) -> Floats:
        """Return sums whose mean is positions per count, linear in the counts: [P, ...] → same.

        For ratios such as tokens per step, whose intervals and differences are then those of means
        (linearisation; Cochran, "Sampling Techniques", 1977, section 6.4).
        """
        sizes = self.sizes.reshape(-1, *[1] * (counts.ndim - 1))
        ratio = sizes.sum() / counts.sum(axis=0)
        sums: Floats = ratio * (2 * sizes - ratio * counts)
        return sums


@dataclass(frozen=True, eq=False)
class PairedMeans:
    """Values of several ways of decoding at the same contexts; printed as a table of means.

    Parameters
    ----------
    quantity : str
        What is measured.
    values : mapping from Setup to array [R]
        The value at each context.
    prompts : int array [R]
        The prompt of each context.
    level : float, optional
        Probability that an interval covers its mean, nearly; above 0 and below 1.

    Raises
    ------
    InvalidParameterError
        If the level is not above 0 and below 1.

    Examples
    --------
    >>> chain, block = Setup("chain", 1, 2), Setup("block", 1, 2)
    >>> values = {chain: np.array([1.0, 2.0, 2.5, 3.0]), block: np.array([1.25, 2.0, 2.75, 3.0])}
    >>> means = PairedMeans("tokens", values, np.array([0, 1, 2, 3]))
    >>> print(means)
    tokens: mean ± half of the 95 % interval, 4 contexts of 4 prompts
    rule   K  γ = 2
    -----  -  -------------
    chain  1  2.125 ± 1.359
    block  1  2.250 ± 1.258
    >>> print(means.difference(block, chain))
    0.125 ± 0.230
    """

    quantity: str
    values: Mapping[Setup, Floats]
    prompts: npt.NDArray[np.int64]
    level: float = 0.95

    def __post_init__(self) -> None:
        object.__setattr__(self, "level", as_level(self.level))

    def __iter__(self) -> Iterator[Setup]:
        return iter(self.values)

    def __getitem__(self, setup: AnySetup) -> Estimate:
        return clustered_mean(self._of(setup), self.prompts, level=self.level)

    def difference(self, setup: AnySetup, other: AnySetup) -> Estimate:
        """Mean of the first less that of the second, context by context.

        Parameters
        ----------
        setup, other : Setup, or tuple of its three entries
            Two that were measured.

        Returns
        -------
        Estimate
            Of the difference, in the unit of what was measured.

        Raises
        ------
        UnknownMethodError
            If one of the two was not measured.
        InvalidParameterError
            If there is not one prompt for each value.
        """
        values = self._of(setup) - self._of(other)
        return clustered_mean(values, self.prompts, level=self.level)

    def __or__(self, other: PairedMeans) -> PairedMeans:
        """Both in one table; the measurements must be of the same contexts."""
        if (self.quantity, self.level) != (other.quantity, other.level) or not np.array_equal(
            self.prompts, other.prompts
        ):
            raise InvalidParameterError(
                "these were not measured alike; put together what has one quantity, level and "
                "list of recordings"
            )
        return PairedMeans(self.quantity, {**self.values, **other.values}, self.prompts, self.level)

    def _of(self, setup: AnySetup) -> Floats:
        if setup not in self.values:
            known = ", ".join(str(tuple(measured)) for measured in self.values)
            raise UnknownMethodError(f"{tuple(setup)} was not measured; there are {known}")
        return self.values[Setup(*setup)]

    def __str__(self) -> str:
        gammas = sorted({setup.gamma for setup in self.values})
        lines = dict.fromkeys((setup.rule, setup.k) for setup in self.values)
        columns, rows = ["rule", "K", *(f"γ = {gamma}" for gamma in gammas)], []
        for rule, k in lines:
            there = [Setup(rule, k, gamma) for gamma in gammas]
            cells = [str(self[setup]) if setup in self.values else "" for setup in there]
            rows.append([rule, str(k), *cells])
        contexts, prompts = self.prompts.size, np.unique(self.prompts).size
        known = f"mean ± half of the {100 * self.level:g} % interval, {contexts} contexts of "
        known += f"{prompts} prompts"
        alone = f"mean of {contexts} contexts of one prompt, which alone has no interval"
        return f"{self.quantity}: {known if prompts > 1 else alone}\n{text_table(columns, rows)}"


def clustered_mean(
    values: npt.ArrayLike, clusters: npt.ArrayLike, *, level: float = 0.95
) -> Estimate:
    """Mean of all values with a confidence interval that takes clusters alone to be independent.

    The mean is a ratio of totals over clusters, of the values and of their numbers
    (`ratio_of_totals`).

    Parameters
    ----------
    values : array-like [R]
        The values.
    clusters : int array-like [R]
        The cluster of each value, such as its prompt.
    level : float, optional
        Probability that the interval covers the mean, nearly; above 0 and below 1.

    Returns
    -------
    Estimate
        The mean and its interval, infinite if there is one cluster alone.

    Raises
    ------
    InvalidParameterError
        If there are no values, one cluster for each is not given, or the level is out of range.

    Examples
    --------
    >>> print(clustered_mean([1, 3, 2, 4, 2, 4], [0, 1, 2, 3, 4, 5]))
    2.667 ± 1.271
    >>> print(clustered_mean([1, 1, 2, 2, 4, 4], [0, 0, 1, 1, 2, 2]))
    2.333 ± 3.795
    """
    numbers, names = np.asarray(values, dtype=np.float64), np.asarray(clusters)
    if numbers.ndim != 1 or numbers.size == 0 or names.shape != numbers.shape:
        raise InvalidParameterError(
            f"values of shape {numbers.shape} in clusters of shape {names.shape}; give at least "
            "one value, and the cluster of each"
        )
    prompts = Prompts(names, level)
    return prompts.mean(np.bincount(prompts.index, weights=numbers).astype(np.float64))


def ratio_of_totals(
    numerators: npt.ArrayLike, denominators: npt.ArrayLike, *, level: float = 0.95
) -> Estimate:
    """Ratio of two totals with a confidence interval; only the pairs [C], [C] are independent.

    The standard error is that of the linearised ratio (Cochran, "Sampling Techniques", 1977,
    section 6.4), with Student's t; the interval of a single pair is infinite.
    """
    from scipy.special import stdtrit

    covered = as_level(level)
    above = np.asarray(numerators, dtype=np.float64)
    below = np.asarray(denominators, dtype=np.float64)
    if above.ndim != 1 or above.size == 0 or below.shape != above.shape or not below.sum() > 0:
        raise InvalidParameterError(
            f"numerators of shape {above.shape} and denominators of shape {below.shape}; give at "
            "least one pair, and denominators with a total above 0"
        )
    ratio, count = float(above.sum() / below.sum()), above.size
    if count == 1:
        return Estimate(ratio, -np.inf, np.inf)
    residuals = above - ratio * below
    error = float(np.sqrt(count / (count - 1) * (residuals**2).sum()) / below.sum())
    reach = float(stdtrit(count - 1, (1 + covered) / 2)) * error
    return Estimate(ratio, ratio - reach, ratio + reach)
