"""Means over contexts with confidence intervals.

Contexts of one prompt are similar, so only prompts count as independent.  All decoding methods are
measured at the same contexts, so their differences have narrower intervals than their means.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import numpy.typing as npt

from otm._core.display.text import html_table, text_table
from otm._core.files.paths import AnyPath, write_csv
from otm._core.numbers import as_level
from otm.errors import InvalidParameterError, UnknownMethodError

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Floats = npt.NDArray[np.float64]

DraftCount = int | tuple[int, ...]
"""Number K of chains, or the numbers of children at the levels of a prefix tree."""


class Setup(NamedTuple):
    """A decoding method with drafts: rule, number of chains and draft length.

    Attributes
    ----------
    rule : str
        Name of the rule that verifies the drafts.
    k : int or tuple of int
        Number K of chains, or the numbers of children at the levels of a prefix tree.
    gamma : int
        Largest number γ of drafts on a path.

    Examples
    --------
    >>> Setup("k-Seq", 4, 8).gamma
    8
    """

    rule: str
    k: DraftCount
    gamma: int


AnySetup = Setup | tuple[str, DraftCount, int]


class Estimate(NamedTuple):
    """A mean and its confidence interval; an infinite interval is not printed.

    Attributes
    ----------
    mean : float
        The mean.
    low, high : float
        The ends of the interval; infinite if the interval cannot be estimated.

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
    """The prompt of each of N positions; means are computed from one sum for each of P prompts."""

    def __init__(self, of_position: npt.ArrayLike, level: float = 0.95) -> None:
        _, index, sizes = np.unique(of_position, return_inverse=True, return_counts=True)
        self.level = level  # Confidence level of the intervals.
        self.index = index  # [N]: prompt of each position, counted from 0.
        self.sizes = sizes.astype(np.float64)  # [P]: number of positions of each prompt.
        # Positions of each prompt, in their original order.
        self.places = np.split(np.argsort(index, kind="stable"), np.cumsum(sizes)[:-1])

    def sums(self, values: Floats) -> Floats:
        """Add over the positions of each prompt: [N, ...] → [P, ...]."""
        return np.array([values[places].sum(axis=0) for places in self.places])

    def mean(self, sums: Floats) -> Estimate:
        """Compute the mean over all positions, with its interval, from one sum per prompt: [P]."""
        return ratio_of_totals(sums, self.sizes, level=self.level)

    def per(self, counts: Floats) -> Floats:
        """Convert counts [P, ...] to sums [P, ...] whose mean is the ratio of positions to counts.

        The ratio, such as tokens per step, is linearised.  A ratio, or a difference of two ratios,
        therefore gets the confidence interval of a mean (Cochran, "Sampling Techniques", 1977,
        section 6.4).
        """
        sizes = self.sizes.reshape(-1, *[1] * (counts.ndim - 1))
        ratio = sizes.sum() / counts.sum(axis=0)
        sums: Floats = ratio * (2 * sizes - ratio * counts)
        return sums


