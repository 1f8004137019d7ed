"""Command line: ``python -m otm.figures [NAME ...] [--output DIR] [--full] [--jobs N]``."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from otm.errors import OTMError
from otm.figures.registry import FIGURES
from otm.figures.run import draw_all


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
    parser = argparse.ArgumentParser(
        prog="python -m otm.figures",
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
    options = parser.parse_args(arguments)
    start = time.perf_counter()
    try:
        page = draw_all(
            options.names,
            options.output,
            options.results,
            full=options.full,
            jobs=options.jobs,
            tell=partial(print, flush=True),
        )
    except KeyboardInterrupt:
        print(f"{parser.prog}: interrupted", file=sys.stderr)
        return 130
    except (OTMError, OSError) as error:
        print(f"{parser.prog}: {error}", file=sys.stderr)
        return 2
    print(f"{page}  ({time.perf_counter() - start:.1f} s)")
    return 0


if __name__ == "__main__":
    sys.exit(main())
