"""`otm.compare`: the rules of the literature on one's own pair of distributions."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from otm._core.arithmetic import Number
from otm._core.interval import Interval
from otm._core.numbers import check_name
from otm._core.text import html_table, text_table
from otm.coupling.build import PLANS, PlanBuilder, build_plan, named_rules
from otm.coupling.lenient import Distance, distance_to_target
from otm.coupling.plan import TransportPlan
from otm.errors import InvalidInputError, ProblemTooLargeError
from otm.optimum.other_drafts import optimum_of
from otm.problem import Problem
from otm.rules import RULES


@dataclass(frozen=True, eq=False)
class ComparedRule:
    """A rule of a comparison, as `compare` returns it.

    Attributes
    ----------
    name : str
        As in the table.
    plan : TransportPlan
        The rule itself.
    acceptance : float, Fraction or Interval
        Its exact acceptance probability; an interval where that would take too long.
    optimum : float, Fraction or Interval
        The largest acceptance probability of any lossless rule for drafts drawn as this one wants.
    distance : Distance or None
        How far the output distribution is from the target; None if the rule is lossless.

    Examples
    --------
    >>> rule = compare([0.75, 0.25], [0.25, 0.75], k=2)["k-Seq"]
    >>> f"{rule.acceptance:.4f} of {rule.optimum:.4f}", rule.distance
    ('0.6483 of 0.6875', None)
    """

    name: str
    plan: TransportPlan
    acceptance: Number | Interval
    optimum: Number | Interval
    distance: Distance | None


@dataclass(frozen=True, eq=False, repr=False)
class Comparison:
    """Selection rules on one pair of distributions, best first; printed as a table.

    Attributes
    ----------
    problem : Problem
        The distributions and k.
    rules : tuple of ComparedRule
        Lossless rules by descending acceptance, then the others.

    Examples
    --------
    >>> comparison = compare([0.75, 0.25], [0.25, 0.75], 2, rules=["recursive rejection", "k-Seq"])
    >>> [rule.name for rule in comparison]
    ['k-Seq', 'recursive rejection']
    >>> round(comparison["recursive rejection"].acceptance, 4)
    0.625
    """

    problem: Problem
    rules: tuple[ComparedRule, ...]

    def __iter__(self) -> Iterator[ComparedRule]:
        return iter(self.rules)

    def __getitem__(self, name: str) -> ComparedRule:
        rules = {rule.name: rule for rule in self.rules}
        return rules[check_name("rule", name, rules)]

    @cached_property
    def _table(self) -> list[tuple[str, ...]]:
        heading = ("rule", "drafts", "acceptance", "optimum", "output distribution")
        rows = [
            (rule.name, str(rule.plan.drafts), _text(rule.acceptance), _text(rule.optimum),
             "exact" if rule.distance is None else f"TV {float(rule.distance.total_variation):.2g}")
            for rule in self.rules
        ]  # fmt: skip
        return [heading, *rows]

    def __repr__(self) -> str:
        problem, (heading, *rows) = self.problem, self._table
        first = f"One token out of {problem.n:,}, from at most {problem.k} drafts"
        return f"{first}\n{text_table(heading, rows)}"

    def _repr_html_(self) -> str:
        return html_table(self._table)


def compare(
    p: Any,
    q: Any,
    k: Any = None,
    *,
    rules: Iterable[str] | Mapping[str, PlanBuilder] | None = None,
) -> Comparison:
    """Compare selection rules on a pair of distributions by their exact acceptance probabilities.

    Parameters
    ----------
    p, q : array-like [n]
        Draft and target distribution, on the same vocabulary; or two of the type `SparseProbs`.
    k : int
        Number of drafts, at least 1.  Rules that need more are left out; some take fewer whatever
        k is: see their drafts.
    rules : names, or mapping from names to rules, optional
        Names in `otm.rules.RULES`, or functions from a problem to a plan, such as the classes of
        `otm.coupling` or one's own; all lossless rules that have a plan, if left out. For
        distributions in fractions the rules for which exact sums would take too long are compared
        in floats.

    Returns
    -------
    Comparison
        Printed as a table; each of its entries has the plan, its acceptance, the optimum for its
        drafts and, if it is not lossless, the distance of its output distribution from the target.

    Raises
    ------
    InvalidDistributionError, InvalidDraftCountError
        If the distributions or k are not valid.
    InvalidInputError
        If there are several rows, or the drafts are given by their joint distribution.
    UnknownMethodError, InvalidParameterError
        If a rule is asked for by a name that does not exist, or one that is given is no rule.
    ProblemTooLargeError
        If a rule has no answer for so many drafts even in floats: recursive rejection that reaches
        more than 10,000 rounds.
    MissingDependencyError
        If the optimum for a rule of one's own needs a maximum flow and networkx is not installed.

    Examples
    --------
    >>> comparison = compare([0.50, 0.25, 0.15, 0.10], [0.20, 0.30, 0.10, 0.40], k=2)
    >>> round(comparison["optimal"].acceptance, 4)
    0.79
    >>> from functools import partial
    >>> from otm.coupling import KSeq, LenientPlan
    >>> lenient = partial(LenientPlan, lenience=0.5)
    >>> compare([0.75, 0.25], [0.25, 0.75], 2, rules={"k-Seq": KSeq, "lenient": lenient})
    One token out of 2, from at most 2 drafts
    rule     drafts    acceptance  optimum  output distribution
    -------  --------  ----------  -------  -------------------
    k-Seq    2 i.i.d.  0.6483      0.6875   exact
    lenient  2 i.i.d.  0.9375      0.6875   TV 0.25
    """
    chosen = PLANS if rules is None else named_rules(rules, PLANS)
    problem = Problem(p, q, k)
    if problem.shape or not problem.iid:
        what = "rows of distributions" if problem.shape else f"drafts drawn as {problem.drafts}"
        raise InvalidInputError(
            f"compare was given {what}; each rule draws drafts in its own way: give one draft "
            "distribution, one target and one k"
        )
    if rules is None:  # all that take so many drafts
        chosen = {
            name: rule
            for name, rule in chosen.items()
            if problem.k <= (RULES[name].max_k or problem.k)
        }
    compared = [_compared(name, rule, problem) for name, rule in chosen.items()]
    if rules is None:  # and those that take more, such as SpecHub its two
        compared = [rule for rule in compared if rule.plan.drafts.k <= problem.k]
    compared.sort(key=_rank)
    return Comparison(problem, tuple(compared))


def _rank(rule: ComparedRule) -> tuple[bool, float]:
    """Lossless rules first, then by what is certain of the acceptance."""
    # rounded, so that rules which are equal stay in the order of the table
    return rule.distance is not None, -round(float(_bounds(rule.acceptance).lower), 12)


def _compared(name: str, rule: PlanBuilder, problem: Problem) -> ComparedRule:
    plan = build_plan(rule, problem, name)
    try:
        optimum = optimum_of(Problem(plan.drafts, plan.problem.target)).value
        bounds, best = plan.acceptance_bounds, _bounds(optimum)
    except ProblemTooLargeError:
        if not problem.exact:
            raise
        return _compared(name, rule, problem.to_floats())
    if bounds.exact:
        acceptance: Number | Interval = bounds.upper
    else:  # the optimum is known up to rounding
        acceptance = Interval(min(bounds.lower, best.upper), best.upper)
    distance = None if plan.lossless else distance_to_target(plan)
    return ComparedRule(name, plan, acceptance, optimum, distance)


def _bounds(value: Number | Interval) -> Interval:
    return value if isinstance(value, Interval) else Interval(value, value)


def _text(value: Number | Interval) -> str:
    return f"{value:.4f}" if isinstance(value, Interval) else f"{float(value):.4f}"
