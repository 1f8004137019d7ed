"""The page of a report: one HTML file that needs nothing else."""

from __future__ import annotations

from importlib.resources import files
from typing import Any

from otm._core.optional import check_installed
from otm.gain.paired_means import Estimate
from otm.gain.plots import pictures
from otm.gain.summary import Summary

SHOWN = 12
"""Candidates of a recommendation on the page; all are in the JSON file."""


def page(summary: Summary) -> str:
    """Return a report as an HTML page."""
    check_page()
    from jinja2 import Environment, StrictUndefined

    template = (files("otm.gain") / "page.html").read_text(encoding="utf-8")
    environment = Environment(
        autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    environment.filters["estimate"] = _estimate
    trees = [row for row in summary.block_efficiency if row["K"] > 1]
    tables = {
        "acceptance": _tables(summary.acceptance, "k", ("rule",), "mean"),
        "differences": _tables(summary.differences, "k", ("of", "less"), "mean"),
        "chains": _tables(summary.block_efficiency, "gamma", ("rule", "K"), "chains"),
        "trees": _tables(trees, "gamma", ("rule", "K"), "tree"),
        "gains": _tables(summary.lossy, "k", ("setting",), "gain"),
        "costs": _tables(summary.lossy, "k", ("setting",), "total variation"),
    }
    return environment.from_string(template).render(
        summary=summary,
        settings=summary.settings,
        pictures=pictures(summary),
        main=summary.settings.draft_temperatures[0],
        tables=tables,
        shown=SHOWN,
    )


def _tables(
    rows: list[dict[str, Any]], count: str, names: tuple[str, ...], value: str
) -> list[dict[str, Any]]:
    """Tables, one for each draft temperature, with a column for each count: heading and rows."""
    by_temperature: dict[float, list[dict[str, Any]]] = {}
    for row in rows:
        by_temperature.setdefault(row["draft temperature"], []).append(row)
    letter = {"gamma": "γ"}.get(count, count)
    tables = []
    for temperature, its in by_temperature.items():
        counts = list(dict.fromkeys(row[count] for row in its))
        lines: dict[tuple[Any, ...], dict[Any, str]] = {}
        for row in its:
            line = lines.setdefault(tuple(row[name] for name in names), {})
            line[row[count]] = _estimate(row[value])
        tables.append(
            {
                "temperature": temperature,
                "heading": [*names, *(f"{letter} = {number}" for number in counts)],
                "names": len(names),
                "rows": [
                    [*map(str, key), *(line[number] for number in counts)]
                    for key, line in lines.items()
                ],
            }
        )
    return tables


def _estimate(estimate: Estimate) -> str:
    """Mean and half of the interval, or the mean alone where that is not known."""
    known = estimate.high < float("inf")
    return str(estimate) if known else f"{estimate.mean:.3f}"


def check_page() -> None:
    """Refuse to begin without jinja2 or matplotlib: no page could be written in the end."""
    check_installed("jinja2", "matplotlib")
