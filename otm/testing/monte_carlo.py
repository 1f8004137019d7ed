"""Monte Carlo checks with a common budget of false alarms.

Prefer exact distributions; use these checks where exact distributions are impossible, such as for
real random streams and whole decoding loops.  A run of a test suite has a false alarm with
probability at most 10^−6.  A fixed number of checks shares this budget, each at the level
α = 10^−10.  A check cannot choose its level.  Each check declares the smallest deviation δ that it
must detect, which determines the number of draws.  Each check also has a negative control, a
sampler that deviates by at least δ and must be rejected.  The name of a check determines its seed.
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
"""A function from a generator and a number of draws to an array [draws] of independent draws."""


class Control(NamedTuple):
    """A negative control: a sampler that a check must reject.

    Attributes
    ----------
    sampler : Sampler
        A wrong sampler, for example the same code with one deliberate error.
    truth : array [n] or float
        True distribution, probability or mean of the wrong sampler, from a computation and not from
        samples.  It must differ from the expected value by at least the δ of the check.

    Examples
    --------
    >>> loaded = Control(lambda rng, draws: (rng.random(draws) < 0.75).astype(int), [0.25, 0.75])
    >>> loaded.sampler(np.random.default_rng(0), 5)
    array([1, 1, 1, 1, 0])
    """

    sampler: Sampler
    truth: Probs | float


class Verdict(NamedTuple):
    """Result of a check that succeeded.

    Attributes
    ----------
    draws : int
        Number of draws of the sampler; the negative control has the same number.
    statistic : float
        Test statistic of the sampler; its unit depends on the check.
    limit : float
        Largest statistic with which the check succeeds.

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
    """Budget of false alarms for one run of a test suite, shared by all Monte Carlo checks.

    Parameters
    ----------
    false_alarms : float
        Bound in (0, 1) on the probability that a run fails although every sampler is correct.
    capacity : int
        Largest number of checks, at least 1.  It is fixed in advance, so that a new check does not
        change the other checks.

    Attributes
    ----------
    draws : int
        Number of draws so far, including the draws of negative controls.

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
        """Number of checks so far."""
        return len(self._names)

    @property
    def level(self) -> float:
        """Bound α on the probability of a false alarm of one check."""
        return self.false_alarms / self.capacity

    def check_distribution(
        self, name: str, sampler: Sampler, probs: npt.ArrayLike, *, delta: float, control: Control
    ) -> Verdict:
        """Check that a sampler of tokens has the expected distribution.

        The check fails if a token of probability 0 is drawn; otherwise it tests the statistic G.

        Parameters
        ----------
        name : str
            Name of the check, unique in a run; it determines the seed.
        sampler : Sampler
            Function from a generator and a number of draws to an int array [draws] of tokens.
        probs : array-like [n]
            The expected distribution.
        delta : float
            Total variation distance that the check must detect with probability 1 − 10^−3; it
            determines the number of draws.
        control : Control
            Negative control at a distance of at least `delta`; the check must reject it.

        Returns
        -------
        Verdict
            Number of draws, statistic G and its limit.

        Raises
        ------
        AssertionError
            If the sampler is rejected, or its negative control is not rejected.
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
        """Check that a sampler of booleans has the expected probability of True.

        The test is the exact two-sided binomial test; an example is an acceptance rate.

        Parameters
        ----------
        name : str
            Name of the check, unique in a run; it determines the seed.
        sampler : Sampler
            Function from a generator and a number of draws to a bool array [draws].
        probability : float
            The expected probability of True.
        delta : float
            Difference of probabilities that the check must detect with probability 1 − 10^−3; it
            determines the number of draws.
        control : Control
            Negative control at a distance of at least `delta`; the check must reject it.

        Returns
        -------
        Verdict
            Number of draws, −ln of the p-value and its limit.

        Raises
        ------
        AssertionError
            If the sampler is rejected, or its negative control is not rejected.
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
        """Check the mean of a bounded quantity, such as the number of accepted tokens in a step.

        The check fails if a draw is outside the bounds; otherwise Hoeffding's inequality is used.

        Parameters
        ----------
        name : str
            Name of the check, unique in a run; it determines the seed.
        sampler : Sampler
            Function from a generator and a number of draws to a float array [draws].
        mean : float
            The expected mean.
        bounds : (float, float)
            Smallest and largest possible draw.
        delta : float
            Difference of means that the check must detect with probability 1 − 10^−3, in the unit
            of the draws; it determines the number of draws.
        control : Control
            Negative control at a distance of at least `delta`; the check must reject it.

        Returns
        -------
        Verdict
            Number of draws, distance of the means and its limit.

        Raises
        ------
        AssertionError
            If the sampler is rejected, or its negative control is not rejected.
        InvalidInputError
            If the name was used before, the budget is used up, or a sampler returns a wrong shape.
        InvalidParameterError
            If `delta` is out of range, or the control is closer than `delta`.
        """
        criterion = criterion_for_mean(mean, bounds, delta, self.level)
        self._enter(name, abs(float(control.truth) - mean), delta)
        return self._decide(name, sampler, criterion, control)

    def _enter(self, name: str, distance: float, delta: float) -> None:
        """Register a check; raise if its control deviates too little or its name is taken."""
        if distance < delta * (1 - 1e-9):
            raise InvalidParameterError(
                f"the negative control of the check {name!r} is {distance:g} away from the "
                f"expected value; it must be at least delta = {delta:g} away, to show that the "
                "check detects this deviation"
            )
        if name in self._names:
            raise InvalidInputError(
                f"this run already has a check {name!r}; give every check its own name, and do not "
                "repeat a check until it passes"
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
                f"{limit:.6g}; a correct sampler exceeds it with probability at most {self.level:g}"
            )
        missed = statistic(_draw(control.sampler, for_control, draws))
        if missed <= limit:
            raise AssertionError(
                f"{name}: the check does not reject its negative control: the control's statistic "
                f"is {missed:.6g} after {draws} draws, not above the limit {limit:.6g}"
            )
        return Verdict(draws, value, limit)


BUDGET = Budget()
"""The budget of a run; a test suite uses only this budget."""


def _draw(sampler: Sampler, rng: np.random.Generator, draws: int) -> npt.NDArray[Any]:
    sample = np.asarray(sampler(rng, draws))
    if sample.shape != (draws,):
        raise InvalidInputError(
            f"a sampler returned an array of shape {sample.shape} for {draws} draws; it must "
            f"return shape ({draws},), one entry per draw"
        )
    return sample
