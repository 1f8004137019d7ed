"""The command `otm`: solve, audit, report, decode and draw from a shell.

Importing this loads neither typer nor rich; `main` does.  Each command is in a file of its own,
`distributions` reads what `solve` is given, `output` writes the results (tables on a terminal,
plain text in a pipe, or JSON), and `status` turns errors into one line and a number.
"""

from __future__ import annotations

from collections.abc import Sequence

from otm._core.optional import require
from otm.cli.status import status_of


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return the exit status.

    Whatever goes wrong that is not a bug of OTM is one line on the standard error stream.

    Parameters
    ----------
    arguments : sequence of str, optional
        The command line without the program's name; that of this process if left out.

    Returns
    -------
    int
        0 if all went well, 2 if the command line or its input is wrong, 70 after a bug of OTM, 130
        if it was interrupted; a command's own statuses are in its help.
    """
    return status_of(lambda: _run(arguments))


def _run(arguments: Sequence[str] | None) -> int:
    for package in ("rich", "typer"):  # before the work, not when a table is drawn
        require(package)
    from otm.cli.app import run

    return run(arguments)
