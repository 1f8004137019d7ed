"""Time of general solvers for OTM-k."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from figures.records import where
from figures.registry import measurement
from figures.table import Table
from otm._core.drawing import COLOURS, MARKERS, blank_figure

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@measurement(record="linear_program", command="python -m benchmarks.linear_program")
def solve_time(records: list[dict[str, Any]]) -> Table:
    """How long general solvers take for OTM-k, and how far they get in a minute.

    The same instances are solved in closed form, as SpecTr's linear program (HiGHS; POT's network
    simplex with a dense and a sparse cost matrix), and as a maximum flow (OR-Tools in integers;
    networkx in fractions).  A ring marks the largest instance that a method solves within the time
    limit (dashed) and 8 GiB; networkx has a limit on its arcs instead.  The closed form was not
    tried on larger instances.  On these logarithmic axes, a slope is an exponent of n.  The linear
    program has about n^(k+1) variables; the closed form needs a sort.
    """
    rows = []
    for content in records:
        largest = content["largest solved in time"]
        for result in content["results"]:
            method, k, n = (result[name] for name in ("method", "k", "n"))
            last = "yes" if largest[str(k)].get(method) == n else "no"
            seconds = result.get("seconds", "")
            limit = content["time limit"]
            outcome = result["outcome"]
            rows.append((method, k, n, seconds, outcome, last, limit, where(content)))
    names = ("method", "k", "n", "seconds", "outcome", "largest", "time_limit", "machine")
    return Table(names, tuple(rows))


@solve_time.drawing
def draw_solve_time(table: Table) -> Figure:
    """Draw one panel per k and one line per method."""
    drafts = list(dict.fromkeys(table["k"].tolist()))
    methods = list(dict.fromkeys(table["method"].tolist()))
    figure = blank_figure(height=3.1, wide=True)
    panels = figure.subplots(1, len(drafts), sharey=True, squeeze=False)[0]
    for axes, k in zip(panels, drafts, strict=True):
        for method, line in zip(methods, _LINES, strict=False):
            solved = table.where(k=k, method=method, outcome="solved")
            axes.plot(
                solved["n"],
                solved["seconds"].astype(float),
                **line,
                label=_LABELS.get(method, method),
            )
            last = solved.where(largest="yes")
            axes.plot(
                last["n"],
                last["seconds"].astype(float),
                marker="o",
                markersize=9,
                markerfacecolor="none",
                color=line["color"],
            )
        limit = float(table["time_limit"][0])
        axes.axhline(limit, color="#444444", linestyle="--", linewidth=0.8)
        axes.set(xscale="log", yscale="log", xlabel="vocabulary size $n$")
        axes.set_title(f"$k = {k}$", fontsize=9)
        axes.set_ylim(top=8 * limit)
        axes.text(1e3, 1.3 * limit, f"time limit, {limit:g} s", fontsize=8, va="bottom")
    panels[0].set_ylabel("processor time of a solve (s)")
    handles, labels = panels[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside right center")
    return figure


_LABELS = {
    "HiGHS": "HiGHS, linear program",
    "POT dense": "POT, dense",
    "POT sparse": "POT, sparse",
    "OR-Tools": "OR-Tools, max-flow",
    "max flow": "networkx, max-flow",
}

_LINES = [
    {"color": colour, "marker": marker, "markersize": 3.5, "linestyle": kind}
    for colour, marker, kind in zip(
        (COLOURS[4], *COLOURS[:4], "#777777"),
        (*MARKERS, "p"),
        ("-", "--", "-.", "-", ":", "--"),
        strict=True,
    )
]
"""Line style of each method, in the order of the record."""
