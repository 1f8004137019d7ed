"""The command `otm`: solve, audit, report and decode from a shell.

`main` loads typer and rich; importing this package does not load them. Each command has its own
file. `output` writes the results: tables on a terminal, plain text in a pipe, or JSON. `status`
turns errors into one line and an exit status for scripts.

The commands compute nothing themselves; each calls one function of the library.
"""

from __future__ import annotations

from collections.abc import Sequence

from otm._core.optional import require
from otm.cli.status import status_of


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command line, by default the process's own, and return the exit status.

    The status is 0 for success, 2 for wrong input, 70 for an internal error of OTM and 130 after an
    interrupt. Some commands have further statuses, which their help lists. Every error prints one
    line on stderr; an internal error also prints a traceback.
    """
    return status_of(lambda: _run(arguments))


def _run(arguments: Sequence[str] | None) -> int:
    # a missing package must fail before the work, not when a table is printed
    for package in ("rich", "typer"):
        require(package)
    from otm.cli.app import run

    return run(arguments)
