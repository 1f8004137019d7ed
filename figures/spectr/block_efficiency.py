"""SpecTr's Table 4: block efficiency of our models."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from figures.drawing.style import RULE_LABELS, RULE_LINES
from figures.progress import progress
from figures.registry import experiment
from figures.rules import K_SEQ, MULTI_ROUND, OPTIMUM
from figures.shipped_pairs import DRAFTS, SIZES, probs_at, prompts_of_text, texts_of_target
from figures.spectr.steps_given_text import expected_steps
from figures.spectr.survivors_along import survivors_along
from figures.table import Cell, Table
from otm._core.drawing import COLOURS, blank_figure
from otm._core.means import clustered_mean
from otm.coupling import KSeq, OptimalPlan, RecursiveRejection
from otm.coupling.build import PlanBuilder

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SEED = 0
SEEDS = 3
PROMPTS = 44
TOKENS = 128
PROMPT_LENGTH = 64
TOGETHER = 8
"""Number of texts whose distributions are in memory at the same time."""

CHAINS = (1, 2, 4, 8)
LENGTHS = (4, 8)
RULES: dict[str, PlanBuilder] = {K_SEQ: KSeq, OPTIMUM: OptimalPlan, MULTI_ROUND: RecursiveRejection}


# Table 4 of Sun et al. by L, with entries for K = 1, 2, 4, 8.
PAPER = {
    "small": {4: (1.86, 2.07, 2.32, 2.56), 8: (1.91, 2.15, 2.41, 2.68)},
    "medium": {4: (2.21, 2.43, 2.74, 2.99), 8: (2.33, 2.61, 2.96, 3.27)},
    "large": {4: (2.71, 2.96, 3.28, 3.49), 8: (3.12, 3.48, 3.85, 4.15)},
}


Floats = npt.NDArray[np.float64]


@experiment(seed=SEED, full=lambda: {"prompts": 125, "texts": 8})
def table_4(
    prompts: int = PROMPTS, tokens: int = TOKENS, seeds: int = SEEDS, texts: int = 1
) -> Table:
    """SpecTr's Table 4: block efficiency by draft model, number of drafts K and length L.

    The axes are the paper's; the models are ours.  The byte-level target (820k parameters) and
    its three draft models replace a transformer of 97M parameters and drafts of 2M, 6M and 20M.
    Each of three seeds has 44 prompts of held-out bytes; the temperature is 1.  k-Seq is the
    paper's SpecTr, and K = 1 is speculative decoding.  The optimum (OTM-k) and recursive
    rejection are not in the paper's table.

    All rules use the same texts of 128 bytes, which the target wrote.  The mean number of steps
    of a loop for each text, over drafts and coins, is computed, so only the texts are random.
    Block efficiency is tokens over steps; the last step is cut at the end of the text.  The 95 %
    intervals are over prompts; because of the common texts, the curves of a panel shift together.

    Block efficiency rises with the draft model, with K and with L.  From K = 2 on, the optimum
    exceeds k-Seq by 0.1 to 0.3 tokens, and k-Seq exceeds recursive rejection.
    """
    prompts_of_all = prompts_of_text(seeds * prompts, PROMPT_LENGTH)
    made = [
        texts_of_target(prompts_of_all[i::seeds] * texts, tokens, seed=SEED + i)
        for i in range(seeds)
    ]
    number = seeds * prompts * texts
    groups = np.array_split(np.concatenate(made), -(-number // TOGETHER))
    shown = progress(groups, len(groups), "spectr_table_4")
    computed = [steps_of_texts(texts) for texts in shown]
    alone: list[Cell] = ["", "", "baseline", "", "", "", *[1.0] * (3 + seeds)]
    rows: list[tuple[Cell, ...]] = [(*alone, float(number * tokens), 1.0)]
    for draft, rule, gamma, k in computed[0]:
        steps = np.concatenate([group[draft, rule, gamma, k] for group in computed])
        of_prompts = steps.reshape(seeds, texts, prompts).mean(axis=1)
        made_of = efficiency(of_prompts, tokens)
        algorithm = "speculative" if k == 1 else "SpecTr"
        printed = PAPER[draft][gamma][CHAINS.index(k)] if rule == K_SEQ else ""
        setup = (draft, SIZES[draft], algorithm, rule, k, gamma)
        rows.append((*setup, *made_of, float(steps.sum()), printed))
    names = ("draft", "parameters", "algorithm", "rule", "K", "L", "mean", "low", "high")
    of_seeds = (f"seed {SEED + seed}" for seed in range(seeds))
    return Table((*names, *of_seeds, "steps", "paper, other models"), tuple(rows))


def steps_of_texts(texts: npt.NDArray[np.int64]) -> dict[tuple[str, str, int, int], Floats]:
    """Return the mean number of steps of each text [R, length], by draft model, rule, L and K."""
    new, target = texts[:, PROMPT_LENGTH:], probs_at("target", texts, PROMPT_LENGTH)
    steps = {}
    for draft in DRAFTS:
        probs = probs_at(draft, texts, PROMPT_LENGTH)
        lines = zip(probs, target, new.tolist(), strict=True)
        moves = [survivors_along(tuple(RULES.values()), *line, CHAINS[-1]) for line in lines]
        for rule, of_rule in zip(RULES, np.stack(moves, axis=1), strict=True):
            for gamma in LENGTHS:
                for k in CHAINS:
                    steps[draft, rule, gamma, k] = expected_steps(of_rule, k, gamma)
    return steps


def efficiency(steps: Floats, tokens: int) -> list[float]:
    """Return tokens over mean steps [seeds, prompts], its interval, and the values by seed."""
    mean, low, high = clustered_mean(steps.ravel(), np.arange(steps.size))
    return [tokens / mean, tokens / high, tokens / low, *(tokens / steps.mean(axis=1)).tolist()]


@table_4.drawing
def draw_table_4(table: Table) -> Figure:
    """Draw a row of panels for each L, with a colour per draft model and a line style per rule."""
    from matplotlib.lines import Line2D

    figure = blank_figure(height=3.9, wide=True)
    panels = figure.subplots(len(LENGTHS), len(DRAFTS), sharex=True, sharey="row")
    for line_of_panels, gamma in zip(panels, LENGTHS, strict=True):
        for axes, draft, colour in zip(line_of_panels, DRAFTS, COLOURS, strict=False):
            for i, rule in enumerate(RULES):
                curve = table.where(draft=draft, rule=rule, L=gamma)
                aside, mean = curve["K"] * 2 ** (0.1 * (i - 1)), curve["mean"]
                ends = [mean - curve["low"], curve["high"] - mean]
                line = {**RULE_LINES[rule], "color": colour}
                axes.errorbar(aside, mean, ends, elinewidth=0.6, capsize=1.5, **line)
            axes.set(xscale="log", title=f"{draft} draft model, {SIZES[draft]}, $L = {gamma}$")
            axes.title.set_fontsize(9)
            axes.set_xticks(CHAINS, labels=[str(k) for k in CHAINS])
            axes.minorticks_off()
        line_of_panels[0].set_ylabel("block efficiency")
    for axes in panels[-1]:
        axes.set_xlabel("number of drafts $K$")
    kinds = [Line2D([], [], color="#444444", **RULE_LINES[rule]) for rule in RULES]
    names = [RULE_LABELS[rule] for rule in RULES]
    figure.legend(kinds, names, loc="outside lower center", ncols=3)
    return figure
