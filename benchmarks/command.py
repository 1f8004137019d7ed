"""Common command-line options of the benchmarks: a quick trial, or a saved record."""

import argparse
import json
from pathlib import Path
from typing import Any

__all__ = ["command", "keep", "options_of"]


def command(description: str) -> argparse.ArgumentParser:
    """Return a parser with --quick and --save; the caller may add options."""
    parser = argparse.ArgumentParser(description=description.splitlines()[0])
    parser.add_argument(
        "--quick", action="store_true", help="small sizes, only to check that the benchmark runs"
    )
    parser.add_argument("--save", action="store_true", help="save the record in the repository")
    return parser


def options_of(parser: argparse.ArgumentParser) -> argparse.Namespace:
    """Parse the command line; reject --quick together with --save."""
    options = parser.parse_args()
    if options.quick and options.save:
        parser.error("results of --quick cannot be saved; leave out --quick or --save")
    return options


def keep(record: Any, path: Path) -> None:
    """Write a record as JSON, and print its path."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(record, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
