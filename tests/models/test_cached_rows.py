"""Rows in places of a cache, against a cache of token ids that is written and copied for real."""

import itertools

import numpy as np
import pytest

from otm.errors import InvalidInputError
from otm.models.cached_rows import CachedRows

SLOTS = 40


def ids(*numbers):
    return np.array(numbers, dtype=np.int64)


class TokenCache:
    """What a model would do with keys and values, with token ids in their stead."""

    def __init__(self, rows):
        self.rows = CachedRows(rows)
        self.cache = np.full((rows, SLOTS), -9)
        self.copied = 0

    def append(self, tokens):
        starts, places = self.rows.lengths, self.rows.places
        self.rows.append(tokens)
        for row, place, start in zip(tokens, places, starts, strict=True):
            read = row[row >= 0]
            self.cache[place, start : start + len(read)] = read
            # a model that computes with the padding as well leaves rubbish behind the tokens
            self.cache[place, start + len(read) : start + len(row)] = -7

    def keep(self, rows, lengths):
        copies = self.rows.keep(rows, lengths)
        more = self.rows.capacity - len(self.cache)
        self.cache = np.pad(self.cache, ((0, more), (0, 0)), constant_values=-9)
        self.cache[copies.destinations, copies.slots] = self.cache[copies.sources, copies.slots]
        self.copied = len(copies.slots)

    def held(self):
        pairs = zip(self.rows.places, self.rows.lengths, strict=True)
        return [self.cache[place, :length].tolist() for place, length in pairs]


def ragged(rng, lengths, vocabulary):
    width = int(lengths.max(initial=0))
    tokens = rng.integers(vocabulary, size=(len(lengths), width))
    return np.where(np.arange(width) < lengths[:, None], tokens, -1)


def test_places_hold_the_rows_after_any_appends_and_keeps():
    # a source overwritten before it is read, a spare taken for what it no longer holds, rubbish
    # behind a row counted as held
    for seed in range(60):
        rng = np.random.default_rng(seed)
        cache = TokenCache(int(rng.integers(0, 5)))
        expected = [[] for _ in cache.rows.lengths]
        for _ in range(25):
            tokens = ragged(rng, rng.integers(0, 4, len(expected)), vocabulary=2)
            cache.append(tokens)
            pairs = zip(expected, tokens.tolist(), strict=True)
            expected = [row + [t for t in more if t >= 0] for row, more in pairs]
            assert cache.held() == expected
            if rng.integers(3) == 0 and max(map(len, expected), default=0) < SLOTS - 4:
                continue  # rows are read on without a rewind
            rows = rng.integers(len(expected), size=rng.integers(0, 7)) if expected else ids()
            lengths = ids(*(max(len(expected[r]) - rng.integers(4), 0) for r in rows))
            lengths = np.minimum(lengths, SLOTS - 4)
            cache.keep(rows, lengths)
            expected = [expected[r][:n] for r, n in zip(rows, lengths, strict=True)]
            assert cache.held() == expected
            assert sorted(cache.rows.places) == list(range(len(expected)))
            if not expected:
                cache, expected = TokenCache(3), [[], [], []]


def test_keeping_rows_as_they_are_copies_nothing():
    cache = TokenCache(3)
    cache.append(ids([1, 2, -1], [1, 3, 4], [-1, -1, -1]))
    cache.keep(ids(0, 1, 2), ids(2, 1, 0))
    assert cache.copied == 0
    assert cache.rows.order is None


def test_chains_behind_a_long_context_copy_the_accepted_tokens_only():
    cache = TokenCache(1)
    cache.append(ids(range(20)))
    cache.keep(ids(0, 0, 0, 0), ids(20, 20, 20, 20))
    assert cache.copied == 3 * 20
    cache.append(ids([5, 5], [5, 6], [6, 5], [7, 5]))
    cache.keep(ids(1, 1, 1, 1), ids(22, 22, 22, 22))
    # rows 2 and 3 lack both tokens, row 0 lacks the second
    assert cache.copied == 1 + 2 + 2
    assert cache.rows.order is None  # equal rows are not shuffled


def test_rows_that_were_dropped_are_found_again():
    # sequences whose drafts begin as one row each and branch: as many rows as sequences, then
    # twice as many, and so on; nothing but accepted tokens may be copied
    cache = TokenCache(2)
    cache.append(ids(range(20), range(50, 70)))
    cache.keep(ids(0, 0, 1, 1), ids(20, 20, 20, 20))
    assert cache.copied == 2 * 20
    for _ in range(3):
        cache.append(ids([1, 2], [3, 4], [5, 6], [7, 8]))
        lengths = cache.rows.lengths
        cache.keep(ids(1, 2), lengths[[1, 2]])
        assert cache.copied <= 2 * 2
        cache.keep(ids(0, 0, 1, 1), lengths)
        assert cache.copied <= 2 * 2


def test_a_permutation_moves_places_and_not_slots():
    cache = TokenCache(3)
    cache.append(ids([1, 2], [3, 4], [5, 6]))
    cache.keep(ids(2, 0, 1), ids(2, 2, 2))
    assert cache.copied == 0
    assert cache.rows.places.tolist() == [2, 0, 1]
    assert cache.rows.order.tolist() == [1, 2, 0]


def test_rows_that_read_the_same_prompt_share_it():
    rows = CachedRows(2)
    rows.append(ids([1, 2, 3, -1], [1, 2, 4, 5]))
    copies = rows.keep(ids(0, 0), ids(3, 3))
    assert copies.slots.tolist() == [2]


def test_no_other_places_are_copied_to_less():
    # taking the largest entry first is optimal, which rows of equal prefixes put to the test
    for seed in range(20):
        rng = np.random.default_rng(seed)
        cache = TokenCache(4)
        cache.append(ragged(rng, rng.integers(0, 9, 4), vocabulary=2))
        rows = rng.integers(4, size=4)
        lengths = ids(*(rng.integers(n + 1) for n in cache.rows.lengths[rows]))
        before = cache.held()
        places_hold = [row.tolist() for row in cache.cache]
        wanted = [before[r][:n] for r, n in zip(rows, lengths, strict=True)]
        cache.keep(rows, lengths)
        fewest = min(
            sum(
                len(row) - _common(row, places_hold[p])
                for row, p in zip(wanted, places, strict=True)
            )
            for places in itertools.permutations(range(4))
        )
        assert cache.copied == fewest


def _common(a, b):
    return next((i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), len(a))


@pytest.mark.parametrize(
    "tokens",
    [
        pytest.param(ids([1], [2], [3]), id="a row too many"),
        pytest.param(ids(1, 2), id="no rows"),
        pytest.param(ids([1, 2], [-1, 3]), id="padding on the left"),
    ],
)
def test_tokens_that_are_no_rows_are_refused(tokens):
    with pytest.raises(InvalidInputError, match=r"rows|fill"):
        CachedRows(2).append(tokens)


@pytest.mark.parametrize(
    ("rows", "lengths"),
    [(ids(2), ids(0)), (ids(-1), ids(0)), (ids(0), ids(2)), (ids(1), ids(-1))],
)
def test_rows_that_are_not_there_are_refused(rows, lengths):
    session = CachedRows(2)
    session.append(ids([1], [2]))
    with pytest.raises(InvalidInputError, match=r"row indices|tokens to keep"):
        session.keep(rows, lengths)
