"""Tokens per step of the rules on real models, and the bound for all memoryless rules."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from figures.records import where
from figures.registry import REAL_COMMAND, REAL_MODELS, measurement
from figures.table import Table
from otm._core.drawing import COLOURS, MARKERS, blank_figure

if TYPE_CHECKING:
    from matplotlib.figure import Figure

BOUND, BASE = "bound", "optimal"

ONE_CHAIN = {
    "k-Seq": "chain",
    "optimal": "chain",
    "traversal": "block",
    "walk and keep": "block",
}
"""The rules of the figure, each with the rule that it is for one chain."""


@measurement(record="real-efficiency-*", command=REAL_COMMAND, models=REAL_MODELS)
def tokens(records: list[dict[str, Any]]) -> Table:
    """Tokens per step of each rule on real models, with the bound.

    The contexts are those where steps of a loop begin, in answers to prompts of four kinds: chat,
    summary, code and story.  All rules use the same drafts.  The upper panels show the mean number
    of tokens per step; the dashed line is an upper bound for every memoryless lossless rule.  With
    one chain, k-Seq and the optimal plan are chain verification, and traversal and walk and keep
    are block verification.  The lower panels show the paired difference to the optimal plan, which
    is chain verification for one chain.  The 95 % intervals are over prompts.
    """
    names = ("model", "draft", "setting", "k", "rule", "mean", "low", "high")
    rows = []
    for content in records:
        for setting, found in content["settings"].items():
            of_all = [row for row in found["differences"] if row["kind"] == "all"]
            bases = (BASE, "chain")
            gains = {(row["rule"], row["k"]): row for row in of_all if row["less"] in bases}
            for row in found["rows"]:
                if row["kind"] != "all":
                    continue
                gain = gains.get((row["rule"], row["k"]), {})
                rows.append(
                    (
                        content["model"], content["draft"], setting, row["k"], row["rule"],
                        *(row[name] for name in ("mean", "low", "high")),
                        *(gain.get(name, float("nan")) for name in ("mean", "low", "high")),
                        where(content),
                    )
                )  # fmt: skip
    return Table((*names, "gain", "gain_low", "gain_high", "machine"), tuple(rows))


@tokens.drawing
def draw_tokens(table: Table) -> Figure:
    """Draw one column for each model and setting, with means above and differences below."""
    columns = list(dict.fromkeys(zip(table["model"], table["setting"], strict=True)))
    columns.sort(key=lambda column: column[0], reverse=True)
    ks = sorted(set(table["k"].tolist()))
    figure = blank_figure(height=4.4, wide=True)
    panels = figure.subplots(
        2, len(columns), sharex=True, sharey="row", height_ratios=(3, 2), squeeze=False
    )
    places = np.arange(len(ks))
    for (upper, lower), (model, setting) in zip(panels.T, columns, strict=True):
        shown = table.where(model=model, setting=setting)
        bound = shown.where(rule=BOUND)
        upper.plot(places, bound["mean"], color="#444444", linestyle="--", label="upper bound")
        upper.fill_between(places, bound["low"], bound["high"], color="#dddddd", linewidth=0)
        several = zip(ONE_CHAIN.items(), COLOURS, MARKERS, strict=False)
        for i, ((rule, alone), colour, marker) in enumerate(several):
            rows = [*shown.where(rule=alone, k=1).rows, *shown.where(rule=rule).rows]
            mine = Table(shown.names, tuple(sorted(rows, key=lambda row: int(row[3]))))
            style: dict[str, Any] = {"color": colour, "marker": marker, "markersize": 4}
            # Points are side by side, so that no interval hides another one.
            aside = 0.09 * (i - (len(ONE_CHAIN) - 1) / 2)
            bars = np.abs(np.array([mine["low"], mine["high"]]) - mine["mean"])
            upper.errorbar(places + aside, mine["mean"], bars, linewidth=1, label=rule, **style)
            bars = np.abs(np.array([mine["gain_low"], mine["gain_high"]]) - mine["gain"])
            if rule != BASE:
                lower.errorbar(places + aside, mine["gain"], bars, linewidth=1, **style)
        lower.plot(places[1:], bound["gain"][1:], color="#444444", linestyle="--")
        lower.axhline(0, color="#444444", linewidth=0.8)
        upper.set_title(f"{model}, {setting}", fontsize=8)
        lower.set_xticks(places, [str(k) for k in ks])
        lower.set_xlabel("number of chains $K$")
    panels[0, 0].set_ylabel("tokens per step")
    panels[1, 0].set_ylabel("less “optimal”")
    handles, labels = panels[0, 0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=len(labels))
    return figure
