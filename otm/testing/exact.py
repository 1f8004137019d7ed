"""Exact laws of selection rules, in fractions and without tolerance.

Two independent ways: enumerate all drafts and add up `plan.conditional`, which is what a plan says
about itself; or run `plan.select` on symbolic uniforms along every path of its comparisons, which
gives the law of the very code that decides.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from fractions import Fraction
from typing import Any, Generic, NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt

from otm._core.arithmetic import Law, Number, zeros
from otm.coupling.plan import TransportPlan
from otm.errors import InvalidParameterError
from otm.testing.symbolic import Region, SymbolicUniform

Outcome = TypeVar("Outcome")


class Path(NamedTuple, Generic[Outcome]):
    """One way through the comparisons of a function of uniforms.

    Attributes
    ----------
    outcome : object
        What the function returns on this path.
    probability : Fraction
        Probability of the path; 0 if it is taken at isolated values of a uniform only.
    example : list of Fraction
        Uniforms that take this path.
    width : Fraction
        Length of the shortest interval to which the path confines one of the uniforms.
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
        Takes an object array [m] of `SymbolicUniform` and may do with its entries no more than
        compare them, after adding or multiplying by fractions; NumPy's functions that do the same
        on object arrays (`np.less`, `np.searchsorted`) work too.  It must be deterministic.
    number_of_uniforms : int
        Number m of independent uniforms on [0, 1).

    Yields
    ------
    Path
        All paths: their probabilities sum to exactly 1.  Paths of probability zero are among them,
        so that a function that goes wrong at u = 0 alone is seen to do so.

    Examples
    --------
    >>> for path in paths(lambda u: "heads" if u[0] <= 0 else "tails", 1):
    ...     print(path.outcome, path.probability)
    heads 0
    tails 1
    """
    script: list[int] | None = []
    while script is not None:
        region = Region(number_of_uniforms, script)
        uniforms = np.empty(number_of_uniforms, dtype=object)
        uniforms[:] = [SymbolicUniform(region, i) for i in range(number_of_uniforms)]
        outcome = function(uniforms)
        yield Path(outcome, region.volume(), region.example(), region.width())
        script = region.next_script()


def exact_distribution(
    function: Callable[[npt.NDArray[Any]], Outcome], number_of_uniforms: int
) -> dict[Outcome, Fraction]:
    """Exact distribution of a function that only compares its uniforms: `paths`, summed by outcome.

    Parameters
    ----------
    function : callable
        As for `paths`; what it returns must be hashable.
    number_of_uniforms : int
        Number of independent uniforms on [0, 1) that it takes.

    Returns
    -------
    dict
        Probability of each outcome; an outcome that only isolated values of a uniform give is
        there with probability 0.

    Examples
    --------
    >>> cdf = [Fraction(1, 4), 1]
    >>> probs = exact_distribution(lambda u: int(np.searchsorted(cdf, u[0], side="right")), 1)
    >>> sorted(probs.items())
    [(0, Fraction(1, 4)), (1, Fraction(3, 4))]
    """
    law: dict[Outcome, Fraction] = defaultdict(Fraction)
    for path in paths(function, number_of_uniforms):
        law[path.outcome] += path.probability
    return dict(law)


def exact_output_distribution(
    plan: TransportPlan, drafts: Iterable[tuple[Sequence[int], Number]] | None = None
) -> Law:
    """Distribution of the output, by enumerating the drafts and adding up `plan.conditional`.

    Parameters
    ----------
    plan : TransportPlan
        A rule; exact if its problem is.
    drafts : iterable of (drafts, probability), optional
        What is really drafted, if that is not what the plan was told (`plan.drafts.tuples()`): a
        plan is lossless for the draft law that it was given, and only for that.

    Returns
    -------
    array [n]
        Fractions if the plan is exact.

    Examples
    --------
    >>> from otm import Problem
    >>> from otm.coupling.maximal import MaximalCoupling
    >>> plan = MaximalCoupling(Problem([0.5, 0.5], [0.75, 0.25], k=1))
    >>> exact_output_distribution(plan)
    array([0.75, 0.25])
    >>> exact_output_distribution(plan, drafts=[([0], 1.0)])  # a greedy draft, passed off as p
    array([1., 0.])
    """
    law = zeros(plan.problem.n, plan.problem.target)
    for tokens, probability in plan.drafts.tuples() if drafts is None else drafts:
        law = law + probability * plan.conditional(list(tokens))
    return law


def exact_acceptance(plan: TransportPlan) -> Number:
    """Probability Pr(Y ∈ drafts) of acceptance, by enumeration and from `plan.conditional`.

    Examples
    --------
    >>> from otm import Problem
    >>> from otm.coupling.maximal import MaximalCoupling
    >>> float(exact_acceptance(MaximalCoupling(Problem([0.5, 0.5], [0.75, 0.25], k=1))))
    0.75
    """
    acceptance: Number = 0 * plan.problem.draft.item(0)
    for drafts, probability in plan.drafts.tuples():
        hit = plan.conditional(list(drafts))[sorted(set(drafts))].sum()
        acceptance = acceptance + probability * hit
    return acceptance


def exact_distribution_of_select(
    plan: TransportPlan, drafts: Sequence[int]
) -> dict[tuple[int, int], Fraction]:
    """Exact distribution of (token, index) that `plan.select` returns for given drafts.

    It is found by running `select` itself on symbolic uniforms, not from what the plan says.

    Parameters
    ----------
    plan : TransportPlan
        A rule of an exact problem.
    drafts : sequence of k int
        One set of drafts.

    Returns
    -------
    dict
        As from `exact_distribution`: the probabilities sum to exactly 1, and outcomes of
        probability 0 are those that only isolated values of a uniform give.

    Raises
    ------
    InvalidParameterError
        If the plan is not exact.

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
            "the law of `select` can be explored for exact plans only; build the plan from "
            "`problem.to_exact()`"
        )

    def select(uniforms: npt.NDArray[Any]) -> tuple[int, int]:
        token, index = plan.select(list(drafts), uniforms)
        return int(token), int(index)

    return exact_distribution(select, plan.uniforms_per_selection)


