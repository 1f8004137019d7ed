"""Keys and values of rows of different lengths, behind the cache protocol of transformers.

In storage token i of a row is in slot i of its place, so that rewinding moves nothing, and little
is copied where a row is continued several times.  A model is shown a cache as it knows it: rows of
equal lengths as they are stored, rows of different lengths padded on the left.
"""

from __future__ import annotations

import inspect
from typing import Any, NamedTuple

import numpy as np

from otm.errors import InvalidParameterError
from otm.models.cached_rows import Copies, Indices

STORED = "DynamicLayer", "DynamicSlidingWindowLayer"
"""Layers of transformers that hold keys and values of each token, and nothing else."""

IDLE = "DummyLayer"
"""Layers that hold nothing, such as those that use the keys of others."""


class Window(NamedTuple):
    """What one run of the model sees of the storage, and where it writes."""

    places: int  # number of places that the storage must have
    past: int  # number N of slots before the new tokens, as the model is told
    end: int  # number of slots that the storage must have
    write: tuple[Any, Any]  # [R, L]: index of the new tokens in the storage
    show: tuple[Any, Any]  # [R, N + L]: index of what the model sees, in its order
    arguments: dict[str, Any]  # what tells the model of padding on the left, if there is any


def window(
    capacity: int, places: Indices, lengths: Indices, counts: Indices, device: Any
) -> Window:
    """Return the window for rows at places [R] with lengths [R] that read counts [R] of tokens.

    `capacity` is the number of places that the storage must have.
    """
    import torch

    past = int(lengths.max())
    end = past + int(counts.max())
    if (lengths == past).all():
        rows: Any = slice(0, len(places))
        if (places != np.arange(len(places))).any():
            rows = torch.as_tensor(places, device=device)
        return Window(capacity, past, end, (rows, slice(past, end)), (rows, slice(0, end)), {})
    rows = torch.as_tensor(places, device=device)[:, None]
    slots = torch.as_tensor(np.arange(end) - (past - lengths)[:, None], device=device)
    write, last = slots[:, past:], int((lengths + counts).max()) - 1
    arguments = {"attention_mask": (slots >= 0).long(), "position_ids": write.clamp(max=last)}
    return Window(capacity, past, end, (rows, write), (rows, slots.clamp(min=0)), arguments)


class LayerStorage:
    """Keys and values of one layer of attention, [places, slots, heads, size] each.

    Layers with a sliding window are stored whole: the model masks what is behind the window, and
    when a row is rewound it is needed again.
    """

    is_initialized = False
    keys: Any = None
    values: Any = None
    _window: Window
    _seen = 0

    def open(self, window: Window) -> None:
        """Set what the next run of the model sees."""
        self._window = window
        self._seen = window.past

    def update(self, keys: Any, values: Any, *_: Any, **__: Any) -> tuple[Any, Any]:
        """Store new keys and values, [R, heads, L, size], and return all that are seen."""
        self.is_initialized = True
        self._seen += keys.shape[2]
        self.keys, shown_keys = self._store(self.keys, keys)
        self.values, shown_values = self._store(self.values, values)
        return shown_keys, shown_values

    def _store(self, storage: Any, new: Any) -> tuple[Any, Any]:
        needed = self._window
        if storage is None:
            storage = new.new_empty((0, 0, new.shape[1], new.shape[3]))
        storage = _with_space(storage, needed.places, needed.end)
        storage[_on(new, needed.write)] = new.transpose(1, 2)
        return storage, storage[_on(new, needed.show)].transpose(1, 2)

    def copy(self, capacity: int, copies: Copies) -> None:
        """Copy slots from place to place, after growing to so many places."""
        if not (self.is_initialized and copies.slots.size):
            return
        import torch

        sources, destinations, slots = (torch.as_tensor(c, device=self.keys.device) for c in copies)
        self.keys = _with_space(self.keys, capacity, 0)
        self.values = _with_space(self.values, capacity, 0)
        self.keys[destinations, slots] = self.keys[sources, slots]
        self.values[destinations, slots] = self.values[sources, slots]

    def get_seq_length(self, *_: Any) -> int:
        """Return the number of slots that the model has seen."""
        return self._seen


def _with_space(storage: Any, places: int, slots: int) -> Any:
    """Return a storage of the same contents; if larger, of twice the slots, to grow rarely."""
    held = storage.shape
    if places <= held[0] and slots <= held[1]:
        return storage
    if slots > held[1]:
        slots = max(slots, 2 * held[1])
    # in memory heads come before slots, as the kernels of attention like it
    larger = storage.new_zeros((max(places, held[0]), held[2], max(slots, held[1]), held[3]))
    larger = larger.transpose(1, 2)
    larger[: held[0], : held[1]] = storage  # zeros elsewhere: what is masked may not be NaN
    return larger


def _on(tensor: Any, index: tuple[Any, Any]) -> tuple[Any, Any]:
    """Return an index on the device of a tensor: layers may be on several."""
    rows, slots = (i if isinstance(i, slice) else i.to(tensor.device) for i in index)
    return rows, slots


def new_cache(model: Any) -> tuple[Any, list[LayerStorage]]:
    """Return a cache and its layers that store something; refuse layers that cannot be rewound."""
    from transformers import DynamicCache
    from transformers.cache_utils import DynamicLayer

    name = type(model).__name__
    if "past_key_values" not in inspect.signature(model.forward).parameters:
        raise InvalidParameterError(
            f"{name} takes no cache of keys and values; give cache=False, which reads all tokens "
            "again in each step"
        )
    cache: Any = DynamicCache(config=model.config)
    kinds = [type(layer).__name__ for layer in cache.layers]
    odd = sorted({kind for kind in kinds if kind not in (*STORED, IDLE)})
    if getattr(model, "_is_stateful", False) or odd or not kinds:
        raise InvalidParameterError(
            f"{name} keeps {' and '.join(odd) or 'a state of its own'}, which cannot be rewound to "
            "fewer tokens; give cache=False, which reads all tokens again in each step"
        )
    layer = type("StoredLayer", (LayerStorage, DynamicLayer), {})
    cache.layers = [
        held if kind == IDLE else layer() for kind, held in zip(kinds, cache.layers, strict=True)
    ]
    return cache, [held for held in cache.layers if isinstance(held, LayerStorage)]
