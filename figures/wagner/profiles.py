"""Common parts of the tables and figures of measurements: choice of device, comparison of times."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy.typing as npt

from figures.registry import measurement, of_cpus
from figures.table import Cell, Table
from otm._core.means import Estimate, ratio_of_totals

measured = measurement(
    record="profiles-*",
    command="python -m benchmarks.profiles --save",
    models="logits and models of ours",
)
"""Decorator of the figures that show these measurements."""
BASELINE, EXACT, SIGMOID = METHODS = ("baseline", "exact", "sigmoid")


class Device(NamedTuple):
    """A record of the benchmark: the device's name, its kind ("cuda" or "cpu"), and the times."""

    name: str
    kind: str
    record: dict[str, Any]


def devices(records: Sequence[dict[str, Any]]) -> list[Device]:
    """Return the GPUs, or all devices without a GPU, because a CPU says nothing about GPUs."""
    every = [Device(record["device"], record["kind"], record) for record in records]
    return [device for device in every if device.kind != "cpu"] or every


def compared(
    rows: Sequence[dict[str, Any]], key: str
) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
    """Yield rows of a record by model or pair and by method, each with its baseline."""
    place = {(row[key], row["method"]): row for row in rows}
    for name in dict.fromkeys(row[key] for row in rows):
        for method in METHODS:
            yield place[name, method], place[name, BASELINE]


def reduction(seconds: npt.ArrayLike, baseline: npt.ArrayLike, level: float = 0.95) -> Estimate:
    """Return the relative reduction of the total time in per cent, with an interval over texts.

    It is one minus the ratio of the totals for the same texts; at least two texts are needed.

    Examples
    --------
    >>> print(reduction([1.0, 2.0, 3.0], [2.0, 4.0, 6.0]))
    50.000 ± 0.000
    """
    ratio = ratio_of_totals(seconds, baseline, level=level)
    return Estimate(*(100 * (1 - end) for end in (ratio.mean, ratio.high, ratio.low)))


def method_rows(
    table: Table, cells: Callable[[dict[str, Cell], bool], list[str]]
) -> tuple[list[list[str]], list[int]]:
    """Format the rows of a table, and return where groups of methods begin.

    `cells` returns the texts of a row; its second argument is whether the row begins a group.
    """
    rows, groups = [], []
    for index, row in enumerate(table.records()):
        first = row["method"] == BASELINE
        if first and index:
            groups.append(index)
        rows.append(cells(row, first))
    return rows, groups


Written = Callable[[dict[str, Cell]], str]


def beside_baseline(table: Table) -> tuple[str, Written]:
    """Return the heading and the format function of the column that compares with the baseline.

    On GPUs the column is the reduction in per cent, as in the paper.  On CPUs, plain versions run,
    which do not aim to save time; there the column is the time relative to the baseline.
    """
    if of_cpus(table):
        return "time,\nbaseline = 1", lambda row: _beside(row, _relative, digits=2)
    return "reduction,\n%", lambda row: _beside(row, float, digits=1)


def _relative(reduction: Any) -> float:
    return 1 - float(reduction) / 100


def _beside(row: dict[str, Cell], unit: Callable[[Any], float], digits: int) -> str:
    """Format the comparison of a row, with half of its interval if there is one."""
    if row["method"] == BASELINE:
        return ""
    mean = unit(row["reduction"])
    text = f"{mean:.{digits}f}"
    if "high" in row:
        text += f" ± {abs(unit(row['high']) - mean):.{digits}f}"
    return text.replace("-", "−")
