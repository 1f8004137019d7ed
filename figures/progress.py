"""Progress of a figure, shown if it is the only one in work."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TypeVar

from otm._core.display.progress import watching

Step = TypeVar("Step")

_alone = [True]
"""Whether no other process computes a figure; processes share one line of the terminal."""


def progress(steps: Iterable[Step], total: int, label: str) -> Iterator[Step]:
    """Yield the steps, and show the number of the current one of `total` on a terminal."""
    if not _alone[0]:
        yield from steps
        return
    with watching(None, label) as watch:
        yield from watch.over(steps, "step", total)


def beside_others() -> None:
    """Turn off progress in this process, because its parent counts finished figures."""
    _alone[0] = False
