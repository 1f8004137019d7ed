"""Leviathan et al.'s Table 4, measured: expected and measured speed over decoding without drafts.

The paper's EXP and EMP for our models and machine (Table 2).  EXP is Theorem 3.8 with the α and the
cost coefficient c that were measured; the intervals of EMP are 95 % over prompts.

Theorem 3.8 takes it that the target judges γ + 1 tokens in the time of one.  On a CPU that takes up
to 1.6 times as long; with the deepened target EXP is too large by more than a third, with the
shipped one it is within a fifth.  The lower panel charges the measured time of judging in place of
1: then both are within a fifth.  What is left has to do with the time outside of the models, which
decoding without drafts has too, and with acceptance that is not independent from one token to the
next.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from otm._core.drawing import COLOURS, MARKERS, blank_figure, journal_style
from otm.decoding.analysis import expected_tokens, walltime_improvement
from otm.figures import recorded_pairs
from otm.figures.recorded_pairs import PAIRS
from otm.figures.registry import Kind
from otm.figures.table import Cell, Table

if TYPE_CHECKING:
    from matplotlib.figure import Figure

COMMAND, RECORDED = recorded_pairs.COMMAND, recorded_pairs.RECORDED

KIND = Kind.MEASUREMENT


def data(records: list[dict[str, Any]]) -> Table:
    """Predict the speed of each setup that `benchmarks.papers` recorded."""
    rows: list[tuple[Cell, ...]] = []
    for record in records:
        for pair in PAIRS:
            for row in record[pair]["chains"]:
                alpha, gamma, cost = row["alpha"]["mean"], row["gamma"], row["c"]
                step = gamma * cost + row["judging"]
                rows.append(
                    (
                        *(pair, row["draft"], row["temperature"], gamma, alpha, cost),
                        row["judging"],
                        float(walltime_improvement(alpha, gamma, cost)),
                        float(expected_tokens(alpha, gamma)) / step,
                        *(row["speed"][end] for end in ("mean", "low", "high")),
                    )
                )
    names = ("target", "draft", "temperature", "gamma", "alpha", "c", "judging")
    of_speed = ("EXP", "EXP with judging", "EMP", "EMP_low", "EMP_high")
    return Table((*names, *of_speed), tuple(rows))


@journal_style()
def draw(table: Table) -> Figure:
    """Draw measured over expected speed: above, Theorem 3.8; below, with the cost of judging."""
    figure = blank_figure(height=5.4)
    panels = figure.subplots(2, sharex=True, sharey=True)
    for axes, expected in zip(panels, ("EXP", "EXP with judging"), strict=True):
        axes.axline((0, 0), slope=1, color="#444444", linewidth=0.8, label="equal")
        for pair, filled in zip(PAIRS, ("none", "full"), strict=True):
            looks = zip(dict.fromkeys(table["draft"].tolist()), COLOURS, MARKERS, strict=False)
            for draft, colour, marker in looks:
                points = table.where(target=pair, draft=draft)
                mean = points["EMP"]
                axes.errorbar(
                    points[expected],
                    mean,
                    [mean - points["EMP_low"], points["EMP_high"] - mean],
                    linestyle="none",
                    marker=marker,
                    markersize=3.5,
                    fillstyle=filled,
                    color=colour,
                    elinewidth=0.6,
                    label=f"{pair}, {draft}",
                )
        axes.set(ylabel="measured speed, EMP", xlim=(0, None), ylim=(0, None))
    panels[0].set_xlabel("Theorem 3.8, EXP")
    panels[1].set_xlabel("expected with the measured cost of judging")
    panels[0].tick_params(labelbottom=True)
    handles, labels = panels[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=2)
    return figure
