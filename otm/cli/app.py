"""The application `otm` with its commands."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Sequence
from typing import Annotated, Any

import typer

import otm
from otm.cli import audit, audit_process, audit_server, decode, models, report, solve
from otm.cli.status import status_of
from otm.errors import InvalidInputError

HELP = "Lossless speculative decoding: solve, audit, report, decode."
STATUS = (
    "Exit status: 0 for success, 2 for a wrong command line or input, 70 for an internal error of "
    "OTM, 130 after Ctrl-C. `otm audit --help` lists more."
)
AUDIT_SERVER, AUDIT_PROCESS = "audit server", "audit process"

# plain text, because rich would draw boxes around the help in a pipe too
app = typer.Typer(
    help=HELP,
    epilog=STATUS,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def run(arguments: Sequence[str] | None) -> int:
    """Run a command line, by default the process's own, and return the exit status."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    # "server" cannot be the verifier of `otm audit`, because such names have a colon
    for name in (AUDIT_SERVER, AUDIT_PROCESS):
        if words[:2] == name.split():
            words[:2] = [name]
        elif words[:1] == [name.replace(" ", "-")]:
            words[0] = name
    # typer exports only the derived class
    usage_error: Any = typer.BadParameter.__base__
    try:
        status = app(words, prog_name="otm", standalone_mode=False)
    except usage_error as error:
        at = error.ctx.command_path if error.ctx else "otm"
        raise InvalidInputError(f"{error.format_message()} (see {at} --help)") from None
    return int(status or 0)


@app.callback(invoke_without_command=True)
def _start(
    context: typer.Context,
    show_version: Annotated[
        bool, typer.Option("--version", help="Show the version and exit.")
    ] = False,
) -> None:
    if show_version:
        version = getattr(otm, "__version__", "(not installed, run from its source)")
        typer.echo(f"otm {version}")
        raise typer.Exit
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())
        raise typer.Exit(2)


def _add(command: Callable[..., int | None], name: str | None = None, **settings: Any) -> None:
    """Add a command, by default under its function's name; turn its errors into exit statuses."""

    @functools.wraps(command)
    def guarded(*arguments: Any, **keywords: Any) -> None:
        raise typer.Exit(status_of(lambda: command(*arguments, **keywords)))

    app.command(name, context_settings=settings)(guarded)


_add(solve.solve)
_add(audit.audit)
_add(audit_server.audit_server, AUDIT_SERVER)
# options after the program's name are options of the program
_add(audit_process.audit_process, AUDIT_PROCESS, allow_interspersed_args=False)
_add(report.report)
_add(decode.decode)
_add(models.models)
