"""Readers, watched by a session that checks what it is asked and counts what it reads."""

from __future__ import annotations

import itertools
from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from otm._core.tensors import like
from otm.decoding.reading import Context, Path, Reader
from otm.decoding.sampling_parameters import SamplingParameters
from otm.errors import InvalidDistributionError
from otm.models.base import LanguageModel, PaddedTokens, Session
from otm.models.table import TableModel

V = 5


class Watched(LanguageModel):
    """A distribution for each sequence of tokens that shares nothing with that of any other."""

    vocabulary = V
    returns_probs = True

    def __init__(self) -> None:
        self.session: WatchedSession | None = None
        self.laws: dict[tuple[int, ...], npt.NDArray[np.float64]] = {}

    def probs(self, tokens: tuple[int, ...]) -> npt.NDArray[np.float64]:
        if tokens not in self.laws:
            weights = np.random.default_rng(tokens).random(V)
            self.laws[tokens] = weights / weights.sum()
        return self.laws[tokens]

    def start(self, rows: int) -> Session:
        self.session = WatchedSession(self, rows)
        return self.session


class WatchedSession(Session):
    """Rows of tokens, a log, and everything that a caller must not do."""

    def __init__(self, model: Watched, rows: int) -> None:
        self.model = model
        self.rows: list[tuple[int, ...]] = [()] * rows
        self.log: list[tuple[str, list[list[int]]]] = []

    def append(self, tokens: PaddedTokens) -> npt.NDArray[np.float64]:
        before = [len(row) for row in self.rows]
        self._take("append", tokens)
        laws = np.full((*tokens.shape, V), np.nan)  # nobody may read padding
        for r, row in enumerate(self.rows):
            for i in range(before[r], len(row)):
                laws[r, i - before[r]] = self.model.probs(row[: i + 1])
        return laws

    def read(self, tokens: PaddedTokens) -> None:
        self._take("read", tokens)

    def _take(self, kind: str, tokens: PaddedTokens) -> None:
        assert tokens.dtype == np.int64
        assert tokens.ndim == 2
        assert len(tokens) == len(self.rows)
        assert (tokens >= 0).any(), "a forward pass of nothing"
        assert (tokens >= 0).any(axis=0).all(), "a column of padding alone"
        assert (np.diff((tokens >= 0).astype(int), axis=1) <= 0).all(), "padding before a token"
        parts = [[token for token in row if token >= 0] for row in tokens.tolist()]
        self.rows = [row + tuple(part) for row, part in zip(self.rows, parts, strict=True)]
        self.log.append((kind, parts))

    def keep(self, rows: npt.NDArray[np.int64], lengths: npt.NDArray[np.int64]) -> None:
        assert rows.dtype == lengths.dtype == np.int64
        assert rows.shape == lengths.shape == (rows.size,)
        assert all(0 <= row < len(self.rows) for row in rows)
        pairs = list(zip(rows.tolist(), lengths.tolist(), strict=True))
        assert all(0 <= length <= len(self.rows[row]) for row, length in pairs)
        self.rows = [self.rows[row][:length] for row, length in pairs]


class Call:
    """What a session was asked between two moments."""

    def __init__(self, model: Watched) -> None:
        assert model.session is not None
        self.kinds = [kind for kind, _ in model.session.log]
        self.passes = [parts for _, parts in model.session.log]
        model.session.log = []

    @property
    def rows(self) -> list[list[int]]:
        """Tokens that each row has read, in all forward passes."""
        return [[*itertools.chain(*parts)] for parts in zip(*self.passes, strict=True)]


def watched() -> tuple[Watched, Reader]:
    model = Watched()
    return model, Reader(model, SamplingParameters())


def agreement(a: tuple[int, ...], b: tuple[int, ...]) -> int:
    """Count the tokens that two sequences have in common from the start."""
    return next(
        (i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b))
    )


def random_paths(rng: np.random.Generator) -> list[Path]:
    """Draw up to four different paths, which may share a beginning; without any to wait."""
    drafts = rng.integers(0, 2, (rng.integers(0, 5), 4))
    return list({tuple(d[: rng.integers(0, 5)].tolist()): None for d in drafts})


