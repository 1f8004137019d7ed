"""SpecTr's Figure 3: draft selection, one token after another.

The iteration of Figure 2 as a tree, whose equal beginnings are one node: ×n says how many drafts
share it.  Each step of Algorithm 3 ([sun2023]_) takes the next tokens of the drafts that agree with
all that was selected before, and selects one of these tokens, or none; then the target's own token
ends the iteration.

References
----------
.. [sun2023] Sun et al., "SpecTr: Fast Speculative Decoding via Optimal Transport", NeurIPS 2023.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from otm._core.drawing import journal_style
from otm.decoding import Step
from otm.decoding.reading import Path
from otm.figures.drawing.traces import COLOUR_OF, draw_label, draw_legend, draw_text, text_page
from otm.figures.iterations import ACCEPTED, NOT_JUDGED, REJECTED, TARGET, fates, quoted
from otm.figures.registry import Kind
from otm.figures.spectr import figure_2
from otm.figures.table import Cell, Table

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

KIND = Kind.EXPERIMENT
SEED = figure_2.SEED
LEFT, COLUMN = 3, 11
"""Characters in front of the first step, and of each."""

ROW = 1.35
"""Lines from one branch to the next."""


def data() -> Table:
    """List the nodes of the tree of drafts, and the target's own token."""
    return tree(figure_2.iteration()[1])


def tree(step: Step) -> Table:
    """List each beginning of a draft once, with the number of drafts that share it.

    Parameters
    ----------
    step : Step
        With an output that is not cut off.
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


@journal_style()
def draw(table: Table) -> Figure:
    """Draw a column for each step; what is selected stands in the first line."""
    leaves = len(set(table["node"].tolist()) - set(table["parent"].tolist()))
    figure, axes = text_page(lines=3 + leaves * ROW + 2.2)
    for step in dict.fromkeys(table["step"].tolist()):
        now = table.where(step=step)
        judged = sum(sum(now.where(kind=kind)["drafts"].tolist()) for kind in (ACCEPTED, REJECTED))
        draw_label(axes, LEFT + (step - 1) * COLUMN, 0, f"step {step}")
        count = f"{judged} draft{'' if judged == 1 else 's'}"
        draw_label(axes, LEFT + (step - 1) * COLUMN, 1, count)
    draw_branches(axes, table, parent=0, row=0)
    draw_legend(axes, 0, 3.1 + leaves * ROW, table["kind"].tolist())
    return figure


def draw_branches(axes: Axes, table: Table, parent: int, row: int) -> int:
    """Draw what grows from a node, which stands in a row, and return how many rows it takes."""
    order = (ACCEPTED, TARGET, REJECTED, NOT_JUDGED)
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
