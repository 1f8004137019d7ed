"""One walk of walk and keep: down a draft tree, and up to the kept node."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

import numpy as np

from figures.registry import experiment
from figures.table import Cell, Table
from otm._core.drawing import COLOURS, blank_figure
from otm._core.probs.sparse import SparseProbs
from otm.coupling.optimal.agreeing import AgreeingDrafts
from otm.decoding import DraftNode
from otm.decoding.reading import Path
from otm.decoding.verifiers.walk_and_keep import Walk

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

SEED = 8
"""A seed for which the node above the end of the path is kept."""

TOKENS = "abc"
DRAFT, TARGET = [0.5, 0.3, 0.2], [0.2, 0.3, 0.5]
DRAFTED = ("aac", "bab", "bba")
ROOT = "root"

DRAFTED_ONLY, ABOVE, NOT_KEPT, KEPT, FOLLOWS = "drafted", "above", "not kept", "kept", "follows"


@experiment(seed=SEED, models="two distributions of three tokens")
def one_walk() -> Table:
    """One walk of walk and keep: down a path without coins, then up to the node that is kept.

    There are three drafts of three tokens, from (0.5, 0.3, 0.2) for a target of (0.2, 0.3, 0.5)
    after every path.  The walk (blue) always goes to a draft token, until a path ends.  A bar is W,
    the probability that a walk reaches the node; all bars have the same height.  Its coloured parts
    are S, the probability that the accepted path includes the node.  Deeper nodes keep a part of S.
    From the end upwards, a coin with probability h keeps the node if no deeper node was kept: h is
    the mass to keep here over the mass that deeper nodes did not keep.  The next token is drawn
    from the target mass that the node's children do not use.
    """
    draft, target = (SparseProbs.from_dense(np.array(row)) for row in (DRAFT, TARGET))
    rng = np.random.default_rng(SEED)
    walk = [Walk.begin(_chains(draft), lambda path: target)]
    reached, below = [1.0], []
    numbers = np.array([0.0] * len(DRAFTED) + [1.0])
    while walk[-1].drafts:
        node, winner = walk[-1], AgreeingDrafts(draft, target, numbers)
        below.append(float(node.share - winner.residual_mass(node.share)[1].sum()) * reached[-1])
        walk.append(node.walk(rng.random))
        place = walk[-1].path[-1]
        reached.append(reached[-1] * float(winner.winner_probs[place]))
        numbers = winner.agreeing(place)
    below.append(0.0)
    drafted = Counter(path[:n] for path in DRAFTED for n in range(len(path) + 1))
    rows: dict[str, tuple[Cell, ...]] = {
        path or ROOT: (path or ROOT, count, DRAFTED_ONLY, 0.0, 0.0, 0.0, 0.0, 0.0)
        for path, count in sorted(drafted.items(), key=lambda item: (len(item[0]), item[0]))
    }
    fate = NOT_KEPT
    for node, passed, deeper in reversed(list(zip(walk, reached, below, strict=True))):
        name, chance = _text(node.path) or ROOT, float(node.keep_probability)
        coin = float(rng.random()) if fate == NOT_KEPT else 0.0
        if fate != NOT_KEPT:
            fate = ABOVE
        elif coin < chance:
            fate = KEPT
        numbers_of_node = passed, passed * float(node.share), deeper, chance, coin
        rows[name] = (name, drafted[_text(node.path)], fate, *numbers_of_node)
        if fate == KEPT:
            after = _text(node.path) + TOKENS[node.token_after(rng.random)]
            rows[FOLLOWS] = (after, 0, FOLLOWS, 0.0, 0.0, 0.0, 0.0, 0.0)
    return Table(("path", "drafts", "fate", "W", "S", "below", "h", "coin"), tuple(rows.values()))


def _chains(draft: SparseProbs) -> DraftNode:
    root = DraftNode()
    for text in DRAFTED:
        node = root
        for token in map(TOKENS.index, text):
            node.draft_probs = draft
            node.children.append(DraftNode((*node.path, token)))
            node = node.children[-1]
    return root


def _text(path: Path) -> str:
    return "".join(TOKENS[token] for token in path)


@one_walk.drawing
def draw_one_walk(table: Table) -> Figure:
    """Draw the tree, and below it the bar and the coin of each node of the walk."""
    figure = blank_figure(height=4.4, wide=True)
    upper, lower = figure.subplots(2, sharex=True, height_ratios=(5, 6))
    upper.set_xlim(-0.45, 3.75)
    _draw_tree(upper, table)
    _draw_bars(lower, table)
    for axes in (upper, lower):
        axes.set_axis_off()
    return figure


def _depth(path: str) -> int:
    return 0 if path == ROOT else len(path)


def _above(path: str) -> str:
    return path[:-1] or ROOT


def _draw_tree(axes: Axes, table: Table) -> None:
    """Draw the drafts from left to right, the walk in blue, and the next token."""
    rows: list[dict[str, Any]] = list(table.records())
    heights: dict[str, float] = {path: -float(i) for i, path in enumerate(DRAFTED)}
    for depth in (2, 1, 0):
        for row in rows:
            if _depth(row["path"]) == depth and row["fate"] != FOLLOWS:
                name = "" if row["path"] == ROOT else row["path"]
                of_ends = [
                    y for end, y in heights.items() if end in DRAFTED and end.startswith(name)
                ]
                heights[row["path"]] = float(np.mean(of_ends))
    for row in rows:
        path, depth = row["path"], _depth(row["path"])
        if row["fate"] == FOLLOWS:
            heights[path] = heights[_above(path)] - 0.8
        place = (depth, heights[path])
        walked = row["fate"] in (ABOVE, NOT_KEPT, KEPT)
        if path != ROOT:
            style = {
                "color": COLOURS[0] if walked else COLOURS[2] if not row["drafts"] else "#999999",
                "linewidth": 2.2 if walked else 1.0,
                "linestyle": ":" if row["fate"] == FOLLOWS else "-",
                "shrinkA": 9,
                "shrinkB": 9,
                "arrowstyle": "-|>" if walked else "-",
            }
            axes.annotate("", place, (depth - 1, heights[_above(path)]), arrowprops=style)
        kept = row["fate"] in (KEPT, FOLLOWS)
        colour = COLOURS[2] if kept else COLOURS[0] if walked else "#999999"
        box = {
            "boxstyle": "circle" if path != ROOT else "round",
            "facecolor": COLOURS[2] if row["fate"] == KEPT else "white",
            "edgecolor": colour,
        }
        text = path if path == ROOT else path[-1]
        ink = "white" if row["fate"] == KEPT else colour
        axes.text(*place, text, ha="center", va="center", color=ink, bbox=box)
    (last,) = (row for row in rows if row["fate"] == FOLLOWS)
    axes.annotate(
        f"{' '.join(last['path'][:-1])} is kept,\n{last['path'][-1]} follows",
        (_depth(last["path"]) + 0.12, heights[last["path"]]), color=COLOURS[2], va="center",
    )  # fmt: skip
    axes.text(-0.42, 0.35, "1. walk: always to a drafted token", color=COLOURS[0], va="center")
    axes.set_ylim(min(heights.values()) - 0.5, 0.7)


PARTS = (
    ("kept below", "#A9CDE5"),
    ("to be kept here", COLOURS[2]),
    ("goes on upwards", "white"),
)
"""Parts of W, from the bottom of a bar upwards."""


def _draw_bars(axes: Axes, table: Table) -> None:
    """Draw W as a bar of height one at each node of the walk, and coins from right to left."""
    every: list[dict[str, Any]] = list(table.records())
    rows = [row for row in every if row["fate"] in (ABOVE, NOT_KEPT, KEPT)]
    for row in rows:
        x, whole, share, below = _depth(row["path"]), row["W"], row["S"], row["below"]
        parts = [below / whole, (share - below) / whole, 1 - share / whole]
        foot = 0.0
        for height, (label, colour) in zip(parts, PARTS, strict=True):
            axes.bar(
                x, height, 0.3, foot, color=colour, edgecolor="#444444", linewidth=0.6,
                label=label if not x else None,
            )  # fmt: skip
            foot += height
        axes.text(x, 1.05, f"$W = {whole:.3f}$", ha="center", va="bottom")
        axes.text(x + 0.18, share / whole, f"$S = {share:.3f}$", ha="left", va="center")
        said = {
            NOT_KEPT: f"$h = {row['h']:.2f}$\ncoin {row['coin']:.2f}: not kept",
            KEPT: f"$h = {row['h']:.2f}$\ncoin {row['coin']:.2f}: kept",
            ABOVE: f"$h = {row['h']:.2f}$\nnot asked",
        }[row["fate"]]
        colour = COLOURS[2] if row["fate"] == KEPT else "#444444"
        axes.text(x, -0.1, said, ha="center", va="top", color=colour)
        if row["fate"] == NOT_KEPT:
            style = {"arrowstyle": "-|>", "color": COLOURS[1], "linewidth": 1.6}
            axes.annotate("", (x - 0.68, -0.28), (x - 0.32, -0.28), arrowprops=style)
    axes.text(
        -0.42, 1.42, "2. keep: from the end upwards, the first node whose coin is below $h$",
        color=COLOURS[1], va="center",
    )  # fmt: skip
    axes.set_ylim(-0.5, 1.5)
    handles, labels = axes.get_legend_handles_labels()
    axes.legend(
        handles[::-1], labels[::-1], loc="upper left", bbox_to_anchor=(0.87, 1.02), handlelength=1,
        title="$W$, in which $h$ is green\nof green and white", title_fontsize=8, alignment="left",
    )  # fmt: skip
