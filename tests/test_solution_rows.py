"""Many pairs of distributions at once: same solutions as single calls, also for ragged k."""

from __future__ import annotations

import pickle
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import otm
from otm import Solution
from otm.errors import (
    InvalidDistributionError,
    InvalidDraftCountError,
    InvalidDraftsError,
    InvalidInputError,
    InvalidParameterError,
    InvalidUniformsError,
    NoSuchRowError,
)
from otm.testing.strategies import distributions, problems

F = Fraction
P = [[0.5, 0.25, 0.25], [0.25, 0.25, 0.5], [0.5, 0.0, 0.5]]
Q = [0.25, 0.5, 0.25]
K = [3, 1, 2]
DRAFTS = [[0, 1, 2], [2, -1, -1], [2, 0, -1]]


@pytest.fixture
def ragged() -> Solution:
    return otm.solve(P, Q, K)


def uniforms_for(rows: Solution, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).random(
        (*rows.problem.shape, int(np.max(rows.problem.k)) + 2)
    )


# Solutions


@given(st.lists(problems(max_tokens=3), min_size=1, max_size=4))
def test_rows_are_single_solutions_bit_for_bit(drawn: list[otm.Problem]) -> None:
    n = max(problem.n for problem in drawn)
    p, q = (
        [np.pad(law, (0, n - law.size)) for law in side]
        for side in zip(*((problem.draft, problem.target) for problem in drawn), strict=True)
    )
    rows = otm.solve(p, q, [problem.k for problem in drawn])
    for i, solution in enumerate(rows):
        single = otm.solve(p[i], q[i], drawn[i].k)
        assert rows.alpha[i] == solution.alpha == single.alpha == otm.alpha(p[i], q[i], drawn[i].k)
        assert solution.cut.tokens.tolist() == single.cut.tokens.tolist()
        assert solution.problem.draft.tolist() == single.problem.draft.tolist()
        assert solution.problem.k == drawn[i].k
        solution.certificate.check()


