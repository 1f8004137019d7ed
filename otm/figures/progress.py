"""A progress bar for figures that take longer than a few seconds."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeVar

from otm.errors import MissingDependencyError

__all__ = ["progress"]

_T = TypeVar("_T")

DELAY = 2
"""Seconds that pass before a bar appears."""


def progress(steps: Iterable[_T], total: int, label: str) -> Iterable[_T]:
    """Pass the steps through and show on a terminal how many of `total` are done.

    Nothing is written where the standard error stream is not a terminal.

    Raises
    ------
    MissingDependencyError
        If tqdm is not installed.
    """
    try:
        from tqdm import tqdm
    except ImportError as error:
        raise MissingDependencyError(
            "figures need tqdm; install it with: pip install 'otm[figures]'"
        ) from error
    bar: Iterable[_T] = tqdm(steps, desc=label, total=total, delay=DELAY, disable=None, leave=False)
    return bar
