"""What the tables and figures of measurements share: which device, and how times are compared."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy.typing as npt

from otm.gain.paired_means import Estimate, ratio_of_totals

RECORDED = "profiles-*"
COMMAND = "python -m benchmarks.profiles --save"

BASELINE, EXACT, SIGMOID = METHODS = ("baseline", "exact", "sigmoid")


class Device(NamedTuple):
    """One record of the benchmark.

    Attributes
    ----------
    name : str
        As it is shown.
    kind : str
        "cuda" or "cpu".
    record : dict
        What was measured there.
    """

    name: str
    kind: str
    record: dict[str, Any]


def devices(records: Sequence[dict[str, Any]]) -> list[Device]:
    """Take the GPUs, or all devices if there is none: a CPU says nothing about them."""
    found = [Device(record["device"], record["kind"], record) for record in records]
    return [device for device in found if device.kind != "cpu"] or found


def device_note(name: str, kind: str) -> str:
    """Say below a table or above a figure on what it was measured."""
    return name if kind != "cpu" else f"{name}: says nothing about a GPU"


def totals(rows: Sequence[dict[str, Any]], **of: str) -> dict[str, Any]:
    """Take the one row of a record that has these entries."""
    (found,) = (row for row in rows if all(row[key] == value for key, value in of.items()))
    return found


def reduction(seconds: npt.ArrayLike, baseline: npt.ArrayLike, level: float = 0.95) -> Estimate:
    """Relative reduction of the total time in per cent, with an interval over texts.

    It is one minus a ratio of totals.

    Parameters
    ----------
    seconds, baseline : array-like [n]
        Of the same n texts, at least two.
    level : float, optional
        Probability that the interval covers the reduction, nearly.

    Examples
    --------
    >>> print(reduction([1.0, 2.0, 3.0], [2.0, 4.0, 6.0]))
    50.000 ± 0.000
    """
    ratio = ratio_of_totals(seconds, baseline, level=level)
    return Estimate(*(100 * (1 - end) for end in (ratio.mean, ratio.high, ratio.low)))


def percent(number: float, reach: float | None = None) -> str:
    """Write a reduction in per cent, with a minus sign of print."""
    text = f"{number:.1f}" if reach is None else f"{number:.1f} ± {reach:.1f}"
    return text.replace("-", "−")
