"""Leviathan et al.'s Figures 1 and 5: decoded texts, step by step and call by call."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

from figures.drawing.traces import draw_label, draw_legend, draw_text, text_page
from figures.iterations import ACCEPTED, CONTEXT, PROMPT, TARGET, fates, token_rows
from figures.registry import experiment, measurement
from figures.table import Cell, Table
from otm._core.drawing import COLOURS, blank_figure
from otm.decoding import Generation, speculative
from otm.models import encode, load

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

SEED = 0
GAMMA = 5
TOKENS = 64
LABEL = 4
"""Number of characters before a line, for its number."""


@experiment(seed=SEED)
def figure_1(tokens: int = TOKENS) -> Table:
    """Leviathan et al.'s Figure 1: a trace of speculative decoding.

    Each line is one call of the target, as in the paper's figure ([leviathan2023]_).  The models
    are ours: byte-level GPTs of 820k and 49k parameters.  γ is 5, the prompt is "And it came to
    pass", and sampling is plain with seed 0.  The paper prints only the first rejected draft;
    this figure also shows the later drafts, which are not verified.  A token is a byte; ␣ is a
    space.  The last steps have fewer drafts, because the text ends after 64 new tokens.
    """
    made = generation(tokens)
    (prompt,) = made.prompts
    rows = token_rows(0, 0, prompt, [CONTEXT] * len(prompt))
    for line, step in enumerate(made.steps, start=1):
        for path in step.drafts:
            rows += token_rows(line, step.position, path, fates(path, step))
        own = step.output[step.accepted :]
        rows += token_rows(line, step.position + step.accepted, own, [TARGET] * len(own))
    return Table(("line", "position", "kind", "token", "text"), tuple(rows))


@cache
def generation(tokens: int = TOKENS) -> Generation:
    """Decode the text of the figure."""
    models = load("target"), load("medium")
    return speculative(*models, [encode(PROMPT)], gamma=GAMMA, max_tokens=tokens, seed=SEED)


@figure_1.drawing
def draw_figure_1(table: Table) -> Figure:
    """Draw a line for each call of the target, after the text so far."""
    runs = sorted(set(table["line"].tolist()) - {0})
    figure, axes = text_page(lines=len(runs) + 1.7, wide=True)
    context = table.where(line=0)["token"].tolist()
    for y, run in enumerate(runs):
        x = float(LABEL)
        draw_label(axes, x - 1.5, y, str(run), "right")
        x += draw_text(axes, x, y, CONTEXT, context)
        rows = table.where(line=run)
        for kind in dict.fromkeys(rows["kind"].tolist()):
            tokens = rows.where(kind=kind)["token"].tolist()
            x += draw_text(axes, x, y, kind, tokens)
            if kind in (ACCEPTED, TARGET):
                context += tokens
    draw_legend(axes, LABEL, len(runs) + 0.6, table["kind"].tolist(), columns=4)
    return figure


WHOLE = "whole run"
DRAFT = "draft"

BLOCKS: dict[str, dict[str, Any]] = {
    TARGET: {"facecolor": COLOURS[0], "edgecolor": "white"},
    DRAFT: {"facecolor": "#F3B98C", "edgecolor": COLOURS[1]},
    f"{TARGET}, prompt": {"facecolor": "white", "edgecolor": COLOURS[0], "hatch": "//////"},
    f"{DRAFT}, prompt": {"facecolor": "white", "edgecolor": COLOURS[1], "hatch": "......"},
}
"""Styles of the calls; draft calls are lighter, and calls for the prompt are hatched."""

HEIGHT = {TARGET: 0.72, DRAFT: 0.44}


@measurement(
    record="timeline",
    command="python -m benchmarks.timeline --save",
    models="two pairs of GPTs of ours, one thread",
)
def figure_5(records: list[dict[str, Any]]) -> Table:
    """Leviathan et al.'s Figure 5: when the two models are called, with γ = 7, γ = 3 and no drafts.

    The paper's figure is a diagram ([leviathan2023]_).  This figure is measured, call by call,
    while 24 tokens are decoded with one CPU thread, for seeds with a typical number of calls.
    The number in a block of the target is the number of tokens of its step; gaps are time
    outside of the models.  In the first pair a draft costs about a fifth of the target; the
    weights are random, scaled so that about four of five drafts are accepted.  The models of the
    second pair come with this package.  They are so small that a draft, and also the loop, costs
    a large part of the target's time.
    """
    (record,) = records
    rows: list[tuple[Cell, ...]] = []
    for pair in record["pairs"]:
        for way in pair["ways"]:
            outputs = iter(way["outputs"])
            name, gamma = pair["pair"], way["gamma"]
            rows += [
                (name, gamma, call["call"], call["begin_ms"], call["end_ms"], made)
                for call in way["calls"]
                for made in [next(outputs) if call["call"] == TARGET else 0]
            ]
            rows.append((name, gamma, WHOLE, 0.0, way["wall_ms"], sum(way["outputs"])))
    return Table(("pair", "gamma", "call", "begin_ms", "end_ms", "tokens"), tuple(rows))


@figure_5.drawing
def draw_figure_5(table: Table) -> Figure:
    """Draw a panel for each pair, with a lane for each decoding method."""
    from matplotlib.patches import Patch

    pairs = list(dict.fromkeys(table["pair"].tolist()))
    figure = blank_figure(height=0.6 + 1.5 * len(pairs), wide=True)
    panels = figure.subplots(len(pairs), squeeze=False)[:, 0]
    for axes, pair in zip(panels, pairs, strict=True):
        draw_panel(axes, table.where(pair=pair))
        axes.set_title(pair, loc="left", fontsize=9)
    panels[-1].set_xlabel("time (ms)")
    handles = [Patch(label=name, linewidth=0.5, **style) for name, style in BLOCKS.items()]
    figure.legend(handles=handles, loc="outside lower center", ncols=4)
    return figure


def draw_panel(axes: Axes, table: Table) -> None:
    """Draw the lanes of one pair."""
    ways = list(dict.fromkeys(table["gamma"].tolist()))
    for lane, gamma in enumerate(ways):
        calls = table.where(gamma=gamma)
        for name, style in BLOCKS.items():
            spans = calls.where(call=name)
            if not spans.rows:
                continue
            begins, ends = spans["begin_ms"], spans["end_ms"]
            widths = list(zip(begins, ends - begins, strict=True))
            height = HEIGHT[name.partition(",")[0]]
            axes.broken_barh(widths, (lane - height / 2, height), linewidth=0.5, **style)
        runs = calls.where(call=TARGET)
        for begin, end, made in zip(runs["begin_ms"], runs["end_ms"], runs["tokens"], strict=True):
            middle = (begin + end) / 2
            axes.text(middle, lane, str(made), color="white", fontsize=8, ha="center", va="center")
    labels = [f"γ = {gamma}" if gamma else "no drafts" for gamma in ways]
    axes.set_yticks(range(len(ways)), labels=labels)
    axes.set(ylim=(len(ways) - 0.5, -0.5), xlim=(0, 1.01 * table["end_ms"].max()))
    axes.tick_params(axis="y", length=0)
    axes.grid(visible=False, axis="y")
