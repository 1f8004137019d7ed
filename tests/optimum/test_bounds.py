"""The bounds of the SpecTr paper: each on its side of α, tight where it should be; ρ* of k-Seq."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import otm
from otm import Problem
from otm.errors import InvalidParameterError, ProblemTooLargeError
from otm.optimum.bounds import Bound, guarantee, lemma_3_by_definition, spectr_bounds
from otm.optimum.division_factor import bisection_steps, excess, optimal_division_factor
from otm.testing.strategies import problems

F = Fraction
NAMES = [
    ("lower", "Lemma 1, monotonicity"),
    ("upper", "Lemma 1, consistency"),
    ("upper", "Lemma 3"),
    ("lower", "Lemma 3"),
    ("lower", "appendix C.1"),
    ("lower", "Theorem 1"),
    ("upper", "Theorem 1"),
    ("upper", "Theorem 1"),
    ("upper", "equation 11"),
    ("upper", "equation 11"),
]


def brute_force_alpha(problem: Problem) -> Fraction:
    """Return the least q(H) + 1 − p(H)^k over all sets H of tokens."""
    tokens = range(problem.n)
    sets = itertools.chain.from_iterable(
        itertools.combinations(tokens, m) for m in range(len(tokens) + 1)
    )
    p, q = problem.draft.tolist(), problem.target.tolist()
    return min(sum(q[x] for x in H) + 1 - sum(p[x] for x in H) ** problem.k for H in sets)


def uniform(d: int, r: int, k: int) -> Problem:
    """Distributions p = U(d) and q = U(d/r)."""
    return Problem([F(1, d)] * d, [F(r, d)] * (d // r) + [F(0)] * (d - d // r), k)


@given(problems(exact=True))
def test_every_bound_is_on_its_side(problem: Problem) -> None:
    """No tolerance: in fractions a bound that is wrong by rounding is wrong."""
    alpha = brute_force_alpha(problem)
    proved = spectr_bounds(problem)
    assert [(bound.kind, bound.source) for bound in proved] == NAMES
    for bound in proved:
        assert isinstance(bound.value, Fraction)
        assert 0 <= bound.value <= 1
        assert (bound.value <= alpha) if bound.kind == "lower" else (bound.value >= alpha), bound


@settings(max_examples=50)
@given(problems(max_tokens=8, max_drafts=40))
def test_in_floats_they_are_the_exact_ones_up_to_rounding(problem: Problem) -> None:
    """Catches a formula that loses digits, or a value outside [0, 1]."""
    for bound, exact in zip(spectr_bounds(problem), spectr_bounds(problem.to_exact()), strict=True):
        assert type(bound.value) is float
        assert 0 <= bound.value <= 1
        assert abs(bound.value - exact.value) <= 1e-13 * exact.value + 1e-300, bound


def test_the_limit_of_an_enumeration_belongs_to_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Bug: a limit that leaves out the size that it names, or counts three sets a token."""
    problem = Problem([0.75, 0.25], [0.25, 0.75], k=2)
    monkeypatch.setattr("otm.optimum.bounds.LARGEST_ENUMERATION", 2**2 * 2**2)
    assert lemma_3_by_definition(problem) == 0.6875
    monkeypatch.setattr("otm.optimum.bounds.LARGEST_ENUMERATION", 2**2 * 2**2 - 1)
    with pytest.raises(ProblemTooLargeError):
        lemma_3_by_definition(problem)


def test_a_bound_is_not_lifted_above_one_by_rounding() -> None:
    """Bug: a sum of probabilities that exceeds one, as a lower bound of a probability."""
    law = [0.00364964, 0.00364964, 0.00364964, 0.97080292, 0.00364964, 0.01459854]
    for weights in (law, [0.1] * 10, [1 / 3, 1 / 5, 7 / 15]):
        probabilities = np.array(weights) / sum(weights)
        for k in (1, 2, 3):
            assert max(values(Problem(probabilities, probabilities, k))) <= 1


def values(problem: Problem) -> list[float | Fraction]:
    return [bound.value for bound in spectr_bounds(problem)]


def test_which_bounds_are_tight_for_equal_laws() -> None:
    law = [F(1, 2), F(1, 3), F(1, 6)]
    factor = F(5, 9) + F(4, 27)  # 1 − (1 − 1/3)^3
    assert guarantee(Problem(law, law, 3)) == factor
    assert values(Problem(law, law, 3)) == [1, 1, 1, factor, factor, 1, 1, 1, 1, 1]


def test_all_bounds_are_zero_for_disjoint_laws() -> None:
    """Catches 0/0: nothing is ever accepted, ρ is free."""
    for one, zero in ((F(1), F(0)), (1.0, 0.0)):
        assert values(Problem([one, zero], [zero, one], 4)) == [0] * 10


def test_the_bounds_for_one_draft_all_say_the_same_but_consistency() -> None:
    p, q = [F(1, 2), F(1, 2), F(0)], [F(1, 4), F(1, 2), F(1, 4)]
    tight = values(Problem(p, q, 1))
    assert tight[7] > tight[2]  # Theorem 1 with 1 − 1/e, which knows nothing of k
    assert {value for i, value in enumerate(tight) if i != 7} == {F(3, 4)}


