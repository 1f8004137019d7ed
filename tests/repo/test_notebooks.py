"""The examples as notebooks: their cells run, and results show as tables and pictures."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

nbformat = pytest.importorskip("nbformat")
nbclient = pytest.importorskip("nbclient")
for package in ("ipykernel", "matplotlib", "torch", "transformers"):
    pytest.importorskip(package)

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "examples"
SHOWN = ["table", "steps", "gain", "sample", "recordings[0]", "steps.plot()"]
"""Results of the example, shown as a notebook shows the last value of a cell."""


def cells_of(script: Path) -> list[Any]:
    """Split a script as sphinx-gallery does: a comment behind ``# %%`` is text, the rest code."""
    first, *blocks = re.split(r"^# %%\n", script.read_text(encoding="utf-8"), flags=re.MULTILINE)
    cells = [nbformat.v4.new_code_cell(first)]
    for block in blocks:
        text = re.match(r"(?:#.*\n)*", block)
        assert text is not None
        cells.append(nbformat.v4.new_markdown_cell(re.sub(r"(?m)^# ?", "", text[0])))
        cells.append(nbformat.v4.new_code_cell(block[text.end() :]))
    return cells


def outputs(cell: Any, kind: str) -> list[str]:
    """Texts of one kind that a cell shows."""
    return [output["data"][kind] for output in cell.outputs if kind in output.get("data", {})]


def test_the_researchers_day_as_a_notebook() -> None:
    """Catches a cell that fails, a plot that is drawn twice or not at all, a flood of numbers."""
    code = cells_of(FOLDER / "two_models_research.py")
    shown = [nbformat.v4.new_code_cell(result) for result in SHOWN]
    notebook = nbformat.v4.new_notebook(cells=[*code, *shown])
    nbclient.NotebookClient(notebook, timeout=120, resources={"metadata": {"path": ROOT}}).execute()
    pictures = [sum(len(outputs(cell, "image/png")) for cell in code if cell.cell_type == "code")]
    assert pictures == [2]
    for cell in notebook.cells:
        for text in outputs(cell, "text/plain") if cell.cell_type == "code" else []:
            assert len(text) <= 2000
    tables = [len(outputs(cell, "text/html")) for cell in shown]
    assert tables == [1, 1, 0, 1, 0, 0]
    assert len(outputs(shown[-1], "image/png")) == 1
