"""Draw the results of `benchmarks.kernels` on GPUs as pictures in docs/pictures/.

    python -m benchmarks.pictures

Each benchmarks/results/kernels-<device>.json of a GPU gives two PNG files.  The first shows, for
one chain, the time of each contestant and the time to copy the bytes that must be read.  The second
shows accepted drafts and time for several chains.  Without such results the program draws no
picture, and older pictures stay.  Run `python -m benchmarks.tables` afterwards to put the pictures
on the page.
"""

from typing import TYPE_CHECKING, Any

from benchmarks import kernel_tables
from benchmarks.kernel_tables import gpu_records, panels
from figures.drawing.style import save_pictures
from otm._core.drawing import COLOURS, MARKERS, blank_figure, journal_style

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["draw"]


def draw() -> list[str]:
    """Draw the pictures, and return their file names."""
    files = []
    for name, found in gpu_records().items():
        with journal_style():
            for suffix, figure in (("chain", one_chain(found)), ("chains", several_chains(found))):
                if figure is None:
                    continue
                kernel_tables.PICTURES.mkdir(parents=True, exist_ok=True)
                drawn = save_pictures(figure, kernel_tables.PICTURES, f"{name}-{suffix}", ["png"])
                files += [file.name for file in drawn]
    return files


def one_chain(found: Any) -> "Figure | None":
    """Draw each contestant's time, with one panel per tier and type; dotted lines are copies."""
    shown = {
        title: [row for row in rows if row.get("kernel s")]
        for title, rows in panels(found).items()
        if "K" not in rows[0]
    }
    shown = {title: rows for title, rows in shown.items() if rows}
    if not shown:
        return None
    names = {
        title: list(dict.fromkeys(row["contestant"] for row in rows))
        for title, rows in shown.items()
    }
    batches = sorted({row["B"] for rows in shown.values() for row in rows})
    heights = [len(found) + 1.5 for found in names.values()]
    figure = blank_figure(0.2 * sum(heights) + 0.9, wide=True)
    grid = figure.subplots(len(shown), sharex=True, squeeze=False, height_ratios=heights)
    for axes, (title, rows) in zip(grid[:, 0], shown.items(), strict=True):
        for batch, colour, marker in zip(batches, COLOURS, MARKERS, strict=False):
            mine = [row for row in rows if row["B"] == batch]
            if not mine:
                continue
            axes.plot(
                [row["kernel s"] * 1e6 for row in mine],
                [names[title].index(row["contestant"]) for row in mine],
                linestyle="none",
                marker=marker,
                markersize=5,
                color=colour,
                markerfacecolor="none",
            )
            axes.axvline(
                mine[0]["floor bytes"] / found["copy bytes/s"] * 1e6, color=colour, linestyle=":"
            )
        axes.set_xscale("log")
        axes.set_yticks(range(len(names[title])), names[title])
        axes.set_ylim(len(names[title]) - 0.5, -0.5)
        axes.set_title(f"{title}, V = {rows[0]['V']:,}", fontsize=9, loc="left")
    grid[-1, 0].set_xlabel("time of a call in the replay of a CUDA graph [µs]; dotted: a copy")
    sign(figure, found, batches)
    return figure


def several_chains(found: Any) -> "Figure | None":
    """Draw accepted drafts against time, with a line per verifier and a point per K.

    A single K needs no picture.
    """
    rows = [row for rows in panels(found).values() for row in rows if "times one chain" in row]
    if len({row["K"] for row in rows}) < 2:
        return None
    largest = max(row["B"] for row in rows)
    rows = [row for row in rows if row["B"] == largest]
    figure = blank_figure(3.2, wide=True)
    axes = figure.subplots()
    names = dict.fromkeys(row["contestant"] for row in rows)
    for index, name in enumerate(names):
        mine = sorted((row for row in rows if row["contestant"] == name), key=lambda row: row["K"])
        times, accepted = ([row[x] for row in mine] for x in ("times one chain", "accepted"))
        colour, marker = COLOURS[index % len(COLOURS)], MARKERS[index % len(MARKERS)]
        axes.plot(times, accepted, color=colour, marker=marker, markersize=4.5, label=name)
        if len(set(times)) > 1:
            for time, value, row in zip(times, accepted, mine, strict=True):
                axes.annotate(
                    f"{row['K']}",
                    (time, value),
                    xytext=(4, -9),
                    textcoords="offset points",
                    fontsize=8,
                )
    axes.set_xscale("log")
    axes.xaxis.set_major_formatter("{x:g}")
    axes.xaxis.set_minor_formatter("{x:g}")
    axes.set_xlabel("time, as a multiple of the verification of one chain")
    axes.set_ylabel("accepted drafts")
    shape = "B = {B}, γ = {gamma}, V = {V:,}".format(**rows[0])
    axes.set_title(f"K chains (K next to the points), {shape}", fontsize=9, loc="left")
    axes.legend()
    sign(figure, found)
    return figure


def sign(figure: "Figure", found: Any, batches: list[int] | None = None) -> None:
    """Write the machine's name under the picture, and a legend of the markers above it."""
    from matplotlib.lines import Line2D

    packages = [f"{x} {found['versions'].get(x, 'absent')}" for x in ("torch", "triton", "cuda")]
    figure.supxlabel(", ".join([found["device"], *packages, found["date"]]), fontsize=7)
    if batches:
        handles = [
            Line2D([], [], linestyle="none", marker=marker, color=colour, markerfacecolor="none")
            for _, colour, marker in zip(batches, COLOURS, MARKERS, strict=False)
        ]
        labels = [f"B = {batch}" for batch in batches]
        figure.legend(handles, labels, loc="outside upper right", ncols=len(batches))


if __name__ == "__main__":
    print(", ".join(draw()) or "no GPU results, so no pictures")