@pytest.mark.parametrize(("d", "r"), [(4, 2), (6, 3), (8, 4), (6, 6)])
@pytest.mark.parametrize("k", [2, 3, 5])
def test_k_seq_is_optimal_for_uniform_laws(d: int, r: int, k: int) -> None:
    """Here Theorem 1's lower bound is α, and ρ* is known."""
    problem = uniform(d, r, k)
    alpha = 1 - (1 - F(1, r)) ** k
    rho = optimal_division_factor(problem)
    assert 0 <= rho - r * alpha <= F(1, 2**50)
    k_seq = values(problem)[5]
    assert 0 <= alpha - k_seq <= F(1, 2**49)
    assert otm.alpha(problem.draft, problem.target, k) == alpha


def test_equation_11_is_tight_where_one_token_does_it_all() -> None:
    """With p = U(4), q on one token: α = 1 − (1 − p)^k, and Σ min(q, 1 − (1 − p)^k) is the same."""
    tight = values(uniform(4, 4, 2))
    assert tight[8] == F(7, 16)
    assert tight[9] == F(1, 2)


@given(problems(max_tokens=4, max_drafts=3, exact=True))
@settings(max_examples=150)
def test_lemma_3_by_definition_is_alpha(problem: Problem) -> None:
    """The paper's bound, over all sets and all tuples of drafts, equals the optimum."""
    assert lemma_3_by_definition(problem) == brute_force_alpha(problem)


def lemma_3_as_printed(problem: Problem) -> Fraction:
    """Equation 9, written out once more, with sets as bit masks and no function of OTM."""
    n, k = problem.n, problem.k
    p, q = problem.draft.tolist(), problem.target.tolist()
    smallest = F(2)
    for mask in range(2**n):
        value = sum(min(q[y], 1 - (1 - p[y]) ** k) for y in range(n) if mask >> y & 1)
        for drafts in itertools.product(range(n), repeat=k):
            outside = {y for y in drafts if not mask >> y & 1}
            value += min(math.prod(p[x] for x in drafts), sum(q[y] for y in outside))
        smallest = min(smallest, value)
    return smallest


@given(problems(max_tokens=4, max_drafts=3, exact=True))
@settings(max_examples=50)
def test_lemma_3_by_definition_is_equation_9(problem: Problem) -> None:
    assert lemma_3_by_definition(problem) == lemma_3_as_printed(problem)


@pytest.mark.parametrize(
    ("n", "k"), [(9, 4), (30, 1), (2, 19), (2_000, 2), (3, 10**6), (50_000, 8)]
)
def test_lemma_3_by_definition_refuses_what_takes_too_long(n: int, k: int) -> None:
    """Catches a count too long to format, and tables that are made before they are counted."""
    problem = Problem(np.full(n, 1 / n), np.full(n, 1 / n), k)
    with pytest.raises(ProblemTooLargeError, match=r"limit is 2000000.*use otm\.alpha") as caught:
        lemma_3_by_definition(problem)
    assert f"n = {n} tokens and k = {k} drafts" in str(caught.value)
    assert len(str(caught.value)) < 300


def test_lemma_3_by_definition_takes_what_is_within_the_limit() -> None:
    law = [F(1, 5), F(4, 5)]
    assert lemma_3_by_definition(Problem(law, law[::-1], 9)) == otm.alpha(law, law[::-1], 9)


@pytest.mark.parametrize("k", [1, 2, 3, 4, 10, 100])
def test_the_guarantee_is_above_its_limit_and_falls(k: int) -> None:
    exact = guarantee(Problem([F(1)], [F(1)], k))
    assert exact == 1 - (1 - F(1, k)) ** k
    assert exact > F(1 - math.exp(-1))
    assert guarantee(Problem([F(1)], [F(1)], k + 1)) < exact
    assert guarantee(Problem([1.0], [1.0], k)) == pytest.approx(float(exact), rel=1e-15)


def test_the_guarantee_of_very_many_drafts_is_its_limit() -> None:
    assert guarantee(Problem([1.0], [1.0], 2**50)) == pytest.approx(1 - math.exp(-1))


def test_the_limit_of_the_guarantee_is_rounded_down() -> None:
    """Catches an upper bound in fractions that divides by a float above 1 − 1/e."""
    k_seq, bound = values(Problem([F(1), F(0)], [F(1, 2), F(1, 2)], 1))[5:8:2]
    in_decimals = F("0.63212055882855767840447622983853913255418886896823")
    assert 0 < in_decimals - F(k_seq) / F(bound) < F(1, 10**15)


def test_bounds_are_frozen_and_plain() -> None:
    bound = spectr_bounds(Problem([0.5, 0.5], [0.25, 0.75], 2))[0]
    assert bound == Bound("lower", bound.value, bound.formula, bound.source)
    with pytest.raises(AttributeError):
        bound.value = 2.0  # type: ignore[misc]


