"""All ways to draft and verify 32 tokens, at the same contexts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from figures.drawing.style import draw_gains
from figures.records import where
from figures.registry import OUR_GPTS, measurement
from figures.table import Table
from otm._core.drawing import COLOURS, blank_figure

if TYPE_CHECKING:
    from matplotlib.figure import Figure

BEST = "best-first, target-only"
KINDS = {
    "one chain of 8 drafts": "one chain",
    "certain tree": "target",
    "sampled without replacement": "without replacement",
    "sampled independently": "",
}
"""Kind of drafts by a part of the way's name; the first match counts."""


@measurement(record="trees", command="python -m benchmarks.trees --save", models=OUR_GPTS)
def trees(records: list[dict[str, Any]]) -> Table:
    """Chains, trees and the rules that verify them: tokens per step for 32 drafts.

    The models are the shipped target and its draft models, at contexts where steps of a loop begin;
    no path is longer than 8.  The figure shows tokens per step minus those of best-first trees
    (EAGLE-2, OPT-Tree) with target-only sampling, the best rule for these trees.  The paired 95 %
    intervals are over prompts.  Open markers: temperature 0.5.  "By the target itself" is the best
    deterministic tree of 32 nodes (Theorem 18.2); the best rules for sampled drafts can exceed it.
    """
    names = ("draft", "temperature", "way", "drafts", "mean", "low", "high")
    rows = [
        (
            *_draft_and_temperature(setting), row["way"], row["nodes"],
            *(row[name] for name in ("mean", "low", "high")),
            *(row["less_best_first"][name] for name in ("mean", "low", "high")),
            where(content),
        )
        for content in records
        for setting, found in content["tokens"].items()
        for row in found
    ]  # fmt: skip
    return Table((*names, "gain", "gain_low", "gain_high", "machine"), tuple(rows))


def _draft_and_temperature(setting: str) -> tuple[str, float]:
    draft, _, temperature = setting.partition(", T ")
    return draft, float(temperature)


@trees.drawing
def draw_trees(table: Table) -> Figure:
    """Draw a row for each way and a column for each draft model."""
    drafts = list(dict.fromkeys(table["draft"].tolist()))
    kinds = list(KINDS)
    ways = sorted(
        dict.fromkeys(table["way"].tolist()), key=lambda way: (kinds.index(kind_of(way)), way)
    )
    places = {way: len(ways) - i for i, way in enumerate(ways)}
    figure = blank_figure(height=1.2 + 0.21 * len(ways), wide=True)
    panels = figure.subplots(1, len(drafts), sharey=True)
    for panel, draft in zip(panels, drafts, strict=True):
        panel.axvline(0, color="#444444", linewidth=0.8)
        best = table.where(draft=draft, way=BEST)
        means = dict(zip(best["temperature"], best["mean"], strict=True))
        said = ", ".join(f"{mean:.2f} (T {t:g})" for t, mean in means.items())
        panel.set_title(f"{draft} draft; best-first {said}", fontsize=8)
        for kind, colour in zip(kinds, COLOURS, strict=False):
            alike = [way for way in ways if kind_of(way) == kind]
            for aside, temperature in zip((0.13, -0.13), means, strict=True):
                rows = table.where(draft=draft, temperature=temperature)
                draw_gains(panel, rows, alike, places, colour=colour, aside=aside, label=kind)
        panel.grid(visible=True, axis="y", linewidth=0.3)
        panel.set_xlabel("tokens of a step, less best-first trees")
    panels[0].set_ylabel("drafts, and the rule that verifies them")
    panels[0].set_yticks(list(places.values()), list(places), fontsize=8)
    handles, labels = panels[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=len(labels))
    return figure


def kind_of(way: str) -> str:
    """Return the kind of a way's drafts."""
    return next(kind for kind, part in KINDS.items() if part in way)
