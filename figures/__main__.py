"""Command line: ``python -m figures [NAME ...] [--full] [--jobs N] [--list] [--json]``."""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NoReturn

from figures.registry import FIGURES
from figures.run import Done, draw_all
from otm.cli import status_of
from otm.errors import InvalidInputError

PROGRAM = "python -m figures"


def main(arguments: Sequence[str] | None = None) -> int:
    """Draw the figures that are named, or all, and return the exit status.

    Parameters
    ----------
    arguments : sequence of str, optional
        The command line without the program's name; that of this process if left out.

    Returns
    -------
    int
        0 if all went well, 2 if something is wrong, 130 after Ctrl-C; what is wrong is one line on
        the standard error stream.
    """
    return status_of(lambda: _draw(_parser().parse_args(arguments)), PROGRAM)


def _draw(options: argparse.Namespace) -> None:
    """List the figures, or draw them and say what was done."""
    if options.list:
        _print_json(list(FIGURES)) if options.json else print("\n".join(FIGURES))
        return
    start = time.perf_counter()
    drawn: list[dict[str, Any]] = []

    def tell(done: Done) -> None:
        drawn.append({"figure": done.name, "state": done.state, "seconds": round(done.seconds, 1)})
        if not options.json:
            print(done, flush=True)

    page = draw_all(
        options.names,
        options.output,
        options.results,
        full=options.full,
        jobs=options.jobs,
        tell=tell,
    )
    if options.json:
        _print_json({"figures": drawn, "page": str(page)})
    else:
        print(f"{page}  ({time.perf_counter() - start:.1f} s)")


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        """Refuse a command line in one line, without the usage."""
        raise InvalidInputError(f"{message} (see {PROGRAM} --help)")


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(
        prog=PROGRAM,
        description="Compute and draw figures, and the page that shows them (index.html).",
        epilog=f"figures: {', '.join(FIGURES)}",
    )
    parser.add_argument("names", nargs="*", metavar="NAME", help="figures to draw (default: all)")
    parser.add_argument(
        "--output",
        type=Path,
        default=Path("figures"),
        metavar="DIR",
        help="folder to write into (default: figures)",
    )
    parser.add_argument(
        "--results",
        type=Path,
        default=Path("benchmarks/results"),
        metavar="DIR",
        help="folder of the benchmarks' records (default: benchmarks/results)",
    )
    parser.add_argument(
        "--full", action="store_true", help="take all the data where a figure has a longer version"
    )
    parser.add_argument(
        "--jobs", type=int, metavar="N", help="number of processes (default: one a core)"
    )
    parser.add_argument(
        "--list", action="store_true", help="print the names of all figures and draw nothing"
    )
    parser.add_argument("--json", action="store_true", help="print JSON")
    return parser


def _print_json(content: Any) -> None:
    print(json.dumps(content, ensure_ascii=False))


if __name__ == "__main__":
    sys.exit(main())