@pytest.mark.parametrize("seed", range(12))
def test_laws_are_the_model_s_and_nothing_is_read_twice(seed: int) -> None:
    """Bug: a distribution of another row or position, a cache without rewinding, repeated reads.

    Random trees on a batch in which sequences wait, change places, double and end.
    """
    rng = np.random.default_rng(seed)
    model, reader = watched()
    contexts: list[Context] = [tuple(rng.integers(0, V, n).tolist()) for n in (3, 1, 6)]
    held: list[list[tuple[int, ...]]] = [[], [], []]
    parents = [0, 1, 2]
    calls = 0
    for step in range(8):
        whole = bool(rng.integers(2))
        paths = [random_paths(rng) for _ in contexts]
        if step == 0:  # the first rows, without which there is nothing to be watched
            paths = [[()], [()], [()]]
        laws = reader.read(contexts, paths, parents, whole=whole)
        call = Call(model)
        calls += len(call.kinds)
        now: list[list[tuple[int, ...]]] = []
        expected: list[int] = []
        for b, context in enumerate(contexts):
            earlier = held[parents[b]]
            for path in paths[b]:
                for i in range(0 if whole else len(path), len(path) + 1):
                    expected_law = model.probs(context + path[:i])
                    np.testing.assert_array_equal(laws(b, path[:i]).dense(V), expected_law)
                first = len(context) + (0 if whole else len(path)) - 1
                known = max((agreement(context + path, row) for row in earlier), default=0)
                expected.append(len(context + path) - min(known, first))
            expected += [0] * (0 if paths[b] else len(earlier))
            now.append([context + path for path in paths[b]] if paths[b] else earlier)
        assert model.session is not None
        assert model.session.rows == [row for rows in now for row in rows]
        if any(paths):
            assert [len(row) for row in call.rows] == expected
        else:
            assert call.kinds == []
        # the next batch: sequences in another order, some twice, some not at all, all a bit longer
        parents = rng.integers(0, len(contexts), rng.integers(1, 5)).tolist()
        held = now
        grown = []
        for p in parents:
            path = paths[p][int(rng.integers(len(paths[p])))] if paths[p] else ()
            more = (*path[: rng.integers(0, 5)], int(rng.integers(V)))
            grown.append(contexts[p] + more)
        contexts = grown
        if not any(held[p] for p in parents):
            break
    assert reader.calls == calls


def test_after_a_rejection_only_the_new_token_and_new_drafts_are_read() -> None:
    """Bug: the whole context again, or rejected drafts left in the cache."""
    model, reader = watched()
    reader.read([(0, 1)], [[(2, 3)]], [0], whole=True)
    assert Call(model).rows == [[0, 1, 2, 3]]
    laws = reader.read([(0, 1, 2, 4)], [[(1,)]], [0], whole=True)
    call = Call(model)
    assert (call.kinds, call.rows) == (["append"], [[4, 1]])
    assert model.session is not None
    assert model.session.rows == [(0, 1, 2, 4, 1)]
    np.testing.assert_array_equal(laws(0, (1,)).dense(V), model.probs((0, 1, 2, 4, 1)))


def test_chains_behind_one_context_copy_what_they_share() -> None:
    """Bug: K drafts cost K readings of the context, or go on from a chain that disagrees."""
    model, reader = watched()
    reader.read([(0, 1, 2)], [[()]], [0], whole=False)
    assert Call(model).rows == [[0, 1, 2]]
    reader.read([(0, 1, 2)], [[(3,), (4,)]], [0], whole=False)
    assert Call(model).rows == [[3], [4]]
    reader.read([(0, 1, 2)], [[(4, 0), (3, 1), (3, 2), (1,)]], [0], whole=False)
    assert Call(model).rows == [[0], [1], [2], [1]]


