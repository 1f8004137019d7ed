"""Ctrl-C reaches all processes of a terminal, but only the parent process should handle it."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def ignore_sigint() -> Iterator[None]:
    """Ignore Ctrl-C inside the context; processes started in it ignore Ctrl-C permanently.

    The parent process ends its children.  A child that received Ctrl-C would write a traceback.
    """
    if threading.current_thread() is not threading.main_thread():
        yield  # Only the main thread can set the handler, and only there does Ctrl-C arrive.
        return
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
