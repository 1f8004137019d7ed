"""Many pairs of laws at once: the solutions are those of single calls, ragged k included."""

from __future__ import annotations

import pickle
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import otm
from otm import batch
from otm.batch import SolutionRows, solve_rows
from otm.errors import (
    InvalidDistributionError,
    InvalidDraftCountError,
    InvalidDraftsError,
    InvalidParameterError,
    InvalidUniformsError,
)
from otm.testing.strategies import distributions, problems

F = Fraction
P = [[0.5, 0.25, 0.25], [0.25, 0.25, 0.5], [0.5, 0.0, 0.5]]
Q = [0.25, 0.5, 0.25]
K = [3, 1, 2]
DRAFTS = [[0, 1, 2], [2, -1, -1], [2, 0, -1]]


@pytest.fixture
def ragged() -> SolutionRows:
    return solve_rows(P, Q, K)


def uniforms_for(rows: SolutionRows, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).random((*rows.shape, int(rows.k.max()) + 2))


# Solutions


@given(st.lists(problems(max_tokens=3), min_size=1, max_size=4))
def test_rows_are_single_solutions_bit_for_bit(drawn: list[otm.Problem]) -> None:
    n = max(problem.n for problem in drawn)
    p, q = (
        [np.pad(law, (0, n - law.size)) for law in side]
        for side in zip(*((problem.draft, problem.target) for problem in drawn), strict=True)
    )
    rows = solve_rows(p, q, [problem.k for problem in drawn])
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
    rows = solve_rows([a, b], [c, c], 2)
    assert rows.alpha.tolist() == [otm.alpha(a, c, 2), otm.alpha(b, c, 2)]
    assert all(isinstance(value, Fraction) for value in rows.alpha)
    assert rows[1].certificate.gap == 0
    token, _ = rows.select([[a.argmax()] * 2, [b.argmax()] * 2], [[F(1, 3)] * 4] * 2)
    for row, law in enumerate((a, b)):
        alone = otm.solve(law, c, 2).plan.select([law.argmax()] * 2, [F(1, 3)] * 4)
        assert token[row] == alone.token


def test_float_laws_that_do_not_quite_sum_to_one_are_normalised_alike() -> None:
    """Catches rows that are added in another order than single laws."""
    rng = np.random.default_rng(0)
    p, q = (rng.dirichlet(np.ones(1_000), 4).astype(np.float32) for _ in range(2))
    for wide in (p, np.asfortranarray(p)):
        rows = solve_rows(wide, q, 3)
        assert rows.alpha.tolist() == [otm.alpha(p[i], q[i], 3) for i in range(4)]


def test_solutions_are_built_on_use_and_kept(ragged: SolutionRows) -> None:
    assert ragged[1] is ragged[1] is ragged[-2] is ragged[(np.int64(1),)]
    assert ragged[1].plan is ragged[1].plan
    assert [solution.problem.k for solution in ragged] == K
    assert len(ragged) == 3
    assert ragged.shape == (3,)
    assert ragged.alpha.shape == ragged.k.shape == (3,)


@pytest.mark.parametrize(
    ("tokens", "kept"), [(0, [3]), (34, [3]), (2 * 34 + 33, [2, 3]), (999, None)]
)
def test_few_solutions_are_kept(
    monkeypatch: pytest.MonkeyPatch, tokens: int, kept: list[int] | None
) -> None:
    """Catches a select that holds the plans of all rows, gigabytes at full vocabulary."""
    monkeypatch.setattr(batch, "KEPT_TOKENS", tokens)
    rows = solve_rows([[0.75, 0.25]] * 4, [0.25, 0.75], 2)
    uniforms = uniforms_for(rows)
    token, _ = rows.select([[0, 1]] * 4, uniforms)
    assert [place for (place,) in rows._solutions] == (kept or [0, 1, 2, 3])
    assert rows[3] is rows[3]
    assert rows[0].alpha == rows.alpha[0]
    plan = otm.solve([0.75, 0.25], [0.25, 0.75], 2).plan
    assert token.tolist() == plan.select([[0, 1]] * 4, uniforms).token.tolist()


