"""Progress bars for figures that take longer than a few seconds."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, TypeVar

from otm._core.optional import require

_T = TypeVar("_T")

DELAY = 2
"""Seconds that pass before a bar appears."""

_row: list[int] = [0]
"""The line of the terminal, from the top, that this process may draw a bar in."""


def progress(steps: Iterable[_T], total: int, label: str) -> Iterable[_T]:
    """Go through the steps, and show on a terminal how many of `total` are done.

    Nothing is written where the standard error stream is not a terminal.
    """
    shown: Iterable[_T] = bar(steps, desc=label, total=total, delay=DELAY, position=_row[0])
    return shown


def bar(steps: Iterable[Any] | None = None, **options: Any) -> Any:
    """Make a bar of tqdm that is silent in a pipe and leaves nothing behind."""
    return require("tqdm").tqdm(steps, disable=None, leave=False, **options)


def in_a_row_of_its_own(taken: Any, lock: Any) -> None:
    """Let a worker process draw its bars below those of the others.

    `taken` is a shared number, of the rows that are taken; row 0 is the parent's.  Whoever draws
    holds the `lock`.
    """
    from tqdm import tqdm

    with taken.get_lock():
        taken.value += 1
        _row[0] = taken.value
    tqdm.set_lock(lock)
