"""One set of drafts, for which Python's floats are faster than arrays: the same decisions."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

import otm
from otm._core.checks import check_uniforms
from otm.coupling import OptimalPlan
from otm.coupling.build import PlanBuilder
from otm.coupling.lossy import LenientPlan
from otm.coupling.optimal.plan import FEW
from otm.coupling.plan import TransportPlan
from otm.errors import InvalidUniformsError
from otm.problem import Problem
from otm.testing.instances import INSTANCES, instance
from otm.testing.strategies import problems

SPECIAL = [0.0, -0.0, 5e-324, 2.0**-63, 0.5, 1 - 2.0**-53]
"""Uniforms at the ends, where a comparison or a rounding would tip first."""


def zipf(n: int, seed: int) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """Make a pair with many ratios, including ties and tokens of draft probability zero."""
    rng = np.random.default_rng(seed)
    p = rng.permutation(1 / np.arange(1, n + 1) ** 1.2)
    q = p * np.exp(rng.normal(size=n)).round(1)
    p[::7] = 0
    q[::5] = 0
    return p / p.sum(), q / q.sum()


def edges(plan: TransportPlan) -> npt.NDArray[np.float64]:
    """Uniforms exactly at the edges of moves, for drafts that swap as often as their bin."""
    if not isinstance(plan, OptimalPlan):
        return np.array([])
    return np.asarray(plan.slots.ends * 2.0**-plan.slots._grid_bits)


def assert_as_many(plan: TransportPlan, sets: int, seed: int = 0) -> None:
    """Each set selects by itself, as array, list and in a batch of one, what it does among many."""
    rng = np.random.default_rng(seed)
    numbers = rng.random((sets, plan.uniforms_per_selection))
    special = rng.random(numbers.shape) < 0.2
    numbers[special] = rng.choice([*SPECIAL, *edges(plan)], special.sum())
    chosen = plan.drafts.sample(rng, sets)
    together = plan.select(chosen, numbers)
    some = plan.select(chosen[:3], numbers[:3])
    assert (some.token == together.token[:3]).all()
    assert (some.index == together.index[:3]).all()
    for i in range(sets):
        expected = together.token[i], together.index[i]
        one = plan.select(chosen[i], numbers[i])
        assert (one.token, one.index) == expected
        assert type(one.token) is type(one.index) is np.int64
        assert tuple(plan.select(chosen[i].tolist(), numbers[i].tolist())) == expected
        (token,), (index,) = plan.select(chosen[i : i + 1], numbers[i : i + 1])
        assert (token, index) == expected


@pytest.mark.parametrize("name", INSTANCES)
def test_small_problems(rule: PlanBuilder, name: str) -> None:
    assert_as_many(rule(instance(name, exact=False)), 40)


@given(problems(max_tokens=8, max_drafts=8), st.integers(0, 2**32))
def test_random_problems(problem: Problem, seed: int) -> None:
    assert_as_many(OptimalPlan(problem), 20, seed)


@pytest.mark.parametrize("k", [1, 2, 8, FEW, FEW + 1, 64])
@pytest.mark.parametrize("n", [300, 20_000])
def test_many_tokens_in_bins(n: int, k: int) -> None:
    plan = OptimalPlan(Problem(*zipf(n, k), k))
    assert_as_many(plan, 500)
    assert_as_many(LenientPlan(plan.problem, 0.7), 200)


@pytest.mark.parametrize("k", [1, 2, 8, 64])
@pytest.mark.parametrize(
    ("draft", "target"),
    [
        ([0.5, 1e-310, 5e-324, 0.25, 0.25, 1e-200], [1e-320, 0.25, 0.5, 0.0, 0.125, 0.125]),
        ([0.5, 0.5, 1e-323, 1e-323], [0.1, 0.9, 5e-324, 0.0]),
    ],
    ids=["ratios that overflow", "chances to win that underflow"],
)
def test_numbers_at_the_ends(draft: list[float], target: list[float], k: int) -> None:
    plan, n = OptimalPlan(Problem(draft, target, k)), len(draft)
    rng = np.random.default_rng(0)
    drafts, numbers = rng.choice(n, (300, k)), rng.random((300, k + 2))
    drafts[: 20 * n] = np.repeat(np.arange(n), 20)[:, None]  # which sampling would not give
    numbers[::3] = 1 - 2.0**-53
    together = plan.select(drafts, numbers)
    for i in range(300):
        assert tuple(plan.select(drafts[i], numbers[i])) == (together.token[i], together.index[i])


def test_a_token_of_the_target_that_never_wins_by_rounding_is_accepted() -> None:
    """Catches a rejection where the probability to win underflows, with another residual."""
    plan = OptimalPlan(Problem([0.5, 0.5, 1e-323, 0.0], [0.3, 0.3, 5e-324, 0.4], 8))
    assert plan.winner_distribution[2] == 0
    for coin in (0.0, 1 - 2.0**-53):
        numbers = [0.5] * 8 + [coin, 0.5]
        assert tuple(plan.select([2] * 8, numbers)) == (2, 0)
        assert plan.select([[2] * 8] * 2, [numbers] * 2).index.tolist() == [0, 0]


@pytest.mark.parametrize("name", [*INSTANCES, "many"])
def test_slots_at_the_ends_of_moves(name: str) -> None:
    """Catches another rounding, or another place to cut stretched uniforms off."""
    problem = Problem(*zipf(300, 3), 4) if name == "many" else instance(name, exact=False)
    table = OptimalPlan(problem).slots
    bins = np.arange(table.draft.size)
    ends = [end * 2.0**-table._grid_bits for end in (*table.ends, *(table.ends - 1))]
    for uniform in (*SPECIAL, *filter(lambda end: end >= 0, ends)):
        for share in (1.0, 0.75, 1e-300, 1.5):
            rates, uniforms = np.full(bins.size, share), np.full(bins.size, uniform)
            many = table.slots_of(bins, rates, uniforms).tolist()
            some = table.slots_of_few(bins, rates.tolist(), uniforms.tolist())
            assert some == many


@pytest.mark.parametrize("k", [2, 4])
def test_tokens_of_one_bin_with_different_ratios(k: int) -> None:
    """Catches the rate of another token of the bin, also where a winner is always accepted."""
    rng = np.random.default_rng(5)
    p, q = rng.random((2, 10_000)) + 0.5
    plan = OptimalPlan(Problem(p / p.sum(), q / q.sum(), k))
    assert_as_many(plan, 200)
    drafts, numbers = plan.drafts.sample(rng, 200), rng.random((200, k + 2))
    numbers[:, k] = 1 - 2.0**-40  # the coin
    places, rates = plan.slots.place(plan.problem.target[drafts] / plan.problem.draft[drafts])
    unlike = (abs(rates - 1) > 0.01) & (plan.slots.win_ratio[1][places] != 0)
    assert np.count_nonzero(unlike) > 50
    together = plan.select(drafts, numbers)
    assert np.count_nonzero(together.index >= 0) > 50
    for i in range(200):
        one = plan.select(drafts[i], numbers[i])
        assert (one.token, one.index) == (together.token[i], together.index[i])


def test_sparse_problems() -> None:
    p, q = zipf(400, 1)
    tokens = np.arange(400) * 3 + 1
    draft, target = otm.SparseProbs(tokens, p), otm.SparseProbs(tokens, q)
    plan = otm.solve(draft, target, 4).plan
    assert_as_many(plan, 200)


def test_one_set_of_tensors() -> None:
    torch = pytest.importorskip("torch")
    plan = OptimalPlan(Problem(*zipf(300, 2), 4))
    rng = np.random.default_rng(0)
    chosen, numbers = plan.drafts.sample(rng, 50), rng.random((50, 6))
    expected = plan.select(chosen, numbers)
    for i, (drafts, uniforms) in enumerate(zip(chosen, numbers, strict=True)):
        one = plan.select(torch.from_numpy(drafts), torch.from_numpy(uniforms))
        assert one.token.dtype == one.index.dtype == torch.int64
        assert one.token.shape == one.index.shape == ()
        assert (one.token.item(), one.index.item()) == (expected.token[i], expected.index[i])


BAD = [np.nan, 1.0, 1 + 2.0**-52, -5e-324, np.inf, -np.inf, None, "a", True, 1j]


@pytest.mark.parametrize("place", [0, 1, -1])
@pytest.mark.parametrize("bad", BAD)
def test_few_uniforms_are_refused_as_many(bad: Any, place: int) -> None:
    """Catches a NaN that hides behind a comparison, which is true of none."""
    messages = set()
    for size in (3, 200):
        given: npt.NDArray[Any] = np.full(size, 0.5).astype(type(bad) if bad in (True, 1j) else "O")
        given[place] = bad
        values = given.astype(np.float64) if isinstance(bad, float) else given
        with pytest.raises(InvalidUniformsError) as refusal:
            check_uniforms(values, (size,), False, "")
        messages.add(str(refusal.value))
    assert len(messages) == 1


@pytest.mark.parametrize("dtype", ["f2", "f4", "f8", ">f8", "g"])
def test_few_uniforms_of_any_kind_of_floats(dtype: str) -> None:
    for size in (0, 4, 200):
        given = np.linspace(0, 0.9, size).astype(dtype)
        found = check_uniforms(given, (size,), False, "")
        assert found.dtype == np.float64
        assert found.tolist() == given.astype(np.float64).tolist()