def test_axes_broadcast() -> None:
    rows = solve_rows(np.array(P)[:, None], Q, [1, 2])
    assert rows.shape == rows.k.shape == (3, 2)
    assert rows[2, 1].alpha == rows.alpha[2, 1] == otm.alpha(P[2], Q, 2)
    with pytest.raises(TypeError, match="not a sequence"):
        iter(rows)
    single = solve_rows(P[0], Q, 2)
    assert single.shape == ()
    assert single[()].alpha == single.alpha == otm.alpha(P[0], Q, 2)
    assert single.select([0, 1], [0.5] * 4).token.shape == ()
    with pytest.raises(TypeError, match="no leading axis"):
        len(single)


@pytest.mark.parametrize("row", [3, -4, (0, 0), (), (5,)])
def test_rows_that_do_not_exist(ragged: SolutionRows, row: Any) -> None:
    with pytest.raises(IndexError, match=r"there is no row .* axis of \(3,\)"):
        ragged[row]


def test_no_rows_are_no_error() -> None:
    rows = solve_rows(np.zeros((0, 3)), Q, 4)
    assert (len(rows), list(rows), rows.alpha.tolist()) == (0, [], [])
    token, index = rows.select(np.zeros((0, 4), dtype=int), np.zeros((0, 6)))
    assert token.shape == index.shape == (0,)
    assert "(0,)" in repr(rows)


def test_rows_are_read_only_and_can_be_pickled(ragged: SolutionRows) -> None:
    for array in (ragged.draft, ragged.target, ragged.alpha, ragged.k):
        with pytest.raises(ValueError, match="read-only"):
            array[...] = 0
    assert pickle.loads(pickle.dumps(ragged)).alpha.tolist() == ragged.alpha.tolist()


def test_the_table_shows_the_range(ragged: SolutionRows) -> None:
    assert repr(ragged).splitlines() == [
        "OTM-k solutions",
        "  rows     (3,), n = 3 tokens",
        "  k        1 to 3",
        "  α        mean 0.75, min 0.5, max 1",
    ]
    assert "k        2\n" in repr(solve_rows(P, Q, 2))


# Selection


@pytest.mark.parametrize("seed", range(5))
def test_each_row_selects_by_its_own_plan(ragged: SolutionRows, seed: int) -> None:
    """Catches uniforms of another row, or the coin of a longer one."""
    uniforms = uniforms_for(ragged, seed)
    selection = ragged.select(DRAFTS, uniforms)
    for row, k in enumerate(K):
        alone = otm.solve(P[row], Q, k).plan.select(DRAFTS[row][:k], uniforms[row, : k + 2])
        assert (selection.token[row], selection.index[row]) == (alone.token, alone.index)
    assert selection.token.dtype == selection.index.dtype == np.int64


def test_sampling_is_selecting_with_uniforms_of_the_generator(ragged: SolutionRows) -> None:
    token, index = ragged.sample(DRAFTS, np.random.default_rng(4))
    expected = ragged.select(DRAFTS, uniforms_for(ragged, 4))
    assert (token.tolist(), index.tolist()) == (expected.token.tolist(), expected.index.tolist())
    with pytest.raises(InvalidDraftsError, match="beyond the k drafts"):
        ragged.sample([[0, 1, 2]] * 3, np.random.default_rng(4))


def test_rows_with_two_axes_select() -> None:
    rows = solve_rows(np.array(P)[:, None], Q, [1, 2])
    drafts = [[[0, -1], [0, 1]], [[1, -1], [2, 2]], [[0, -1], [0, 2]]]
    uniforms = uniforms_for(rows)
    token, _ = rows.select(drafts, uniforms)
    assert token.shape == (3, 2)
    assert token[1, 0] == rows[1, 0].plan.select([1], uniforms[1, 0, :3]).token


