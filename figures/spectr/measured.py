"""SpecTr's Tables 1 to 3, measured with our models."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from figures.drawing.tables import table_figure
from figures.records import PAIRS
from figures.registry import of_papers
from figures.table import Cell, Table

if TYPE_CHECKING:
    from matplotlib.figure import Figure

QUANTITIES = ("block_efficiency", "speed")


# Table 1 of Sun et al. by algorithm, K and L: block efficiency and relative wall clock speed.
PAPER_1: dict[tuple[str, Any, Any], tuple[float, float]] = {
    ("baseline", "", ""): (1.0, 1.0),
    ("speculative", 1, 4): (2.4, 1.67),
    ("SpecTr", 8, 4): (3.1, 2.08),
    ("speculative", 1, 8): (2.9, 1.56),
    ("SpecTr", 8, 8): (4.0, 2.13),
}


@of_papers
def table_1(records: list[dict[str, Any]]) -> Table:
    """SpecTr's Table 1: block efficiency and wall clock speed of SpecTr and speculative decoding.

    The axes are the paper's; the models and the machine are ours: byte-level models on a CPU in
    place of PaLM 2.  The shipped target is so small that a draft costs nearly half of its time,
    and drafts do not pay.  The deepened target has the same distributions and 8 times the
    layers; the new layers do not change the output.  So drafts are about as cheap as in the
    papers.  Speed is the time of decoding without drafts over the time with drafts, measured in
    turns on the same prompts.  The 95 % intervals are over prompts.

    As in the paper, speed stays below block efficiency.  K = 8 does not pay here although its
    steps have more tokens, because a CPU needs more time for more rows (Table 2).
    """
    rows: list[tuple[Cell, ...]] = [
        (
            pair,
            row["draft"],
            *(row["algorithm"], row["K"], row["L"]),
            *(row[quantity][end] for quantity in QUANTITIES for end in ("mean", "low", "high")),
            *PAPER_1[row["algorithm"], row["K"], row["L"]],
        )
        for record in records
        for pair in PAIRS
        for row in record[pair]["speed"]
    ]
    ends = (f"{name}{end}" for name in QUANTITIES for end in ("", "_low", "_high"))
    of_paper = (f"paper, other models: {name}" for name in ("block efficiency", "speed"))
    return Table(("pair", "draft", "algorithm", "K", "L", *ends, *of_paper), tuple(rows))


@table_1.drawing
def draw_table_1(table: Table) -> Figure:
    """Draw the table, with one group of rows per pair of models."""
    rows, groups = [], []
    for index, cells in enumerate(table.records()):
        first = cells["algorithm"] == "baseline"
        if first and index:
            groups.append(index)
        numbers = [
            f"{cells[name]:.2f} ± {float(cells[f'{name}_high']) - float(cells[name]):.2f}"
            for name in QUANTITIES
        ]
        settings = [str(cells[name]) or "–" for name in ("K", "L")]
        pair = str(cells["pair"]) if first else ""
        rows.append([pair, str(cells["algorithm"]), *settings, *(["1", "1"] if first else numbers)])
    heading = ["pair", "algorithm", "$K$", "$L$", "block\nefficiency", "relative\nspeed"]
    return table_figure(heading, rows, left=2, groups=groups)


BATCHES = (1, 2, 4, 8)


class Printed(NamedTuple):
    """A relative latency as printed in a paper."""

    mean: float
    deviation: float


def latencies(
    records: list[dict[str, Any]], model: str, paper: Mapping[int, Sequence[Printed]]
) -> Table:
    """Make a table of one model's latencies in each pair, with those of a paper's models.

    Means and deviations are relative to the target's mean for the first shape; medians are relative
    to its median.

    Parameters
    ----------
    records : list of dict
        Records of `benchmarks.papers`.
    model : str
        Name of the model in the records.
    paper : mapping from int to sequence of Printed
        The paper's numbers for `BATCHES`, by length.
    """
    rows: list[tuple[Cell, ...]] = []
    for record in records:
        for pair in PAIRS:
            latency = record[pair]["latency"]
            # The unit is the target's median for the shortest length and one row.
            unit = latency[0]["median_ms"]
            for row in latency:
                if row["model"] == model:
                    cells = [row[name] for name in ("length", "batch", "mean", "deviation", "runs")]
                    printed = paper[row["length"]][BATCHES.index(row["batch"])]
                    medians = row["median_ms"] / unit, row["median_ms"]
                    rows.append((pair, model, *cells, *medians, *printed))
    names = ("pair", "model", "length", "batch", "mean", "deviation", "runs", "median", "median_ms")
    return Table((*names, "paper, other models", "paper, deviation"), tuple(rows))


def draw_latencies(table: Table) -> Figure:
    """Draw a line per pair and length and a column per batch, with medians in brackets."""
    rows: list[list[str]] = []
    groups = []
    for pair in PAIRS:
        of_pair = table.where(pair=pair)
        if rows:
            groups.append(len(rows))
        for length in dict.fromkeys(of_pair["length"].tolist()):
            line = of_pair.where(length=length)
            by_batch = dict(
                zip(
                    line["batch"].tolist(),
                    zip(line["mean"], line["deviation"], line["median"], strict=True),
                    strict=True,
                )
            )
            cells = ["{:.2f} ± {:.2f} ({:.2f})".format(*by_batch[batch]) for batch in BATCHES]
            rows.append([pair if length == of_pair["length"][0] else "", str(length), *cells])
    heading = ["target", "length", *(f"batch {batch}" for batch in BATCHES)]
    return table_figure(heading, rows, groups=groups)


PAPER_2 = {
    4: (Printed(1.00, 0.16), Printed(1.01, 0.15), Printed(1.06, 0.10), Printed(1.10, 0.16)),
    8: (Printed(1.01, 0.18), Printed(1.09, 0.25), Printed(1.10, 0.09), Printed(1.42, 0.4)),
}


@of_papers
def table_2(records: list[dict[str, Any]]) -> Table:
    """SpecTr's Table 2: latency of the target model for several tokens in several rows.

    The axes are the paper's; the models and the machine are ours.  Byte-level targets on one CPU
    thread, the shipped one of 4 layers and its deepened version of 32 layers, replace a
    transformer of 97M parameters on a GPU.  Cells are mean ± standard deviation of repeated
    runs, timed in turns, relative to the mean for 4 tokens in one row, as in the paper.  In
    brackets is the median relative to the median for 4 tokens in one row.  If the deviation is
    nearly as large as the mean, other load on the machine slowed single runs; then the median is
    more informative.

    The paper's latency hardly grows, as SpecTr assumes.  On a CPU it grows with the number of
    rows, because arithmetic takes most of the time there, not reading the weights.
    """
    return latencies(records, "target", PAPER_2)


@table_2.drawing
def draw_table_2(table: Table) -> Figure:
    """Draw the table."""
    return draw_latencies(table)


PAPER_3 = {
    4: (Printed(0.18, 0.02), Printed(0.19, 0.04), Printed(0.18, 0.09), Printed(0.20, 0.13)),
    8: (Printed(0.17, 0.04), Printed(0.19, 0.05), Printed(0.16, 0.02), Printed(0.18, 0.04)),
}


@of_papers
def table_3(records: list[dict[str, Any]]) -> Table:
    """SpecTr's Table 3: latency of the draft model for several tokens in several rows.

    The axes are the paper's; the models and the machine are ours.  The small byte-level draft
    model (17k parameters) on one CPU thread replaces a transformer of 6M parameters on a GPU.
    Cells are mean ± standard deviation of repeated runs, timed in turns, relative to the
    target's mean for 4 tokens in one row.  Brackets show the ratios of medians.  "shipped" and
    "deepened" name the target (Table 2).

    The paper's 0.16 to 0.20 lie between our two targets: relative to the deepened target, our
    draft model is cheaper.  Its times differ by less than a factor of 2 over all lengths and
    batches.
    """
    return latencies(records, "small", PAPER_3)


@table_3.drawing
def draw_table_3(table: Table) -> Figure:
    """Draw the table."""
    return draw_latencies(table)
