"""Command line: ``python -m otm.figures [NAME ...] [--output DIR] [--full]``."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from otm.errors import OTMError
from otm.figures.output import write
from otm.figures.registry import FIGURES, load

__all__ = ["main"]


def main(arguments: Sequence[str] | None = None) -> int:
    """Draw the figures that are named, or all, and return the exit status.

    Parameters
    ----------
    arguments : sequence of str, optional
        The command line without the program's name; that of this process if left out.
    """
    parser = argparse.ArgumentParser(
        prog="python -m otm.figures",
        description="Compute and draw figures; each is written as CSV, PDF, SVG and PNG.",
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
        "--full", action="store_true", help="take all the data where a figure has a longer version"
    )
    options = parser.parse_args(arguments)
    names = options.names or FIGURES
    try:
        for name in names:
            load(name)  # a misspelt name is an error before anything is drawn
        for name in names:
            start = time.perf_counter()
            write(name, options.output, full=options.full)
            print(f"{name:<16} {time.perf_counter() - start:5.1f} s", flush=True)
    except (OTMError, OSError) as error:
        print(f"{parser.prog}: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
