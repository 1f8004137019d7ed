"""Watermarks with drafts: detection compared with acceptance."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from figures.records import where
from figures.registry import OUR_GPTS, measurement
from figures.table import Table
from otm._core.drawing import COLOURS, MARKERS, blank_figure

if TYPE_CHECKING:
    from matplotlib.figure import Figure

ALONE = "watermark without drafts"

WAYS = {
    "no watermark": "no watermark",
    ALONE: "without drafts",
    "coupled": "coupled",
    "rejection, list of drafts": "rejection, coins at random",
    "keyed rejection, threshold 0.9": "rejection, coins by the key",
}
"""Displayed ways, with their names in the figure."""


@measurement(record="watermark", command="python -m benchmarks.watermark --save", models=OUR_GPTS)
def watermarks(records: list[dict[str, Any]]) -> Table:
    """Watermarks with drafts: evidence in a text against tokens per step.

    The shipped target decodes with the large (filled) and the small draft model (open), in chains
    of 4 drafts.  The evidence is the mean −log10 of the p-value of texts, by a detector that knows
    only the key, with 95 % intervals over prompts.  Coupled decoding gives as much evidence as the
    watermark without drafts, because its texts are the same.  Rejection accepts a little more and
    gives less evidence.  With random coins, the detector reads the clocks of the drafts.  With
    keyed coins, it reads the clocks of the list that the coin selects, below or above 0.9.
    """
    names = ("draft", "temperature", "way", "length", "tokens", "tokens_low", "tokens_high")
    rows = [
        (
            setting.partition(", T ")[0], float(setting.partition(", T ")[2]), row["way"],
            content["tokens"],
            *(row[quantity][name] for quantity in ("tokens", "long")
              for name in ("mean", "low", "high")),
            where(content),
        )
        for content in records
        for setting, found in content["texts"].items()
        for row in found
        if row["way"] in WAYS
    ]  # fmt: skip
    return Table((*names, "evidence", "evidence_low", "evidence_high", "machine"), tuple(rows))


@watermarks.drawing
def draw_watermarks(table: Table) -> Figure:
    """Draw a panel for each temperature and a colour for each way."""
    temperatures = list(dict.fromkeys(table["temperature"].tolist()))
    figure = blank_figure(height=3.2, wide=True)
    panels = figure.subplots(1, len(temperatures), squeeze=False)[0]
    drafts = list(dict.fromkeys(table["draft"].tolist()))
    for panel, temperature in zip(panels, temperatures, strict=True):
        for (way, label), colour, marker in zip(WAYS.items(), COLOURS, MARKERS, strict=True):
            for draft in drafts[:1] if way == ALONE else drafts:
                (row,) = table.where(draft=draft, temperature=temperature, way=way).records()
                x, y = float(row["tokens"]), float(row["evidence"])
                panel.errorbar(
                    [x],
                    [y],
                    xerr=[[x - float(row["tokens_low"])], [float(row["tokens_high"]) - x]],
                    yerr=[[y - float(row["evidence_low"])], [float(row["evidence_high"]) - y]],
                    linestyle="none",
                    marker=marker,
                    markersize=5,
                    color=colour,
                    markerfacecolor=colour if draft == drafts[0] else "white",
                    label=label if draft == drafts[0] else None,
                )
        panel.set_title(f"temperature {temperature:g}")
        panel.set_xlabel("tokens of a step")
        panel.set_ylim(bottom=0)
    panels[0].set_ylabel(f"−log10 p of {table['length'][0]} tokens, mean")
    handles, labels = panels[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=3)
    return figure
