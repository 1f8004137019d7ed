"""The page of all figures: pictures, captions, data, and their origins."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path
from typing import Any

from figures.registry import FIGURES, load
from figures.table import AGREES, Cell, Table
from otm._core.files.paths import file_label, read_json
from otm._core.optional import require
from otm.errors import InvalidInputError

PAPERS = {
    "leviathan": "Leviathan, Kalman and Matias (ICML 2023)",
    "spectr": "SpecTr: Sun et al. (NeurIPS 2023)",
    "wagner": "Wagner et al. (EMNLP 2024)",
    "beyond": "Beyond the papers",
    "real": "Real language models",
}
MOST_ROWS = 60
"""Maximum number of table rows on the page; the CSV has all rows."""


def write_gallery(folder: Path) -> Path:
    """Write ``index.html`` into a folder, for the figures in its subfolder `drawn`.

    Parameters
    ----------
    folder : Path
        Folder of the page.

    Returns
    -------
    Path
        The page.

    Raises
    ------
    MissingDependencyError
        If jinja2 is not installed.
    InvalidInputError
        If a figure's CSV or JSON is damaged; the message names it.
    """
    require("jinja2")
    from jinja2 import Environment, StrictUndefined

    template = (files("figures") / "gallery.html").read_text(encoding="utf-8")
    environment = Environment(
        autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    entries = [_entry(name, folder / "drawn") for name in FIGURES]
    sections = {
        title: [entry for entry in entries if entry["name"].startswith(f"{paper}_")]
        for paper, title in PAPERS.items()
    }
    compared = [entry for entry in entries if entry["compared"]]
    page = folder / "index.html"
    text = environment.from_string(template).render(sections=sections, compared=compared)
    page.write_text(text, encoding="utf-8", newline="\n")
    return page


def _entry(name: str, folder: Path) -> dict[str, Any]:
    """Collect the page's entries about a figure."""
    figure = load(name)
    entry: dict[str, Any] = {
        "name": name,
        "title": figure.title,
        "paragraphs": figure.paragraphs,
        "kind": str(figure.kind),
        "command": figure.command,
        "drawn": (folder / f"{name}.json").is_file(),
        "compared": None,
    }
    if entry["drawn"]:
        table = Table.read(folder / f"{name}.csv")
        origin = folder / f"{name}.json"
        entry["source"] = read_json(origin)
        if not isinstance(entry["source"], dict):
            raise InvalidInputError(
                f"{file_label(origin)} does not say where the data come from; remove it, and draw "
                "the figure again"
            )
        entry["title"] = figure.caption(table)
        entry["heading"] = table.names
        entry["rows"] = [[_shown(cell) for cell in row] for row in table.rows[:MOST_ROWS]]
        entry["left_out"] = len(table.rows) - len(entry["rows"])
        if "verdict" in table.names:
            differing = [
                {column: _shown(cell) for column, cell in row.items()}
                for row in table.records()
                if row["verdict"] != AGREES
            ]
            entry["compared"] = {"all": len(table.rows), "differing": differing}
    return entry


def _shown(cell: Cell) -> str:
    return f"{cell:.6g}" if isinstance(cell, float) else str(cell)