def test_a_sequence_that_waits_keeps_its_rows() -> None:
    """Bug: a waiting sequence is read with padding, loses its cache, or gets another one's."""
    model, reader = watched()
    reader.read([(0, 1), (2, 3)], [[(4,)], [(0,), (1,)]], [0, 1], whole=True)
    Call(model)
    for token in (1, 2):
        context = (0, 1, *range(1, token + 1))
        reader.read([context, (2, 3)], [[()], []], [0, 1], whole=True)
        call = Call(model)
        assert (call.kinds, call.rows) == (["append"], [[token], [], []])
    reader.read([(0, 1, 1, 2), (2, 3, 1, 4)], [[], [(0,)]], [0, 1], whole=True)
    assert Call(model).rows == [[], [4, 0]]
    assert model.session is not None
    assert model.session.rows == [(0, 1, 1, 2), (2, 3, 1, 4, 0)]


def test_a_batch_may_change_its_order_and_shrink() -> None:
    """Bug: rows are looked up by place and not by parent, and are read again or wrongly."""
    model, reader = watched()
    contexts: list[Context] = [(0, 1), (2, 3), (4, 0)]
    reader.read(contexts, [[(1,)], [(2,)], [(3,)]], [0, 1, 2], whole=True)
    Call(model)
    reader.read([(4, 0, 3, 1), (0, 1, 1, 2)], [[(0,)], [(4,)]], [2, 0], whole=True)
    assert Call(model).rows == [[1, 0], [2, 4]]
    laws = reader.read([(0, 1, 1, 2, 3)], [[()]], [1], whole=True)
    assert Call(model).rows == [[3]]
    np.testing.assert_array_equal(laws(0, ()).dense(V), model.probs((0, 1, 1, 2, 3)))


@pytest.mark.parametrize("length", [1, 2, 3, 40])
def test_the_scores_of_a_prompt_are_not_asked_for(length: int) -> None:
    """Bug: logits of a vocabulary for each of the thousands of tokens of a prompt."""
    model, reader = watched()
    context = tuple(int(i) % V for i in range(length))
    reader.read([context, (1,)], [[(2, 3)], [()]], [0, 1], whole=True)
    assert model.session is not None
    appended = [part for kind, parts in model.session.log for part in parts if kind == "append"]
    assert max(map(len, appended)) <= 2 + 2  # a pass for one token more would not be worth it
    assert reader.calls == len(model.session.log) <= 2


@pytest.mark.parametrize("batch", [1, 2])
def test_who_waits_first_may_draft_later(batch: int) -> None:
    """Bug: a session of no rows, from calls in which all wait, has no row to go on from."""
    model, reader = watched()
    contexts: list[Context] = [(0, 1), (2,)][:batch]
    for _ in range(2):
        reader.read(contexts, [[]] * batch, range(batch), whole=False)
    laws = reader.read(contexts, [[()]] * batch, range(batch), whole=False)
    for b, context in enumerate(contexts):
        np.testing.assert_array_equal(laws(b, ()).dense(V), model.probs(context))
    laws = reader.read(contexts[::-1], [[]] * batch, range(batch)[::-1], whole=False)
    assert reader.calls <= 2


def test_laws_in_fractions_stay_exact_unless_they_are_sampled_otherwise() -> None:
    """Bug: the exact tests of all loops run on rounded numbers, or sampling is forgotten."""
    eighth = Fraction(1, 8)
    model = TableModel({(): [eighth, 4 * eighth, 0 * eighth, 3 * eighth]})

    def law(sampling: SamplingParameters) -> Any:
        return Reader(model, sampling).read([(0,)], [[()]], [0], whole=True)(0, ())

    exact = law(SamplingParameters())
    assert exact.tokens.tolist() == [0, 1, 3]
    assert exact.probabilities.tolist() == [eighth, 4 * eighth, 3 * eighth]
    truncated = law(SamplingParameters(top_k=2))
    assert truncated.tokens.tolist() == [1, 3]
    np.testing.assert_allclose(truncated.probabilities, [4 / 7, 3 / 7], rtol=1e-14)
    assert law(SamplingParameters(temperature=0)).tokens.tolist() == [1]
    warm = law(SamplingParameters(temperature=2)).dense(4)
    np.testing.assert_allclose(warm, np.sqrt([1, 4, 0, 3]) / np.sqrt([1, 4, 3]).sum(), rtol=1e-14)


