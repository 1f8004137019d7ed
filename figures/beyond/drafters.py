"""Drafters at the same contexts: a model, heads, copies, and models of another vocabulary."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from figures.drawing.style import draw_gains
from figures.records import where
from figures.registry import OUR_GPTS, measurement
from figures.table import Table
from otm._core.drawing import COLOURS, blank_figure

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MODEL = "small model"
KINDS = {"heads": "all at once: heads", "words": "another vocabulary", "": "one after another"}
"""Kind of a drafter by a part of its name; the first match counts."""


@measurement(record="drafters", command="python -m benchmarks.drafters --save", models=OUR_GPTS)
def drafters(records: list[dict[str, Any]]) -> Table:
    """Draft models, heads, copies and other vocabularies: tokens per step for one chain of 5.

    The target is the shipped one, at contexts where steps of a loop begin; each drafter has its
    best rule.  The figure shows tokens per step minus those of the small draft model, with paired
    95 % intervals over prompts.  Open markers: temperature 0.5.  Heads draft independently of each
    other; the "best" heads are those of Theorem 21.1, computed from a model's samples at the
    context.  Models of words draft for the target's bytes.
    """
    rows = [
        (
            float(setting.removeprefix("T ")), row["way"],
            *(row[name] for name in ("mean", "low", "high")),
            *(row["less"][name] for name in ("mean", "low", "high")),
            where(content),
        )
        for content in records
        for setting, found in content["tokens"].items()
        for row in found
    ]  # fmt: skip
    names = ("temperature", "way", "mean", "low", "high", "gain", "gain_low", "gain_high")
    return Table((*names, "machine"), tuple(rows))


@drafters.drawing
def draw_drafters(table: Table) -> Figure:
    """Draw a row for each drafter, best first, with both temperatures."""
    sharp, flat = sorted(set(table["temperature"].tolist()))
    whole = table.where(temperature=flat)
    means = dict(zip(whole["way"].tolist(), whole["gain"].astype(float), strict=True))
    ways = sorted(means, key=lambda way: means[way])
    places = {way: i for i, way in enumerate(ways)}
    figure = blank_figure(height=1.4 + 0.24 * len(ways), wide=True)
    panel = figure.subplots()
    panel.axvline(0, color="#444444", linewidth=0.8)
    for (part, kind), colour in zip(KINDS.items(), COLOURS, strict=False):
        alike = [way for way in ways if kind_of(way) == part]
        for temperature, aside in ((flat, 0.13), (sharp, -0.13)):
            rows = table.where(temperature=temperature)
            draw_gains(panel, rows, alike, places, colour=colour, aside=aside, label=kind)
    panel.grid(visible=True, axis="y", linewidth=0.3)
    panel.set_yticks(list(places.values()), list(places), fontsize=8)
    panel.set_xlabel(f"tokens of a step, less those of the {MODEL}")
    panel.set_ylabel("what drafts")
    panel.legend(loc="lower right")
    return figure


def kind_of(way: str) -> str:
    """Return the entry of `KINDS` for a drafter."""
    return next(part for part in KINDS if part in way)