@settings(max_examples=settings.default.max_examples // 4)
@given(
    distributions(3, 3, exact=True),
    distributions(3, 3, exact=True),
    distributions(3, 3, exact=True),
)
def test_fractions_give_exact_rows(a: Any, b: Any, c: Any) -> None:
    rows = otm.solve([a, b], [c, c], 2)
    assert rows.alpha.tolist() == [otm.alpha(a, c, 2), otm.alpha(b, c, 2)]
    assert all(isinstance(value, Fraction) for value in rows.alpha)
    assert rows[1].certificate.gap == 0
    token, _ = rows.select([[a.argmax()] * 2, [b.argmax()] * 2], [[F(1, 3)] * 4] * 2)
    for row, law in enumerate((a, b)):
        alone = otm.solve(law, c, 2).plan.select([law.argmax()] * 2, [F(1, 3)] * 4)
        assert token[row] == alone.token


def test_float_laws_that_do_not_quite_sum_to_one_are_normalised_alike() -> None:
    """Catches rows that are added in another order than single distributions."""
    rng = np.random.default_rng(0)
    p, q = (rng.dirichlet(np.ones(1_000), 4).astype(np.float32) for _ in range(2))
    for wide in (p, np.asfortranarray(p)):
        rows = otm.solve(wide, q, 3)
        assert rows.alpha.tolist() == [otm.alpha(p[i], q[i], 3) for i in range(4)]


def test_solutions_are_built_on_use_and_kept(ragged: Solution) -> None:
    assert ragged[1] is ragged[1] is ragged[-2] is ragged[(np.int64(1),)]
    assert ragged[1].plan is ragged[1].plan
    assert [solution.problem.k for solution in ragged] == K
    assert len(ragged) == 3
    assert ragged.problem.shape == (3,)
    assert ragged.alpha.shape == np.shape(ragged.problem.k) == (3,)


@pytest.mark.parametrize(
    ("tokens", "kept"), [(0, [3]), (34, [3]), (2 * 34 + 33, [2, 3]), (999, None)]
)
def test_few_solutions_are_kept(
    monkeypatch: pytest.MonkeyPatch, tokens: int, kept: list[int] | None
) -> None:
    """Catches a select that holds the plans of all rows, gigabytes at full vocabulary."""
    monkeypatch.setattr("otm.solution.CACHED_TOKENS", tokens)
    rows = otm.solve([[0.75, 0.25]] * 4, [0.25, 0.75], 2)
    uniforms = uniforms_for(rows)
    token, _ = rows.select([[0, 1]] * 4, uniforms)
    assert [place for (place,) in rows._cache] == (kept or [0, 1, 2, 3])
    assert rows[3] is rows[3]
    assert rows[0].alpha == rows.alpha[0]
    plan = otm.solve([0.75, 0.25], [0.25, 0.75], 2).plan
    assert token.tolist() == plan.select([[0, 1]] * 4, uniforms).token.tolist()


def test_axes_broadcast() -> None:
    rows = otm.solve(np.array(P)[:, None], Q, [1, 2])
    assert rows.problem.shape == np.shape(rows.problem.k) == (3, 2)
    assert rows[2, 1].alpha == rows.alpha[2, 1] == otm.alpha(P[2], Q, 2)
    with pytest.raises(TypeError, match="not iterable"):
        iter(rows)
    single = otm.solve(P[0], Q, 2)
    assert single.problem.shape == ()
    assert single[()] is single
    assert single[()].alpha == single.alpha == otm.alpha(P[0], Q, 2)
    assert single.select([0, 1], [0.5] * 4).token.shape == ()
    with pytest.raises(TypeError, match="has no rows"):
        len(single)


@pytest.mark.parametrize("row", [3, -4, (0, 0), (), (5,)])
def test_rows_that_do_not_exist(ragged: Solution, row: Any) -> None:
    with pytest.raises(NoSuchRowError, match=r"there is no row .* in rows of shape \(3,\)"):
        ragged[row]


def test_no_rows_are_no_error() -> None:
    rows = otm.solve(np.zeros((0, 3)), Q, 4)
    assert (len(rows), list(rows), rows.alpha.tolist()) == (0, [], [])
    token, index = rows.select(np.zeros((0, 4), dtype=int), np.zeros((0, 6)))
    assert token.shape == index.shape == (0,)
    assert "(0,)" in repr(rows)


def test_rows_are_read_only_and_can_be_pickled(ragged: Solution) -> None:
    problem: Any = ragged.problem
    for array in (problem.draft, problem.target, ragged.alpha, problem.k):
        with pytest.raises(ValueError, match="read-only"):
            array[...] = 0
    assert pickle.loads(pickle.dumps(ragged)).alpha.tolist() == ragged.alpha.tolist()


def test_the_table_shows_the_range(ragged: Solution) -> None:
    assert repr(ragged).splitlines() == [
        "OTM-k solutions",
        "  rows     (3,), n = 3 tokens",
        "  k        1 to 3",
        "  α        mean 0.75, min 0.5, max 1",
    ]
    assert "k        2\n" in repr(otm.solve(P, Q, 2))


# Selection


@pytest.mark.parametrize("seed", range(5))
def test_each_row_selects_by_its_own_plan(ragged: Solution, seed: int) -> None:
    """Catches uniforms of another row, or the coin of a longer one."""
    uniforms = uniforms_for(ragged, seed)
    selection = ragged.select(DRAFTS, uniforms)
    for row, k in enumerate(K):
        alone = otm.solve(P[row], Q, k).plan.select(DRAFTS[row][:k], uniforms[row, : k + 2])
        assert (selection.token[row], selection.index[row]) == (alone.token, alone.index)
    assert selection.token.dtype == selection.index.dtype == np.int64


def test_sampling_is_selecting_with_uniforms_of_the_generator(ragged: Solution) -> None:
    token, index = ragged.sample(DRAFTS, np.random.default_rng(4))
    expected = ragged.select(DRAFTS, uniforms_for(ragged, 4))
    assert (token.tolist(), index.tolist()) == (expected.token.tolist(), expected.index.tolist())
    with pytest.raises(InvalidDraftsError, match="after the k drafts"):
        ragged.sample([[0, 1, 2]] * 3, np.random.default_rng(4))


def test_rows_with_two_axes_select() -> None:
    rows = otm.solve(np.array(P)[:, None], Q, [1, 2])
    drafts = [[[0, -1], [0, 1]], [[1, -1], [2, 2]], [[0, -1], [0, 2]]]
    uniforms = uniforms_for(rows)
    token, _ = rows.select(drafts, uniforms)
    assert token.shape == (3, 2)
    assert token[1, 0] == rows[1, 0].plan.select([1], uniforms[1, 0, :3]).token


@pytest.mark.parametrize(
    ("row", "drafts", "message"),
    [
        (1, [2, 0, -1], r"row 1: draft 1 is 0, where k = 1; entries after the k drafts must be −1"),
        (2, [0, -1, -1], r"row 2: draft 1 is -1, where k = 2; the k drafts must lie in \[0, 3\)"),
        (0, [0, 1, 3], "row 0: draft 2 is 3, where k = 3; the k drafts must lie"),
        (2, [0, 1, -1], "row 2: draft 1 is 1, where k = 2; it has probability 0"),
        (1, [2, -2, -1], "row 1: draft 1 is -2, where k = 1; entries after"),
    ],
)
def test_drafts_that_a_row_cannot_have_are_refused(
    ragged: Solution, row: int, drafts: list[int], message: str
) -> None:
    wrong = [drafts if i == row else good for i, good in enumerate(DRAFTS)]
    with pytest.raises(InvalidDraftsError, match=message):
        ragged.select(wrong, uniforms_for(ragged))


@pytest.mark.parametrize(
    ("drafts", "message"),
    [
        (np.array(DRAFTS)[:, :2], r"shape \(3, 2\); these rows need \(3, 3\)"),
        (np.array(DRAFTS)[:2], r"shape \(2, 3\)"),
        (np.array([DRAFTS]), r"shape \(1, 3, 3\)"),
        (np.array(DRAFTS, dtype=float), "type float64"),
        ([[0, 1, 2], [2], [2, 0]], "not array-like.*−1 after"),
    ],
)
def test_drafts_of_a_wrong_shape_or_type_are_refused(
    ragged: Solution, drafts: Any, message: str
) -> None:
    with pytest.raises(InvalidDraftsError, match=message):
        ragged.select(drafts, uniforms_for(ragged))


def test_uniforms_are_checked_before_any_plan_is_built(ragged: Solution) -> None:
    with pytest.raises(InvalidUniformsError, match=r"need shape \(3, 5\)"):
        ragged.select(DRAFTS, np.zeros((3, 4)))
    with pytest.raises(InvalidUniformsError, match=r"\[0, 1\)"):
        ragged.select(DRAFTS, np.ones((3, 5)))
    assert not ragged._cache


def test_tensors_in_tensors_out(ragged: Solution) -> None:
    torch = pytest.importorskip("torch")
    uniforms = uniforms_for(ragged)
    rows = otm.solve(torch.tensor(P), torch.tensor(Q).requires_grad_(), torch.tensor(K))
    assert rows.alpha.tolist() == ragged.alpha.tolist()
    expected = ragged.select(DRAFTS, uniforms)
    for kind in (torch.int64, torch.int32):
        token, index = rows.select(torch.tensor(DRAFTS, dtype=kind), torch.from_numpy(uniforms))
        assert token.dtype == index.dtype == torch.int64
        assert token.tolist() == expected.token.tolist()
        assert index.tolist() == expected.index.tolist()
    assert isinstance(rows.select(DRAFTS, torch.from_numpy(uniforms)).token, np.ndarray)


# Rejected input


def test_a_row_that_is_no_law_is_named() -> None:
    with pytest.raises(
        InvalidDistributionError, match=r"the draft distribution of row 1 sums to 1\.25"
    ):
        otm.solve([[0.5, 0.5], [0.75, 0.5]], [0.5, 0.5], 2)


@pytest.mark.parametrize(
    ("k", "message"),
    [
        ([1, 0, 2], "^row 1: k = 0; at least one draft"),
        ([1, 2.0, 3], "^row 1: k = 2.0 of type float"),
        ([[1], [-1]], r"^row \(1, 0\): k = -1"),
        (0, "^k = 0"),
        (
            [1, 2],
            r"^k of shape \(2,\) for distributions of leading shape \(3,\); they must broadcast",
        ),
    ],
)
def test_a_bad_number_of_drafts_names_its_row(k: Any, message: str) -> None:
    with pytest.raises(InvalidDraftCountError, match=message):
        otm.solve(P, Q, k)


def test_rows_may_be_a_list_of_arrays() -> None:
    """Bug: a list whose entries are arrays taken for a distribution."""
    rows = [np.array([0.75, 0.25]), np.array([0.5, 0.5])]
    assert otm.alpha(rows, [0.25, 0.75], 2).tolist() == [
        otm.alpha(row, [0.25, 0.75], 2) for row in rows
    ]
    assert otm.solve([0.5, 0.5], rows, 2).alpha.shape == (2,)


def test_a_seed_is_no_generator(ragged: Solution) -> None:
    seed: Any = 0
    with pytest.raises(InvalidParameterError, match=r"np\.random\.default_rng\(seed\)"):
        ragged.sample([[0, -1]], seed)


@pytest.mark.parametrize("name", ["plan", "cut", "certificate", "bounds"])
def test_what_one_row_has_is_asked_of_that_row(ragged: Solution, name: str) -> None:
    with pytest.raises(InvalidInputError, match=rf"use solution\[i\]\.{name}"):
        getattr(ragged, name)
    assert getattr(ragged[0], name) is not None


def test_rows_are_shown_in_a_notebook(ragged: Solution) -> None:
    assert "<td style='text-align:left'>1 to 3</td>" in ragged._repr_html_()


def test_a_solution_is_true_whatever_its_length() -> None:
    """Catches `if solution:` that asks a single one for its length, or finds no rows false."""
    assert otm.solve(P[0], Q, 2)
    assert otm.solve(np.zeros((0, 3)), Q, 4)


def test_rows_by_their_support_speak_of_token_ids() -> None:
    """Catches positions where a row is checked, selected from or solved."""
    ids = [7, 900, 10**12]
    sparse = [otm.SparseProbs(ids, law) for law in (P[0], Q)]
    rows, dense = otm.solve(*sparse, [3, 1]), otm.solve(P[0], Q, [3, 1])
    assert rows.alpha.tolist() == dense.alpha.tolist() == otm.alpha(*sparse, [3, 1]).tolist()
    assert rows[0].cut.tokens.tolist() == [ids[i] for i in dense[0].cut.tokens]
    drafts, uniforms = np.array([[0, 1, 2], [2, -1, -1]]), uniforms_for(rows)
    named = np.where(drafts < 0, -1, np.array(ids)[drafts])
    token, index = rows.select(named, uniforms)
    expected = dense.select(drafts, uniforms)
    assert token.tolist() == [ids[i] for i in expected.token]
    assert index.tolist() == expected.index.tolist()
    with pytest.raises(InvalidDraftsError, match="row 0: draft 1 is 8, where k = 3; it has prob"):
        rows.select([[7, 8, 900], [7, -1, -1]], uniforms)
