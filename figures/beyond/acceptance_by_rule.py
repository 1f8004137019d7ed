"""Acceptance of every rule by the number of drafts."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from figures.progress import progress
from figures.registry import experiment
from figures.shipped_pairs import DRAFTS, shipped_probs
from figures.table import Table
from otm._core.drawing import COLOURS, MARKERS, blank_figure
from otm._core.means import clustered_mean
from otm.coupling import PLANS, RecursiveRejectionWithoutReplacement
from otm.drafts import WithoutReplacement
from otm.optimum.cut import optimal_value
from otm.optimum.non_iid_drafts import optimum_of
from otm.problem import Problem

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

SEED = 0
PROMPTS, TOKENS, EVERY = 80, 40, 20
NUMBERS = (1, 2, 3, 4, 6, 8)
SETS = 64
"""Number of sampled draft sets per context, if the exact acceptance has no short sum."""

OPTIMUM = "optimal"
WITHOUT = "recursive rejection without replacement"
BEST_WITHOUT = "optimal, without replacement"
SHOWN = "medium"
Rule = Callable[[Problem, np.random.Generator], float]


def _of(name: str) -> Rule:
    """Return a function for the exact acceptance probability of a named rule."""
    return lambda problem, _: float(PLANS[name](problem).acceptance)


def _optimum(problem: Problem, _: np.random.Generator) -> float:
    return float(optimal_value(problem))


def _without_replacement(problem: Problem, rng: np.random.Generator) -> float:
    plan = RecursiveRejectionWithoutReplacement(problem)
    if problem.k <= 2:
        return float(plan.acceptance)
    return float(np.mean(plan.acceptance_given(plan.drafts.sample(rng, SETS))))


def _best_without_replacement(problem: Problem, _: np.random.Generator) -> float:
    drafts = WithoutReplacement(problem.draft, problem.k)
    return float(optimum_of(Problem(drafts, problem.target)).value)


IID_RULES: dict[str, Rule] = {
    OPTIMUM: _optimum,
    **{
        name: _of(name)
        for name in (
            "k-Seq",
            "importance selection",
            "recursive rejection",
            "list coupling",
            "non-iterative rejection",
            "naive target sampling",
        )
    },
}
"""Rules for k i.i.d. drafts; at k = 1 the first four equal maximal coupling."""

OTHER_RULES: dict[str, Rule] = {
    BEST_WITHOUT: _best_without_replacement,
    "greedy": _of("greedy"),
    "SpecHub": _of("SpecHub"),
    WITHOUT: _without_replacement,
}
"""Rules for drafts that are not i.i.d."""


@experiment(seed=SEED, full=lambda: {"prompts": 4 * PROMPTS, "every": 7})
def acceptance_by_rule(prompts: int = PROMPTS, every: int = EVERY) -> Table:
    """How often every rule of the literature accepts, by the number of drafts, on real contexts.

    The target and the medium draft are shipped models, at contexts of texts that the target
    generates; the CSV has all three drafts.  The upper panels show the mean acceptance
    probability, exact in each context.  The lower panels show its distance from the optimum for
    k i.i.d. drafts, with 95 % intervals over prompts.  On the left are rules for i.i.d. drafts,
    which cannot exceed the optimum.  On the right are drafts without replacement, greedy drafts
    and SpecHub's pairs.  These rules can exceed that optimum; there they lie below zero.  From
    k = 3 on, recursive rejection without replacement is averaged over 64 sets of drafts.
    """
    probs, clusters = shipped_probs(
        (*DRAFTS, "target"), prompts=prompts, tokens=TOKENS, every=every, seed=SEED
    )
    rng = np.random.default_rng(SEED)
    cases = [(pair, k) for pair in DRAFTS for k in NUMBERS]
    rows = []
    for pair, k in progress(cases, len(cases), "acceptance_by_rule"):
        problems = [
            Problem(draft, target, k)
            for draft, target in zip(probs[pair], probs["target"], strict=True)
        ]
        rules = IID_RULES | OTHER_RULES
        if k != 2:  # SpecHub always has two drafts
            del rules["SpecHub"]
        values = {
            name: np.array([rule(problem, rng) for problem in problems])
            for name, rule in rules.items()
        }
        for name, accepted in values.items():
            drafts = "i.i.d." if name in IID_RULES else "other"
            mean = clustered_mean(accepted, clusters)
            below = clustered_mean(values[OPTIMUM] - accepted, clusters)
            rows.append((pair, drafts, name, k, *mean, *below, clusters.size))
    names = ("pair", "drafts", "rule", "k", "acceptance", "low", "high")
    return Table((*names, "below", "below_low", "below_high", "contexts"), tuple(rows))


@acceptance_by_rule.drawing
def draw_acceptance_by_rule(table: Table) -> Figure:
    """Draw i.i.d. drafts on the left and other drafts on the right."""
    figure = blank_figure(height=5.2, wide=True)
    panels = figure.subplots(2, 2, sharex=True, sharey="row", height_ratios=(3, 3))
    shown = table.where(pair=SHOWN)
    iid, other = shown.where(drafts="i.i.d."), shown.where(drafts="other")
    for (upper, lower), group in zip(panels.T, (iid, other), strict=True):
        if group is other:
            _curve(upper, iid, OPTIMUM)
        for rule in dict.fromkeys(group["rule"].tolist()):
            _curve(upper, group, rule)
            if rule in (OPTIMUM, *_FAR_BELOW):
                continue
            curve, style = group.where(rule=rule), _STYLES[rule]
            lower.plot(curve["k"], curve["below"], **style)
            lower.fill_between(
                curve["k"],
                curve["below_low"],
                curve["below_high"],
                color=style["color"],
                alpha=0.15,
                linewidth=0,
            )
        lower.axhline(0, color="black", linewidth=0.8)
        lower.set_xlabel("number of drafts $k$")
        lower.set_xticks(NUMBERS)
    (left, right), (lower, _) = panels
    left.set_ylabel("mean acceptance probability")
    lower.set_ylabel("optimum (i.i.d.) minus rule")
    left.set_title("i.i.d. drafts", fontsize=9)
    right.set_title("other drafts", fontsize=9)
    handles = {line.get_label(): line for axes in (left, right) for line in axes.lines}
    figure.legend(handles.values(), handles.keys(), loc="outside lower center", ncols=3)
    return figure


def _curve(axes: Axes, rows: Table, rule: str) -> None:
    curve = rows.where(rule=rule)
    axes.plot(curve["k"], curve["acceptance"], **_STYLES[rule], label=_LABELS.get(rule, rule))


_FAR_BELOW = ("non-iterative rejection", "naive target sampling")
_LABELS = {OPTIMUM: "optimum, i.i.d.", BEST_WITHOUT: "optimum, without replacement"}

_STYLES: dict[str, dict[str, Any]] = {
    rule: {
        "color": colour,
        "marker": marker,
        "linestyle": kind,
        "markersize": 4.5,
        "markerfacecolor": colour if rule in (OPTIMUM, "SpecHub") else "none",
    }
    for rule, colour, marker, kind in (
        (OPTIMUM, COLOURS[4], MARKERS[0], "-"),
        ("k-Seq", COLOURS[0], MARKERS[1], "--"),
        ("importance selection", COLOURS[2], "D", "-."),
        ("recursive rejection", COLOURS[1], MARKERS[2], ":"),
        ("list coupling", COLOURS[3], MARKERS[4], "-"),
        ("non-iterative rejection", "#777777", "p", "--"),
        ("naive target sampling", "#777777", "x", ":"),
        (BEST_WITHOUT, COLOURS[2], "*", "-"),
        ("greedy", COLOURS[0], "P", "--"),
        ("SpecHub", COLOURS[3], "X", ""),
        (WITHOUT, COLOURS[1], ">", ":"),
    )
}
