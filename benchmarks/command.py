"""What the command lines of the measurements share: a trial run, or a record that is kept."""

import argparse
import json
from pathlib import Path
from typing import Any

__all__ = ["command", "keep", "options_of"]


def command(description: str) -> argparse.ArgumentParser:
    """Command line with --quick and --save; more options can be added."""
    parser = argparse.ArgumentParser(description=description.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="small sizes, to see that it runs")
    parser.add_argument("--save", action="store_true", help="keep the record in the repository")
    return parser


def options_of(parser: argparse.ArgumentParser) -> argparse.Namespace:
    """Read the command line; a trial run is never kept."""
    options = parser.parse_args()
    if options.quick and options.save:
        parser.error("what is measured with --quick is not kept: leave out --quick or --save")
    return options


def keep(record: Any, path: Path) -> None:
    """Write a record."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(record, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
