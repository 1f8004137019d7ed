"""Key–value caches of sessions: they store rows, copy slots and select the slots a model sees.

The rows of the cache tensors are called places, and the columns slots.  Token i of a row is in slot
i of the row's place, so rewinding copies no data.  Often K rows are replaced by K copies of one of
them.  The K places usually hold most tokens of the copied row already, because all K rows begin
with the same context; only the slots that differ are copied.  A model sees rows of equal lengths as
they are stored, and rows of different lengths padded on the left.
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
    """Slots to copy from source places to destination places: int64 arrays [n].

    Two places may swap their contents, so all slots must be read before any slot is written.  The
    assignment ``cache[:, destinations, :, slots] = cache[:, sources, :, slots]`` reads all slots
    first.
    """

    sources: Indices
    destinations: Indices
    slots: Indices


class Moves(NamedTuple):
    """Slots to move within places, from sources to destinations: int64 arrays [n]."""

    places: Indices
    sources: Indices
    destinations: Indices


class CachedRows:
    """A map from the R rows of a session to places of its cache.

    The R rows always occupy the places 0 to R − 1, in any order, so a model can use a slice of the
    cache.  Places from R on are spare: they keep their contents, so that new rows with the same
    tokens can use them without copies.  Rows with different owners, such as translations of
    different sources, never share slots, even if their tokens are equal.
    """

    def __init__(self, rows: int, most: int | None = None, owners: Indices | None = None) -> None:
        # Largest number of tokens of a row.
        self._most = most
        # [R]: number of tokens of each row.
        self.lengths: Indices = np.zeros(rows, dtype=np.int64)
        # [R]: place of each row; a permutation of 0 to R − 1.
        self.places: Indices = np.arange(rows)
        # [place, place]: lower bound on the number of initial slots that two places share.  With
        # this matrix, tokens need not be stored.  A rewind takes the minimum of entry and length.
        # A read adds the number of common new tokens if the two rows were equal before.
        self._alike: Indices = np.zeros((rows, rows), dtype=np.int64)
        # [R]: slot of the first entry of the last tree.
        self._tree_starts: Indices = self.lengths
        if owners is not None:
            # The value −1 never equals the length of a row.
            self._alike -= owners[:, None] != owners

    @property
    def capacity(self) -> int:
        """Number of places that the cache must have, including spare places."""
        return len(self._alike)

    @property
    def order(self) -> Indices | None:
        """The row at each of the places 0 to R − 1; None if each row r is at place r."""
        in_order = (self.places == np.arange(len(self.places))).all()
        return None if in_order else np.argsort(self.places)

    def append_unknown(self, counts: Indices) -> None:
        """Record that each row appends `counts` [R] tokens, whose ids are only on the device."""
        check_length(int((self.lengths + counts).max(initial=0)), self._most)
        # The new tokens are unknown, so a row is known to share them only with itself.
        self._alike[self.places, self.places] += counts
        self.lengths = self.lengths + counts

    def append_tree(self, counts: Indices) -> None:
        """Record that rows append `counts` [R] tokens, and hold a tree in the slots after them."""
        self._tree_starts = self.lengths
        self.append_unknown(counts)

    def keep_paths(self, paths: Indices) -> Moves:
        """Record that each row appends entries of its last tree: [R, D], padded with −1."""
        row, step = np.nonzero(paths >= 0)
        sources = self._tree_starts[row] + paths[row, step]
        moves = Moves(self.places[row], sources, self.lengths[row] + step)
        self.append_unknown((paths >= 0).sum(1))
        return moves

    def append(self, tokens: Indices) -> None:
        """Record that each row appends tokens [R, L], padded on the right with −1."""
        if tokens.ndim != 2 or len(tokens) != len(self.lengths):
            raise InvalidInputError(
                f"the tokens have shape {tokens.shape} for {len(self.lengths)} rows; give an array "
                f"[{len(self.lengths)}, L], padded on the right with −1"
            )
        is_token = tokens >= 0
        counts = is_token.sum(1)
        check_length(int((self.lengths + counts).max(initial=0)), self._most)
        # This branch gives the same result as the general case, but is faster.
        if len(tokens) == 1 and counts[0] == tokens.shape[1]:
            self._alike[self.places, self.places] += counts
            self.lengths = self.lengths + counts
            return
        if (is_token[:, 1:] > is_token[:, :-1]).any():
            raise InvalidInputError("a row has −1 before a token; pad rows with −1 on the right")
        pairs = self.places[:, None], self.places
        alike = self._alike[pairs]
        ended = (alike == self.lengths) & (alike == self.lengths[:, None])
        differ = np.ones((*alike.shape, tokens.shape[1] + 1), dtype=bool)
        np.not_equal(tokens[:, None], tokens, out=differ[..., :-1])
        # Equal padding is not a common token.
        common = np.minimum(differ.argmax(-1), counts)
        self._alike[pairs] = alike + ended * common
        self.lengths = self.lengths + counts

    def keep(self, rows: Indices, lengths: Indices) -> Copies:
        """Replace the rows by R' prefixes: new row r is the first `lengths[r]` tokens of `rows[r]`.

        Rows may repeat, in any order.  Return the slots to copy to the new `places`.
        """
        if (rows < 0).any() or (rows >= len(self.lengths)).any():
            raise InvalidInputError(
                f"row indices from {rows.min()} to {rows.max()}; they must be from 0 to "
                f"{len(self.lengths) - 1}"
            )
        if (lengths < 0).any() or (lengths > self.lengths[rows]).any():
            raise InvalidInputError(
                "a number of tokens to keep is negative or larger than the length of its row"
            )
        count = len(rows)
        if (more := count - self.capacity) > 0:
            self._alike = np.pad(self._alike, (0, more))
        sources = self.places[rows]
        # [row, place]: number of slots of the new row that the place already holds.
        shared = np.minimum(self._alike[sources], lengths[:, None])
        places = _assign(shared[:, :count].clip(min=0))
        starts = shared[np.arange(count), places].clip(min=0)
        self._alike[places] = shared
        self._alike[places[:, None], places] = np.minimum(shared[:, sources], lengths)
        self.lengths, self.places = lengths.copy(), places

        missing = lengths - starts
        row = np.repeat(np.arange(count), missing)
        # Number of slots copied for all earlier rows.
        before = np.cumsum(missing) - missing
        slots = np.arange(len(row)) + (starts - before)[row]
        return Copies(sources[row], places[row], slots)


def _assign(shared: Indices) -> Indices:
    """Assign a place to each row so that the total number of shared slots is largest.

    Among equally good assignments, row r keeps place r.  Assigning the largest entry first is
    optimal: rows and places are leaves of a prefix tree, and the number of shared slots is the
    depth of their common ancestor.
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
    """The part of the storage that one call of the model reads and writes."""

    # Number of places that the storage must have.
    places: int
    # Number N of slots before the new tokens, including padding.
    past: int
    # Number of slots that the storage must have.
    end: int
    # [R, L]: index of the new tokens in the storage.
    write: tuple[Any, Any]
    # [R, N + L]: index of the slots that the model sees, in this order.
    show: tuple[Any, Any]
    # Arguments of the model that describe padding on the left; empty without padding.
    arguments: dict[str, Any]


