"""Acceptance on a real text with word-level n-gram models."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from figures.drawing.style import RULE_LABELS, RULE_LINES
from figures.language_models import HISTORY, Corpus, load_corpus, next_token_probs
from figures.progress import progress
from figures.registry import experiment
from figures.rules import K_SEQ, MULTI_ROUND, OPTIMUM, acceptance
from figures.table import Table
from otm._core.drawing import COLOURS, blank_figure
from otm._core.means import Estimate
from otm.errors import InvalidParameterError

if TYPE_CHECKING:
    from matplotlib.figure import Figure

RULES = (OPTIMUM, K_SEQ, MULTI_ROUND)
DRAFTS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32)
CONTEXTS = 1000
SEED = 0


def positions() -> int:
    """Count the positions of the held-out text with a full history."""
    return Corpus.split(load_corpus()).held_out.size - HISTORY


def batch_means_interval(series: npt.ArrayLike, batches: int = 20, level: float = 0.95) -> Estimate:
    """Return the mean of a stationary, dependent series with an interval by batch means.

    The series is cut into batches of neighbours.  If a batch is much longer than the range of the
    dependence, the batch means are nearly independent and normal.  Then Student's t for these means
    gives the confidence interval (Schmeiser, "Batch size effects in the analysis of simulation
    output", Operations Research 30(3), 1982: 10 to 30 batches lose little).

    Raises
    ------
    InvalidParameterError
        If there are fewer than two batches or more batches than values.

    Examples
    --------
    >>> interval = batch_means_interval([1.0, 3.0, 2.0, 4.0], batches=2)
    >>> [round(end, 3) for end in interval]
    [2.5, -3.853, 8.853]
    """
    from scipy.special import stdtrit

    values = np.asarray(series, dtype=np.float64)
    if not 2 <= batches <= values.size:
        raise InvalidParameterError(
            f"{batches} batches of {values.size} values; give at least two batches, and at least "
            "one value a batch"
        )
    means = [batch.mean() for batch in np.array_split(values, batches)]
    mean = float(values.mean())
    error = float(np.std(means, ddof=1)) / batches**0.5
    reach = float(stdtrit(batches - 1, (1 + level) / 2)) * error
    return Estimate(mean, mean - reach, mean + reach)


@experiment(
    seed=SEED,
    models="bigrams as draft, trigrams as target of English text",
    full=lambda: {"contexts": positions()},
)
def real_text(contexts: int = CONTEXTS) -> Table:
    """Real text: acceptance of the optimum, k-Seq and recursive rejection.

    A bigram model drafts for a trigram model, at evenly spaced positions of the held-out part of
    the shipped text.  The first panel shows the mean acceptance probability over the positions.
    The second panel shows the mean difference of each rule to the optimum at the same position.
    The bands are 95 % intervals by batch means, because neighbouring positions are not
    independent.
    """
    probs = progress(next_token_probs(contexts, SEED), contexts, "real_text")
    values = np.array(
        [
            [[acceptance(rule, draft, target, k) for k in DRAFTS] for rule in RULES]
            for draft, target, _ in probs
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


@real_text.drawing
def draw_real_text(table: Table) -> Figure:
    """Draw one line per rule, with its interval as a band."""
    from matplotlib.patches import Patch

    figure = blank_figure(height=4.2)
    upper, lower = figure.subplots(2, sharex=True, height_ratios=(3, 2))
    for axes, quantity in ((upper, "acceptance"), (lower, "loss")):
        for rule, colour in zip(RULES, COLOURS, strict=False):
            curve = table.where(quantity=quantity, rule=rule)
            if not curve.rows:  # the optimum has no difference to itself
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
