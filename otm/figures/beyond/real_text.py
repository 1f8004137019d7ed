"""Acceptance on a real text: the optimum, k-Seq and recursive rejection.

The laws are those of a bigram model that drafts for a trigram model, at evenly spread positions of
the held-out part of the shipped text.  The first panel shows the mean acceptance probability over
the positions, the second how far each rule stays below the optimum, position by position.  The
bands are 95 % intervals by batch means, since neighbouring positions are not independent.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from otm._core.drawing import COLOURS, blank_figure, journal_style
from otm.figures.batch_means import batch_means_interval
from otm.figures.drawing.style import RULE_LABELS, RULE_LINES
from otm.figures.language_models import HISTORY, Corpus, load_corpus, next_token_laws
from otm.figures.progress import progress
from otm.figures.registry import Kind
from otm.figures.rules import K_SEQ, MULTI_ROUND, OPTIMUM, acceptance
from otm.figures.table import Table

if TYPE_CHECKING:
    from matplotlib.figure import Figure

KIND = Kind.EXPERIMENT
RULES = (OPTIMUM, K_SEQ, MULTI_ROUND)
DRAFTS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32)
CONTEXTS = 1000
SEED = 0


def data(contexts: int = CONTEXTS) -> Table:
    """Compute the mean acceptance and its mean loss to the optimum, with intervals, by rule and k.

    Parameters
    ----------
    contexts : int, optional
        Number of positions, at least 20.
    """
    laws = progress(next_token_laws(contexts, SEED), contexts, "real_text")
    values = np.array(
        [
            [[acceptance(rule, draft, target, k) for k in DRAFTS] for rule in RULES]
            for draft, target, _ in laws
        ]
    )
    rows = [
        (quantity, rule, k, *batch_means_interval(series[:, i, j]), contexts)
        for quantity, series in (("acceptance", values), ("loss", values[:, :1] - values))
        for i, rule in enumerate(RULES)
        if quantity == "acceptance" or rule != OPTIMUM
        for j, k in enumerate(DRAFTS)
    ]
    return Table(("quantity", "rule", "k", "mean", "low", "high", "contexts"), tuple(rows))


def full_data() -> Table:
    """Take every position of the held-out text."""
    return data(Corpus.split(load_corpus()).held_out.size - HISTORY)


@journal_style()
def draw(table: Table) -> Figure:
    """Draw one kind of line a rule, with its interval as a band."""
    from matplotlib.patches import Patch

    figure = blank_figure(height=4.2)
    upper, lower = figure.subplots(2, sharex=True, height_ratios=(3, 2))
    for axes, quantity in ((upper, "acceptance"), (lower, "loss")):
        for rule, colour in zip(RULES, COLOURS, strict=False):
            curve = table.where(quantity=quantity, rule=rule)
            if not curve.rows:  # the optimum has no loss
                continue
            line = {**RULE_LINES[rule], "label": RULE_LABELS[rule], "color": colour}
            axes.plot(curve["k"], curve["mean"], **line)
            axes.fill_between(
                curve["k"], curve["low"], curve["high"], color=colour, alpha=0.15, linewidth=0
            )
    upper.set(ylabel="mean acceptance probability")
    interval = Patch(color="#444444", alpha=0.15, linewidth=0, label="95 % interval")
    upper.legend(handles=[*upper.lines, interval], loc="lower right")
    lower.set(ylabel="optimum minus rule", xlabel="number of drafts $k$", xscale="log")
    lower.set_xticks(DRAFTS, labels=[str(k) for k in DRAFTS])
    lower.minorticks_off()
    return figure
