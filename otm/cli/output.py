"""Output of the commands: tables on a terminal, aligned text in a pipe, or JSON."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Sequence
from fractions import Fraction
from typing import Annotated, Any, TextIO

from typer import Option

from otm._core.arithmetic import Number
from otm._core.display.text import text_table
from otm._core.interval import Interval

JsonOption = Annotated[bool, Option("--json", help="Print JSON.")]
"""Option `--json` of every command that prints numbers."""

LONGEST_FRACTION = 1024
"""Largest number of bits of a printed numerator or denominator."""


def print_json(value: Any) -> None:
    """Print one JSON document, in ASCII."""
    print(json.dumps(value, indent=1, allow_nan=False))


def as_json(value: Number | Interval) -> float | list[float]:
    """Convert a number to a float, or an interval to a list of its two ends, for JSON."""
    if isinstance(value, Interval):
        return [float(value.lower), float(value.upper)]
    return float(value)


def exact_text(value: Number) -> str | None:
    """Return a fraction as text, or None for a float and for a very long fraction."""
    if not isinstance(value, Fraction):
        return None
    longest = max(value.numerator.bit_length(), value.denominator.bit_length())
    return str(value) if longest <= LONGEST_FRACTION else None


def print_headline(text: str) -> None:
    """Print the answer of a command as one line, in bold if the terminal shows colours."""
    print(f"\x1b[1m{text}\x1b[0m" if wants_colour(sys.stdout) else text)


def wants_colour(file: TextIO) -> bool:
    """Whether a file is a terminal, and neither ``NO_COLOR`` nor ``TERM=dumb`` is set."""
    plain = os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb"
    return not plain and file.isatty()


def print_table(columns: Sequence[str] | None, rows: Sequence[Sequence[str]]) -> None:
    """Print a table with optional column names: styled on a terminal, plain text in a pipe."""
    if sys.stdout.isatty():
        _print_rich_table(columns, rows)
        return
    print(text_table(columns, rows))


def _print_rich_table(columns: Sequence[str] | None, rows: Sequence[Sequence[str]]) -> None:
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.table import Table

    table = Table(box=SIMPLE_HEAD if columns else None, show_header=bool(columns))
    for index, heading in enumerate(columns or [""] * len(rows[0])):
        table.add_column(heading, style="bold" if index == 0 else None, overflow="fold")
    for row in rows:
        table.add_row(*row)
    # without markup, a [word] in brackets is printed as text
    Console(file=sys.stdout, markup=False, highlight=False, emoji=False).print(table)
