"""Exit statuses: turn errors into one line and a number for scripts."""

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
"""Status after an internal error: EX_SOFTWARE of sysexits.h, because 1 is a verdict of `audit`."""

INTERRUPTED = 130
"""Status after Ctrl-C: 128 plus the signal number, as in shells."""


def status_of(work: Callable[[], int | None], program: str = "otm") -> int:
    """Run `work` and return its exit status, 0 for None.

    An error prints one line; an internal error also prints a traceback. A closed pipe gives status
    0, because the reader of the pipe needs no more output.
    """
    for name in ("stdout", "stderr"):
        # a shell may close a stream; its output then goes to the null device
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: PTH123, SIM115
    if isinstance(sys.stdout, io.TextIOWrapper):
        # some encodings have no Greek letters
        sys.stdout.reconfigure(errors="backslashreplace")
    try:
        status = work() or 0
        sys.stdout.flush()
    except KeyboardInterrupt:
        return _complain(program, "interrupted", INTERRUPTED)
    except BrokenPipeError:
        # with the null device, Python's flush at exit cannot fail again
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        status = 0
    # OTM errors come first, because ProblemTooLargeError derives from MemoryError
    except OTMError as error:
        return _complain(program, str(error), BAD_INPUT)
    except OSError as error:
        place = f"{error.filename}: " if error.filename else ""
        return _complain(program, f"{place}{error.strerror or error}", BAD_INPUT)
    except MemoryError:
        return _complain(program, "out of memory", BAD_INPUT)
    except Exception as error:
        traceback.print_exc()
        name = type(error).__name__
        return _complain(
            program, f"internal error: {name}: {error}; please report it", INTERNAL_ERROR
        )
    return status


def _complain(program: str, message: str, status: int) -> int:
    """Print a message as one line of printable characters, and return the status."""
    line = " ".join(message.split())
    line = "".join(c if c.isprintable() else ascii(c)[1:-1] for c in line)
    print(f"{program}: {line}", file=sys.stderr)
    return status
