"""`otm.compare`: compare published rules on a pair of distributions."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from otm._core.arithmetic import Number
from otm._core.checks import as_draft_count
from otm._core.display.progress import Progress, watching
from otm._core.display.reprs import ShortRepr
from otm._core.display.text import html_table, text_table
from otm._core.files.paths import AnyPath, write_csv
from otm._core.interval import Interval
from otm._core.means import PairedMeans
from otm._core.numbers import check_name
from otm.coupling.build import PLANS, PlanBuilder, build_plan, named_rules
from otm.coupling.compare.capped import CAPPED_RULES
from otm.coupling.compare.left_out import left_out_lines, memory_reason, none_left
from otm.coupling.compare.many_rows import compare_rows
from otm.coupling.lossy.lenient import Distance, distance_to_target
from otm.coupling.plan import TransportPlan
from otm.errors import InvalidInputError, ProblemTooLargeError, UnknownMethodError
from otm.optimum.non_iid_drafts import optimum_of
from otm.problem import Problem
from otm.rules import RULES

if TYPE_CHECKING:
    from matplotlib.axes import Axes


@dataclass(frozen=True, eq=False)
class ComparedRule(ShortRepr):
    """A rule in a comparison, with its results.

    Attributes
    ----------
    name : str
        The name of the rule in the table.
    plan : TransportPlan
        The plan of the rule.
    acceptance : float, Fraction or Interval
        The exact acceptance probability, or an interval if the exact value would take too long.
    optimum : float, Fraction or Interval
        The largest acceptance probability of any lossless rule with the same kind of drafts.
    distance : Distance or None
        The distance of the output distribution from the target; None if the rule is lossless.

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
        Lossless rules by descending acceptance, then lossy rules.
    left_out : mapping from str to str
        Names of the rules that are too large for these distributions, each with the reason.

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
    left_out: Mapping[str, str] = field(default_factory=dict)

    def __iter__(self) -> Iterator[ComparedRule]:
        return iter(self.rules)

    def __getitem__(self, name: str) -> ComparedRule:
        if name in self.left_out:
            raise UnknownMethodError(f"rule {name!r} was left out: {self.left_out[name]}")
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
        return "\n".join([first, text_table(heading, rows), *self._left_out_lines])

    def _repr_html_(self) -> str:
        heading, *rows = self._table
        return html_table(rows, heading=heading, notes=self._left_out_lines)

    @property
    def _left_out_lines(self) -> list[str]:
        """Build one line for each rule that is left out."""
        return left_out_lines(self.left_out)

    def to_csv(self, path: AnyPath) -> None:
        """Write a CSV file with one line for each rule.

        Parameters
        ----------
        path : str or Path
            The file.  The columns of the file are rule, k (the number of drafts), acceptance,
            optimum, and total_variation from the target.  The acceptance and the optimum may be
            intervals.

        Raises
        ------
        InvalidInputError
            If the file cannot be written.
        """
        rows = [
            [rule.name, rule.plan.drafts.k, rule.acceptance, rule.optimum,
             rule.distance.total_variation if rule.distance else 0]
            for rule in self.rules
        ]  # fmt: skip
        write_csv(path, [["rule", "k", "acceptance", "optimum", "total_variation"], *rows])

    def plot(self, ax: Axes | None = None) -> Axes:
        """Plot the acceptance of each rule as a bar, and the optimum for its drafts as a mark.

        Parameters
        ----------
        ax : Axes, optional
            Matplotlib axes to draw on.  If left out, a new pyplot figure is created.

        Returns
        -------
        Axes
            The axes with the plot; `ax.figure.savefig` saves it.

        Raises
        ------
        MissingDependencyError
            If matplotlib is not installed.
        """
        from otm._core.drawing import COLOURS, PAGE_WIDTH, drawing_on, legend_above

        with drawing_on(ax, 1.1 + 0.2 * len(self.rules), width=PAGE_WIDTH) as axes:
            names = [rule.name for rule in self.rules][::-1]
            accepted, best = (
                [float(_bounds(getattr(rule, name)).upper) for rule in self.rules][::-1]
                for name in ("acceptance", "optimum")
            )
            axes.barh(names, accepted, height=0.6, color=COLOURS[0], label="acceptance")
            style: dict[str, Any] = {"color": COLOURS[1], "linestyle": "none", "marker": "|"}
            axes.plot(best, names, **style, markersize=11, label="optimum for such drafts")
            axes.set(xlabel="acceptance probability", xlim=(0, 1.02))
            axes.grid(visible=False, axis="y")
            legend_above(axes)
        return axes


