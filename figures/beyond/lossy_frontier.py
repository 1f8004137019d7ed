"""Lossy rules compared with the best acceptance at their distance from the target."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from figures.drawing.style import curve_styles
from figures.progress import progress
from figures.registry import experiment
from figures.table import Cell, Table
from figures.wagner.outputs import distance, logits_at_contexts, outputs, weights
from otm._core.arithmetic import Probs
from otm._core.drawing import COLOURS, blank_figure
from otm._core.means import clustered_mean
from otm._core.probs.distribution import total_variation
from otm.coupling import TransportPlan
from otm.coupling.lossy import ArgmaxLenientPlan, LenientPlan, TypicalAcceptance
from otm.decoding import SamplingParameters
from otm.optimum.cut import optimal_value
from otm.problem import Problem

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SEED = 0
PAIR = "small"
PROMPTS, TOKENS, EVERY = 80, 40, 20
NUMBERS = (1, 4)
FRONTIER = "frontier"
Outcome = tuple[float, Probs]
"""Acceptance probability, and the distribution of the output."""


class LossySetting(NamedTuple):
    """A family of lossy rules: values of its parameter, and a function that computes an outcome."""

    settings: tuple[float, ...]
    outcome: Callable[[Problem, float], Outcome]


def of_plan(plan: TransportPlan) -> Outcome:
    """Return the acceptance and the output distribution of a plan."""
    return float(plan.acceptance), plan.output_distribution()


def _at_temperature(problem: Problem, temperature: float) -> Outcome:
    """Build the optimal rule for the target distribution at another temperature."""
    weights = problem.target ** (1 / temperature)
    other = Problem(problem.draft, weights / weights.sum(), problem.k)
    return float(optimal_value(other)), other.target


def _typical(otherwise: Any) -> Callable[[Problem, float], Outcome]:
    def outcome(problem: Problem, epsilon: float) -> Outcome:
        return of_plan(TypicalAcceptance(problem, epsilon, epsilon**0.5, otherwise))

    return outcome


_LENIENCES = (1.0, 0.7, 0.5, 0.3, 0.2, 0.1, 0.03, 0.01)
_EPSILONS = (0.8, 0.4, 0.2, 0.09, 0.03, 0.01, 0.001)

FAMILIES = {
    "lenience, optimal": LossySetting(
        _LENIENCES, lambda problem, value: of_plan(LenientPlan(problem, value))
    ),
    "lenience, paper's residual": LossySetting(
        _LENIENCES, lambda problem, value: of_plan(LenientPlan(problem, value, "paper"))
    ),
    "argmax lenience": LossySetting(
        _LENIENCES, lambda problem, value: of_plan(ArgmaxLenientPlan(problem, value))
    ),
    "typical acceptance, else argmax": LossySetting(_EPSILONS, _typical("argmax")),
    "typical acceptance, else target": LossySetting(_EPSILONS, _typical("target")),
    "temperature of the target": LossySetting(
        (0.25, 0.5, 0.75, 0.9, 1.0, 1.1, 1.25, 1.5, 2.0), _at_temperature
    ),
}

SIGMOIDS = "sigmoids"
SCALES = (1.0, 3.0, 10.0, 100.0, 1e4)
"""Scales of the sigmoids of logits, a rule for one draft."""


@experiment(seed=SEED, full=lambda: {"prompts": 4 * PROMPTS, "every": 7})
def lossy_frontier(prompts: int = PROMPTS, every: int = EVERY) -> Table:
    """Lossy rules: acceptance and total variation, against the best that any rule can do.

    The target and the small draft are shipped models, at contexts of texts that the target
    generates.  Each curve varies one parameter: lenience l of the optimal rule; lenience l of
    Leviathan et al.'s rule, with another residual; acceptance if q(x) ≥ l max q; typical
    acceptance (Medusa, δ = √ε); a lossless rule for a target at another temperature (upper
    branch: higher temperatures); Wagner et al.'s sigmoids of logits, with scales ±a.  An output
    counts as accepted if it is among the drafts, even if it was drawn again.  The frontier is
    acceptance = optimum + TV (total variation).  No rule can lie above it, and the optimal
    lenient rule lies on it.  Points are means over contexts, exact in each context.
    """
    names = PAIR, "target"
    logits, of_prompt = logits_at_contexts(names, prompts, TOKENS, SEED)
    chosen = np.arange(of_prompt.size).reshape(prompts, TOKENS)[:, ::every].ravel()
    clusters = of_prompt[chosen]
    logits = {name: logits[name][chosen] for name in names}
    probs = {name: SamplingParameters()(logits[name]) for name in names}
    pairs = list(zip(probs[PAIR], probs["target"], strict=True))
    cases = [
        (k, name, setting)
        for k in NUMBERS
        for name, family in FAMILIES.items()
        for setting in family.settings
    ]
    rows: list[tuple[Cell, ...]] = []
    best = {}
    for k in NUMBERS:
        problems = [Problem(*pair, k) for pair in pairs]
        best[k] = float(np.mean([optimal_value(at, k) for at in problems]))
        for far in (0.0, 1 - best[k], 1.0):
            value = min(1.0, best[k] + far)
            rows.append((k, FRONTIER, "", value, "", "", far, "", "", value))

    def add(k: int, name: str, setting: float, axes: Iterable[npt.ArrayLike]) -> None:
        accepted, distances = (clustered_mean(axis, clusters) for axis in axes)
        highest = min(1.0, best[k] + distances.mean)
        rows.append((k, name, setting, *accepted, *distances, highest))

    for k, name, setting in progress(cases, len(cases), "lossy_frontier"):
        problems = [Problem(*pair, k) for pair in pairs]
        outcomes = [FAMILIES[name].outcome(problem, setting) for problem in problems]
        distances = [
            float(total_variation(law, at.target))
            for (_, law), at in zip(outcomes, problems, strict=True)
        ]
        add(k, name, setting, ([accepted for accepted, _ in outcomes], distances))
    for scale in SCALES:
        target, draft = (weights(logits[name], scale, "float64") for name in ("target", PAIR))
        made = outputs(probs[PAIR], target, draft)
        add(1, SIGMOIDS, scale, (made.matched, distance(made.token, probs["target"])))
    columns = ("k", "rule", "setting", "acceptance", "low", "high", "tv", "tv_low", "tv_high")
    return Table((*columns, "highest"), tuple(rows))


@lossy_frontier.drawing
def draw_lossy_frontier(table: Table) -> Figure:
    """Draw one panel per k, one curve per parameter, and the unreachable region in grey."""
    figure = blank_figure(height=3.7, wide=True)
    panels = figure.subplots(1, len(NUMBERS), sharex=True, sharey=True)
    for axes, k in zip(panels, NUMBERS, strict=True):
        of_k = table.where(k=k)
        edge = of_k.where(rule=FRONTIER)
        axes.fill_between(
            edge["tv"], edge["acceptance"], 1.03, color="#E6E6E6", linewidth=0, label="impossible"
        )
        axes.plot(edge["tv"], edge["acceptance"], color="black", linewidth=1.4, label=FRONTIER)
        for name, style in _STYLES.items():
            curve = of_k.where(rule=name)
            axes.plot(curve["tv"], curve["acceptance"], **style, label=name)
        axes.set_title("$k = 1$ draft" if k == 1 else f"$k = {k}$ drafts", fontsize=9)
        axes.set(xlabel="TV of output and target", xlim=(-0.01, 0.36), ylim=(0.45, 1.03))
    panels[0].set_ylabel("mean acceptance probability")
    figure.legend(*panels[0].get_legend_handles_labels(), loc="outside lower center", ncols=3)
    return figure


_STYLES = curve_styles(
    (*FAMILIES, SIGMOIDS),
    (COLOURS[2], COLOURS[0], COLOURS[1], COLOURS[3], COLOURS[3], "#777777", "#777777"),
    ("o", "s", "^", "D", "v", "x", "P"),
    ("-", "--", "-.", "-", ":", "--", ":"),
)