@dataclass(frozen=True, eq=False, repr=False)
class PairedMeans:
    """Values of several decoding methods at the same contexts; shown as a table of means.

    Parameters
    ----------
    quantity : str
        Name of the measured quantity.
    values : mapping from Setup to array [R]
        The values of each decoding method, one per context.
    prompts : int array [R]
        The prompt of each context.
    level : float, optional
        Confidence level of the intervals, above 0 and below 1.
    left_out : mapping from Setup to str, optional
        Setups that were too large or too slow to compute, with the reason.

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
    tokens, γ = 2: mean ± half of the 95 % interval, 4 contexts of 4 prompts
    rule   K = 1
    -----  -------------
    chain  2.125 ± 1.359
    block  2.250 ± 1.258
    >>> print(means.difference(block, chain))
    0.125 ± 0.230
    """

    quantity: str
    values: Mapping[Setup, Floats]
    prompts: npt.NDArray[np.int64]
    level: float = 0.95
    left_out: Mapping[Setup, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        object.__setattr__(self, "level", as_level(self.level))

    def __iter__(self) -> Iterator[Setup]:
        return iter(self.values)

    def __getitem__(self, setup: AnySetup) -> Estimate:
        return clustered_mean(self._of(setup), self.prompts, level=self.level)

    def difference(self, setup: AnySetup, other: AnySetup) -> Estimate:
        """Compute the mean of the paired differences between two decoding methods.

        Parameters
        ----------
        setup, other : Setup, or tuple of its three entries
            The two methods; the second is subtracted from the first.

        Returns
        -------
        Estimate
            Mean and interval of the difference, in the unit of the measured quantity.

        Raises
        ------
        UnknownMethodError
            If one of the two methods was not measured.
        InvalidParameterError
            If the numbers of values and prompts differ.
        """
        values = self._of(setup) - self._of(other)
        return clustered_mean(values, self.prompts, level=self.level)

    def __or__(self, other: PairedMeans) -> PairedMeans:
        """Merge two sets of measurements of the same contexts into one table."""
        if not isinstance(other, PairedMeans):
            return NotImplemented
        if (self.quantity, self.level) != (other.quantity, other.level) or not np.array_equal(
            self.prompts, other.prompts
        ):
            raise InvalidParameterError(
                "the two measurements differ in their quantity, level or contexts; merge only "
                "measurements with the same quantity, level and contexts"
            )
        values = {**self.values, **other.values}
        reasons = {**self.left_out, **other.left_out}.items()
        left_out = {setup: reason for setup, reason in reasons if setup not in values}
        return PairedMeans(self.quantity, values, self.prompts, self.level, left_out)

    def _of(self, setup: AnySetup) -> Floats:
        if setup in self.left_out:
            raise UnknownMethodError(f"{tuple(setup)} was left out: {self.left_out[Setup(*setup)]}")
        if setup not in self.values:
            known = ", ".join(str(tuple(measured)) for measured in self.values)
            raise UnknownMethodError(f"{tuple(setup)} was not measured; choose one of {known}")
        return self.values[Setup(*setup)]

    def __repr__(self) -> str:
        columns, *rows = self._table
        return "\n".join([self._title, text_table(columns, rows), *self._left_out_lines])

    def _repr_html_(self) -> str:
        heading, *rows = self._table
        return html_table(rows, self._title, heading=heading, notes=self._left_out_lines)

    @property
    def _left_out_lines(self) -> list[str]:
        """Build one line for each rule and reason, with the numbers of drafts left out."""
        ks: dict[tuple[str, str], list[str]] = {}
        for setup, reason in self.left_out.items():
            ks.setdefault((setup.rule, reason), []).append(str(setup.k))
        return [
            f"left out: {rule}, K = {', '.join(numbers)}: {reason}"
            for (rule, reason), numbers in ks.items()
        ]

    @property
    def _title(self) -> str:
        """Return the title: quantity, draft length, interval and numbers of contexts."""
        contexts, prompts = self.prompts.size, np.unique(self.prompts).size
        (gamma, *others) = {setup.gamma for setup in self.values}
        what = self.quantity if others or gamma == 1 else f"{self.quantity}, γ = {gamma}"
        if prompts == 1:
            of = "1 context" if contexts == 1 else f"{contexts} contexts of one prompt"
            return f"{what}: mean of {of}, which alone has no interval"
        return (
            f"{what}: mean ± half of the {100 * self.level:g} % interval, {contexts} contexts of "
            f"{prompts} prompts"
        )

    @property
    def _table(self) -> list[list[str]]:
        """Return the heading and the rows of the table rule × K, with a column γ if γ varies."""
        gammas = sorted({setup.gamma for setup in self.values})
        ks = list(dict.fromkeys(setup.k for setup in self.values))
        if len(gammas) == 1:
            (gamma,) = gammas
            rules = dict.fromkeys(setup.rule for setup in self.values)
            body = [[rule, *(self._cell(Setup(rule, k, gamma)) for k in ks)] for rule in rules]
            return [["rule", *(f"K = {k}" for k in ks)], *body]
        lines = dict.fromkeys((setup.rule, setup.k) for setup in self.values)
        body = [
            [rule, str(k), *(self._cell(Setup(rule, k, gamma)) for gamma in gammas)]
            for rule, k in lines
        ]
        return [["rule", "K", *(f"γ = {gamma}" for gamma in gammas)], *body]

    def _cell(self, setup: Setup) -> str:
        return str(self[setup]) if setup in self.values else ""

    def to_csv(self, path: AnyPath) -> None:
        """Write the means and the ends of their intervals as CSV, one line per decoding method.

        Parameters
        ----------
        path : str or Path
            The file, with the columns rule, K, gamma, mean, low and high; low and high are empty
            if the interval is infinite.

        Raises
        ------
        InvalidInputError
            If the file cannot be written.
        """
        rows = [
            [*setup, *("" if np.isinf(number) else number for number in self[setup])]
            for setup in self.values
        ]
        write_csv(path, [["rule", "K", "gamma", *Estimate._fields], *rows])

    def plot(self, ax: Axes | None = None) -> Axes:
        """Plot the means against K, or against γ if there is only one K, with intervals as bands.

        Parameters
        ----------
        ax : Axes, optional
            Matplotlib axes to draw on; by default those of a new pyplot figure.

        Returns
        -------
        Axes
            The axes; `ax.figure.savefig` writes the plot to a file.

        Raises
        ------
        MissingDependencyError
            If matplotlib is not installed.
        """
        from otm._core.drawing import COLOURS, MARKERS, drawing_on, legend_above

        gammas = sorted({setup.gamma for setup in self.values})
        over_gamma = len(gammas) > 1 and len({setup.k for setup in self.values}) == 1
        curves: dict[tuple[str, int], list[tuple[DraftCount, Estimate]]] = {}
        for setup in self.values:
            name, x = (0, setup.gamma) if over_gamma else (setup.gamma, setup.k)
            curves.setdefault((setup.rule, name), []).append((x, self[setup]))
        several = not over_gamma and len(gammas) > 1
        with drawing_on(ax, 2.9 + 0.1 * len(curves)) as axes:
            for i, ((rule, gamma), points) in enumerate(curves.items()):
                label = f"{rule}, γ = {gamma}" if several else rule
                places = [str(x) if isinstance(x, tuple) else x for x, _ in points]
                means, low, high = np.transpose([estimate for _, estimate in points])
                colour, marker = COLOURS[i % len(COLOURS)], MARKERS[i % len(MARKERS)]
                axes.plot(places, means, color=colour, marker=marker, markersize=3, label=label)
                if np.isfinite(high).all():
                    axes.fill_between(places, low, high, color=colour, alpha=0.15, linewidth=0)
            numbers = sorted({x for points in curves.values() for x, _ in points}, key=str)
            if all(isinstance(x, int) for x in numbers):
                axes.set_xticks([x for x in numbers if isinstance(x, int)])
            axes.set(xlabel="drafts of a path γ" if over_gamma else "number of drafts K")
            axes.set(ylabel=self.quantity)
            legend_above(axes)
        return axes


def clustered_mean(
    values: npt.ArrayLike, clusters: npt.ArrayLike, *, level: float = 0.95
) -> Estimate:
    """Compute the mean of all values, with a confidence interval for dependent clusters.

    Values of different clusters are independent; values of one cluster may be dependent.  The mean
    is the total of the clusters' sums divided by the total of their counts (`ratio_of_totals`).

    Parameters
    ----------
    values : array-like [R]
        The values.
    clusters : int array-like [R]
        The cluster of each value, such as its prompt.
    level : float, optional
        Confidence level of the interval, above 0 and below 1; coverage is approximate.

    Returns
    -------
    Estimate
        The mean and its interval, which is infinite if there is only one cluster.

    Raises
    ------
    InvalidParameterError
        If there are no values, the numbers of values and clusters differ, or the level is out of
        range.

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
            "one value, and one cluster per value"
        )
    prompts = Prompts(names, level)
    return prompts.mean(np.bincount(prompts.index, weights=numbers).astype(np.float64))


def ratio_of_totals(
    numerators: npt.ArrayLike, denominators: npt.ArrayLike, *, level: float = 0.95
) -> Estimate:
    """Compute the ratio of two totals over C independent pairs, with a confidence interval.

    The interval uses Student's t and the standard error of the linearised ratio (Cochran,
    "Sampling Techniques", 1977, section 6.4).  For a single pair the interval is infinite.
    """
    from scipy.special import stdtrit

    covered = as_level(level)
    above = np.asarray(numerators, dtype=np.float64)
    below = np.asarray(denominators, dtype=np.float64)
    if above.ndim != 1 or above.size == 0 or below.shape != above.shape or not below.sum() > 0:
        raise InvalidParameterError(
            f"numerators of shape {above.shape} and denominators of shape {below.shape}; give at "
            "least one pair, and denominators with a positive total"
        )
    ratio, count = float(above.sum() / below.sum()), above.size
    if count == 1:
        return Estimate(ratio, -np.inf, np.inf)
    residuals = above - ratio * below
    error = float(np.sqrt(count / (count - 1) * (residuals**2).sum()) / below.sum())
    reach = float(stdtrit(count - 1, (1 + covered) / 2)) * error
    return Estimate(ratio, ratio - reach, ratio + reach)