def assert_lossless(plan: TransportPlan) -> None:
    """Assert, in fractions, that the code of an exact plan outputs the target law.

    For every set of drafts the law of `plan.select` is explored, and

    - the index is that of the first draft equal to the token, −1 if there is none;
    - no uniforms, not even isolated ones such as u = 0, give a token of target probability zero;
    - the law of the token is `plan.conditional`;

    and over all drafts the law of the token is the target law, and also
    `plan.output_distribution()`, and the token is one of the drafts with probability
    `plan.acceptance`.

    Parameters
    ----------
    plan : TransportPlan
        A rule of an exact problem, small enough to enumerate.

    Raises
    ------
    AssertionError
        If one of these fails; the message says which, and for what drafts.
    """
    target = plan.problem.target
    output, accepted = zeros(plan.problem.n, target), Fraction(0)
    for drafts, probability in plan.drafts.tuples():
        law = zeros(plan.problem.n, target)
        for (token, index), path_probability in exact_distribution_of_select(plan, drafts).items():
            first = drafts.index(token) if token in drafts else -1
            _require(index == first, f"drafts {drafts}, token {token}: index {index}, not {first}")
            _require(target[token] > 0, f"drafts {drafts}: token {token} has target probability 0")
            law[token] += path_probability
        stated = plan.conditional(list(drafts))
        _require(
            (law == stated).all(),
            f"drafts {drafts}: select has the law {_text(law)}, conditional says {_text(stated)}",
        )
        output = output + probability * law
        accepted += probability * law[sorted(set(drafts))].sum()
    _require(
        (output == target).all(),
        f"the output law is {_text(output)}, the target law {_text(target)}",
    )
    stated = plan.output_distribution()
    _require(
        (stated == output).all(), f"output_distribution() says {_text(stated)}, not {_text(output)}"
    )
    _require(plan.acceptance == accepted, f"acceptance says {plan.acceptance}, not {accepted}")


def _require(condition: bool | np.bool_, message: str) -> None:
    if not condition:
        raise AssertionError(message)


def _text(law: Law) -> str:
    return "(" + ", ".join(map(str, law)) + ")"
