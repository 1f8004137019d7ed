"""Tables of relative latency by length and batch: SpecTr's Tables 2 and 3."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from otm.figures.drawing.tables import table_figure
from otm.figures.recorded_pairs import PAIRS
from otm.figures.table import Cell, Table

if TYPE_CHECKING:
    from matplotlib.figure import Figure

BATCHES = (1, 2, 4, 8)


class Printed(NamedTuple):
    """A relative latency as a paper has it."""

    mean: float
    deviation: float


def latencies(
    records: list[dict[str, Any]], model: str, paper: Mapping[int, Sequence[Printed]]
) -> Table:
    """Lay out the latencies of one model of each pair, beside those of a paper's models.

    Means and deviations are relative to the mean of the target for the first shape, medians to its
    median.

    Parameters
    ----------
    records : list of dict
        From `benchmarks.papers`.
    model : str
        Name of the model in the records.
    paper : mapping from int to sequence of Printed
        For each length the paper's numbers for `BATCHES`.
    """
    rows: list[tuple[Cell, ...]] = []
    for record in records:
        for pair in PAIRS:
            found = record[pair]["latency"]
            unit = found[0]["median_ms"]  # of the target, the shortest length and one row
            for row in found:
                if row["model"] == model:
                    cells = [row[name] for name in ("length", "batch", "mean", "deviation", "runs")]
                    printed = paper[row["length"]][BATCHES.index(row["batch"])]
                    medians = row["median_ms"] / unit, row["median_ms"]
                    rows.append((pair, model, *cells, *medians, *printed))
    names = ("pair", "model", "length", "batch", "mean", "deviation", "runs", "median", "median_ms")
    return Table((*names, "paper, other models", "paper, deviation"), tuple(rows))


def draw_latencies(table: Table) -> Figure:
    """Draw a line for each pair and length, a column for each batch; medians are in brackets."""
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