# The division factor ----------------------------------------------------------------------------


def beta(problem: Problem, rho: Fraction) -> Fraction:
    """Σ min(p, q/ρ)."""
    pairs = zip(problem.draft, problem.target, strict=True)
    return sum((min(p, q / rho) for p, q in pairs), F(0))


def is_valid(problem: Problem, rho: Fraction) -> bool:
    """Whether k-Seq with ρ is a transport plan: its test accepts no token more often than q."""
    accepted = beta(problem, rho)
    return 1 - (1 - accepted) ** problem.k <= rho * accepted


@given(problems(exact=True), st.sampled_from([None, F(1, 10), 2.0**-20, 1e-9]))
def test_the_division_factor_is_the_upper_end_of_its_bracket(
    problem: Problem, delta: float | Fraction | None
) -> None:
    """Catches a ρ below ρ*, where the rule is not lossless, and one further away than stated."""
    rho = F(optimal_division_factor(problem, delta))  # type: ignore[arg-type]
    width = F(2) ** -50 if delta is None else F(delta)
    assert 1 <= rho <= problem.k
    assert is_valid(problem, rho)
    assert excess(problem, rho) <= 0
    if rho > 1:
        assert rho - width < 1 or not is_valid(problem, rho - width)


@given(problems(exact=True))
def test_lemma_4_brackets_the_division_factor(problem: Problem) -> None:
    """It is f ≥ 0 at 1, f ≤ 0 at min(k, max q/p), and decreasing between."""
    ends = [F(1), F(problem.k)]
    pairs = [(p, q) for p, q in zip(problem.draft, problem.target, strict=True) if q]
    if all(p for p, _ in pairs):
        ends[1] = max(F(1), min(ends[1], max(q / p for p, q in pairs)))
    assert excess(problem, ends[0]) >= 0 >= excess(problem, ends[1])
    assert optimal_division_factor(problem) <= ends[1]
    grid = [ends[0] + (ends[1] - ends[0]) * F(i, 8) for i in range(9)]
    assert (np.diff([excess(problem, rho) for rho in grid]) <= 0).all()
    for rho in grid:
        assert excess(problem, rho) == 1 - (1 - beta(problem, rho)) ** problem.k - rho * beta(
            problem, rho
        )


@given(problems(max_tokens=8, max_drafts=64))
def test_in_floats_the_division_factor_is_valid_up_to_rounding(problem: Problem) -> None:
    rho = optimal_division_factor(problem)
    assert type(rho) is float
    assert 1 <= rho <= problem.k
    exact = problem.to_exact()
    assert excess(exact, F(rho)) <= F(1, 10**14)
    assert (
        abs(rho - optimal_division_factor(exact)) <= 1e-12 * rho or excess(exact, F(rho)) > -1e-12
    )


def test_the_division_factor_is_one_for_equal_and_for_disjoint_laws() -> None:
    """Catches a search for the root of a function that is zero everywhere."""
    for draft, target in (([0.3, 0.7], [0.3, 0.7]), ([1.0, 0.0], [0.0, 1.0])):
        assert optimal_division_factor(Problem(draft, target, 8)) == 1.0
        assert type(optimal_division_factor(Problem(draft, target, 8))) is float


@pytest.mark.parametrize("k", [1, 2, 3, 64, 10**6])
@pytest.mark.parametrize("delta", [1.0, 0.3, 2.0**-10, 2.0**-50, 1e-300])
def test_the_number_of_steps_reaches_the_width_and_no_further(k: int, delta: float) -> None:
    steps = bisection_steps(k, delta)
    assert F(k - 1, 2**steps) <= F(delta) * (1 + F(1, 10**12))
    assert steps == 0 or F(k - 1, 2 ** (steps - 1)) > F(delta) * (1 - F(1, 10**12))


@pytest.mark.parametrize("delta", [0, 0.0, -1e-9, float("nan"), float("inf")])
def test_a_width_that_is_not_positive_is_refused(delta: float) -> None:
    with pytest.raises(InvalidParameterError, match="delta = "):
        bisection_steps(2, delta)
    problem = Problem([0.5, 0.5], [0.25, 0.75], 2)
    with pytest.raises(InvalidParameterError, match="positive"):
        optimal_division_factor(problem, delta)


def test_sums_of_floats_that_round_above_one_are_cut_off() -> None:
    """Catches an upper bound of 1 + 2^−52, from a target whose entries sum to more than one."""
    rng = np.random.default_rng(0)
    above = 0
    for _ in range(200):
        problem = Problem(*[rng.dirichlet(np.ones(30))] * 2, k=10**6)
        above += problem.target.sum() > 1
        assert max(values(problem)) <= 1
    assert above


def test_the_bound_by_its_definition_is_a_number_of_python() -> None:
    """Catches a NumPy scalar, which prints otherwise."""
    assert type(lemma_3_by_definition(Problem([0.75, 0.25], [0.25, 0.75], 2))) is float