def window(
    capacity: int, places: Indices, lengths: Indices, counts: Indices, device: Any
) -> Window:
    """Return the window for rows that append tokens.

    The arrays [R] hold the place, length and number of new tokens of each row.  `capacity` is the
    number of places that the storage must have.
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

    A layer with a sliding window stores all slots too.  The model masks slots outside the window,
    but needs them again when a row is rewound.
    """

    is_initialized = False
    keys: Any = None
    values: Any = None
    _window: Window
    _seen = 0

    def open(self, window: Window) -> None:
        """Set the window for the next call of the model."""
        self._window = window
        self._seen = window.past

    def update(self, keys: Any, values: Any, *_: Any, **__: Any) -> tuple[Any, Any]:
        """Store new keys and values [R, heads, L, size]; return all that the window shows."""
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
        """Grow the storage to `capacity` places, then copy slots between places."""
        if not (self.is_initialized and copies.slots.size):
            return
        sources, destinations, slots = (on_device(c, self.keys.device) for c in copies)
        self.keys = _with_space(self.keys, capacity, 0)
        self.values = _with_space(self.values, capacity, 0)
        self.keys[destinations, slots] = self.keys[sources, slots]
        self.values[destinations, slots] = self.values[sources, slots]

    def move(self, moves: Moves) -> None:
        """Move slots within places."""
        if moves.places.size:
            places, sources, destinations = (on_device(m, self.keys.device) for m in moves)
            # The right side is read before a slot is written.
            self.keys[places, destinations] = self.keys[places, sources]
            self.values[places, destinations] = self.values[places, sources]

    def get_seq_length(self, *_: Any) -> int:
        """Return the number of slots that the model has seen."""
        return self._seen


def _with_space(storage: Any, places: int, slots: int) -> Any:
    """Return storage of at least the given size with the same contents.

    If slots are missing, their number at least doubles, so that growth is rare.
    """
    shape = storage.shape
    if places <= shape[0] and slots <= shape[1]:
        return storage
    if slots > shape[1]:
        slots = max(slots, 2 * shape[1])
    # In memory, heads come before slots, because attention kernels are faster with this layout.
    larger = storage.new_zeros((max(places, shape[0]), shape[2], max(slots, shape[1]), shape[3]))
    larger = larger.transpose(1, 2)
    # Other slots stay zero, since masked slots must not be NaN.
    larger[: shape[0], : shape[1]] = storage
    return larger


def _on(tensor: Any, index: tuple[Any, Any]) -> tuple[Any, ...]:
    """Move an index to the device of a tensor, since layers can be on different devices."""
    return tuple(
        [i if isinstance(i, slice) else i.to(tensor.device, non_blocking=True) for i in index]
    )
