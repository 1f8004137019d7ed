"""One step with several chains on real text, as in SpecTr's Figure 2."""

from __future__ import annotations

from ast import literal_eval
from typing import TYPE_CHECKING, Any

from figures.drawing.traces import (
    NAME,
    draw_label,
    draw_legend,
    draw_token,
    text_page,
    without_spaces,
)
from figures.iterations import ACCEPTED, CONTEXT, TARGET, fates
from figures.records import where
from figures.registry import REAL_COMMAND, REAL_MODELS, measurement
from figures.table import Cell, Table
from otm.decoding import Seconds, Step

if TYPE_CHECKING:
    from matplotlib.figure import Figure

CONTEXT_SHOWN = 30
"""Number of characters of the context."""


@measurement(record="real-iteration", command=REAL_COMMAND, models=REAL_MODELS)
def iteration(records: list[dict[str, Any]]) -> Table:
    """One step of walk and keep on real text, as in SpecTr's Figure 2.

    SmolLM2 answers a prompt that asks for a story.  Its draft proposes four chains of four tokens
    after the context; ␣ is a space, and ↵ a new line.  Walk and keep accepts the tokens of one
    chain, and the target adds its own token.  The step is the first one of the text that accepts at
    least two drafts and rejects another one.
    """
    rows: list[tuple[Cell, ...]] = []
    for content in records:
        drafts = tuple(map(tuple, content["tokens"]["drafts"]))
        output, accepted = tuple(content["tokens"]["output"]), content["accepted"]
        step = Step(0, 0, 0, len(drafts[0]), drafts, output, accepted, None, Seconds(0, 0, 0))
        lines = [("context", content["context"], [CONTEXT] * len(content["context"]))]
        lines += [
            (f"draft {i}", texts, fates(path, step))
            for i, (texts, path) in enumerate(zip(content["drafts"], drafts, strict=True), start=1)
        ]
        kinds = [ACCEPTED] * accepted + [TARGET] * (len(output) - accepted)
        lines.append(("output", content["output"], kinds))
        rows += [
            # Quotes keep a digit from being read back as a number.
            (line, place, kind, repr(text), where(content))
            for line, texts, kinds in lines
            for place, (text, kind) in enumerate(zip(texts, kinds, strict=True))
        ]
    return Table(("line", "position", "kind", "text", "machine"), tuple(rows))


@iteration.drawing
def draw_iteration(table: Table) -> Figure:
    """Draw a line for each draft and for the output, with one column for each new token."""
    names = [name for name in dict.fromkeys(table["line"].tolist()) if name != "context"]
    context = "".join(map(literal_eval, table.where(line="context")["text"]))
    context = without_spaces(context, " ")[1 - CONTEXT_SHOWN :]
    widths: dict[int, int] = {}
    for line, place, _, text, _ in table.rows:
        if line != "context":
            width = len(literal_eval(str(text)))
            widths[int(place)] = max(widths.get(int(place), 0), width)
    figure, axes = text_page(lines=len(names) + 2.9, wide=True)
    for y, name in enumerate(names):
        draw_label(axes, 0, y, name)
        draw_token(axes, NAME, y, CONTEXT, "…" + context)
        x = NAME + 2 + len(context)
        for place, kind, text in zip(
            *(table.where(line=name)[column] for column in ("position", "kind", "text")),
            strict=True,
        ):
            start = x + sum(widths[i] + 1 for i in range(int(place)))
            draw_token(axes, start, y, str(kind), without_spaces(literal_eval(text), "␣"))
    draw_legend(axes, 0, len(names) + 0.6, table["kind"].tolist(), columns=4)
    return figure
