"""Progress of long computations: one line on standard error, if this is a terminal.

The progress line appears after two seconds and disappears when the work is done.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import TypeAlias, TypeVar

AFTER = 2.0
"""Seconds until the progress line appears."""

BETWEEN = 0.1
"""Seconds between two updates of the line."""

Progress: TypeAlias = Callable[[str, int, int], None]
"""Callback with the kind of item, the number of the current item, and the total (0: unknown)."""

Item = TypeVar("Item")


class Watch:
    """Reports the progress of nested tasks to a `Progress` callback."""

    def __init__(self, progress: Progress, phase: str) -> None:
        self.progress, self._phase = progress, phase

    def over(self, items: Iterable[Item], what: str, total: int = 0) -> Iterator[Item]:
        """Yield the items, and report the number of each one."""
        for number, item in enumerate(items, 1):
            self.tell(what, number, total)
            yield item

    def tell(self, what: str, number: int, total: int = 0) -> None:
        """Report the number of the current item."""
        self.progress(f"{self._phase}: {what}", number, total)

    def hide(self) -> None:
        """Remove the line until the next report, so that other output can be written."""
        if isinstance(self.progress, _Line):
            self.progress.hide()


SILENT = Watch(lambda what, number, total: None, "")


class _Line:
    """The progress line on the terminal; a timer shows it, because the first item may take long."""

    def __init__(self) -> None:
        self._begin, self._shown_at, self._text = time.monotonic(), 0.0, ""
        # Time, number and total of the first report, and the number of the last one.
        self._first, self._last = (self._begin, 1, 0), 1
        self._lock, self._ended = threading.Lock(), False
        self._timer = threading.Timer(AFTER, self._show)
        self._timer.daemon = True
        self._timer.start()

    def __call__(self, what: str, number: int, total: int) -> None:
        now = time.monotonic()
        if number < self._last or total != self._first[2]:
            self._first = now, number, total
        self._last = number
        self._text = f"{what} {number:,}" + (f" of {total:,}" if total else "") + self._left(now)
        if now - self._begin > AFTER and now - self._shown_at > BETWEEN:
            self._show()

    def _left(self, now: float) -> str:
        """Estimate the remaining time from the speed since the first report."""
        begin, first, total = self._first
        if not total or self._last == first or now - begin < AFTER:
            return ""
        seconds = (now - begin) / (self._last - first) * (total - self._last + 1)
        return f", about {seconds:.0f} s" if seconds < 100 else f", about {seconds / 60:,.0f} min"

    def _show(self) -> None:
        with self._lock:
            if not self._ended and self._text:
                self._shown_at = time.monotonic()
                sys.stderr.write(f"\r\x1b[K{self._text}")
                sys.stderr.flush()

    def hide(self) -> None:
        with self._lock:
            if self._shown_at:
                self._shown_at = 0.0
                sys.stderr.write("\r\x1b[K")
                sys.stderr.flush()

    def end(self) -> None:
        self._timer.cancel()
        self.hide()
        self._ended = True


@contextmanager
def watching(progress: Progress | None, phase: str) -> Iterator[Watch]:
    """Report progress to the caller's callback, or otherwise to a line on the terminal, if any."""
    if progress is not None:
        yield Watch(progress, phase)
    elif sys.stderr is None or not sys.stderr.isatty():
        yield SILENT
    else:
        line = _Line()
        try:
            yield Watch(line, phase)
        finally:
            line.end()
