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
    """The places of the rows of a session.

    R rows are always in the places 0 to R − 1, though in any order, so that a model can compute
    with a slice of its cache.  Places behind them are spares: they still hold what they held, and
    are taken first for rows that agree with that.

    Parameters
    ----------
    rows : int
        Number of rows, all of them empty.

    Attributes
    ----------
    lengths : int64 array [R]
        How many tokens each row holds.
    places : int64 array [R]
        The place of each row, a permutation of 0 to R − 1.

    Notes
    -----
    Tokens are not kept.  What is kept is, for the place of each row and any other place, a number
    of slots that they are known to hold alike; rewinding makes it a minimum, and reading extends it
    where both rows ended at the same slot and go on with the same tokens.  These numbers never
    exceed the truth, and the places are chosen such that the fewest slots are copied.

    Examples
    --------
    Two rows that read the same three tokens and then different ones; both become the second:

    >>> rows = CachedRows(2)
    >>> rows.append(np.array([[7, 8, 9, 1], [7, 8, 9, 2]]))
    >>> copies = rows.keep(np.array([1, 1]), np.array([4, 4]))
    >>> copies.sources.tolist(), copies.destinations.tolist(), copies.slots.tolist()
    ([1], [0], [3])
    """

    def __init__(self, rows: int) -> None:
        self.lengths: Indices = np.zeros(rows, dtype=np.int64)
        self.places: Indices = np.arange(rows)
        self._alike: Indices = np.zeros((rows, rows), dtype=np.int64)  # [place of a row, place]

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
        """Note that each row reads further tokens.

        Parameters
        ----------
        tokens : int64 array [R, L]
            With −1 behind the tokens of a row.

        Raises
        ------
        InvalidInputError
            If there is not one row for each, or −1 stands before a token.
        """
        if tokens.ndim != 2 or len(tokens) != len(self.lengths):
            raise InvalidInputError(
                f"tokens of shape {tokens.shape} for {len(self.lengths)} rows; give an array "
                "[R, L] with one row for each, filled up with −1"
            )
        given = tokens >= 0
        counts = given.sum(1)
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
        """Rewind: row r becomes the first `lengths[r]` tokens of what was row `rows[r]`.

        Parameters
        ----------
        rows : int64 array [R']
            Rows, any number of times each and in any order.
        lengths : int64 array [R']
            How many of their tokens stay.

        Returns
        -------
        Copies
            What must be copied so that the new `places` hold the rows.

        Raises
        ------
        InvalidInputError
            If there is no such row, or it holds fewer tokens.
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
