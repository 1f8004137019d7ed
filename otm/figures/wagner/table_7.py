"""Wagner et al.'s Table 7: the sigmoid's scales for every pair of models.

As Table 2, with our three draft models (17k, 49k and 164k parameters) in the place of the paper's
pairs; softmax is the method that follows the target.  The distance (TV) of the token in the place
of a draft hardly depends on the scales: it is that of the draft model itself (dashed), which a
better draft model makes smaller.  Open marks are float16, where ±10^5 leaves no law.  Means over
contexts with 95 % intervals over prompts.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from otm._core.drawing import COLOURS, MARKERS, blank_figure, journal_style
from otm.figures.registry import Kind
from otm.figures.shipped_pairs import DRAFTS, SIZES
from otm.figures.table import Table
from otm.figures.wagner.outputs import SOFTMAX
from otm.figures.wagner.scales import (
    ALL_ACCEPTED,
    HALF,
    NO_LAW,
    POWERS,
    SINGLE,
    name_of,
    scales,
    shown_scale,
)

if TYPE_CHECKING:
    from matplotlib.figure import Figure

KIND = Kind.EXPERIMENT
PROMPTS, TOKENS = 64, 64
SEED = 0


def data(prompts: int = PROMPTS, tokens: int = TOKENS) -> Table:
    """Compute acceptance and distances for all pairs.

    Parameters
    ----------
    prompts, tokens : int, optional
        How many texts, and of how many tokens.
    """
    return scales(DRAFTS, prompts, tokens, SEED)


@journal_style()
def draw(table: Table) -> Figure:
    """Draw acceptance and distance over the scales, one colour and marker a draft model."""
    from matplotlib.lines import Line2D

    figure = blank_figure(height=4.3)
    upper, lower = figure.subplots(2, sharex=True)
    names = [SOFTMAX, *(name_of(10.0**power) for power in POWERS)]
    for index, (draft, colour, marker) in enumerate(zip(DRAFTS, COLOURS, MARKERS, strict=False)):
        for dtype in (SINGLE, HALF):
            found = table.where(draft=draft, type=dtype, state="law")
            shift = 0.22 * (index - 1) + (0.09 if dtype == HALF else 0)
            places = [
                (names.index(str(name)), row)
                for row, name in enumerate(found["scale"])
                if name in names
            ]
            for axes, quantity in ((upper, "acceptance"), (lower, "TV")):
                mean, low, high = (found[f"{quantity}{end}"] for end in ("", " low", " high"))
                rows = [row for _, row in places]
                axes.errorbar(
                    [place + shift for place, _ in places],
                    mean[rows],
                    yerr=[mean[rows] - low[rows], high[rows] - mean[rows]],
                    linestyle="none",
                    marker=marker,
                    markersize=4,
                    markerfacecolor=colour if dtype == SINGLE else "white",
                    color=colour,
                )
        limit = table.where(draft=draft, scale=ALL_ACCEPTED)
        lower.axhline(limit["TV"][0], color=colour, linestyle="--", linewidth=0.7, zorder=1)
    for name in sorted(set(table.where(state=NO_LAW)["scale"].tolist())):
        lower.annotate(
            "float16:\nno law",
            (names.index(name), 0.04),
            horizontalalignment="center",
            backgroundcolor="white",
            fontsize=8,
            color="#444444",
        )
    upper.set(ylabel="draft accepted", ylim=(0.65, 1.03))
    lower.set(
        ylabel="TV in the place of a draft", xlabel="scales $\\alpha, \\beta$", ylim=(-0.015, 0.34)
    )
    lower.set_xticks(range(len(names)), labels=[shown_scale(name) for name in names])
    handles = [
        Line2D([], [], linestyle="none", marker=marker, markersize=4, color=colour)
        for colour, marker in zip(COLOURS, MARKERS, strict=True)
    ][: len(DRAFTS)]
    handles.append(
        Line2D(
            [],
            [],
            linestyle="none",
            marker="o",
            markersize=4,
            color="#444444",
            markerfacecolor="white",
        )
    )
    labels = [f"draft of {SIZES[draft]}" for draft in DRAFTS]
    upper.legend(handles, [*labels, "in float16"], loc="lower right")
    return figure
