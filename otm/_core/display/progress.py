"""How far a long computation is: one line on standard error, on a terminal and after two seconds.

Nothing is written in a pipe, and nothing for what is done before; the line goes when all is done.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import TypeAlias, TypeVar

AFTER = 2.0
"""Seconds before the line is shown."""

BETWEEN = 0.1
"""Seconds between two lines."""

Progress: TypeAlias = Callable[[str, int, int], None]
"""Is told what is worked on, which one of these, and of how many: 0 if that is not known."""

Item = TypeVar("Item")


class Watch:
    """Tells a `Progress` what is worked on, and of what that is a part."""

    def __init__(self, progress: Progress, phase: str) -> None:
        self.progress, self._phase = progress, phase

    def over(self, items: Iterable[Item], what: str, total: int = 0) -> Iterator[Item]:
        """Hand out items one after the other, and tell which one it is."""
        for number, item in enumerate(items, 1):
            self.tell(what, number, total)
            yield item

    def tell(self, what: str, number: int, total: int = 0) -> None:
        """Tell which one is worked on."""
        self.progress(f"{self._phase}: {what}", number, total)

    def hide(self) -> None:
        """Take the line away until something is told again, for other output on the terminal."""
        if isinstance(self.progress, _Line):
            self.progress.hide()


SILENT = Watch(lambda what, number, total: None, "")


class _Line:
    """The line on the terminal; a timer shows it first, as the first item may take long."""

    def __init__(self) -> None:
        self._begin, self._shown_at, self._text = time.monotonic(), 0.0, ""
        self._first, self._last = (self._begin, 1, 0), 1  # when, which one, of how many
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
        """Time that the rest takes if it goes on as since the first that was told."""
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
    """Watch by a function of the caller's, or else by a line on the terminal if there is one."""
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
