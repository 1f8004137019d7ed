"""SpecTr's Figures 1 to 3: iterations of speculative decoding and of SpecTr."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

from figures.drawing.traces import (
    COLOUR_OF,
    draw_iteration,
    draw_label,
    draw_legend,
    draw_text,
    text_page,
)
from figures.iterations import (
    ACCEPTED,
    NOT_REACHED,
    PROMPT,
    REJECTED,
    TARGET,
    fates,
    quoted,
    rows_of_iteration,
)
from figures.registry import experiment
from figures.table import Cell, Table
from otm.decoding import Generation, Step, spectr, speculative
from otm.decoding.reading import Path
from otm.models import encode, load

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

SEED = 0
LENGTH = 4
TOKENS_1 = 64


@experiment(seed=SEED)
def figure_1() -> Table:
    """SpecTr's Figure 1: one iteration of speculative decoding.

    The small model drafts L = 4 tokens after the context.  The large model keeps the drafts
    before the first rejected one, and adds its own token ([sun2023]_).  The models are ours:
    byte-level GPTs of 820k and 49k parameters.  The iteration is real: after the prompt "And it
    came to pass", with the first seed, it is the first one with an accepted and a rejected
    draft.  A token is a byte; ␣ is a space.
    """
    return rows_of_iteration(*chain())


@cache
def chain() -> tuple[Generation, Step]:
    """Decode a text, and return it with the step of the figure."""
    models = load("target"), load("medium")
    made = speculative(*models, [encode(PROMPT)], gamma=LENGTH, max_tokens=TOKENS_1, seed=SEED)
    return made, next(step for step in made.steps if step.accepted and step.rejected)


@figure_1.drawing
def draw_figure_1(table: Table) -> Figure:
    """Draw the draft and the output, each after the context."""
    return draw_iteration(table)


DRAFTS = 4
TOKENS_2 = 256


@experiment(seed=SEED)
def figure_2() -> Table:
    """SpecTr's Figure 2: one iteration of SpecTr.

    The small model draws K = 4 drafts of L = 4 tokens after the context.  The large model selects
    tokens one by one by k-Seq, continues with the drafts that agree, and adds its own token
    ([sun2023]_, Algorithm 3).  The models are ours, as in Figure 1.  The iteration is real.  With
    the first seed, it is the first one that selects at least two drafts, still has more than one
    draft after the first selection, and ends because it selects no draft.  Figure 3 shows its
    selections one by one.
    """
    return rows_of_iteration(*chains())


@cache
def chains() -> tuple[Generation, Step]:
    """Decode a text, and return it with the step of the figure."""
    models = load("target"), load("medium")
    made = spectr(
        *models,
        [encode(PROMPT)],
        k=DRAFTS,
        gamma=LENGTH,
        rule="k-Seq",
        max_tokens=TOKENS_2,
        seed=SEED,
    )
    return made, next(step for step in made.steps if _tells_enough(step))


def _tells_enough(step: Step) -> bool:
    left = sum(path[:1] == step.output[:1] for path in step.drafts)
    return step.accepted >= 2 and left > 1 and step.rejected


@figure_2.drawing
def draw_figure_2(table: Table) -> Figure:
    """Draw the drafts and the output, each after the context."""
    return draw_iteration(table)


LEFT, COLUMN = 3, 11
"""Number of characters before the first step, and per step."""

ROW = 1.35
"""Distance between branches in lines."""


@experiment(seed=SEED)
def figure_3() -> Table:
    """SpecTr's Figure 3: draft selection, one token after another.

    The figure shows the iteration of Figure 2 as a tree.  Drafts with a common prefix share a
    node, and ×n is the number of drafts that share it.  Each step of Algorithm 3 ([sun2023]_)
    takes the next tokens of the drafts that agree with all earlier selections, and selects one
    of these tokens, or no token.  Then the target's own token ends the iteration.
    """
    return tree(chains()[1])


def tree(step: Step) -> Table:
    """List each prefix of a draft once, with the number of drafts that share it.

    Parameters
    ----------
    step : Step
        A step whose output is not cut off.
    """
    kinds: dict[Path, str] = {}
    drafts: dict[Path, int] = {}
    for path in step.drafts:
        for i, kind in enumerate(fates(path, step), start=1):
            kinds[path[:i]] = kind
            drafts[path[:i]] = drafts.get(path[:i], 0) + 1
    number = {path: node for node, path in enumerate(((), *kinds))}
    rows: list[tuple[Cell, ...]] = [
        (len(path), number[path], number[path[:-1]], path[-1], quoted(path[-1]), drafts[path], kind)
        for path, kind in kinds.items()
    ]
    known, own = step.output[: step.accepted], step.output[-1]
    rows.append((len(known) + 1, len(number), number[known], own, quoted(own), 0, TARGET))
    return Table(("step", "node", "parent", "token", "text", "drafts", "kind"), tuple(rows))


@figure_3.drawing
def draw_figure_3(table: Table) -> Figure:
    """Draw a column for each step, with the selected token in the first line."""
    leaves = len(set(table["node"].tolist()) - set(table["parent"].tolist()))
    figure, axes = text_page(lines=3 + leaves * ROW + 2.2)
    for step in dict.fromkeys(table["step"].tolist()):
        now = table.where(step=step)
        count = sum(now.where(kind=ACCEPTED)["drafts"]) + sum(now.where(kind=REJECTED)["drafts"])
        draw_label(axes, LEFT + (step - 1) * COLUMN, 0, f"step {step}")
        drafts = f"{count} draft{'' if count == 1 else 's'}"
        draw_label(axes, LEFT + (step - 1) * COLUMN, 1, drafts)
    draw_branches(axes, table, parent=0, row=0)
    draw_legend(axes, 0, 3.1 + leaves * ROW, table["kind"].tolist())
    return figure


def draw_branches(axes: Axes, table: Table, parent: int, row: int) -> int:
    """Draw the branches of a node in a row, and return their number of rows."""
    order = (ACCEPTED, TARGET, REJECTED, NOT_REACHED)
    first = row
    for step, node, _, token, _, drafts, kind in sorted(
        table.where(parent=parent).rows, key=lambda cells: order.index(str(cells[-1]))
    ):
        x, y = LEFT + (int(step) - 1) * COLUMN, 2.5 + row * ROW
        start, height = x - (1 if parent == 0 else COLUMN - 7), 2.5 + first * ROW
        style: dict[str, Any] = {"color": COLOUR_OF[str(kind)], "linewidth": 0.8}
        axes.hlines(y + 0.5, start, x - 0.4, **style)
        if row > first:
            axes.vlines(start, height + 0.5, y + 0.5, **style, zorder=1)
        draw_text(axes, x, y, str(kind), [int(token)])
        if int(drafts):
            draw_label(axes, x + 2, y, f"×{drafts}")
        row += draw_branches(axes, table, int(node), row)
    return max(row - first, 1)