def compare(
    p: Any,
    q: Any,
    k: Any = None,
    *,
    rules: Iterable[str] | Mapping[str, PlanBuilder] | None = None,
    prompts: npt.ArrayLike | None = None,
    level: float = 0.95,
    max_seconds: float | None = None,
    progress: Progress | None = None,
) -> Comparison | PairedMeans:
    """Compare selection rules by their exact acceptance probabilities.

    Parameters
    ----------
    p, q : array-like [..., n]
        Draft and target distribution on the same vocabulary, or two `SparseProbs`; or rows of
        distributions, such as those of two models at the positions of a text.
    k : int, or sequence of int
        Number of drafts, at least 1.  With several numbers, each rule is computed for every number
        and every row.  Rules that need more than k drafts are left out.  For one pair and one k,
        some rules use fewer than k drafts; a column of the table shows the drafts of each rule.
    rules : names, or mapping from names to rules, optional
        Names in `otm.rules.RULES`, "module:name" of your own rules, or functions from a problem to
        a plan, such as the classes of `otm.coupling`.  The default for one pair and one k is all
        lossless rules that have a plan.  The default for rows, or several k, is the optimum, k-Seq
        and recursive rejection: these take milliseconds for a row of 50,000 tokens.  Rules whose
        exact sums would take too long are compared in floats even if the distributions are in
        fractions; rows are always compared in floats.
    prompts : int array-like [...], optional
        The prompt of each row.  If prompts are given, intervals treat only rows of different
        prompts as independent.  By default all rows count as independent.
    level : float, optional
        Confidence level of the intervals, above 0 and below 1.
    max_seconds : float, optional
        Time limit in seconds for one rule over all rows and all k.  The time is estimated from the
        first two rows, and a rule that would exceed the limit is left out.  No limit by default.
        The limit is allowed only for rows, or several k.  The default rules are fast and have no
        limit up to k = 1,024; neither has a single row.
    progress : callable, optional
        Called with a text, the number of the row (or rule) and the total (0 if unknown).  After
        the first row the text names the slowest rules and their time per row.  By default,
        progress is shown as a line on a terminal after two seconds, but not in a pipe.

    Returns
    -------
    Comparison or PairedMeans
        For one pair and one k, a `Comparison`.  Each entry of a `Comparison` has the plan, its
        acceptance, the optimum for its drafts and, if the rule is not lossless, the distance of its
        output from the target.  For rows, or several k, an `otm.gain.PairedMeans`, which has means
        over the rows and their confidence intervals.  Both classes print as a table, and have
        `plot` and `to_csv`.  If a rule needs too much memory or time, `left_out` has the reason,
        and the table ends with a line about this rule.

    Raises
    ------
    InvalidDistributionError, InvalidDraftCountError
        If the distributions or k are not valid.
    InvalidInputError
        If the drafts are a joint distribution; if there are no rows, no numbers of drafts or no
        rules; if the number of prompts is not the number of rows; if `prompts` or `max_seconds` is
        set for one pair and one k.
    UnknownMethodError, InvalidParameterError
        If a name of a rule is unknown, a rule is not callable, or `max_seconds` is not positive.
    ProblemTooLargeError
        If all rules are too large for the distributions, or too slow for `max_seconds`.
    MissingDependencyError
        If the optimum for your own rule needs a maximum flow and networkx is not installed.

    Examples
    --------
    >>> comparison = compare([0.50, 0.25, 0.15, 0.10], [0.20, 0.30, 0.10, 0.40], k=2)
    >>> round(comparison["optimal"].acceptance, 4)
    0.79
    >>> from functools import partial
    >>> from otm.coupling import KSeq
    >>> from otm.coupling.lossy import LenientPlan
    >>> lenient = partial(LenientPlan, lenience=0.5)
    >>> compare([0.75, 0.25], [0.25, 0.75], 2, rules={"k-Seq": KSeq, "lenient": lenient})
    One token out of 2, from at most 2 drafts
    rule     drafts    acceptance  optimum  output distribution
    -------  --------  ----------  -------  -------------------
    k-Seq    2 i.i.d.  0.6483      0.6875   exact
    lenient  2 i.i.d.  0.9375      0.6875   TV 0.25

    Three rows, and three numbers of drafts:

    >>> p, q = [[0.75, 0.25], [0.5, 0.5], [0.3, 0.7]], [[0.25, 0.75], [0.4, 0.6], [0.9, 0.1]]
    >>> means = compare(p, q, k=[1, 2, 4])
    >>> means
    acceptance probability: mean ± half of the 95 % interval, 3 contexts of 3 prompts
    rule                 K = 1          K = 2          K = 4
    -------------------  -------------  -------------  -------------
    optimal              0.600 ± 0.657  0.766 ± 0.513  0.931 ± 0.174
    k-Seq                0.600 ± 0.657  0.739 ± 0.516  0.881 ± 0.256
    recursive rejection  0.600 ± 0.657  0.718 ± 0.502  0.857 ± 0.281
    >>> print(means.difference(("optimal", 4, 1), ("k-Seq", 4, 1)))
    0.051 ± 0.128
    """
    several = np.ndim(k) > 0
    problem = Problem(p, q, 1 if several else k)
    if not problem.iid:
        raise InvalidInputError(
            f"compare was given drafts {problem.drafts}; each rule draws its drafts "
            "in its own way: give draft distributions"
        )
    if problem.shape or several:
        ks = [as_draft_count(count) for count in (k if several else [k])]
        chosen = named_rules(CAPPED_RULES if rules is None else rules, PLANS)
        return compare_rows(
            problem,
            ks,
            chosen,
            prompts=prompts,
            level=level,
            max_seconds=max_seconds,
            progress=progress,
        )
    if max_seconds is not None:
        raise InvalidInputError(
            "max_seconds is only for rows or several k; leave it out for one pair and one k"
        )
    if prompts is not None:
        raise InvalidInputError(
            "prompts are for rows or several k; leave them out for one pair and one k"
        )
    return compare_pair(problem, rules, progress=progress)


