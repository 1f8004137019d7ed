"""The page of a report: one HTML file that needs nothing else."""

from __future__ import annotations

from importlib.resources import files
from importlib.util import find_spec
from typing import Any

from otm.decoding.planning.paired_means import Estimate
from otm.errors import MissingDependencyError
from otm.reporting.plots import pictures
from otm.reporting.summary import Summary

__all__ = ["check_page", "page"]

SHOWN = 12
"""Candidates of a recommendation on the page; all are in the JSON file."""


def page(summary: Summary) -> str:
    """Write a report as HTML.

    Raises
    ------
    MissingDependencyError
        If jinja2 or matplotlib is not installed.
    """
    check_page()
    from jinja2 import Environment, StrictUndefined

    template = (files("otm.reporting") / "page.html").read_text(encoding="utf-8")
    environment = Environment(
        autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    environment.filters["estimate"] = _estimate
    main = summary.settings.draft_temperatures[0]
    return environment.from_string(template).render(
        summary=summary,
        settings=summary.settings,
        pictures=pictures(summary),
        main=main,
        acceptance=_by_count(summary.acceptance, "k", ("draft temperature", "rule"), "mean"),
        differences=_by_count(
            summary.differences, "k", ("draft temperature", "of", "less"), "mean"
        ),
        chains=_by_count(summary.efficiency, "gamma", ("draft temperature", "rule", "K"), "chains"),
        trees=_by_count(
            [row for row in summary.efficiency if row["K"] > 1],
            "gamma",
            ("draft temperature", "rule", "K"),
            "tree",
        ),
        gains=_by_count(summary.lossy, "k", ("draft temperature", "knob"), "gain"),
        costs=_by_count(summary.lossy, "k", ("draft temperature", "knob"), "total variation"),
        shown=SHOWN,
    )


def _by_count(
    rows: list[dict[str, Any]], count: str, names: tuple[str, ...], value: str
) -> dict[str, Any]:
    """Table with a column for each count: its heading, and rows of texts."""
    counts = list(dict.fromkeys(row[count] for row in rows))
    lines: dict[tuple[Any, ...], dict[Any, str]] = {}
    for row in rows:
        line = lines.setdefault(tuple(row[name] for name in names), {})
        line[row[count]] = _estimate(row[value])
    letter = {"gamma": "γ"}.get(count, count)
    return {
        "heading": [*names, *(f"{letter} = {number}" for number in counts)],
        "names": len(names),
        "rows": [
            [*map(_text, key), *(line[number] for number in counts)] for key, line in lines.items()
        ],
    }


def _estimate(estimate: Estimate) -> str:
    """Mean and half of the interval, or the mean alone where that is not known."""
    known = estimate.high < float("inf")
    return str(estimate) if known else f"{estimate.mean:.3f}"


def _text(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)


def check_page() -> None:
    """Refuse to begin where a page could not be written in the end.

    Raises
    ------
    MissingDependencyError
        If jinja2 or matplotlib is not installed.
    """
    missing = [name for name in ("jinja2", "matplotlib") if find_spec(name) is None]
    if missing:
        raise MissingDependencyError(
            f"the page of a report needs {' and '.join(missing)}; install it with: "
            "pip install 'otm[report]'"
        )