@pytest.mark.parametrize(
    ("row", "drafts", "message"),
    [
        (1, [2, 0, -1], r"row 1: draft 1 is 0, where k = 1; beyond the k drafts −1 must stand"),
        (2, [0, -1, -1], r"row 2: draft 1 is -1, where k = 2; the k drafts must lie in \[0, 3\)"),
        (0, [0, 1, 3], "row 0: draft 2 is 3, where k = 3; the k drafts must lie"),
        (2, [0, 1, -1], "row 2: draft 1 is 1, where k = 2; it has probability 0"),
        (1, [2, -2, -1], "row 1: draft 1 is -2, where k = 1; beyond"),
    ],
)
def test_drafts_that_a_row_cannot_have_are_refused(
    ragged: SolutionRows, row: int, drafts: list[int], message: str
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
        ([[0, 1, 2], [2], [2, 0]], "not array-like.*−1 in place"),
    ],
)
def test_drafts_of_a_wrong_shape_or_type_are_refused(
    ragged: SolutionRows, drafts: Any, message: str
) -> None:
    with pytest.raises(InvalidDraftsError, match=message):
        ragged.select(drafts, uniforms_for(ragged))


def test_uniforms_are_checked_before_any_plan_is_built(ragged: SolutionRows) -> None:
    with pytest.raises(InvalidUniformsError, match=r"need uniforms of shape \(3, 5\)"):
        ragged.select(DRAFTS, np.zeros((3, 4)))
    with pytest.raises(InvalidUniformsError, match=r"\[0, 1\)"):
        ragged.select(DRAFTS, np.ones((3, 5)))
    assert not ragged._solutions


def test_tensors_in_tensors_out(ragged: SolutionRows) -> None:
    torch = pytest.importorskip("torch")
    uniforms = uniforms_for(ragged)
    rows = solve_rows(torch.tensor(P), torch.tensor(Q).requires_grad_(), torch.tensor(K))
    assert rows.alpha.tolist() == ragged.alpha.tolist()
    expected = ragged.select(DRAFTS, uniforms)
    for kind in (torch.int64, torch.int32):
        token, index = rows.select(torch.tensor(DRAFTS, dtype=kind), torch.from_numpy(uniforms))
        assert token.dtype == index.dtype == torch.int64
        assert token.tolist() == expected.token.tolist()
        assert index.tolist() == expected.index.tolist()
    assert isinstance(rows.select(DRAFTS, torch.from_numpy(uniforms)).token, np.ndarray)


# What is refused


def test_a_row_that_is_no_law_is_named() -> None:
    with pytest.raises(InvalidDistributionError, match=r"the draft law of row 1 sums to 1\.25"):
        solve_rows([[0.5, 0.5], [0.75, 0.5]], [0.5, 0.5], 2)


@pytest.mark.parametrize(
    ("k", "message"),
    [
        ([1, 0, 2], "^row 1: k = 0; at least one draft"),
        ([1, 2.0, 3], "^row 1: k = 2.0 of type float"),
        ([[1], [-1]], r"^row \(1, 0\): k = -1"),
        (0, "^k = 0"),
        ([1, 2], r"^k of shape \(2,\) for laws of leading shape \(3,\); they must broadcast"),
    ],
)
def test_a_bad_number_of_drafts_names_its_row(k: Any, message: str) -> None:
    with pytest.raises(InvalidDraftCountError, match=message):
        solve_rows(P, Q, k)


def test_rows_may_be_a_list_of_arrays() -> None:
    """Bug: a list whose entries are arrays taken for a law."""
    rows = [np.array([0.75, 0.25]), np.array([0.5, 0.5])]
    assert otm.alpha(rows, [0.25, 0.75], 2).tolist() == [
        otm.alpha(row, [0.25, 0.75], 2) for row in rows
    ]
    assert otm.solve([0.5, 0.5], rows, 2).alpha.shape == (2,)


def test_a_seed_is_no_generator(ragged: SolutionRows) -> None:
    seed: Any = 0
    with pytest.raises(InvalidParameterError, match=r"np\.random\.default_rng\(seed\)"):
        ragged.sample([[0, -1]], seed)