def compare_pair(
    problem: Problem,
    rules: Iterable[str] | Mapping[str, PlanBuilder] | None = None,
    *,
    progress: Progress | None = None,
) -> Comparison:
    """Compare rules on one problem with i.i.d. drafts; leave out rules that are too large."""
    chosen = PLANS if rules is None else named_rules(rules, PLANS)
    # By default, compare all rules that support k drafts.
    if rules is None:
        chosen = {
            name: rule
            for name, rule in chosen.items()
            if problem.k <= (RULES[name].max_k or problem.k)
        }
    compared, left_out = [], {}
    with watching(progress, "compare") as watch:
        for number, (name, rule) in enumerate(chosen.items(), 1):
            # The times of rules differ too much to estimate the remaining time.
            watch.tell(f"{name}, rule", number)
            try:
                compared.append(_compared(name, rule, problem))
            except MemoryError as error:  # This includes ProblemTooLargeError.
                left_out[name] = memory_reason(error)
    if left_out and not compared:
        raise none_left(left_out)
    # Leave out rules that always use more drafts, such as SpecHub with two.
    if rules is None:
        compared = [rule for rule in compared if rule.plan.drafts.k <= problem.k]
    compared.sort(key=_rank)
    return Comparison(problem, tuple(compared), left_out)


def _rank(rule: ComparedRule) -> tuple[bool, float]:
    """Return the sort key: lossless rules first, then by descending lower bound on acceptance."""
    # Rounding keeps rules with equal acceptance in the order of the list.
    return rule.distance is not None, -round(float(_bounds(rule.acceptance).lower), 12)


def _compared(name: str, rule: PlanBuilder, problem: Problem) -> ComparedRule:
    """Compute the results of a rule; use floats if a sum in fractions would take too long."""
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
    else:
        # In floats, rounding can put the lower bound above the optimum.
        acceptance = Interval(min(bounds.lower, best.upper), best.upper)
    distance = None if plan.lossless else distance_to_target(plan)
    return ComparedRule(name, plan, acceptance, optimum, distance)


def _bounds(value: Number | Interval) -> Interval:
    return value if isinstance(value, Interval) else Interval(value, value)


def _text(value: Number | Interval) -> str:
    return f"{value:.4f}" if isinstance(value, Interval) else f"{float(value):.4f}"
