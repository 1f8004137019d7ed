"""Tokens per step of the rules for several drafts, and a bound for all memoryless rules."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from figures.records import where
from figures.registry import OUR_GPTS, measurement
from figures.table import Table
from otm._core.drawing import COLOURS, MARKERS, blank_figure

if TYPE_CHECKING:
    from matplotlib.figure import Figure

BOUND = "bound"
LEFT_OUT = "k-Seq"
"""A rule of the table that is not drawn: there are five colours."""


@measurement(
    record="block_rules", command="python -m benchmarks.block_rules --save", models=OUR_GPTS
)
def block_rules(records: list[dict[str, Any]]) -> Table:
    """Tokens per step with several drafts, and a bound for all memoryless rules.

    The models are the shipped target and its draft models, at contexts where steps of a loop
    begin.  All rules use the same drafts.  The upper panels show the mean number of tokens per
    step with γ = 8; the dashed line is an upper bound for every memoryless lossless rule.  The
    lower panels show the difference to SpecTr's recursion with the optimal plan ("optimal"), for
    γ = 5 (open) and γ = 8.  The 95 % intervals are over prompts; differences are paired.
    """
    names = ("draft", "gamma", "k", "rule", "mean", "low", "high", "gain", "gain_low", "gain_high")
    rows = [
        (
            draft, row["gamma"], row["k"], row["rule"],
            *(row[name] for name in ("mean", "low", "high")),
            *(row["less_optimal"][name] for name in ("mean", "low", "high")),
            where(content),
        )
        for content in records
        for draft, found in content["drafts"].items()
        for row in found["rows"]
    ]  # fmt: skip
    return Table((*names, "machine"), tuple(rows))


@block_rules.drawing
def draw_block_rules(table: Table) -> Figure:
    """Draw one column per draft model, with means above and paired differences below."""
    drafts, ks = (list(dict.fromkeys(table[name].tolist())) for name in ("draft", "k"))
    listed = dict.fromkeys(table["rule"].tolist())
    rules = [rule for rule in listed if rule not in (BOUND, LEFT_OUT)]
    figure = blank_figure(height=4.4, wide=True)
    panels = figure.subplots(2, len(drafts), sharex=True, sharey="row", height_ratios=(3, 2))
    places = np.arange(len(ks))
    longest = int(table["gamma"].max())
    for (upper, lower), draft in zip(panels.T, drafts, strict=True):
        of_draft = table.where(draft=draft)
        bound = of_draft.where(rule=BOUND, gamma=longest)
        upper.plot(places, bound["mean"], color="#444444", linestyle="--", label="upper bound")
        upper.fill_between(places, bound["low"], bound["high"], color="#dddddd", linewidth=0)
        for i, (rule, colour, marker) in enumerate(zip(rules, COLOURS, MARKERS, strict=False)):
            for gamma in sorted(set(table["gamma"].tolist())):
                rows = of_draft.where(rule=rule, gamma=gamma)
                style = {
                    "color": colour,
                    "marker": marker,
                    "markersize": 4,
                    "linewidth": 1,
                    "markerfacecolor": colour if gamma == longest else "white",
                }
                # Points are side by side, so that no interval hides another one.
                aside = places + 0.09 * (i - (len(rules) - 1) / 2)
                if gamma == longest:
                    bars = np.abs(np.array([rows["low"], rows["high"]]) - rows["mean"])
                    upper.errorbar(aside, rows["mean"], bars, label=rule, **style)
                if rule != "optimal":
                    bars = np.abs(np.array([rows["gain_low"], rows["gain_high"]]) - rows["gain"])
                    lower.errorbar(aside, rows["gain"], bars, **style)
        lower.axhline(0, color="#444444", linewidth=0.8)
        upper.set_title(f"draft model: {draft}", fontsize=9)
        lower.set_xticks(places, [str(k) for k in ks])
        lower.set_xlabel("number of drafts $K$")
    panels[0, 0].set_ylabel("tokens of a step")
    panels[1, 0].set_ylabel("less “optimal”")
    handles, labels = panels[0, 0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=len(labels))
    return figure
