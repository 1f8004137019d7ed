"""Where a key–value cache holds the rows of a session, and what must be copied when they change.

A cache has places, the rows of its tensors, and slots, one for each token of a row.  When K rows
are to continue one of them, their places mostly hold its tokens already: they drafted behind the
same context.  Only the slots that differ are worth a copy.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

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
    contents, and are taken first for rows that agree with these.
    """

    def __init__(self, rows: int, most: int | None = None) -> None:
        self._most = most  # tokens of a row
        self.lengths: Indices = np.zeros(rows, dtype=np.int64)  # [R]: tokens of each row
        self.places: Indices = np.arange(rows)  # [R]: place of each row, a permutation
        # [place of a row, place]: slots that both are known to hold alike, never too many, so that
        # tokens need not be kept.  Rewinding takes minima; reading adds where both rows ended at
        # the same slot and go on with the same tokens.
        self._alike: Indices = np.zeros((rows, rows), dtype=np.int64)

    @property
    def capacity(self) -> int:
        """Number of places that the cache must have, spares among them."""
        return len(self._alike)

    @property
    def order(self) -> Indices | None:
        """The row in each of the places 0 to R − 1; None if row r is in place r for all r."""
        in_order = (self.places == np.arange(len(self.places))).all()
        return None if in_order else np.argsort(self.places)

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
        places = _assign(shared[:, :count])
        starts = shared[np.arange(count), places]
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
