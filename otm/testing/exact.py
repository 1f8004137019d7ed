"""Exact distributions of selection rules, in fractions and without tolerance.

There are two independent methods.  The first method enumerates all drafts and sums
`plan.conditional`, the distribution that a plan states for itself.  The second method runs
`plan.select` on symbolic uniforms along every path of its comparisons, and so computes the
distribution of the code that selects.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from fractions import Fraction
from typing import Any, Generic, NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt

from otm._core.arithmetic import Number, Probs, zeros
from otm.coupling.plan import TransportPlan
from otm.decoding.draft_tree import Randomness
from otm.errors import InvalidParameterError
from otm.testing.symbolic import MAX_UNIFORMS, Region

Outcome = TypeVar("Outcome")


class Path(NamedTuple, Generic[Outcome]):
    """One path through the comparisons of a function of uniforms.

    Attributes
    ----------
    outcome : object
        Return value of the function on this path.
    probability : Fraction
        Probability of the path; 0 if a uniform must have one specific value.
    example : list of m Fraction
        Values of the uniforms for which the function takes this path.
    width : Fraction
        Length of the shortest interval to which the path restricts a uniform.

    Examples
    --------
    >>> path = next(paths(lambda u: "heads" if u[0] < Fraction(1, 4) else "tails", 1))
    >>> path.outcome, path.probability, path.example, path.width
    ('heads', Fraction(1, 4), [Fraction(1, 8)], Fraction(1, 4))
    """

    outcome: Outcome
    probability: Fraction
    example: list[Fraction]
    width: Fraction


def paths(
    function: Callable[[npt.NDArray[Any]], Outcome], number_of_uniforms: int
) -> Iterator[Path[Outcome]]:
    """Run a function of uniforms along every path of its comparisons.

    Parameters
    ----------
    function : callable
        Deterministic function of an object array [m] of `SymbolicUniform`.  It may only add
        fractions to the uniforms, multiply them by fractions, and compare them.  NumPy functions
        that use only these operations on object arrays, such as `np.less` and `np.searchsorted`,
        are allowed.
    number_of_uniforms : int
        Number m of independent uniforms on [0, 1).

    Yields
    ------
    Path
        Every path; the probabilities sum to exactly 1.  Paths of probability 0 are included, to
        detect functions that fail only at u = 0.

    Raises
    ------
    InvalidInputError
        If the function uses a uniform in any other way, for example as a boolean.

    Examples
    --------
    >>> for path in paths(lambda u: "heads" if u[0] <= 0 else "tails", 1):
    ...     print(path.outcome, path.probability)
    heads 0
    tails 1
    """
    yield from paths_of_source(
        lambda source: function(source(number_of_uniforms)), max_uniforms=number_of_uniforms
    )


def paths_of_source(
    function: Callable[[Randomness], Outcome],
    max_uniforms: int = MAX_UNIFORMS,
    max_isolated: float = math.inf,
) -> Iterator[Path[Outcome]]:
    """Run a function of a source of uniforms along every path of its comparisons.

    Unlike `paths`, the number of uniforms is not fixed.  At most `max_isolated` uniforms of a path
    are restricted to a single value, such as 0.
    """
    for outcome, region in regions(function, max_uniforms, max_isolated):
        yield Path(outcome, region.volume(), region.example(), region.width())


def regions(
    function: Callable[[Randomness], Outcome],
    max_uniforms: int = MAX_UNIFORMS,
    max_isolated: float = math.inf,
) -> Iterator[tuple[Outcome, Region]]:
    """Run a function along every path, as `paths_of_source` does; yield each outcome and region."""
    script: list[int] | None = []
    while script is not None:
        region = Region(0, script, max_uniforms, max_isolated)
        yield function(region.take), region
        script = region.next_script()


def exact_distribution(
    function: Callable[[npt.NDArray[Any]], Outcome], number_of_uniforms: int
) -> dict[Outcome, Fraction]:
    """Return the exact distribution of the outcome of a function that compares its uniforms.

    Parameters
    ----------
    function : callable
        A function as for `paths`, with hashable return values.
    number_of_uniforms : int
        Number m of independent uniforms on [0, 1).

    Returns
    -------
    dict
        Probability of each outcome; the probabilities sum to exactly 1.  An outcome has probability
        0 if it needs one specific value of a uniform.

    Raises
    ------
    InvalidInputError
        If the function uses a uniform in a way that `paths` does not allow.

    Examples
    --------
    >>> cdf = [Fraction(1, 4), 1]
    >>> probs = exact_distribution(lambda u: int(np.searchsorted(cdf, u[0], side="right")), 1)
    >>> sorted(probs.items())
    [(0, Fraction(1, 4)), (1, Fraction(3, 4))]
    """
    return summed(regions(lambda source: function(source(number_of_uniforms)), number_of_uniforms))


def summed(explored: Iterable[tuple[Outcome, Region]]) -> dict[Outcome, Fraction]:
    """Sum the probabilities of all regions with the same outcome."""
    probs: dict[Outcome, Fraction] = defaultdict(Fraction)
    for outcome, region in explored:
        probs[outcome] += region.volume()
    return dict(probs)


def exact_output_distribution(
    plan: TransportPlan, drafts: Iterable[tuple[Sequence[int], Number]] | None = None
) -> Probs:
    """Return the output distribution of a plan, summed from `plan.conditional` over all drafts.

    Parameters
    ----------
    plan : TransportPlan
        A rule; the result is exact if its problem is exact.
    drafts : iterable of (drafts, probability), optional
        Distribution of the drafts, which are sequences of k int.  The default is
        `plan.drafts.tuples()`, the distribution for which the plan was built; a plan is lossless
        only for this distribution.

    Returns
    -------
    array [n]
        Probability of each token; fractions if the plan is exact.

    Raises
    ------
    InvalidDraftsError
        If the plan does not accept one of the drafts as input.

    Examples
    --------
    >>> from otm import Problem
    >>> from otm.coupling.maximal import MaximalCoupling
    >>> plan = MaximalCoupling(Problem([0.5, 0.5], [0.75, 0.25], k=1))
    >>> exact_output_distribution(plan)
    array([0.75, 0.25])
    >>> exact_output_distribution(plan, drafts=[([0], 1.0)])  # Drafts are the argmax, not samples.
    array([1., 0.])
    """
    probs = zeros(plan.problem.n, plan.problem.target)
    for tokens, probability in plan.drafts.tuples() if drafts is None else drafts:
        probs = probs + probability * plan.conditional(list(tokens))
    return probs


def exact_acceptance(plan: TransportPlan) -> Number:
    """Return the acceptance probability Pr(Y ∈ drafts), by enumeration of `plan.conditional`.

    Parameters
    ----------
    plan : TransportPlan
        A rule; the result is exact if its problem is exact.

    Returns
    -------
    Fraction or float
        Probability in [0, 1]; `plan.acceptance` must equal it.

    Examples
    --------
    >>> from otm import Problem
    >>> from otm.coupling.maximal import MaximalCoupling
    >>> float(exact_acceptance(MaximalCoupling(Problem([0.5, 0.5], [0.75, 0.25], k=1))))
    0.75
    """
    acceptance: Number = 0 * plan.problem.draft.item(0)
    for drafts, probability in plan.drafts.tuples():
        hit = plan.conditional(list(drafts))[_places(plan, drafts)].sum()
        acceptance = acceptance + probability * hit
    return acceptance


def exact_distribution_of_select(
    plan: TransportPlan, drafts: Sequence[int]
) -> dict[tuple[int, int], Fraction]:
    """Return the exact distribution of the (token, index) from `plan.select` for one set of drafts.

    The function runs `select` on symbolic uniforms; it does not use `plan.conditional`.

    Parameters
    ----------
    plan : TransportPlan
        A rule of an exact problem.
    drafts : sequence of k int
        One set of drafts.

    Returns
    -------
    dict from (int, int) to Fraction
        Probability of each (token, index); the probabilities sum to exactly 1.  An outcome has
        probability 0 if it needs one specific value of a uniform.

    Raises
    ------
    InvalidParameterError
        If the plan is not exact.
    InvalidDraftsError
        If the plan does not accept the drafts as input.

    Examples
    --------
    >>> from otm import Problem
    >>> from otm.coupling.maximal import MaximalCoupling
    >>> half = Fraction(1, 2)
    >>> plan = MaximalCoupling(Problem([half, half], [half / 2, 3 * half / 2], k=1))
    >>> exact_distribution_of_select(plan, [0])
    {(0, 0): Fraction(1, 2), (1, -1): Fraction(1, 2)}
    """
    if not plan.problem.exact:
        raise InvalidParameterError(
            "the distribution of `select` is only computed for exact plans; build the plan from "
            "`problem.to_exact()`"
        )

    def select(uniforms: npt.NDArray[Any]) -> tuple[int, int]:
        token, index = plan.select(list(drafts), uniforms)
        return int(token), int(index)

    return exact_distribution(select, plan.uniforms_per_selection)


def assert_lossless(plan: TransportPlan) -> None:
    """Assert, in fractions, that an exact plan outputs the target distribution.

    The function computes the exact distribution of `plan.select` for every set of drafts, and
    asserts that

    - the index is the index of the first draft equal to the token, or −1 without such a draft;
    - no token of target probability 0 is returned, even for single values such as u = 0;
    - the token has the distribution `plan.conditional`.

    For the output over all drafts, it asserts that

    - the token has the target distribution, and `plan.output_distribution()` equals it;
    - the token is one of the drafts with probability `plan.acceptance`.

    Parameters
    ----------
    plan : TransportPlan
        A rule of an exact problem, small enough to enumerate.

    Raises
    ------
    AssertionError
        If an assertion fails; the message states the assertion and the drafts.
    InvalidParameterError
        If the plan is not exact.

    Examples
    --------
    >>> from otm.coupling import RecursiveRejection
    >>> from otm.testing import instance
    >>> assert_lossless(RecursiveRejection(instance("Bernoulli")))
    >>> class AcceptsAll(RecursiveRejection):
    ...     def _select(self, drafts, uniforms):
    ...         return drafts[:, 0]
    >>> assert_lossless(AcceptsAll(instance("Bernoulli")))  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    AssertionError: drafts (0, 0): select has the ... (1, 0), but conditional is (1/3, 2/3)
    """
    target = plan.problem.target
    output, accepted = zeros(plan.problem.n, target), Fraction(0)
    for drafts, probability in plan.drafts.tuples():
        probs = zeros(plan.problem.n, target)
        for (token, index), path_probability in exact_distribution_of_select(plan, drafts).items():
            first = drafts.index(token) if token in drafts else -1
            _require(
                index == first,
                f"drafts {drafts}, token {token}: index {index} instead of {first}",
            )
            place = np.searchsorted(plan.problem.tokens, token)
            _require(target[place] > 0, f"drafts {drafts}: token {token} has target probability 0")
            probs[place] += path_probability
        stated = plan.conditional(list(drafts))
        _require(
            (probs == stated).all(),
            f"drafts {drafts}: select has the distribution {_text(probs)}, "
            f"but conditional is {_text(stated)}",
        )
        output = output + probability * probs
        accepted += probability * probs[_places(plan, drafts)].sum()
    _require(
        (output == target).all(),
        f"the output distribution is {_text(output)}, but the target is {_text(target)}",
    )
    stated = plan.output_distribution()
    _require(
        (stated == output).all(),
        f"output_distribution() returns {_text(stated)} instead of {_text(output)}",
    )
    _require(plan.acceptance == accepted, f"acceptance is {plan.acceptance} instead of {accepted}")


def _places(plan: TransportPlan, drafts: Sequence[int]) -> npt.NDArray[np.int64]:
    """Return the positions of the distinct drafts in the vocabulary."""
    return np.unique(plan.drafts.positions(list(drafts)))


def _require(condition: bool | np.bool_, message: str) -> None:
    if not condition:
        raise AssertionError(message)


def _text(probs: Probs) -> str:
    return "(" + ", ".join(map(str, probs)) + ")"
