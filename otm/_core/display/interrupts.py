"""Ctrl-C reaches all processes of a terminal: only the first of them is to hear it."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def deaf_to_interrupts() -> Iterator[None]:
    """Ignore Ctrl-C; processes that are started meanwhile go on doing so, as theirs is to end them.

    They would otherwise write tracebacks, each its own.
    """
    if threading.current_thread() is not threading.main_thread():
        yield  # only there can it be set, and only there does Ctrl-C arrive
        return
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
