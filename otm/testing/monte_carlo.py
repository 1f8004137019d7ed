"""Monte Carlo checks under one budget of false alarms.

Exact distributions come first; this is for what they cannot reach, such as real random streams and
whole decoding loops.  A run of a test suite gives at most 10^−6 false alarms, shared by a declared
number of checks, each at the level α = 10^−10.  A check cannot choose its level: it declares the
smallest deviation δ that it must see, which determines the number of draws, and brings a negative
control, a sampler that deviates by at least δ and must be rejected.  Seeds come from the names of
the checks.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from otm._core.arithmetic import Probs
from otm._core.numbers import as_level, as_positive
from otm._core.probs.distribution import total_variation
from otm.errors import InvalidInputError, InvalidParameterError
from otm.testing.statistics import (
    Criterion,
    criterion_for_distribution,
    criterion_for_mean,
    criterion_for_probability,
)

Sampler = Callable[[np.random.Generator, int], npt.NDArray[Any]]
"""Takes a generator and a number of draws, returns an array [draws] of independent draws."""


class Control(NamedTuple):
    """A negative control: a sampler that a check must reject.

    Attributes
    ----------
    sampler : Sampler
        The broken variant, for example the same code with one slip.
    truth : array [n] or float
        Its true distribution, probability or mean, computed and not sampled.  It must differ from
        the expected one by at least the δ of the check.

    Examples
    --------
    >>> loaded = Control(lambda rng, draws: (rng.random(draws) < 0.75).astype(int), [0.25, 0.75])
    >>> loaded.sampler(np.random.default_rng(0), 5)
    array([1, 1, 1, 1, 0])
    """

    sampler: Sampler
    truth: Probs | float


class Verdict(NamedTuple):
    """Numbers of a check that succeeded.

    Attributes
    ----------
    draws : int
        Number of draws of the sampler, and again of its negative control.
    statistic : float
        Statistic of the sampler; its unit depends on the check.
    limit : float
        The check fails if the statistic is above this.

    Examples
    --------
    >>> verdict = Budget().check_probability(
    ...     "a fair coin",
    ...     lambda rng, draws: rng.random(draws) < 0.5,
    ...     0.5,
    ...     delta=0.25,
    ...     control=Control(lambda rng, draws: rng.random(draws) < 0.75, 0.75),
    ... )
    >>> verdict.draws, verdict.statistic < verdict.limit
    (512, True)
    """

    draws: int
    statistic: float
    limit: float


@dataclass
class Budget:
    """Probability of false alarms for one run of a test suite, and the checks that share it.

    Parameters
    ----------
    false_alarms : float
        Bound on the probability that a run fails although every sampler is right, in (0, 1).
    capacity : int
        Number of checks that share it, at least 1; declared ahead, so that a new check changes no
        other.

    Attributes
    ----------
    draws : int
        Draws of the checks so far, including those of the negative controls.

    Raises
    ------
    InvalidParameterError
        If the bound is not in (0, 1) or the capacity is not at least 1.

    Examples
    --------
    >>> fair = lambda rng, draws: rng.integers(0, 2, size=draws)
    >>> loaded = lambda rng, draws: (rng.random(draws) < 0.75).astype(int)
    >>> verdict = Budget().check_distribution(
    ...     "a coin", fair, [0.5, 0.5], delta=0.25, control=Control(loaded, [0.25, 0.75])
    ... )
    >>> verdict.draws, verdict.statistic < verdict.limit
    (440, True)
    """

    false_alarms: float = 1e-6
    capacity: int = 10_000
    draws: int = field(default=0, init=False)
    _names: set[str] = field(default_factory=set, init=False, repr=False)

    def __post_init__(self) -> None:
        as_level(self.false_alarms, "false_alarms")
        as_positive(self.capacity, "capacity")

    @property
    def checks(self) -> int:
        """Number of checks that were made."""
        return len(self._names)

    @property
    def level(self) -> float:
        """Probability α of a false alarm of one check."""
        return self.false_alarms / self.capacity

    def check_distribution(
        self, name: str, sampler: Sampler, probs: npt.ArrayLike, *, delta: float, control: Control
    ) -> Verdict:
        """Check that a sampler of tokens has a distribution.

        A token of probability 0 fails at once; the others are tested by the statistic G.

        Parameters
        ----------
        name : str
            Unique within a run; it seeds the draws.
        sampler : Sampler
            Takes a generator and a number of draws, returns an int array [draws] of tokens.
        probs : array-like [n]
            The expected distribution.
        delta : float
            Total variation distance that the check must detect with probability 1 − 10^−3; it sets
            the number of draws.
        control : Control
            A sampler that is at least `delta` away and must be rejected.

        Returns
        -------
        Verdict
            Draws, statistic G and its limit.

        Raises
        ------
        AssertionError
            If the sampler is rejected, or its negative control is not.
        InvalidInputError
            If the name was used before, the budget is used up, or a sampler returns a wrong shape.
        InvalidParameterError
            If `delta` is out of range, the control is closer than `delta`, or `probs` has fewer
            than two tokens of positive probability.
        """
        expected = np.asarray(probs, dtype=np.float64)
        distance = total_variation(np.asarray(control.truth, dtype=np.float64), expected)
        criterion = criterion_for_distribution(expected, delta, self.level)
        self._enter(name, float(distance), delta)
        return self._decide(name, sampler, criterion, control)

    def check_probability(
        self, name: str, sampler: Sampler, probability: float, *, delta: float, control: Control
    ) -> Verdict:
        """Check that a sampler of booleans has a probability of true, such as an acceptance rate.

        The test is the exact two-sided binomial test.

        Parameters
        ----------
        name : str
            Unique within a run; it seeds the draws.
        sampler : Sampler
            Takes a generator and a number of draws, returns a bool array [draws].
        probability : float
            The expected probability of true.
        delta : float
            Difference of probabilities that the check must detect with probability 1 − 10^−3; it
            sets the number of draws.
        control : Control
            A sampler that is at least `delta` away and must be rejected.

        Returns
        -------
        Verdict
            Draws, −ln of the p-value and its limit.

        Raises
        ------
        AssertionError
            If the sampler is rejected, or its negative control is not.
        InvalidInputError
            If the name was used before, the budget is used up, or a sampler returns a wrong shape.
        InvalidParameterError
            If `delta` is out of range, or the control is closer than `delta`.
        """
        criterion = criterion_for_probability(probability, delta, self.level)
        self._enter(name, abs(float(control.truth) - probability), delta)
        return self._decide(name, sampler, criterion, control)

    def check_mean(
        self,
        name: str,
        sampler: Sampler,
        mean: float,
        *,
        bounds: tuple[float, float],
        delta: float,
        control: Control,
    ) -> Verdict:
        """Check the mean of a bounded quantity, such as the number of accepted tokens of a block.

        A draw outside the bounds fails at once; the mean is tested by Hoeffding's inequality.

        Parameters
        ----------
        name : str
            Unique within a run; it seeds the draws.
        sampler : Sampler
            Takes a generator and a number of draws, returns a float array [draws].
        mean : float
            The expected mean.
        bounds : (float, float)
            Smallest and largest possible draw.
        delta : float
            Difference of means that the check must detect with probability 1 − 10^−3, in the unit
            of the draws; it sets their number.
        control : Control
            A sampler that is at least `delta` away and must be rejected.

        Returns
        -------
        Verdict
            Draws, distance of the means and its limit.

        Raises
        ------
        AssertionError
            If the sampler is rejected, or its negative control is not.
        InvalidInputError
            If the name was used before, the budget is used up, or a sampler returns a wrong shape.
        InvalidParameterError
            If `delta` is out of range, or the control is closer than `delta`.
        """
        criterion = criterion_for_mean(mean, bounds, delta, self.level)
        self._enter(name, abs(float(control.truth) - mean), delta)
        return self._decide(name, sampler, criterion, control)

    def _enter(self, name: str, distance: float, delta: float) -> None:
        """Enter a check into the budget."""
        if distance < delta * (1 - 1e-9):
            raise InvalidParameterError(
                f"the negative control of the check {name!r} is {distance:g} away from what is "
                f"expected; it must be at least delta = {delta:g} away, to show that the check "
                "sees so much"
            )
        if name in self._names:
            raise InvalidInputError(
                f"the check {name!r} was made before in this run; every check needs a name of its "
                "own, and none is repeated until it passes"
            )
        if len(self._names) == self.capacity:
            raise InvalidInputError(
                f"all {self.capacity} checks of the budget are used; declare a larger capacity, "
                "or test exact distributions instead"
            )
        self._names.add(name)

    def _decide(
        self, name: str, sampler: Sampler, criterion: Criterion, control: Control
    ) -> Verdict:
        draws, limit, statistic = criterion
        self.draws += 2 * draws
        seed = int.from_bytes(hashlib.sha256(name.encode()).digest(), "big")
        for_sampler, for_control = np.random.default_rng(seed).spawn(2)
        value = statistic(_draw(sampler, for_sampler, draws))
        if not value <= limit:
            raise AssertionError(
                f"{name}: the statistic is {value:.6g} after {draws} draws, above the limit "
                f"{limit:.6g} that a right sampler exceeds with probability {self.level:g}"
            )
        missed = statistic(_draw(control.sampler, for_control, draws))
        if missed <= limit:
            raise AssertionError(
                f"{name}: the check is blind: the statistic of its negative control is "
                f"{missed:.6g} after {draws} draws, not above the limit {limit:.6g}"
            )
        return Verdict(draws, value, limit)


BUDGET = Budget()
"""The budget of the run; a test suite uses this one alone."""


def _draw(sampler: Sampler, rng: np.random.Generator, draws: int) -> npt.NDArray[Any]:
    drawn = np.asarray(sampler(rng, draws))
    if drawn.shape != (draws,):
        raise InvalidInputError(
            f"a sampler returned an array of shape {drawn.shape} for {draws} draws; it must return "
            f"shape ({draws},), one entry a draw"
        )
    return drawn
