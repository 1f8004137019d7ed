"""The common options of the benchmarks: a quick trial, or a record to save."""

import argparse
import json
from pathlib import Path
from typing import Any

__all__ = ["command", "keep", "options_of"]


def command(description: str) -> argparse.ArgumentParser:
    """Command line with --quick and --save; more options can be added."""
    parser = argparse.ArgumentParser(description=description.splitlines()[0])
    parser.add_argument(
        "--quick", action="store_true", help="small sizes, only to see that it works"
    )
    parser.add_argument("--save", action="store_true", help="save the record in the repository")
    return parser


def options_of(parser: argparse.ArgumentParser) -> argparse.Namespace:
    """Read the command line; a quick trial is never saved."""
    options = parser.parse_args()
    if options.quick and options.save:
        parser.error("results of --quick are not saved: leave out --quick or --save")
    return options


def keep(record: Any, path: Path) -> None:
    """Write a record."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(record, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
