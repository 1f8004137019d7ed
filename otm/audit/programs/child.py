"""A child process with lines of text as its input and its output.

The parent never blocks: it writes, reads answers and reads errors whenever a pipe is ready.  So no
full pipe can stop both sides, and every wait has a time limit.
"""

from __future__ import annotations

import contextlib
import os
import select
import shlex
import signal
import subprocess
import time
import weakref
from collections import deque
from collections.abc import Sequence

from otm.errors import ProcessError

PART = 2**16
"""Number of bytes that are read at once; with more bytes unsent, a session reads answers first."""

LONGEST_LINE = 2**26
"""Largest number of bytes of an answer."""

LAST_BYTES, LAST_LINES = 4096, 5
"""Number of bytes of standard error that are kept, and number of lines that a message shows."""

LONGEST_COMMAND = 80
"""Largest number of characters of a command in a message or report."""

TICK = 0.25
"""Seconds after which a wait looks whether the program has ended."""

GRACE = 1.0
"""Seconds in which a program may end by itself after its input ends."""


class EndOfAnswersError(Exception):
    """A program can send no more answers; the message says why."""


class Child:
    """A running program; its process group ends with this object."""

    def __init__(self, command: Sequence[str]) -> None:
        self.name = command_text(command)
        if not hasattr(select, "poll"):
            raise ProcessError(
                "the audit of a program waits for several pipes at once, which this system does "
                "not support; use Linux, macOS or the Windows Subsystem for Linux"
            )
        try:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                bufsize=0,
                # Ctrl-C reaches only the parent, and one signal also ends the program's children.
                start_new_session=True,
            )
        except (OSError, ValueError) as error:
            reason = getattr(error, "strerror", None) or error
            raise ProcessError(
                f"the program {command[0]!r} cannot be started: {reason}; give the path of a "
                "program, then its arguments"
            ) from None
        pipes = (self._process.stdin, self._process.stdout, self._process.stderr)
        self._input, self._output, self._errors = (pipe.fileno() for pipe in pipes if pipe)
        for pipe in (self._input, self._output, self._errors):
            os.set_blocking(pipe, False)
        self._poll = select.poll()
        self._poll.register(self._output, select.POLLIN)
        self._poll.register(self._errors, select.POLLIN)
        self._unsent, self._polls_input = bytearray(), False
        self._lines: deque[bytes] = deque()
        self._partial = bytearray()
        self._last_errors = b""
        # The program also ends when nobody uses this object, and when Python exits.
        self._end = weakref.finalize(self, _end, self._process)

    @property
    def unsent(self) -> int:
        """Number of bytes that wait to be written."""
        return len(self._unsent)

    def write(self, line: bytes) -> None:
        """Queue a line; `read_line` sends it."""
        self._unsent += line

    def read_line(self, limit: float) -> bytes:
        """Return the next line of the program; wait at most `limit` seconds.

        Raises `TimeoutError`, or `EndOfAnswersError` if no more lines can come.
        """
        if self._lines:
            return self._lines.popleft()
        self._send()
        deadline = time.monotonic() + limit
        while not self._lines:
            left = deadline - time.monotonic()
            if left <= 0:
                raise TimeoutError(excerpt(bytes(self._partial)) if self._partial else "")
            if not self._wait(min(left, TICK)) and self._has_ended() and not self._wait(0):
                # A child of the ended program holds its output, so that no end of output comes.
                raise EndOfAnswersError(self._how_it_ended())
        return self._lines.popleft()

    def stderr_text(self) -> str:
        """Return the end of a message: the last lines on standard error, if any."""
        lines = self._last_errors.decode(errors="replace").strip().splitlines()[-LAST_LINES:]
        return f"; its last lines on standard error: {' | '.join(lines)}" if lines else ""

    def close(self) -> None:
        """End the program; doing so twice is allowed."""
        self._end()

    def _has_ended(self) -> bool:
        """Whether the program has ended; it is not waited for, so that `_end` can end its group."""
        options = os.WEXITED | os.WNOHANG | os.WNOWAIT
        try:
            return os.waitid(os.P_PID, self._process.pid, options) is not None
        except ChildProcessError:
            return True

    def _wait(self, seconds: float) -> bool:
        """Wait until a pipe is ready, or the time is over; return whether one was ready."""
        ready = self._poll.poll(seconds * 1000)
        for pipe, _ in ready:
            if pipe == self._input:
                self._send()
            elif pipe == self._output:
                self._receive()
            elif not self._receive_errors():
                self._poll.unregister(pipe)
        return bool(ready)

    def _send(self) -> None:
        """Write as much as the pipe can hold; if bytes remain, wait for the pipe too."""
        while self._unsent:
            try:
                del self._unsent[: os.write(self._input, self._unsent)]
            except BlockingIOError:
                break
            except BrokenPipeError:
                # The program no longer reads; the end of its output will say why.
                self._unsent.clear()
        if self._polls_input != bool(self._unsent):
            self._polls_input = not self._polls_input
            if self._polls_input:
                self._poll.register(self._input, select.POLLOUT)
            else:
                self._poll.unregister(self._input)

    def _receive(self) -> None:
        """Read some output and split it into lines; raise if it has ended."""
        data = os.read(self._output, PART)
        if not data:
            raise EndOfAnswersError(self._how_it_ended())
        *lines, rest = data.split(b"\n")
        if lines:
            lines[0] = bytes(self._partial) + lines[0]
            self._partial.clear()
            self._lines.extend(lines)
        self._partial += rest
        if len(self._partial) > LONGEST_LINE:
            raise EndOfAnswersError(
                f"wrote {len(self._partial):,} bytes without a line end; write one answer per line"
            )

    def _receive_errors(self) -> bool:
        """Read some of standard error; return whether more may follow."""
        data = os.read(self._errors, PART)
        self._last_errors = (self._last_errors + data)[-LAST_BYTES:]
        return bool(data)

    def _how_it_ended(self) -> str:
        """Describe the end of a program whose output has ended."""
        rest = bytes(self._partial)
        unfinished = f"; its last output was {excerpt(rest)}" if rest.strip() else ""
        try:
            status = self._process.wait(GRACE)
        except subprocess.TimeoutExpired:
            return f"closed its standard output{unfinished}"
        # Its children would stay; now that it has been waited for, `_end` does not end them.
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)
        with contextlib.suppress(BlockingIOError):
            while self._receive_errors():
                pass
        how = f"ended with exit status {status}"
        if status < 0:
            with contextlib.suppress(ValueError):
                how = f"was ended by the signal {signal.Signals(-status).name}"
        return f"{how} without an answer{unfinished}"


