"""Wagner et al.'s Tables 2 and 7: the sigmoid's scales."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from figures.drawing.tables import table_figure
from figures.registry import experiment
from figures.shipped_pairs import DRAFTS, SIZES
from figures.table import Cell, Table
from figures.wagner.outputs import (
    SOFTMAX,
    Array,
    Outputs,
    distance,
    logits_at_contexts,
    outputs,
    weights,
)
from otm._core.drawing import COLOURS, MARKERS, blank_figure
from otm._core.means import clustered_mean

if TYPE_CHECKING:
    from matplotlib.figure import Figure

POWERS = (1, 2, 3, 4, 5)
"""Powers of ten of the scales; the paper has 1, 3, 4 and 5."""

SINGLE, HALF = "float32", "float16"
ALL_ACCEPTED = "all accepted"
"""Name of the limit of large scales, used in place of a scale."""

FINITE, NOT_FINITE = "finite", "not finite"
"""States of a row: whether its weights are finite."""

QUANTITIES = ("acceptance", "TV", "TV after")


def scales(names: Sequence[str], prompts: int, tokens: int, seed: int) -> Table:
    """Compute means of acceptance and distances over contexts, with intervals over prompts.

    Parameters
    ----------
    names : sequence of str
        Names of draft models of this package.
    prompts, tokens, seed : int
        Arguments of `logits_at_contexts`.

    Returns
    -------
    Table
        One row per pair, type and scale, without numbers if weights are not finite.
    """
    logits, clusters = logits_at_contexts(("target", *names), prompts, tokens, seed)
    exact = weights(logits["target"], SOFTMAX, "float64")
    rows: list[tuple[Cell, ...]] = []
    tried: tuple[float | str, ...] = (SOFTMAX, *(10.0**power for power in POWERS))
    for name in names:
        drawn = weights(logits[name], SOFTMAX, "float64")
        for dtype in (SINGLE, HALF):
            for scale in tried:
                used = (weights(logits[model], scale, dtype) for model in ("target", name))
                numbers = _means(outputs(drawn, *used), exact, clusters)
                rows.append((name, dtype, name_of(scale), *numbers))
        certain = np.ones(len(exact))
        limit = Outputs(certain, certain, drawn, np.full_like(exact, 1 / exact.shape[1]))
        rows.append((name, SINGLE, ALL_ACCEPTED, *_means(limit, exact, clusters)))
    names_of = (f"{quantity}{end}" for quantity in QUANTITIES for end in ("", " low", " high"))
    return Table(("draft", "type", "scale", "state", *names_of), tuple(rows))


def _means(made: Outputs, exact: Array, clusters: npt.NDArray[np.int64]) -> list[Cell]:
    """Return the state, and mean and interval of each quantity."""
    if not (np.isfinite(made.token).all() and np.isfinite(made.after).all()):
        return [NOT_FINITE, *[""] * (3 * len(QUANTITIES))]
    series = (made.accepted, distance(made.token, exact), distance(made.after, exact))
    return [FINITE, *(float(x) for values in series for x in clustered_mean(values, clusters))]


def name_of(scale: float | str) -> str:
    """Return the name of a scale in the table.

    Examples
    --------
    >>> name_of(1000.0), name_of(SOFTMAX)
    ('±10^3', 'softmax')
    """
    return scale if isinstance(scale, str) else f"±10^{round(math.log10(scale))}"


def shown_scale(name: str) -> str:
    """Return the typeset name of a scale."""
    return f"$\\pm 10^{name[-1]}$" if name.startswith("±") else name


DRAFT = "small"
PROMPTS, TOKENS = 64, 64
SEED = 0


@experiment(seed=SEED)
def table_2(prompts: int = PROMPTS, tokens: int = TOKENS) -> Table:
    """Wagner et al.'s Table 2: the sigmoid's scales, and how far the output is from the target.

    The paper reports word error rates and ROUGE, which need its data and models.  This table
    shows the distance (TV) of a token's distribution from the target's, which is 0 for a
    lossless method.  The models are our target of 820k parameters and its draft of 17k, at
    contexts of texts that the target wrote.  For all scales, nearly every draft is accepted, so
    the output in place of a draft follows the draft model.  The token after the drafts, which
    the paper does not specify and our variant draws ∝ σ, is nearly uniform.  In float16, 10^5 is
    infinite, and infinity over infinity gives no distribution.  This may explain why the paper's
    Whisper, with logits in half precision, fails at ±10^5.  Cells are means over contexts; ± is
    half of the 95 % interval over prompts.
    """
    return scales((DRAFT,), prompts, tokens, SEED)


@table_2.drawing
def draw_table_2(table: Table) -> Figure:
    """Draw a table grouped by type, with the row without numbers highlighted."""
    rows, groups, marked = [], [], []
    for index, row in enumerate(table.records()):
        name = str(row["scale"])
        if row["state"] == NOT_FINITE:
            marked.append(index)
            numbers = ["", "not finite (∞ / ∞)", ""]
        else:
            mean, high = float(row["TV"]), float(row["TV high"])
            numbers = [
                f"{float(row['acceptance']):.4f}",
                f"{mean:.4f} ± {high - mean:.4f}",
                f"{float(row['TV after']):.4f}",
            ]
        if name in {"softmax", ALL_ACCEPTED}:
            groups.append(index)
        kind = {"softmax": str(row["type"]), ALL_ACCEPTED: "limit"}.get(name, "")
        rows.append([kind, shown_scale(name), *numbers])
    return table_figure(
        [
            "type",
            "scales $\\alpha, \\beta$",
            "draft\naccepted",
            "TV in place\nof a draft",
            "TV after\nall drafts",
        ],
        rows,
        left=2,
        groups=[index for index in groups if index],
        marked=marked,
    )


@experiment(seed=SEED)
def table_7(prompts: int = PROMPTS, tokens: int = TOKENS) -> Table:
    """Wagner et al.'s Table 7: the sigmoid's scales for every pair of models.

    The same as Table 2, with our three draft models (17k, 49k and 164k parameters) in place of
    the paper's pairs.  Softmax is the method that follows the target.  The distance (TV) of the
    output in place of a draft hardly depends on the scales: it nearly equals the distance of the
    draft model (dashed), which is smaller for better draft models.  Open marks are float16,
    where ±10^5 gives no distribution.  Points are means over contexts with 95 % intervals over
    prompts.
    """
    return scales(DRAFTS, prompts, tokens, SEED)


@table_7.drawing
def draw_table_7(table: Table) -> Figure:
    """Draw acceptance and distance by scale, with a colour and marker per draft model."""
    from matplotlib.lines import Line2D

    figure = blank_figure(height=4.3)
    upper, lower = figure.subplots(2, sharex=True)
    names = [SOFTMAX, *(name_of(10.0**power) for power in POWERS)]
    for index, (draft, colour, marker) in enumerate(zip(DRAFTS, COLOURS, MARKERS, strict=False)):
        for dtype in (SINGLE, HALF):
            part = table.where(draft=draft, type=dtype, state=FINITE)
            shift = 0.22 * (index - 1) + (0.09 if dtype == HALF else 0)
            places = [
                (names.index(str(name)), row)
                for row, name in enumerate(part["scale"])
                if name in names
            ]
            for axes, quantity in ((upper, "acceptance"), (lower, "TV")):
                mean, low, high = (part[f"{quantity}{end}"] for end in ("", " low", " high"))
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
    for name in sorted(set(table.where(state=NOT_FINITE)["scale"].tolist())):
        lower.annotate(
            "float16:\nnot finite",
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
