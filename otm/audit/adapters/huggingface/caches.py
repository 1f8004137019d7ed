"""The tokens that the table model reads: its caches and its contexts."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import cache, partial
from typing import Any

from otm.decoding.reading import Path

POSITIONS, LOST = "positions that do not count tokens", "tokens lost by a rotating cache"
"""Faults of a context, and names of the known mistakes that they show."""

ALL, RECURRENT, ROTATING = "keys and values", "recurrent", "rotating"
"""Kinds of caches."""

Context = tuple[Path, str]
"""The tokens that a model reads, and a fault or ""."""


@cache
def _layers() -> tuple[type, type]:
    from transformers.cache_utils import DynamicLayer

    class CountedLayer(DynamicLayer):  # type: ignore[misc]
        """Layer that counts its tokens; `crop` reduces this count."""

        count = 0

        def update(self, keys: Any, values: Any, *others: Any, **options: Any) -> Any:
            self.count += keys.shape[-2]
            return super().update(keys, values, *others, **options)

        def get_seq_length(self, *_: Any) -> int:
            return self.count

        def crop(self, change: int) -> None:
            # A positive number is the new length, as in version 4.57 of transformers.
            new = self.count + change if change <= 0 else min(self.count, change)
            dropped, self.count = self.count - new, new
            self.drop(dropped)

        def drop(self, dropped: int) -> None:
            """Leave the state of a recurrent model unchanged: it cannot forget tokens."""

    class RotatingLayer(CountedLayer):
        """Layer that keeps the last tokens of a window, and loses the earlier ones."""

        def __init__(self, window: int) -> None:
            super().__init__()
            self.window = window

        def update(self, keys: Any, values: Any, *others: Any, **options: Any) -> Any:
            read = super().update(keys, values, *others, **options)
            # The next token completes the window.
            first = max(read[0].shape[-2] - self.window + 1, 0)
            self.keys, self.values = (each[..., first:, :] for each in read)
            return read

        def drop(self, dropped: int) -> None:
            left = max(self.keys.shape[-2] - dropped, 0) if self.is_initialized else 0
            if self.is_initialized:
                self.keys, self.values = self.keys[..., :left, :], self.values[..., :left, :]

    return CountedLayer, RotatingLayer


def layer_of(kind: str, window: int) -> Callable[[], Any] | None:
    """Return a function that makes the layer of a cache; None for the layer of a `DynamicCache`."""
    if kind == ALL:
        return None
    recurrent, rotating = _layers()
    return recurrent if kind == RECURRENT else partial(rotating, window)


def contexts_of_row(
    tokens: Sequence[int],
    positions: Sequence[int] | None,
    mask: Sequence[bool] | None,
    new: int,
    *,
    window: int | None = None,
    absolute: bool = False,
) -> Iterator[Context]:
    """Yield the context of each new token of a row.

    A context has the unmasked tokens of the cache, ordered by their positions.  `mask` may be
    longer than the tokens: a rotating cache has lost the first ones.  Without `positions`, a model
    reads its tokens in order.
    """
    lost = 0 if mask is None else len(mask) - len(tokens)
    before = 0 if mask is None else sum(mask[:lost])
    read: list[tuple[int, int]] = []
    for place, token in enumerate(tokens):
        if mask is None or mask[lost + place]:
            read.append((place if positions is None else positions[place], token))
        if place < len(tokens) - new:
            continue
        fault = ""
        ordered = read
        if positions is not None and not _consecutive(read, absolute and not before):
            ordered = sorted(read)
            fault = "" if _consecutive(ordered, absolute and not before) else POSITIONS
        context = tuple(token for _, token in ordered)
        if window is not None:
            if len(context) < min(window, before + len(read)):
                fault = fault or LOST
            context = context[-window:]
        yield context, fault


def _consecutive(read: Sequence[tuple[int, int]], from_zero: bool) -> bool:
    """Whether positions number the tokens one after the other, from 0 or from any number."""
    if not read:
        return True
    start = 0 if from_zero else read[0][0]
    return all(place == start + i for i, (place, _) in enumerate(read))