def command_text(command: Sequence[str]) -> str:
    """Return the beginning of a command as one line."""
    text = " ".join(shlex.join(command).split())
    return text if len(text) <= LONGEST_COMMAND else text[:LONGEST_COMMAND] + "…"


def excerpt(line: bytes) -> str:
    """Return the beginning of a line for a message."""
    text = line.decode(errors="replace").strip()
    return repr(text if len(text) <= 200 else text[:200] + "…")


def _end(process: subprocess.Popen[bytes]) -> None:
    """End a program: close its input, wait for a short time, then kill its process group."""
    if process.stdin is not None:
        process.stdin.close()
    try:
        if process.returncode is None:
            _wait_for_end_of_output(process)
    finally:
        # Do this after Ctrl-C too.  Nobody has waited for the process, so its id is not reused.
        if process.returncode is None:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        for pipe in (process.stdout, process.stderr):
            if pipe is not None:
                pipe.close()


def _wait_for_end_of_output(process: subprocess.Popen[bytes]) -> None:
    """Discard the output of a program until it ends, for at most `GRACE` seconds."""
    deadline = time.monotonic() + GRACE
    poll, open_pipes = select.poll(), set[int]()
    for pipe in (process.stdout, process.stderr):
        if pipe is not None:
            open_pipes.add(pipe.fileno())
            poll.register(pipe.fileno(), select.POLLIN)
    while open_pipes and (left := deadline - time.monotonic()) > 0:
        for number, _ in poll.poll(left * 1000):
            if not os.read(number, PART):
                poll.unregister(number)
                open_pipes.discard(number)
