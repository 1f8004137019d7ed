"""Command line ``python -m figures [NAME ...] [--full] [--update] [--jobs N] …``."""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NoReturn

from figures.committed import FOLDER, take_over
from figures.gallery import write_gallery
from figures.registry import FIGURES
from figures.run import Done, draw_all
from otm.cli.status import status_of
from otm.errors import InvalidInputError

PROGRAM = "python -m figures"


def main(arguments: Sequence[str] | None = None) -> int:
    """Draw the named figures, or all figures, and return the exit status.

    Parameters
    ----------
    arguments : sequence of str, optional
        Command line without the program's name.  The default is this process's command line.

    Returns
    -------
    int
        0 after success, 2 after an error, 130 after Ctrl-C.  An error prints one line to the
        standard error stream.
    """
    return status_of(lambda: _draw(_parser().parse_args(arguments)), PROGRAM)


def _draw(options: argparse.Namespace) -> None:
    """List the figures, or draw them and print a summary."""
    if options.list:
        _print_json(list(FIGURES)) if options.json else print("\n".join(FIGURES))
        return
    start = time.perf_counter()
    drawn: list[Done] = []

    def tell(done: Done) -> None:
        drawn.append(done)
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
    seconds = time.perf_counter() - start
    if options.update:
        for done in drawn:
            if done.differences is not None:
                take_over(done.name, page.parent / "drawn")
        write_gallery(FOLDER)
    if options.json:
        _print_json({"figures": [_entry(done) for done in drawn], "page": str(page)})
        return
    print(f"{page}  ({seconds:.1f} s)")
    compared = [done for done in drawn if done.differences is not None]
    same = sum(not done.differences for done in compared)
    if compared:
        print(f"{same} of {len(compared)} figures are as committed")
    if same < len(compared) and not options.update:
        print("--update (make figures UPDATE=1) copies the others over the committed ones")


def _entry(done: Done) -> dict[str, Any]:
    return {
        "figure": done.name,
        "state": done.state,
        "seconds": round(done.seconds, 1),
        "differences": done.differences,
    }


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        """Raise a one-line error for a wrong command line, without the usage."""
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
        default=Path("build/figures"),
        metavar="DIR",
        help="folder to write into (default: build/figures)",
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
        "--update",
        action="store_true",
        help="copy figures that differ over the committed ones",
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
