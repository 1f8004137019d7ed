"""Tokens per second by method on real models."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from figures.records import where
from figures.registry import REAL_COMMAND, REAL_MODELS, measurement
from figures.table import Table
from otm._core.drawing import COLOURS, blank_figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

PLAIN = "generate"
KINDS = {"chat": COLOURS[1], "summary": COLOURS[2]}
"""Kinds of prompts with points of their own, and their colours."""


@measurement(record="real-speed-*", command=REAL_COMMAND, models=REAL_MODELS)
def speed(records: list[dict[str, Any]]) -> Table:
    """Tokens per second of real models in bfloat16, by method.

    All methods sample answers to the same prompts at T = 1, in turns in one process.  Methods that
    begin with "generate" are those of transformers; drafts are one chain of four tokens.  The
    figure shows medians over prompts, with 95 % intervals by order statistics for all prompts.
    The line is plain `generate`.
    """
    names = ("model", "kind", "method", "speed", "low", "high", "ratio", "ratio_low", "ratio_high")
    rows = [
        (
            content["model"], row["kind"], row["method"],
            *(number(row["tokens/s"][name]) for name in ("median", "low", "high")),
            *(number(row["speed-up"][name]) for name in ("median", "low", "high")),
            where(content),
        )
        for content in records
        for row in content["rows"]
    ]  # fmt: skip
    return Table((*names, "machine"), tuple(rows))


def number(value: float | None) -> float:
    """Return NaN for an end of an interval that too few prompts leave open."""
    return float("nan") if value is None else float(value)


@speed.drawing
def draw_speed(table: Table) -> Figure:
    """Draw a panel for each model and a row for each method, fastest first."""
    models = sorted(set(table["model"].tolist()), reverse=True)
    counts = [len(set(table.where(model=model)["method"])) for model in models]
    figure = blank_figure(height=1.1 + 0.2 * sum(counts) + 0.35 * len(models), wide=True)
    panels = figure.subplots(len(models), 1, squeeze=False, height_ratios=counts)[:, 0]
    for panel, model in zip(panels, models, strict=True):
        draw_model(panel, table.where(model=model), model)
    panels[-1].set_xlabel("tokens per second")
    handles, labels = panels[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=len(labels))
    return figure


def draw_model(panel: Axes, table: Table, title: str) -> None:
    """Draw the methods of one model."""
    whole = table.where(kind="all")
    order = np.argsort(whole["speed"], kind="stable")
    methods = whole["method"][order].tolist()
    plain = whole.where(method=PLAIN)["speed"].item()
    panel.axvline(plain, color="#444444", linewidth=0.8)
    places = np.arange(len(methods))
    speeds = whole["speed"][order]
    bars = np.nan_to_num(np.abs(np.array([whole["low"], whole["high"]])[:, order] - speeds))
    panel.errorbar(
        speeds, places, xerr=bars, linestyle="none", marker="o", markersize=4, color=COLOURS[0],
        label="all prompts",
    )  # fmt: skip
    for kind, colour in KINDS.items():
        of_kind = table.where(kind=kind)
        speed_of = dict(zip(of_kind["method"].tolist(), of_kind["speed"], strict=True))
        panel.plot(
            [speed_of[method] for method in methods], places, linestyle="none", marker="D",
            markersize=4, color=colour, markerfacecolor="none", label=f"{kind} prompts",
        )  # fmt: skip
    panel.grid(visible=True, axis="y", linewidth=0.3)
    panel.set_yticks(places, methods, fontsize=8)
    panel.set_ylim(-0.6, len(methods) - 0.4)
    panel.set_title(title, fontsize=9, loc="left")
