"""How far a figure is, where it is the only one that is computed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TypeVar

from otm._core.display.progress import watching

Step = TypeVar("Step")

_alone = [True]
"""Whether no other process computes a figure: they have one line of the terminal."""


def progress(steps: Iterable[Step], total: int, label: str) -> Iterator[Step]:
    """Go through the steps, and show on a terminal which of `total` is worked on."""
    if not _alone[0]:
        yield from steps
        return
    with watching(None, label) as watch:
        yield from watch.over(steps, "step", total)


def beside_others() -> None:
    """Say nothing more in this process: its parent says how many figures are finished."""
    _alone[0] = False
