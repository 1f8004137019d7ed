"""The command `otm`: solve, audit, report and decode from a shell.

Importing this loads neither typer nor rich; `main` does.  Each command is in a file of its own, and
`output` writes the results: tables on a terminal, plain text in a pipe, or JSON.  `status` turns
errors into one line and an exit status that scripts can use.

Not here: what the commands compute; each calls one function of the library.
"""

from __future__ import annotations

from collections.abc import Sequence

from otm._core.optional import require
from otm.cli.status import status_of


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line (default: that of this process) and return the exit status.

    0 if all went well, 2 for wrong input, 70 for a bug of OTM, 130 if interrupted; a command's own
    statuses are in its help.  Every error but a bug is one line on stderr.
    """
    return status_of(lambda: _run(arguments))


def _run(arguments: Sequence[str] | None) -> int:
    for package in ("rich", "typer"):  # before the work, not when a table is drawn
        require(package)
    from otm.cli.app import run

    return run(arguments)