def test_logits_are_standardized() -> None:
    """Bug: logits are taken for distributions, or their sampling parameters are ignored."""

    class Logits(Watched):
        returns_probs = False

        def probs(self, tokens: tuple[int, ...]) -> npt.NDArray[np.float64]:
            return np.log(super().probs(tokens)) + 7

    sampling = SamplingParameters(temperature=0.5, top_k=3)
    model = Logits()
    laws = Reader(model, sampling).read([(0, 1)], [[(2,)]], [0], whole=True)
    for path in ((), (2,)):
        expected = sampling(model.probs((0, 1, *path)))
        np.testing.assert_allclose(laws(0, path).dense(V), expected, rtol=1e-12)


class Tensors(WatchedSession):
    def append(self, tokens: PaddedTokens) -> Any:
        return pytest.importorskip("torch").from_numpy(super().append(tokens))


@pytest.mark.parametrize("kind", [WatchedSession, Tensors], ids=["arrays", "tensors"])
@pytest.mark.parametrize("whole", [True, False])
def test_processors_see_the_tokens_before_and_the_prompt_s_number(kind: Any, whole: bool) -> None:
    """Bug: scores of another row, rows of different lengths at once, numbers of a smaller batch."""
    kinds = []

    def process(tokens: Any, scores: Any, prompts: Any) -> Any:
        kinds.append({type(tokens), type(scores)})
        assert isinstance(prompts, np.ndarray)
        numbers = like(tokens, 5 * prompts)
        scores *= 1 + (tokens.sum(1) + 3 * tokens[:, -1] + numbers)[:, None] % 4  # in place
        return scores

    model = Watched()
    model.start = lambda rows: kind(model, rows)  # type: ignore[method-assign]
    reader = Reader(model, SamplingParameters(temperature=2), process)

    def check(contexts: list[Context], parents: list[int], prompts: list[int]) -> None:
        paths: list[list[Path]] = [[(1, 2), (3,)], [(4, 0, 0)], [(2,)]][: len(contexts)]
        laws = reader.read(contexts, paths, parents, whole=whole)
        for b, context in enumerate(contexts):
            for path in paths[b]:
                for i in range(0 if whole else len(path), len(path) + 1):
                    before = context + path[:i]
                    power = 1 + (sum(before) + 3 * before[-1] + 5 * prompts[b]) % 4
                    expected = model.probs(before) ** (power / 2)
                    for _ in range(2):  # scores are not processed twice
                        np.testing.assert_allclose(
                            laws(b, path[:i]).dense(V), expected / expected.sum(), rtol=1e-12
                        )

    check([(0, 1), (2,), (3, 3, 4)], [0, 1, 2], [0, 1, 2])
    check([(3, 3, 4, 2, 1), (0, 1, 1)], [2, 0], [2, 0])
    check([(0, 1, 1, 4)], [1], [0])
    assert {len(each) for each in kinds} == {1}, "all arrays, or all tensors"


def test_a_processor_that_returns_something_else_is_refused() -> None:
    """Bug: scores of one row that are broadcast, or an index that is out of range somewhere."""
    _, reader = watched()
    reader.processor = lambda tokens, scores, prompts: scores[:, :-1]
    with pytest.raises(InvalidDistributionError, match=r"returned scores \(1, 4\) for scores"):
        reader.read([(0, 1)], [[()]], [0], whole=True)(0, ())


def test_time_in_the_model_is_counted() -> None:
    """Bug: a report that says drafts cost nothing."""
    _, reader = watched()
    assert (reader.seconds, reader.calls) == (0, 0)
    reader.read([(0, 1, 2)], [[(1,)]], [0], whole=True)
    assert reader.seconds > 0
    assert reader.calls == 2


def test_a_prompt_is_read_once_for_all_paths_behind_it() -> None:
    """Bug: K drafts behind a new prompt cost K readings of it."""
    model, reader = watched()
    laws = reader.read([(0, 1) * 50, (2,)], [[(1,), (2,), (3, 4)], [(0,)]], [0, 1], whole=True)
    assert sum(len(row) for parts in Call(model).passes for row in parts) <= 100 + 3 * 3 + 2
    np.testing.assert_array_equal(laws(0, (3, 4)).dense(V), model.probs((0, 1) * 50 + (3, 4)))
