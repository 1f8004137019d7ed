"""Cost of lossy rules of papers and engines, for one token and for a text."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from figures.beyond.lossy_frontier import FAMILIES, LossySetting, of_plan
from figures.drawing.style import curve_styles
from figures.progress import progress
from figures.registry import OUR_GPTS, experiment
from figures.shipped_pairs import logits_at, prompts_of_text, texts_of_target
from figures.table import Cell, Table
from otm._core.drawing import COLOURS, blank_figure
from otm._core.means import clustered_mean
from otm._core.probs.distribution import total_variation
from otm.coupling.lossy import Cactus, CascadePlan, EnsemblePlan, SyntheticAcceptance
from otm.decoding import SamplingParameters
from otm.optimum.cut import optimal_value
from otm.problem import Problem

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SEED = 0
PAIR = "small"
PROMPTS, LENGTH, PROMPT = 60, 16, 64
FRONTIER = "frontier"

LENIENCE, TYPICAL = "lenience, optimal", "typical acceptance, else argmax"
RULES = {
    LENIENCE: FAMILIES[LENIENCE],
    "ensemble": LossySetting(
        (1.0, 0.9, 0.75, 0.5, 0.25, 0.0),
        lambda problem, weight: of_plan(EnsemblePlan(problem, weight)),
    ),
    "Cactus": LossySetting(
        (0.0, 0.001, 0.01, 0.05, 0.2, 0.5),
        lambda problem, delta: of_plan(Cactus(problem, delta)),
    ),
    "cascade": LossySetting(
        (0.0, 0.5, 0.8, 0.95, 0.99, 0.999),
        lambda problem, slack: of_plan(CascadePlan(problem, slack)),
    ),
    TYPICAL: FAMILIES[TYPICAL],
    "synthetic acceptance": LossySetting(
        (0.6, 0.7, 0.8, 0.9, 1.0),
        lambda problem, rate: of_plan(SyntheticAcceptance(problem, rate)),
    ),
}


@experiment(seed=SEED, full=lambda: {"prompts": 4 * PROMPTS}, models=OUR_GPTS)
def lossy_texts(prompts: int = PROMPTS, length: int = LENGTH) -> Table:
    """Lossy rules of papers and engines: total variation of a token, and of a text.

    The small shipped model drafts one token at each position for the shipped target.  Lenience with
    the best residual and an ensemble (transformers) lie on the frontier, acceptance = optimum + TV,
    which no rule exceeds.  Other rules lie below it: Cactus, cascades (token-specific, V3), typical
    acceptance (Medusa), and acceptance of any draft with a fixed probability (vLLM's synthetic
    acceptance).  Right: a small distance per token grows with the length of the text.  The TV of
    the first 16 tokens is the mean of max(0, 1 − Y/q) over texts of the target; Y/q is the ratio of
    the text's probabilities by the rule and by the target.  Bars: 95 % intervals.
    """
    texts = texts_of_target(prompts_of_text(prompts, PROMPT), length, seed=SEED)
    scores = (logits_at(name, texts, PROMPT) for name in (PAIR, "target"))
    draft, target = map(SamplingParameters(), scores)
    written = texts[:, PROMPT:]
    problems = [
        [Problem(*pair, 1) for pair in zip(*rows, strict=True)]
        for rows in zip(draft, target, strict=True)
    ]
    best = round(float(np.mean([optimal_value(at) for row in problems for at in row])), 12)
    rows: list[tuple[Cell, ...]] = [
        (FRONTIER, "", min(1.0, best + far), far, "", "", "") for far in (0.0, 1 - best, 0.4)
    ]
    cases = [(name, setting) for name, rule in RULES.items() for setting in rule.settings]
    clusters = np.arange(prompts)
    for name, setting in progress(cases, len(cases), "lossy_texts"):
        accepted, near = np.zeros((2, prompts, length))
        ratio = np.ones(prompts)
        for r, row in enumerate(problems):
            for i, at in enumerate(row):
                accepted[r, i], law = RULES[name].outcome(at, setting)
                near[r, i] = total_variation(law, at.target)
                ratio[r] *= law[written[r, i]] / at.target[written[r, i]]
        far, low, high = clustered_mean(np.maximum(0, 1 - ratio), clusters)
        numbers = accepted.mean(), near.mean(), far, low, min(high, 1.0)
        rows.append((name, setting, *(round(float(x), 12) for x in numbers)))
    return Table(
        ("rule", "setting", "acceptance", "tv_token", "tv_text", "low", "high"), tuple(rows)
    )


@lossy_texts.drawing
def draw_lossy_texts(table: Table) -> Figure:
    """Draw acceptance against the distance of a token, and against that of a text."""
    figure = blank_figure(height=3.4, wide=True)
    left, right = figure.subplots(1, 2, sharey=True)
    edge = table.where(rule=FRONTIER)
    left.fill_between(edge["tv_token"].astype(float), edge["acceptance"].astype(float), 1.03,
                      color="#E6E6E6", linewidth=0, label="impossible")  # fmt: skip
    left.plot(edge["tv_token"], edge["acceptance"], color="black", linewidth=1.4, label=FRONTIER)
    for name, style in _STYLES.items():
        curve = table.where(rule=name)
        left.plot(curve["tv_token"], curve["acceptance"], **style, label=name)
        far, low, high = (curve[c].astype(float) for c in ("tv_text", "low", "high"))
        sides = [np.maximum(far - low, 0), np.maximum(high - far, 0)]
        right.errorbar(far, curve["acceptance"], xerr=sides, **style, elinewidth=0.6)
    left.set(xlabel="TV of one token from the target", xlim=(-0.01, 0.36), ylim=(0.5, 1.03))
    left.set_ylabel("mean acceptance probability")
    right.set(xlabel=f"TV of a text of {LENGTH} tokens", xlim=(-0.02, 1.02))
    figure.legend(*left.get_legend_handles_labels(), loc="outside lower center", ncols=3)
    return figure


_STYLES = curve_styles(
    RULES,
    (COLOURS[2], COLOURS[0], COLOURS[1], COLOURS[0], COLOURS[3], "#777777"),
    ("o", "h", "s", "^", "D", "x"),
    ("-", "--", "-.", ":", "-", "--"),
)
