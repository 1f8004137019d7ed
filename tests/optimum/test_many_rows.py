"""α_k of many rows: equal, bit for bit, to α_k of single pairs in any arrangement."""

from __future__ import annotations

import tracemalloc
from collections.abc import Iterator
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import otm.optimum.many_rows
from otm._core.arithmetic import SUM_BLOCK, Probs
from otm._core.checks import as_draft_counts
from otm._core.probs.distribution import as_probs_rows
from otm._core.ratios.bins import FEW
from otm.errors import InvalidDistributionError, InvalidDraftCountError
from otm.optimum.cut import optimal_value
from otm.optimum.many_rows import alpha_rows, optimal_values
from otm.problem import Problem
from otm.testing.strategies import pairs

F = Fraction
LARGEST = 2**63 - 1
fewer = settings(max_examples=settings.default.max_examples // 2)
counts = st.one_of(st.integers(1, 12), st.sampled_from([10**6, LARGEST - 1, LARGEST]))


@st.composite
def rows(draw: st.DrawFn, *, exact: bool = False) -> tuple[Probs, Probs]:
    """Draw pairs of distributions of all kinds, padded to one vocabulary with impossible tokens."""
    drawn = draw(st.lists(pairs(exact=exact), min_size=1, max_size=4))
    n = max(law.size for law, _ in drawn) + draw(st.integers(0, 1))
    draft, target = (
        np.full((len(drawn), n), F(0) if exact else 0.0, dtype=object if exact else np.float64)
        for _ in range(2)
    )
    for row, pair in enumerate(drawn):
        problem = Problem(*pair, 1)  # normalised
        draft[row, : problem.n], target[row, : problem.n] = problem.draft, problem.target
    return draft, target


def one_by_one(draft: Probs, target: Probs, k: Any) -> Probs:
    """Return the same by `optimal_value`: the slow version."""
    lead = np.broadcast_shapes(draft.shape[:-1], target.shape[:-1], np.shape(k))
    laws = [np.broadcast_to(law, (*lead, law.shape[-1])) for law in (draft, target)]
    k = np.broadcast_to(k, lead)
    values = np.empty(lead, dtype=draft.dtype)
    for row in np.ndindex(lead):
        problem = Problem(laws[0][row].copy(), laws[1][row].copy(), int(k[row]))
        values[row] = optimal_value(problem)
    return values


def assert_same(draft: Probs, target: Probs, k: Any) -> None:
    found, expected = optimal_values(draft, target, k), one_by_one(draft, target, k)
    assert found.shape == expected.shape
    assert found.dtype == expected.dtype
    assert found.tolist() == expected.tolist()


def random_laws(rng: np.random.Generator, *shape: int, zeros: float = 0.0) -> Probs:
    weights = rng.exponential(size=shape) ** 3 * (rng.random(shape) >= zeros)
    weights[..., -1] += 1e-3
    law: Probs = weights / weights.sum(-1, keepdims=True)
    return law


# Equal to one at a time


@given(rows(), st.data())
def test_floats_are_those_of_single_calls_bit_for_bit(
    pair: tuple[Probs, Probs], data: st.DataObject
) -> None:
    """Catches other sums, other ties and tokens with p = 0 in a prefix."""
    draft, target = pair
    size = len(draft)
    assert_same(draft, target, data.draw(counts))
    assert_same(draft, target, data.draw(st.lists(counts, min_size=size, max_size=size)))
    columns = data.draw(st.lists(counts, min_size=1, max_size=3))
    assert_same(draft[:, None], target[:, None], columns)


@fewer
@given(rows(exact=True), st.data())
def test_fractions_are_exact(pair: tuple[Probs, Probs], data: st.DataObject) -> None:
    draft, target = pair
    size = len(draft)
    few = st.integers(1, 5)
    assert_same(draft, target, data.draw(few))
    assert_same(draft, target, data.draw(st.lists(few, min_size=size, max_size=size)))
    values = optimal_values(draft[:, None], target[:, None], [1, 3])
    assert all(isinstance(value, Fraction) for value in values.flat)


@pytest.mark.parametrize("n", [SUM_BLOCK - 1, SUM_BLOCK, SUM_BLOCK + 1, 3 * SUM_BLOCK + 5])
@pytest.mark.parametrize("zeros", [0.0, 0.5, 0.99])
def test_long_rows_are_added_in_the_same_blocks(n: int, zeros: float) -> None:
    """Catches blocks that begin at another token where some tokens have p = 0."""
    rng = np.random.default_rng(n)
    draft, target = random_laws(rng, 5, n, zeros=zeros), random_laws(rng, 5, n, zeros=0.3)
    assert_same(draft, target, [1, 2, 8, 64, LARGEST])
    assert_same(draft[:, None], target[:, None], [1, 5])


@pytest.mark.parametrize("zeros", [0.0, 0.5])
def test_rows_in_bins_are_those_of_single_calls(zeros: float) -> None:
    rng = np.random.default_rng(5)
    draft, target = random_laws(rng, 2, FEW + 1, zeros=zeros), random_laws(rng, 2, FEW + 1)
    assert_same(draft[:, None], target[:, None], [1, 8, LARGEST])


@pytest.mark.parametrize("block", [1, 7, 40])
def test_the_size_of_a_block_changes_nothing(block: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Catches rows or columns that are skipped or taken twice where blocks meet."""
    monkeypatch.setattr(otm.optimum.many_rows, "BLOCK", block)
    rng = np.random.default_rng(block)
    draft, target = random_laws(rng, 11, 6, zeros=0.4), random_laws(rng, 11, 6)
    assert_same(draft, target, rng.integers(1, 9, 11))
    assert_same(draft[:, None], target[:, None], np.arange(1, 8))
    assert_same(draft[0], target[0], np.arange(1, 8))


@pytest.mark.parametrize(
    ("draft", "target", "k"),
    [
        ((4, 5), (4, 5), ()),
        ((4, 5), (5,), (4,)),
        ((5,), (4, 5), (3, 1)),
        ((5,), (5,), ()),
        ((5,), (5,), (2, 3)),
        ((4, 1, 5), (1, 5), (3,)),
        ((4, 1, 5), (2, 5), (3, 1, 1)),
        ((1, 4, 5), (2, 1, 5), (2, 4)),
        ((4, 5), (4, 5), (3, 1)),
        ((1, 5), (1, 5), (1,)),
        ((2, 1, 3, 5), (3, 5), (2, 4, 1)),
    ],
)
@pytest.mark.parametrize("exact", [False, True])
def test_all_leading_axes_broadcast(draft: Any, target: Any, k: Any, exact: bool) -> None:
    """Catches axes that are put back in another order."""
    rng = np.random.default_rng(0)
    weights = [rng.integers(0, 4, shape) for shape in (draft, target)]
    for law in weights:
        law[..., 0] += 1
    laws = [law / law.sum(-1, keepdims=True) for law in weights]
    if exact:
        laws = [
            law.astype(object) * F(1) / law.sum(-1, keepdims=True).astype(object) for law in weights
        ]
    assert_same(*laws, rng.integers(1, 6, k))


def test_laws_are_sorted_once_for_all_numbers_of_drafts(monkeypatch: pytest.MonkeyPatch) -> None:
    sorted_rows = []
    argsort = np.argsort

    def counting(array: Any, *arguments: Any, **options: Any) -> Any:
        sorted_rows.append(array.size // array.shape[-1])
        return argsort(array, *arguments, **options)

    monkeypatch.setattr(np, "argsort", counting)
    rng = np.random.default_rng(1)
    draft, target = random_laws(rng, 3, 1, 8), random_laws(rng, 8)
    optimal_values(draft, target, np.arange(1, 50))
    assert sum(sorted_rows) == 3


# Rows as they are given


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64, np.longdouble])
@pytest.mark.parametrize("block", [1, 100, 10**6])
def test_rows_normalised_on_the_way_are_those_normalised_before(
    dtype: Any, block: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Catches a tolerance or a sum that depends on where blocks begin."""
    monkeypatch.setattr(otm.optimum.many_rows, "BLOCK", block)
    rng = np.random.default_rng(4)
    p = random_laws(rng, 5, 1, 30, zeros=0.2).astype(dtype)
    q = random_laws(rng, 3, 30).astype(dtype)
    for first, second in ((p, q), (np.asfortranarray(p), q), (p[0, 0], q), (p, q[0])):
        found = alpha_rows(first, second, 3)
        assert found.tolist() == optimal_values(*as_probs_rows(first, second), 3).tolist()
        assert found.dtype == np.float64


def test_lists_and_fractions_are_taken_too() -> None:
    half = [F(1, 2), F(1, 2)]
    assert alpha_rows([half, [1, 0]], half, [1, 2]).tolist() == [F(1), F(1, 2)]
    assert alpha_rows([half, [0.5, 0.5]], half, 1).dtype == np.float64
    assert alpha_rows(np.zeros((0, 2)), np.ones((1, 2)) / 2, 1).shape == (0,)


@pytest.mark.parametrize("block", [1, 10**6])
def test_a_bad_row_is_named_wherever_its_block_begins(
    block: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(otm.optimum.many_rows, "BLOCK", block)
    rows = np.full((4, 2, 2), 0.5)
    rows[3, 1] = [0.5, 0.75]
    with pytest.raises(
        InvalidDistributionError, match=r"the draft distribution of row \(3, 1\) sums to 1.25"
    ):
        alpha_rows(rows, np.array([0.5, 0.5]), 2)
    with pytest.raises(
        InvalidDistributionError, match=r"the target distribution of row \(3, 1\) sums to 1.25"
    ):
        alpha_rows(np.array([0.5, 0.5]), rows, [1, 2])
    with pytest.raises(InvalidDistributionError, match="must broadcast"):
        alpha_rows(rows, np.ones((3, 1, 2)) / 2, 2)
    with pytest.raises(InvalidDistributionError, match="2 tokens and the target distribution 1"):
        alpha_rows(rows, np.ones((3, 1, 1)), 2)
    with pytest.raises(InvalidDraftCountError, match=r"k of shape \(3,\) for distributions"):
        alpha_rows(rows[:3], rows[:3], [1, 2, 3])


# Shapes and memory


@pytest.mark.parametrize(
    ("draft", "k", "expected"),
    [((0, 3), (), (0,)), ((0, 1, 3), (4,), (0, 4)), ((2, 1, 3), (0,), (2, 0)), ((3,), (0,), (0,))],
)
@pytest.mark.parametrize("dtype", [np.float64, object])
def test_no_rows_give_no_values(draft: Any, k: Any, expected: Any, dtype: Any) -> None:
    law = np.full(draft, F(1, 3), dtype=object).astype(dtype)
    values = optimal_values(law, law[..., ::-1], np.ones(k, dtype=np.int64))
    assert values.shape == expected
    assert values.dtype == dtype


def test_one_token_is_always_accepted() -> None:
    assert optimal_values(np.ones((2, 1)), np.ones((2, 1)), [1, LARGEST]).tolist() == [1, 1]


def test_rounding_does_not_lift_alpha_above_one() -> None:
    weights = np.array([4, 6, 4, 6, 1, 6, 2, 1, 3, 9, 6, 6, 6])  # as for a single pair
    law = weights / weights.sum()
    assert optimal_values(law, law, [[1], [2]]).tolist() == [[1.0], [1.0]]


def test_other_strides_change_nothing() -> None:
    rng = np.random.default_rng(2)
    draft, target = random_laws(rng, 6, 40, zeros=0.3), random_laws(rng, 6, 40)
    expected = optimal_values(draft, target, 3).tolist()
    for change in (
        np.asfortranarray,
        lambda law: np.repeat(law, 2, axis=1)[:, ::2],
        lambda law: law[::-1, ::-1].copy()[::-1, ::-1],
    ):
        assert optimal_values(change(draft), change(target), 3).tolist() == expected
    wide = np.broadcast_to(draft[:1], (6, 40))
    assert_same(wide, target, 3)


def arrangements() -> Iterator[Any]:
    rng = np.random.default_rng(3)
    draft, target = random_laws(rng, 4_000, 64, zeros=0.2), random_laws(rng, 4_000, 64)
    yield pytest.param(draft, target, 4, id="rows")
    yield pytest.param(draft[:1_000, None], target[None, :40], 4, id="every draft and target")
    yield pytest.param(draft[:10, None], target[:10, None], np.arange(1, 2_001), id="many k")
    yield pytest.param(draft[0], target[0], np.arange(1, 20_001), id="k alone")


@pytest.mark.parametrize(("draft", "target", "k"), list(arrangements()))
def test_memory_is_bounded_however_many_rows(draft: Probs, target: Probs, k: Any) -> None:
    """Catches distributions that are copied for every row or every k: 10 to 400 MB here."""
    tracemalloc.start()
    values = optimal_values(draft, target, k)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak - 6 * values.nbytes < 5e6


# Numbers of drafts


@pytest.mark.parametrize("k", [3, np.uint8(3), [1, 2], np.array([[1], [LARGEST]]), [], [F(2)][:0]])
def test_counts_are_taken(k: Any) -> None:
    assert as_draft_counts(k).tolist() == (k.tolist() if hasattr(k, "tolist") else k)
    assert as_draft_counts(k).dtype == np.int64


@pytest.mark.parametrize(
    ("k", "message"),
    [
        (0, "^k = 0; at least one"),
        (1.5, "^k = 1.5 of type float"),
        (True, "^k = True"),
        ([2, 0], "^row 1: k = 0"),
        (np.array([[1, 1], [1, -3]]), r"^row \(1, 1\): k = -3"),
        ([1.0, 2.0], "^row 0: k = 1.0 of type float"),
        ([True, True], "^row 0: k = True"),
        ([1, 2**63], "^row 1: k is above"),
        (np.array([2**63], dtype=np.uint64), "^row 0: k is above"),
        (["1"], "^row 0: k = '1'"),
        ([[1, 2], [3]], r"k = \[1, 2\] of type list"),
    ],
)
def test_what_is_not_a_number_of_drafts_is_refused_with_its_row(k: Any, message: str) -> None:
    with pytest.raises(InvalidDraftCountError, match=message):
        as_draft_counts(k)
