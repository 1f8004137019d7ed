"""Key–value caches of sessions: where they hold rows, what is copied, and what a model sees.

A cache has places, the rows of its tensors, and slots, one for each token of a row: token i of a
row is in slot i of its place, so that rewinding moves nothing.  When K rows are to continue one of
them, their places mostly hold its tokens already: they drafted behind the same context.  Only the
slots that differ are copied.  A model sees rows of equal lengths as they are stored, and rows of
different lengths padded on the left.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from otm._core.tensors import on_device
from otm.errors import InvalidInputError
from otm.models.base import check_length

Indices = npt.NDArray[np.int64]


class Copies(NamedTuple):
    """Slots to be copied from place to place: int64 arrays [n].

    All must be read before any is written, as by ``cache[:, destinations, :, slots] =
    cache[:, sources, :, slots]``, where the right side is a copy: places may swap what they hold.
    """

    sources: Indices
    destinations: Indices
    slots: Indices


class CachedRows:
    """The places of the R rows of a session in its cache: 0 to R − 1, in any order.

    So a model can compute with a slice of its cache.  Places behind are spares: they keep their
    contents, and are taken first for rows that agree with these.  Rows of different owners, such as
    the sources that they translate, have nothing in common, whatever their tokens.
    """

    def __init__(self, rows: int, most: int | None = None, owners: Indices | None = None) -> None:
        self._most = most  # tokens of a row
        self.lengths: Indices = np.zeros(rows, dtype=np.int64)  # [R]: tokens of each row
        self.places: Indices = np.arange(rows)  # [R]: place of each row, a permutation
        # [place of a row, place]: slots that both are known to hold alike, never too many, so that
        # tokens need not be kept.  Rewinding takes minima; reading adds where both rows ended at
        # the same slot and go on with the same tokens.
        self._alike: Indices = np.zeros((rows, rows), dtype=np.int64)
        if owners is not None:
            self._alike -= owners[:, None] != owners  # −1, which is the length of no row

    @property
    def capacity(self) -> int:
        """Number of places that the cache must have, spares among them."""
        return len(self._alike)

    @property
    def order(self) -> Indices | None:
        """The row in each of the places 0 to R − 1; None if row r is in place r for all r."""
        in_order = (self.places == np.arange(len(self.places))).all()
        return None if in_order else np.argsort(self.places)

    def append_unknown(self, counts: Indices) -> None:
        """Note that each row reads so many tokens [R], which only the device knows."""
        check_length(int((self.lengths + counts).max(initial=0)), self._most)
        self._alike[self.places, self.places] += counts  # a row agrees with itself alone
        self.lengths = self.lengths + counts

    def append(self, tokens: Indices) -> None:
        """Note that each row reads further tokens [R, L], with −1 behind the tokens of a row."""
        if tokens.ndim != 2 or len(tokens) != len(self.lengths):
            raise InvalidInputError(
                f"tokens of shape {tokens.shape} for {len(self.lengths)} rows; give an array "
                "[R, L] with one row for each, filled up with −1"
            )
        given = tokens >= 0
        counts = given.sum(1)
        check_length(int((self.lengths + counts).max(initial=0)), self._most)
        if len(tokens) == 1 and counts[0] == tokens.shape[1]:  # as below, but faster
            self._alike[self.places, self.places] += counts
            self.lengths = self.lengths + counts
            return
        if (given[:, 1:] > given[:, :-1]).any():
            raise InvalidInputError("−1 stands before a token; fill rows up with it on the right")
        pairs = self.places[:, None], self.places
        alike = self._alike[pairs]
        ended = (alike == self.lengths) & (alike == self.lengths[:, None])
        differ = np.ones((*alike.shape, tokens.shape[1] + 1), dtype=bool)
        np.not_equal(tokens[:, None], tokens, out=differ[..., :-1])
        common = np.minimum(differ.argmax(-1), counts)  # where both are filled up they do not agree
        self._alike[pairs] = alike + ended * common
        self.lengths = self.lengths + counts

    def keep(self, rows: Indices, lengths: Indices) -> Copies:
        """Rewind to R' rows: row r becomes the first `lengths[r]` tokens of what was row `rows[r]`.

        Rows may repeat, in any order.  Returns what to copy so that the new `places` hold the rows.
        """
        if (rows < 0).any() or (rows >= len(self.lengths)).any():
            raise InvalidInputError(
                f"rows {rows.min()} to {rows.max()} are to stay; there are {len(self.lengths)}"
            )
        if (lengths < 0).any() or (lengths > self.lengths[rows]).any():
            raise InvalidInputError("a row can keep no fewer than 0 tokens and no more than it has")
        count = len(rows)
        if (more := count - self.capacity) > 0:
            self._alike = np.pad(self._alike, (0, more))
        sources = self.places[rows]
        shared = np.minimum(self._alike[sources], lengths[:, None])  # [row, place]
        places = _assign(shared[:, :count].clip(min=0))
        starts = shared[np.arange(count), places].clip(min=0)
        self._alike[places] = shared
        self._alike[places[:, None], places] = np.minimum(shared[:, sources], lengths)
        self.lengths, self.places = lengths.copy(), places

        missing = lengths - starts
        row = np.repeat(np.arange(count), missing)
        before = np.cumsum(missing) - missing  # slots copied for the rows before
        slots = np.arange(len(row)) + (starts - before)[row]
        return Copies(sources[row], places[row], slots)


def _assign(shared: Indices) -> Indices:
    """Give each row a place such that the rows share most with them; at ties row r keeps place r.

    Taking the largest entry first is optimal, since rows and places are leaves of one prefix tree
    and what they share is the depth of their common ancestor.
    """
    count = len(shared)
    places = np.arange(count)
    worth = 2 * shared + np.eye(count, dtype=np.int64)
    for _ in range(count):
        row, place = divmod(int(worth.argmax()), count)
        places[row] = place
        worth[row] = worth[:, place] = -1
    return places


class Window(NamedTuple):
    """What one call of the model sees of the storage, and where it writes."""

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
    past = int(lengths.max())
    end = past + int(counts.max())
    if (lengths == past).all():
        rows: Any = slice(0, len(places))
        if (places != np.arange(len(places))).any():
            rows = on_device(places, device)
        return Window(capacity, past, end, (rows, slice(past, end)), (rows, slice(0, end)), {})
    rows = on_device(places, device)[:, None]
    slots = on_device(np.arange(end) - (past - lengths)[:, None], device)
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
        """Set what the next call of the model sees."""
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
        sources, destinations, slots = (on_device(c, self.keys.device) for c in copies)
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


def _on(tensor: Any, index: tuple[Any, Any]) -> tuple[Any, ...]:
    """Return an index on the device of a tensor: layers may be on several."""
    return tuple(
        [i if isinstance(i, slice) else i.to(tensor.device, non_blocking=True) for i in index]
    )
