"""The analysis of Leviathan et al.: by definition in fractions, and the numbers that they print."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from otm.arithmetic import Law
from otm.coupling import MaximalCoupling
from otm.decoding import (
    acceptance_from_divergence,
    best_gamma,
    corollary_3_9,
    divergence_lk,
    expected_tokens,
    memory_accesses_factor,
    operations_factor,
    oracle_speedup,
    walltime_improvement,
)
from otm.errors import InvalidLawError, InvalidParameterError
from otm.problem import MembershipProblem
from otm.testing.strategies import pairs

F = Fraction
rates = st.fractions(0, 1, max_denominator=30)
costs = st.fractions(0, 3, max_denominator=100)
gammas = st.integers(0, 12)


# By definition, in fractions


@given(pairs(exact=True))
def test_the_divergence_by_its_definition(pair: tuple[Law, Law]) -> None:
    """Definition 3.2, Lemma 3.3, Corollary 3.4; catches a sum that is not halved."""
    p, q = pair
    divergence = divergence_lk(p, q)
    middle = (p + q) / 2
    assert type(divergence) is Fraction
    assert divergence == np.abs(p - middle).sum() == np.abs(q - middle).sum()
    assert divergence == 1 - np.minimum(p, q).sum() == divergence_lk(q, p)
    assert (divergence == 0) == (p == q).all()
    assert (divergence == 1) == (not ((p > 0) & (q > 0)).any())


@given(pairs(exact=True))
def test_acceptance_is_that_of_algorithm_1(pair: tuple[Law, Law]) -> None:
    """Theorem 3.5: the probability that u < q(x)/p(x) for x drawn from the draft law."""
    p, q = pair
    beta = acceptance_from_divergence(divergence_lk(p, q))
    assert beta == sum(x * min(1, y / x) for x, y in zip(p, q, strict=True) if x > 0)
    assert beta == MaximalCoupling(MembershipProblem(p, q, 1)).acceptance


@given(pairs())
def test_the_divergence_of_floats(pair: tuple[Law, Law]) -> None:
    """Catches 1 − Σ min, which has no digits left for laws that are nearly equal."""
    exact = divergence_lk(*([F(x) for x in law] for law in pair))
    assume(exact == 0 or exact > 1e-15)  # below, the division of a law by its sum decides
    divergence = divergence_lk(*pair)
    assert divergence == pytest.approx(float(exact), rel=1e-9, abs=2e-16)
    assert 0 <= divergence <= 1


def test_divergences_of_rows() -> None:
    draft = np.array([[[0.5, 0.5, 0]], [[0, 0, 1]]])
    target = np.array([[0.5, 0.5, 0], [0.25, 0.25, 0.5], [0, 0, 1]])
    expected = [[0, 0.5, 1], [1, 0.5, 0]]
    assert divergence_lk(draft, target).tolist() == expected
    assert acceptance_from_divergence(expected).tolist() == [[1, 0.5, 0], [0, 0.5, 1]]


def blocks(alpha: Fraction, gamma: int) -> list[tuple[Fraction, int]]:
    """Probability and number of tokens of every way in which γ independent tests can end."""
    found = []
    for tests in itertools.product([True, False], repeat=gamma):
        passed = sum(tests)
        tokens = (tests.index(False) if False in tests else gamma) + 1
        found.append((alpha**passed * (1 - alpha) ** (gamma - passed), tokens))
    return found


@given(rates, st.integers(0, 7), costs)
def test_factors_by_all_ends_of_a_block(alpha: Fraction, gamma: int, cost: Fraction) -> None:
    """Equation (1), Theorems 3.8 and 3.11; catches γ for γ + 1, and a draft that is not counted."""
    ends = blocks(alpha, gamma)
    assert sum(probability for probability, _ in ends) == 1
    tokens = sum(probability * number for probability, number in ends)
    assert expected_tokens(alpha, gamma) == tokens
    assert memory_accesses_factor(alpha, gamma) == 1 / tokens
    assert walltime_improvement(alpha, gamma, cost) == tokens / (1 + gamma * cost)
    assert operations_factor(alpha, gamma, cost) == (gamma + 1 + gamma * cost) / tokens
    assert operations_factor(alpha, gamma, cost) >= 1


@given(rates, gammas)
def test_results_of_fractions_are_fractions(alpha: Fraction, gamma: int) -> None:
    """Catches a float, or a whole number, on the way at α = 0, α = 1 or γ = 0."""
    for result in (
        acceptance_from_divergence(alpha),
        expected_tokens(alpha, gamma),
        memory_accesses_factor(alpha, gamma),
        operations_factor(alpha, gamma, 0),
        walltime_improvement(alpha, gamma, 1),
        corollary_3_9(alpha, 2),
        oracle_speedup(alpha, 1),
    ):
        assert type(result) is Fraction


@given(rates, costs)
def test_some_number_of_drafts_improves_just_if_the_corollary_says_so(
    alpha: Fraction, cost: Fraction
) -> None:
    """Corollary 3.9, in both directions, and its factor."""
    improvements = walltime_improvement(alpha, range(1, 40), cost)
    assert max(improvements) >= corollary_3_9(alpha, cost) == improvements[0]
    assert (max(improvements) > 1) == (alpha > cost) == (corollary_3_9(alpha, cost) > 1)


@given(rates, costs)
def test_the_best_gamma_by_trying_all(alpha: Fraction, cost: Fraction) -> None:
    """Catches a neighbour of the best, and a larger one of equals (α = c, α = c = 1)."""
    improvements = walltime_improvement(alpha, range(60), cost).tolist()
    best = improvements.index(max(improvements))
    assert best_gamma(alpha, cost, largest=59) == best
    assert best_gamma(alpha, cost, largest=3) == min(best, 3)
    if best < 59 and (alpha < 1 or cost >= 1):
        assert best_gamma(alpha, cost) == best
        assert type(best_gamma(alpha, cost)) is int


@given(rates, costs)
def test_the_oracle_by_its_mean_time(alpha: Fraction, cost: Fraction) -> None:
    """Catches an oracle that some γ beats, and a time without the drafts or with one too many."""
    assume(alpha < 1)
    drafts = sum(n * (1 - alpha) * alpha**n for n in range(200))  # that pass, one after another
    speed = oracle_speedup(alpha, cost)
    assert float(speed) == pytest.approx(float((drafts + 1) / (1 + cost * drafts)), rel=0.01)
    assert oracle_speedup(alpha) == 1 / (1 - alpha)
    assert speed >= max(walltime_improvement(alpha, range(40), cost)) or cost > 1


# Floats


@given(
    st.floats(0, 1) | st.integers(1, 50).map(lambda bits: 1 - 2.0**-bits),
    st.integers(0, 300),
    st.floats(0, 10),
)
def test_floats_keep_their_digits(alpha: float, gamma: int, cost: float) -> None:
    """Catches (1 − α^(γ+1)) / (1 − α) as printed, which cancels near α = 1."""
    a, c = F(alpha), F(cost)
    expected = sum(a**i for i in range(gamma + 1))
    assert expected_tokens(alpha, gamma) == pytest.approx(float(expected), rel=2e-15)
    improvement = float(expected / (1 + gamma * c))
    assert walltime_improvement(alpha, gamma, cost) == pytest.approx(improvement, rel=3e-15)
    assert type(expected_tokens(alpha, gamma)) is float


def test_blocks_of_any_length() -> None:
    """Catches a loop over the drafts, and an overflow."""
    largest = 2**53
    assert expected_tokens(1.0, largest) == largest + 1.0
    assert expected_tokens(0.75, largest) == 4.0
    assert expected_tokens(1 - 2.0**-53, largest) == pytest.approx(2.0**53 * -math.expm1(-1))
    assert walltime_improvement(1.0, largest, 1e200) == pytest.approx(1e-200)
    assert operations_factor(0.0, largest, 1e200) == pytest.approx(2.0**53 * 1e200)
    assert oracle_speedup(1.0, 5e-324) == math.inf


def test_certain_acceptance() -> None:
    """At α = 1 the printed formulas are 0/0: every draft counts."""
    for one in (1, 1.0, F(1)):
        assert expected_tokens(one, 7) == 8
        assert walltime_improvement(one, 7, one) == 1
        assert memory_accesses_factor(one, 7) == F(1, 8)
        assert operations_factor(one, 7, 0) == 1
        assert corollary_3_9(one, 0) == 2
        assert oracle_speedup(one) == math.inf
        assert oracle_speedup(one, F(1, 4)) == 4
        assert best_gamma(one, one) == 0
        assert best_gamma(one, F(99, 100), largest=10**6) == 10**6


def test_the_best_gamma_of_floats() -> None:
    """Catches a search that stops at a bound, or where powers of α are lost."""
    for alpha, cost in ((0.999999, 0.01), (0.5, 1e-300), (1 - 2.0**-40, 1e-30), (0.9, 1e-12)):
        best = best_gamma(alpha, cost)
        near = walltime_improvement(alpha, [best // 2, best, 2 * best], cost)
        assert near[1] == pytest.approx(max(near), rel=1e-15)
        a, c = F(alpha), F(cost)
        if best < 2_000:
            exact = walltime_improvement(a, [best - 1, best, best + 1], c)
            assert exact[1] == max(exact)
    assert best_gamma(1 - 2.0**-53, 1e-300) == 2**53  # 6e18 without this bound
    assert best_gamma(0.5, 0, largest=10_000) == 10_000  # 2^−10000 is no float
    assert best_gamma(F(1, 2), F(0), largest=2**40) == 2**40
    assert best_gamma(0.0, 0.0) == best_gamma(0.3, 0.3) == best_gamma(0, 5) == 0
    assert best_gamma(0.9, 0.01, largest=0) == 0


def test_arrays_broadcast() -> None:
    """Catches a scalar rule applied to the first entry of an array."""
    alpha, gamma = np.array([0, 0.5, 1.0]), np.array([[0], [1], [3]])
    assert expected_tokens(alpha, gamma).tolist() == [[1, 1, 1], [1, 1.5, 2], [1, 1.875, 4]]
    exact = expected_tokens([F(0), F(1, 2), 1], gamma)
    assert exact.dtype == object
    assert exact.tolist() == expected_tokens(alpha, gamma).tolist()
    assert best_gamma([[0.5], [0.9]], [0.02, 0.6]).tolist() == [[4, 0], [19, 2]]
    assert best_gamma([0.5, 1.0], [0, 2.0], largest=9).tolist() == [9, 0]
    assert oracle_speedup([F(1), F(1, 2)]).tolist() == [math.inf, 2]
    assert expected_tokens([], 3).shape == (0,)
    assert best_gamma([], 0.5).shape == (0,)


def test_floats_beside_fractions_give_floats() -> None:
    assert type(walltime_improvement(F(1, 2), 2, 0.5)) is float
    assert type(walltime_improvement(0.5, 2, F(1, 2))) is float
    assert type(expected_tokens(1, 2)) is float
    assert type(expected_tokens([F(1, 2), 0.5], 2)[0]) is np.float64
    assert walltime_improvement(np.float16(0.5), 2, np.float16(0.5)) == 0.875
    torch = pytest.importorskip("torch")
    assert expected_tokens(torch.tensor([0.5]), torch.tensor(1)).tolist() == [1.5]


# What the paper prints


@pytest.mark.parametrize(
    ("alpha", "gamma", "operations", "speed"),
    [
        (0.6, 2, 1.53, 1.96),
        (0.7, 3, 1.58, 2.53),
        (0.8, 2, 1.23, 2.44),
        (0.8, 5, 1.63, 3.69),
        (0.9, 2, 1.11, 2.71),
        (0.9, 10, 1.60, 6.86),
    ],
)
def test_table_1(alpha: float, gamma: int, operations: float, speed: float) -> None:
    assert round(operations_factor(alpha, gamma, 0), 2) == operations
    assert round(walltime_improvement(alpha, gamma, 0), 2) == speed
    assert memory_accesses_factor(alpha, gamma) == pytest.approx(1 / speed, abs=0.002)


@pytest.mark.parametrize(
    ("gamma", "alpha", "cost", "computed", "printed"),
    [
        (7, 0.75, 0.02, 3.16, 3.2),
        (7, 0.8, 0.04, 3.25, 3.3),
        (7, 0.82, 0.11, 2.50, 2.5),
        (7, 0.62, 0.02, 2.26, 2.3),
        (5, 0.68, 0.04, 2.35, 2.4),
        (3, 0.71, 0.11, 1.93, 2.0),
        (5, 0.65, 0.02, 2.40, 2.4),
        (5, 0.73, 0.04, 2.62, 2.6),
        (3, 0.74, 0.11, 2.02, 2.0),
        (5, 0.53, 0.02, 1.89, 1.9),
        (3, 0.55, 0.04, 1.80, 1.8),
        (3, 0.56, 0.11, 1.54, 1.6),
    ],
)
def test_table_4(gamma: int, alpha: float, cost: float, computed: float, printed: float) -> None:
    """Column EXP; the printed numbers come from some α and c that round to the printed ones."""
    assert round(walltime_improvement(alpha, gamma, cost), 2) == computed
    least = walltime_improvement(alpha - 0.005, gamma, cost + 0.005)
    most = walltime_improvement(alpha + 0.005, gamma, cost - 0.005)
    assert least - 0.05 <= printed <= most + 0.05


STANDARD = [
    (0.62, 2.33, 2.5),
    (0.71, 2.94, 3.1),
    (0.76, 3.45, 3.6),
    (0.84, 4.79, 5.0),
]


@pytest.mark.parametrize(("alpha", "computed", "printed"), STANDARD)
def test_appendix_a5_standard_sampling(alpha: float, computed: float, printed: float) -> None:
    """T5-small at l = 1, 0.5, 0.3, 0.1: what is printed is above what Theorem 3.8 gives."""
    assert round(walltime_improvement(alpha, best_gamma(alpha, 0.015), 0.015), 2) == computed
    assert printed > computed


def test_appendix_a5_is_not_explained_by_rounding() -> None:
    """What the module says of it."""

    def most(alpha: float) -> float:
        highest, cost = alpha + 0.005, 0.0145
        return float(walltime_improvement(highest, best_gamma(highest, cost), cost))

    assert any(most(alpha) < printed - 0.05 for alpha, _, printed in STANDARD)


@pytest.mark.parametrize(
    ("alpha", "computed", "printed"),
    [(0.75, 3.30, 3.3), (0.8, 3.87, 3.9), (0.87, 4.91, 4.9)],
)
def test_appendix_a5_argmax(alpha: float, computed: float, printed: float) -> None:
    improvement = walltime_improvement(alpha, 8, 0.015)
    assert round(improvement, 2) == computed
    assert round(improvement, 1) == printed


def test_the_numbers_of_the_text() -> None:
    """Section 3.6: a bigram model with α ≈ 0.2.  Section 3.5: an oracle gains up to 60 % more."""
    assert round(walltime_improvement(0.2, 3, 0), 2) == 1.25
    alpha, cost = np.linspace(0.5, 0.95, 46), np.array([[0.01], [0.05], [0.1]])
    best = walltime_improvement(alpha, best_gamma(alpha, cost), cost)
    assert 1.5 < np.max(oracle_speedup(alpha, cost) / best) < 1.65


# What is refused


WRONG_RATES = [-0.1, 1.0000001, np.nan, math.inf, F(-1, 9), F(10, 9), 2, [0.5, 1.5]]
NOT_RATES = ["0.5", None, True, 0.5j, [F(1, 2), True], [F(1, 2), "1"], [[0.5], [0.5, 0.5]]]
WRONG_COSTS = [-0.1, np.nan, math.inf, 1e201, F(-1, 9), -1, 10**400, [1, -1], "1", None, True]
WRONG_GAMMAS = [-1, 1.0, F(1), True, "1", None, np.nan, 2**53 + 1, 10**400, [1, -1], [1.0]]
OF_ALPHA: list[Callable[[Any], Any]] = [
    acceptance_from_divergence,
    lambda alpha: expected_tokens(alpha, 2),
    lambda alpha: walltime_improvement(alpha, 2, 0.1),
    lambda alpha: operations_factor(alpha, 2, 0.1),
    lambda alpha: memory_accesses_factor(alpha, 2),
    lambda alpha: best_gamma(alpha, 0.1),
    lambda alpha: corollary_3_9(alpha, 0.1),
    oracle_speedup,
]
OF_COST: list[Callable[[Any], Any]] = [
    lambda cost: walltime_improvement(0.5, 2, cost),
    lambda cost: operations_factor(0.5, 2, cost),
    lambda cost: best_gamma(0.5, cost),
    lambda cost: corollary_3_9(0.5, cost),
    lambda cost: oracle_speedup(0.5, cost),
]
OF_GAMMA: list[Callable[[Any], Any]] = [
    lambda gamma: expected_tokens(0.5, gamma),
    lambda gamma: walltime_improvement(0.5, gamma, 0.1),
    lambda gamma: operations_factor(0.5, gamma, 0.1),
    lambda gamma: memory_accesses_factor(0.5, gamma),
]


@pytest.mark.parametrize("wrong", [*WRONG_RATES, *NOT_RATES], ids=lambda wrong: f"{wrong!r:.20}")
def test_rates_outside_their_range(wrong: Any) -> None:
    for function in OF_ALPHA:
        with pytest.raises(InvalidParameterError, match=r"^(α|D_LK) .*must be a number in \[0, 1]"):
            function(wrong)


@pytest.mark.parametrize("wrong", WRONG_COSTS, ids=lambda wrong: f"{wrong!r:.20}")
def test_costs_outside_their_range(wrong: Any) -> None:
    for function in OF_COST:
        with pytest.raises(InvalidParameterError, match=r"^[cĉ] = .*must be a number from 0"):
            function(wrong)


@pytest.mark.parametrize("wrong", WRONG_GAMMAS, ids=lambda wrong: f"{wrong!r:.20}")
def test_draft_numbers_outside_their_range(wrong: Any) -> None:
    for function in OF_GAMMA:
        with pytest.raises(InvalidParameterError, match=r"^γ = .*must be an integer from 0"):
            function(wrong)
    if wrong is not None:
        with pytest.raises(InvalidParameterError, match=r"^largest = .*must be an integer from 0"):
            best_gamma(0.5, 0.1, largest=wrong)


@pytest.mark.parametrize(("alpha", "cost"), [(0.5, 0), (1, 0), (F(1), F(1, 2)), ([0, 0.1], 0.0)])
def test_no_best_number_of_drafts(alpha: Any, cost: Any) -> None:
    """Catches a search without an end."""
    with pytest.raises(InvalidParameterError, match="give the `largest`"):
        best_gamma(alpha, cost)


def test_arguments_that_do_not_fit_together() -> None:
    with pytest.raises(InvalidParameterError, match=r"shapes \(2,\) and \(3,\)"):
        expected_tokens([0.1, 0.2], [1, 2, 3])
    with pytest.raises(InvalidParameterError, match="largest"):
        best_gamma(0.5, 0.1, largest=[1, 2])  # type: ignore[arg-type]
    with pytest.raises(InvalidLawError):
        divergence_lk([0.5, 0.5], [1.0])
