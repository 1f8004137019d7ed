"""Exit statuses: errors become one line and a number that scripts can use."""

from __future__ import annotations

import io
import os
import sys
import traceback
from collections.abc import Callable

from otm.errors import OTMError

BAD_INPUT = 2
"""Status after a wrong command line or wrong input, as in most programs."""

INTERNAL_ERROR = 70
"""Status after a bug of OTM, EX_SOFTWARE of sysexits.h; Python's own, 1, is a verdict here."""

INTERRUPTED = 130
"""Status after Ctrl-C: 128 plus the number of the signal, as in shells."""


def status_of(work: Callable[[], int | None], program: str = "otm") -> int:
    """Return the exit status of `work`, None being 0; errors become one line, bugs a traceback too.

    A closed pipe is status 0: its reader has seen enough.
    """
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:  # closed by the shell; nobody reads what is written there
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: PTH123, SIM115
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # where there are no Greek letters
    try:
        status = work() or 0
        sys.stdout.flush()
    except KeyboardInterrupt:
        return _complain(program, "interrupted", INTERRUPTED)
    except BrokenPipeError:  # nor will Python flush at exit
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        status = 0
    except OTMError as error:  # before Python's, from which some of them derive
        return _complain(program, str(error), BAD_INPUT)
    except OSError as error:
        place = f"{error.filename}: " if error.filename else ""
        return _complain(program, f"{place}{error.strerror or error}", BAD_INPUT)
    except MemoryError:
        return _complain(program, "there is not enough memory", BAD_INPUT)
    except Exception as error:
        traceback.print_exc()
        name = type(error).__name__
        return _complain(
            program, f"internal error: {name}: {error}; please report it", INTERNAL_ERROR
        )
    return status


def _complain(program: str, message: str, status: int) -> int:
    """Write one line, whatever the name of a file or another package's message holds."""
    line = " ".join(message.split())
    line = "".join(c if c.isprintable() else ascii(c)[1:-1] for c in line)
    print(f"{program}: {line}", file=sys.stderr)
    return status
