"""Exact distributions of selection rules, in fractions and without tolerance.

Two independent ways: enumerate all drafts and add up `plan.conditional`, which is what a plan says
about itself; or run `plan.select` on symbolic uniforms along every path of its comparisons, which
gives the distribution of the very code that decides.
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
        Probability of the path; 0 if only isolated values of a uniform take it.
    example : list of m Fraction
        Uniforms that take this path.
    width : Fraction
        Length of the shortest interval to which the path confines one of the uniforms.

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
        Takes an object array [m] of `SymbolicUniform`.  It must be deterministic, and may only add
        fractions to the uniforms, multiply them by fractions, and compare them.  NumPy functions
        that do the same on object arrays (`np.less`, `np.searchsorted`) work too.
    number_of_uniforms : int
        Number m of independent uniforms on [0, 1).

    Yields
    ------
    Path
        Every path; the probabilities sum to exactly 1.  Paths of probability 0 are included, so
        that a function that fails only at u = 0 is caught.

    Raises
    ------
    InvalidInputError
        If the function uses a uniform in another way, such as its truth value.

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
    """Run a function of a source of uniforms along every path: `paths`, for any number of them.

    Not more than `max_isolated` uniforms of a path are put on a single value, such as 0.
    """
    for outcome, region in regions(function, max_uniforms, max_isolated):
        yield Path(outcome, region.volume(), region.example(), region.width())


def regions(
    function: Callable[[Randomness], Outcome],
    max_uniforms: int = MAX_UNIFORMS,
    max_isolated: float = math.inf,
) -> Iterator[tuple[Outcome, Region]]:
    """Run along every path, as `paths_of_source` does, and give the uniforms that take it."""
    script: list[int] | None = []
    while script is not None:
        region = Region(0, script, max_uniforms, max_isolated)
        yield function(region.take), region
        script = region.next_script()


def exact_distribution(
    function: Callable[[npt.NDArray[Any]], Outcome], number_of_uniforms: int
) -> dict[Outcome, Fraction]:
    """Exact distribution of a function that only compares its uniforms: `paths`, summed by outcome.

    Parameters
    ----------
    function : callable
        As for `paths`; its return values must be hashable.
    number_of_uniforms : int
        Number m of independent uniforms on [0, 1).

    Returns
    -------
    dict
        Fraction for each outcome; they sum to exactly 1.  An outcome that only isolated values of a
        uniform lead to has probability 0.

    Raises
    ------
    InvalidInputError
        As for `paths`.

    Examples
    --------
    >>> cdf = [Fraction(1, 4), 1]
    >>> probs = exact_distribution(lambda u: int(np.searchsorted(cdf, u[0], side="right")), 1)
    >>> sorted(probs.items())
    [(0, Fraction(1, 4)), (1, Fraction(3, 4))]
    """
    return summed(regions(lambda source: function(source(number_of_uniforms)), number_of_uniforms))


def summed(explored: Iterable[tuple[Outcome, Region]]) -> dict[Outcome, Fraction]:
    """Add up the probabilities of regions by their outcomes."""
    probs: dict[Outcome, Fraction] = defaultdict(Fraction)
    for outcome, region in explored:
        probs[outcome] += region.volume()
    return dict(probs)


def exact_output_distribution(
    plan: TransportPlan, drafts: Iterable[tuple[Sequence[int], Number]] | None = None
) -> Probs:
    """Output distribution of a plan: enumerate the drafts and add up `plan.conditional`.

    Parameters
    ----------
    plan : TransportPlan
        A rule; the result is exact if its problem is.
    drafts : iterable of (drafts, probability), optional
        Distribution of the drafts, sequences of k int; by default the one that the plan was built
        for, `plan.drafts.tuples()`.  A plan is lossless for that distribution only.

    Returns
    -------
    array [n]
        Probability of each token; fractions if the plan is exact.

    Raises
    ------
    InvalidDraftsError
        If the plan cannot take one of the drafts.

    Examples
    --------
    >>> from otm import Problem
    >>> from otm.coupling.maximal import MaximalCoupling
    >>> plan = MaximalCoupling(Problem([0.5, 0.5], [0.75, 0.25], k=1))
    >>> exact_output_distribution(plan)
    array([0.75, 0.25])
    >>> exact_output_distribution(plan, drafts=[([0], 1.0)])  # argmax drafts, not sampled
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
        A rule; the result is exact if its problem is.

    Returns
    -------
    Fraction or float
        In [0, 1]; what `plan.acceptance` must be.

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
    """Exact distribution of the (token, index) that `plan.select` returns for one set of drafts.

    Runs the code of `select` on symbolic uniforms; it does not use what the plan states about
    itself.

    Parameters
    ----------
    plan : TransportPlan
        A rule of an exact problem.
    drafts : sequence of k int
        One set of drafts.

    Returns
    -------
    dict from (int, int) to Fraction
        As from `exact_distribution`: the probabilities sum to exactly 1, and an outcome of
        probability 0 occurs at isolated values of a uniform only.

    Raises
    ------
    InvalidParameterError
        If the plan is not exact.
    InvalidDraftsError
        If the plan cannot take the drafts.

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
            "the distribution of `select` can be explored for exact plans only; build the plan "
            "from `problem.to_exact()`"
        )

    def select(uniforms: npt.NDArray[Any]) -> tuple[int, int]:
        token, index = plan.select(list(drafts), uniforms)
        return int(token), int(index)

    return exact_distribution(select, plan.uniforms_per_selection)


def assert_lossless(plan: TransportPlan) -> None:
    """Assert, in fractions, that the code of an exact plan outputs the target distribution.

    For every set of drafts it explores `plan.select` and asserts that

    - the index is that of the first draft equal to the token, −1 if there is none;
    - no uniforms, not even isolated ones such as u = 0, give a token of target probability 0;
    - the token has the distribution `plan.conditional`.

    Over all drafts it asserts that the token has the target distribution, which is also
    `plan.output_distribution()`, and that it is one of the drafts with probability
    `plan.acceptance`.

    Parameters
    ----------
    plan : TransportPlan
        A rule of an exact problem, small enough to enumerate.

    Raises
    ------
    AssertionError
        If one of these does not hold; the message says which, and for which drafts.
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
    AssertionError: drafts (0, 0): select has the ... (1, 0), conditional says (1/3, 2/3)
    """
    target = plan.problem.target
    output, accepted = zeros(plan.problem.n, target), Fraction(0)
    for drafts, probability in plan.drafts.tuples():
        probs = zeros(plan.problem.n, target)
        for (token, index), path_probability in exact_distribution_of_select(plan, drafts).items():
            first = drafts.index(token) if token in drafts else -1
            _require(index == first, f"drafts {drafts}, token {token}: index {index}, not {first}")
            place = np.searchsorted(plan.problem.tokens, token)
            _require(target[place] > 0, f"drafts {drafts}: token {token} has target probability 0")
            probs[place] += path_probability
        stated = plan.conditional(list(drafts))
        _require(
            (probs == stated).all(),
            f"drafts {drafts}: select has the distribution {_text(probs)}, "
            f"conditional says {_text(stated)}",
        )
        output = output + probability * probs
        accepted += probability * probs[_places(plan, drafts)].sum()
    _require(
        (output == target).all(),
        f"the output distribution is {_text(output)}, the target {_text(target)}",
    )
    stated = plan.output_distribution()
    _require(
        (stated == output).all(), f"output_distribution() says {_text(stated)}, not {_text(output)}"
    )
    _require(plan.acceptance == accepted, f"acceptance says {plan.acceptance}, not {accepted}")


def _places(plan: TransportPlan, drafts: Sequence[int]) -> npt.NDArray[np.int64]:
    """Positions of the different drafts of a set."""
    return np.unique(plan.drafts.positions(list(drafts)))


def _require(condition: bool | np.bool_, message: str) -> None:
    if not condition:
        raise AssertionError(message)


def _text(probs: Probs) -> str:
    return "(" + ", ".join(map(str, probs)) + ")"
