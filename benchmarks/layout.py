"""Reads results, and formats them as Markdown tables."""

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

__all__ = ["RESULTS", "markdown", "origin", "record"]

RESULTS = Path(__file__).parent / "results"


def record(name: str) -> Any:
    return json.loads((RESULTS / f"{name}.json").read_text(encoding="utf-8"))


def markdown(heading: Sequence[str], rows: Iterable[Sequence[str]], after: str = "") -> str:
    """Return a Markdown table whose first column is text and whose other columns are numbers."""
    lines = [heading, ["---", *["---:"] * (len(heading) - 1)], *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines) + f"\n{after}"


def origin(found: Any, command: str) -> str:
    """Return a line that names the command, machine and date of a record."""
    versions = found.get("versions", {})
    packages = [f"{name} {version}" for name, version in versions.items() if version]
    where = ", ".join([f"{found['cores']} cores of {found['cpu']}", *packages])
    return f"\n`python -m benchmarks.{command}`; {where}.\n"
