"""Ctrl-C reaches all processes of a terminal, but only the parent process should handle it."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any


def ignore_sigint() -> AbstractContextManager[None]:
    """Ignore Ctrl-C inside the context; processes started in it ignore Ctrl-C permanently.

    The parent process ends its children.  A child that received Ctrl-C would write a traceback.
    """
    return _handled(signal.SIGINT, signal.SIG_IGN)


def sigterm_as_ctrl_c() -> AbstractContextManager[None]:
    """Handle SIGTERM, which `timeout` sends, like Ctrl-C inside the context."""
    return _handled(signal.SIGTERM, signal.default_int_handler)


@contextmanager
def _handled(number: signal.Signals, handler: Any) -> Iterator[None]:
    """Use another signal handler inside the context."""
    if threading.current_thread() is not threading.main_thread():
        yield  # Only the main thread can set a handler, and only there does the signal arrive.
        return
    before = signal.signal(number, handler)
    try:
        yield
    finally:
        signal.signal(number, before)
