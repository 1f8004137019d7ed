"""Pictures of a report, as SVG for its page."""

from __future__ import annotations

import io
import re
from collections.abc import Callable
from typing import Any

from otm._core.drawing import COLOURS, MARKERS, blank_figure, journal_style
from otm.gain.summary import Summary

HEIGHT = 2.5
"""Inches."""

MAX_CURVES = 4


def pictures(summary: Summary) -> dict[str, str]:
    """Draw the tables of a summary: by name of the table, texts that begin with ``<svg``."""
    drawings: dict[str, tuple[bool, Callable[[Any, Summary], None]]] = {
        "acceptance": (bool(summary.acceptance), _acceptance),
        "bounds": (bool(summary.bounds), _bounds),
        "efficiency": (bool(summary.block_efficiency), _efficiency),
        "lossy": (bool(summary.lossy), _lossy),
        "temperatures": (len(summary.settings.draft_temperatures) > 1, _temperatures),
    }
    found = {}
    with journal_style():
        for name, (there, draw) in drawings.items():
            if there:
                figure = blank_figure(HEIGHT)
                axes = figure.add_subplot()
                draw(axes, summary)
                found[name] = _svg(figure, name)
    return found


def _acceptance(axes: Any, summary: Summary) -> None:
    main = summary.settings.draft_temperatures[0]
    for i, rule in enumerate(summary.settings.rules):
        rows = [
            row
            for row in summary.acceptance
            if row["rule"] == rule and row["draft temperature"] == main
        ]
        _curve(axes, [row["k"] for row in rows], [row["mean"] for row in rows], rule, i)
    axes.set(xlabel="number of drafts $k$", ylabel="acceptance probability")
    axes.legend(loc="best")


def _bounds(axes: Any, summary: Summary) -> None:
    ks = [row["k"] for row in summary.bounds]
    lower, upper = ([row[end].mean for row in summary.bounds] for end in ("lower", "upper"))
    axes.fill_between(ks, lower, upper, color=COLOURS[0], alpha=0.25, linewidth=0)
    axes.plot(ks, lower, color=COLOURS[0], marker="o", markersize=3, label="at least")
    axes.plot(ks, upper, color=COLOURS[0], marker="s", markersize=3, label="at most")
    axes.set(xlabel="number of drafts $k$", ylabel=r"mean of $\alpha_k$")
    axes.legend(loc="best")


def _efficiency(axes: Any, summary: Summary) -> None:
    main, rule = summary.settings.draft_temperatures[0], summary.settings.capped_rules[0]
    ks = _some(summary.settings.ks)
    for i, k in enumerate(ks):
        rows = [
            row
            for row in summary.block_efficiency
            if (row["draft temperature"], row["rule"], row["K"]) == (main, rule, k)
        ]
        gammas = [row["gamma"] for row in rows]
        _curve(axes, gammas, [row["chains"] for row in rows], f"$K = {k}$", i)
        if k > 1:
            style = {"color": COLOURS[i % len(COLOURS)], "linestyle": ":"}
            axes.plot(gammas, [row["tree"].mean for row in rows], **style)
    axes.set(xlabel=r"drafts of a path $\gamma$", ylabel="tokens of a step")
    axes.legend(loc="best")


def _lossy(axes: Any, summary: Summary) -> None:
    main, ks = summary.settings.draft_temperatures[0], summary.settings.ks
    most = 0.0
    for i, k in enumerate(dict.fromkeys((ks[0], ks[-1]))):
        rows = [row for row in summary.lossy if row["draft temperature"] == main and row["k"] == k]
        costs = [row["total variation"].mean for row in rows]
        gains = [row["gain"].mean for row in rows]
        style = {"color": COLOURS[i], "linestyle": "none", "marker": MARKERS[i]}
        axes.plot(costs, gains, markersize=4, label=f"$k = {k}$", **style)
        most = max(most, *gains, *costs)
    axes.plot([0, most], [0, most], color="#777777", linestyle=":", label="the most there is")
    axes.set(xlabel="total variation from the target", ylabel="acceptance gained")
    axes.legend(loc="best")


def _temperatures(axes: Any, summary: Summary) -> None:
    rule = summary.settings.rules[0]
    for i, k in enumerate(_some(summary.settings.ks)):
        rows = [row for row in summary.acceptance if row["rule"] == rule and row["k"] == k]
        rows.sort(key=lambda row: float(row["draft temperature"]))
        temperatures = [row["draft temperature"] for row in rows]
        _curve(axes, temperatures, [row["mean"] for row in rows], f"$k = {k}$", i)
    axes.set(xlabel="temperature of the draft model", ylabel="acceptance probability")
    axes.legend(loc="best")


def _curve(axes: Any, x: list[Any], estimates: list[Any], label: str, i: int) -> None:
    """Draw means with their intervals as a band."""
    colour = COLOURS[i % len(COLOURS)]
    means = [estimate.mean for estimate in estimates]
    axes.plot(x, means, color=colour, marker=MARKERS[i % len(MARKERS)], markersize=3, label=label)
    low = [max(estimate.low, 0) for estimate in estimates]
    high = [estimate.high for estimate in estimates]
    if max(high) < float("inf"):
        axes.fill_between(x, low, high, color=colour, alpha=0.15, linewidth=0)


def _some(ks: tuple[int, ...]) -> tuple[int, ...]:
    """Few of many numbers, the first and the last among them."""
    if len(ks) <= MAX_CURVES:
        return ks
    step = (len(ks) - 1) / (MAX_CURVES - 1)
    return tuple(ks[round(i * step)] for i in range(MAX_CURVES))


def _svg(figure: Any, name: str) -> str:
    """Write an element of a page: as wide as its place, with names of its own for its parts."""
    buffer = io.StringIO()
    figure.savefig(buffer, format="svg", metadata={"Date": None})
    text = buffer.getvalue()
    text = text[text.index("<svg") :]
    text = re.sub(r'(?<=[ "#])(id="|xlink:href="#|url\(#)', rf"\g<1>{name}-", text)
    head, rest = text.split(">", 1)
    head = re.sub(r' (width|height)="[^"]*"', "", head)
    return f'{head} role="img" aria-label="{name}">{rest}'
