"""k-Seq: golden division factors, validity from ρ* on, and what Theorem 1 promises."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from otm._core.arithmetic import Probs, at_least_once
from otm.coupling.k_seq import KSeq
from otm.errors import InvalidParameterError
from otm.optimum.cut import minimum_cut
from otm.optimum.division_factor import bisection_steps, excess, optimal_division_factor
from otm.problem import Problem
from otm.testing import assert_lossless, exact_acceptance, exact_output_distribution
from otm.testing.instances import instance
from otm.testing.strategies import pairs, problems

F = Fraction
fewer = settings(max_examples=settings.default.max_examples // 4)


def beta(problem: Problem, rho: Fraction) -> Fraction:
    return sum(min(p, q / rho) for p, q in zip(problem.draft, problem.target, strict=True))


def meets(problem: Problem) -> bool:
    """Whether some token can come from both distributions."""
    return bool(((problem.draft > 0) & (problem.target > 0)).any())


@pytest.mark.parametrize(("d", "r"), [(2, 2), (6, 3), (12, 4), (5, 5)])
@pytest.mark.parametrize("k", [2, 3, 8])
def test_the_factor_of_uniform_laws(d: int, r: int, k: int) -> None:
    # p = U(d), q = U(d/r): ρ* = r (1 − (1 − 1/r)^k), and k-Seq is optimal
    laws = [F(1, d)] * d, [F(r, d)] * (d // r) + [F(0)] * (d - d // r)
    expected = r * (1 - (1 - F(1, r)) ** k)
    problem = Problem(*laws, k)
    assert 0 <= optimal_division_factor(problem) - expected <= F(1, 2**50)
    plan = KSeq(problem, rho=expected)
    assert plan.acceptance == minimum_cut(problem).value == 1 - (1 - F(1, r)) ** k
    floats = Problem(*[[float(x) for x in law] for law in laws], k)
    assert optimal_division_factor(floats) == pytest.approx(float(expected), abs=1e-14)


@given(pairs(kinds=["independent", "overlapping"]))
def test_the_factor_for_two_drafts_solves_a_quadratic(pair: tuple[Probs, Probs]) -> None:
    # ρ² − (2 − a) ρ + B = 0 with a = p(q/p > ρ), B = q(q/p ≤ ρ, p > 0), on the piece of ρ
    problem = Problem(*pair, 2)
    assume(np.minimum(*pair).sum() > 1e-9)  # with less, ρβ(ρ) has no digits left
    rho = optimal_division_factor(problem)
    bins = problem.bins
    roots = []
    for j, (a, b) in enumerate(zip(bins.draft_above, bins.target_below, strict=True)):
        discriminant = (2 - a) ** 2 - 4 * b
        low = bins.least[j - 1] if j else 0
        high = bins.least[j] if j < bins.least.size else math.inf
        if discriminant >= 0:
            root = (2 - a + math.sqrt(discriminant)) / 2
            if low - 1e-9 <= root <= high + 1e-9 and root >= 1:
                roots.append(root)
    assert (
        min(abs(root - rho) for root in [1, *roots]) <= 1e-7
    )  # a double root loses half the digits
    assert abs(excess(problem, rho)) <= 1e-14 or rho == 1


@given(problems(exact=True, max_drafts=4))
def test_the_factor_is_the_upper_end_of_a_tight_bracket(problem: Problem) -> None:
    rho = optimal_division_factor(problem)
    assert 1 <= rho <= problem.k
    value = beta(problem, rho)
    assert excess(problem, rho) == at_least_once(value, problem.k) - rho * value <= 0
    if meets(problem) and rho > 1:
        assert excess(problem, rho - F(1, 2**50)) > 0


@given(problems(exact=True, max_drafts=4), st.integers(1, 30))
def test_a_coarse_bracket_errs_upwards(problem: Problem, bits: int) -> None:
    # SpecTr, Lemma 4: k-Seq is valid from ρ* on, so that the upper end is the safe one
    rho = optimal_division_factor(problem, delta=2.0**-bits)
    assert excess(problem, rho) <= 0
    assert 0 <= rho - optimal_division_factor(problem) <= F(1, 2**bits)


def test_the_factor_of_many_tokens_with_nothing_near_it() -> None:
    """Catches a bracket that goes on to the next ratio, a billion, and is halved too few times."""
    n, rare = 9_000, 1e-9
    draft = np.append(np.full(n - 1, (1 - rare) / (n - 1)), rare)
    target = np.append(np.full(n - 1, 0.5 / (n - 1)), 0.5)
    few = optimal_division_factor(Problem([1 - rare, rare], [0.5, 0.5], 8))
    assert 1 < few < 8
    assert optimal_division_factor(Problem(draft, target, 8)) == pytest.approx(few, rel=1e-12)


@pytest.mark.parametrize(
    ("noise", "k"), [(0.1, 2), (0.5, 2), (0.5, 8), (2.0, 2), (2.0, 8), (2.0, 64)]
)
def test_the_factor_of_many_tokens_is_the_least_valid_one(noise: float, k: int) -> None:
    """By sums over all tokens; catches a bracket of bins that does not hold it."""
    rng = np.random.default_rng(4)
    logits = 3 * rng.normal(size=10_000)
    draft, target = np.exp(logits), np.exp(logits + noise * rng.normal(size=10_000))
    draft, target = draft / draft.sum(), target / target.sum()
    rho = optimal_division_factor(Problem(draft, target, k))

    def is_valid(rho: float) -> bool:
        accepted = np.minimum(target, rho * draft).sum()
        return bool(1 - (1 - accepted / rho) ** k <= accepted)

    assert is_valid(rho * (1 + 1e-9))
    assert not is_valid(rho * (1 - 1e-9))


@pytest.mark.parametrize(
    ("k", "delta", "steps"), [(1, 0.1, 0), (2, 1, 0), (2, 0.5, 1), (9, 2**-10, 13), (3, 5.0, 0)]
)
def test_steps_for_a_width(k: int, delta: float, steps: int) -> None:
    # SpecTr, Theorem 1: log((k − 1)/δ) evaluations of f
    assert bisection_steps(k, delta) == steps


@pytest.mark.parametrize("delta", [0.0, -1.0, math.nan, math.inf])
def test_a_width_that_is_none_is_refused(delta: float) -> None:
    with pytest.raises(InvalidParameterError, match="delta"):
        bisection_steps(2, delta)


@fewer
@given(problems(max_tokens=3, max_drafts=2, exact=True), st.fractions(0, 3, max_denominator=5))
def test_every_factor_from_the_best_on_is_lossless(problem: Problem, more: Fraction) -> None:
    plan = KSeq(problem, rho=optimal_division_factor(problem) + more)
    assert exact_output_distribution(plan).tolist() == problem.target.tolist()
    assert plan.acceptance == exact_acceptance(plan)
    assert_lossless(plan)


@given(problems(exact=True, kinds=["independent", "overlapping"]), st.integers(1, 40))
def test_a_factor_below_the_best_is_refused(problem: Problem, bits: int) -> None:
    rho = optimal_division_factor(problem) - F(1, 2**bits)
    assume(meets(problem))
    with pytest.raises(InvalidParameterError, match="valid division factor"):
        KSeq(problem, rho=rho)


def test_fractions_have_no_tolerance_and_floats_have_one() -> None:
    """Bug: fractions get the tolerance of floats, so that their output is not the target."""
    uniform, half = [Fraction(1, 4)] * 4, [Fraction(1, 2)] * 2 + [Fraction(0)] * 2  # ρ* = 3/2
    below = Fraction(3, 2) - Fraction(1, 10**15)
    with pytest.raises(InvalidParameterError, match="not a valid division factor"):
        KSeq(Problem(uniform, half, 2), rho=below)
    floats = Problem([0.25] * 4, [0.5, 0.5, 0, 0], 2)
    assert KSeq(floats, rho=float(below)).rho == float(below) < 1.5


@pytest.mark.parametrize("rho", [0.0, 0.99, -1.0])
def test_a_factor_below_one_is_refused(rho: float) -> None:
    with pytest.raises(InvalidParameterError, match="valid division factor"):
        KSeq(Problem([0.5, 0.5], [0.5, 0.5], 2), rho=rho)


@pytest.mark.parametrize("exact", [False, True])
def test_a_factor_of_another_kind_of_number_is_converted(exact: bool) -> None:
    plan = KSeq(instance("Bernoulli", exact=exact), rho=1.75 if exact else F(7, 4))
    kind = F if exact else float
    assert isinstance(plan.rho, kind)
    assert isinstance(plan.acceptance, kind)
    assert isinstance(plan.accepted_mass[0], kind)


@pytest.mark.parametrize("rho", [math.inf, math.nan, "2"])
def test_a_factor_that_is_no_number_is_refused(rho: Any) -> None:
    with pytest.raises(InvalidParameterError):
        KSeq(instance("Bernoulli", exact=False), rho=rho)


def test_below_the_best_factor_the_output_would_be_wrong() -> None:
    class Unchecked(KSeq):
        def __post_init__(self) -> None:
            object.__setattr__(self, "rho", F(1))

    plan = Unchecked(Problem([F(3, 4), F(1, 4)], [F(1, 4), F(3, 4)], 2))
    with pytest.raises(AssertionError, match="the output distribution is"):
        assert_lossless(plan)


def test_the_residual_can_hit_a_draft_above_the_best_factor() -> None:
    problem = Problem([F(1, 2), F(1, 2)], [F(1, 4), F(3, 4)], 2)
    plan = KSeq(problem, rho=F(2))
    assert plan.acceptance == exact_acceptance(plan) > plan.acceptance_by_test


@given(problems(exact=True, max_drafts=4))
def test_acceptance_by_test_is_that_of_the_paper(problem: Problem) -> None:
    plan = KSeq(problem)
    assert plan.rho is not None
    assert plan.acceptance_by_test == 1 - (1 - beta(problem, plan.rho)) ** problem.k
    assert plan.acceptance_by_test == plan.accepted_mass.sum()


@given(problems(exact=True, max_drafts=4))
def test_theorem_1_holds_against_the_optimum(problem: Problem) -> None:
    # Inputs: k-Seq ≥ (1 − (1 − 1/k)^k) α, here even for the acceptance by its test
    factor = 1 - (1 - F(1, problem.k)) ** problem.k
    plan = KSeq(problem)
    slack = F(1, 2**48)  # ρ* is rounded up
    assert plan.acceptance_by_test >= factor * minimum_cut(problem).value - slack


@given(problems(exact=True, kinds=["equal"]))
def test_equal_laws(problem: Problem) -> None:
    # Degenerate distributions: ρ* = 1, no residual
    plan = KSeq(problem)
    assert plan.rho == plan.acceptance == 1


@given(problems(exact=True, kinds=["disjoint"]))
def test_disjoint_laws(problem: Problem) -> None:
    # Degenerate distributions: p_acc/β would be 0/0
    plan = KSeq(problem)
    assert plan.rho == 1
    assert plan.acceptance == 0
    assert plan.residual.probs(problem.n).tolist() == problem.target.tolist()


def test_one_draft_needs_no_factor() -> None:
    problem = Problem([F(1, 2), F(1, 2)], [F(1, 4), F(3, 4)], 1)
    assert KSeq(problem).rho == 1
    assert KSeq(problem).acceptance == F(3, 4)


def test_the_ratio_bound_narrows_the_bracket() -> None:
    # Lemma 4: ρ* ≤ max q/p, which is far below k here
    draft, target = np.array([0.5, 0.5]), np.array([0.5 + 1e-9, 0.5 - 1e-9])
    rho = optimal_division_factor(Problem(draft, target, 64), delta=0.5)
    assert 1 < rho <= (0.5 + 1e-9) / 0.5 + 1e-15


@pytest.mark.parametrize("seed", range(40))
def test_the_factor_that_an_error_names_is_accepted(seed: int) -> None:
    # Bug: the message rounded ρ* down to 12 digits, and k-Seq then rejected that value.
    rng = np.random.default_rng(seed)
    problem = Problem(*rng.dirichlet(np.ones(5), 2), k=3)
    with pytest.raises(InvalidParameterError, match="at least") as refused:
        KSeq(problem, rho=1.0)
    named = float(str(refused.value).rpartition("= ")[2])
    assert KSeq(problem, rho=named).rho == named


@pytest.mark.parametrize("seed", range(10))
def test_a_fraction_is_named_by_a_float_that_is_accepted(seed: int) -> None:
    """Bug: the nearest float, which half of the time is below the factor."""
    rng = np.random.default_rng(seed)
    weights = rng.integers(1, 100, size=(2, 5)).tolist()
    laws = ([Fraction(w, sum(law)) for w in law] for law in weights)
    problem = Problem(*laws, k=3)
    with pytest.raises(InvalidParameterError, match="at least") as refused:
        KSeq(problem, rho=Fraction(1))
    named = Fraction(float(str(refused.value).rpartition("= ")[2]))
    assert KSeq(problem, rho=named).rho == named
    assert 0 <= named - optimal_division_factor(problem) < Fraction(1, 2**51)


def test_laws_that_add_up_to_less_than_one_by_rounding() -> None:
    """Bug: 0/0, where β is below one and yet no draft is rejected."""
    law = np.array([7, 6, 4, 3]) / 20
    plan = KSeq(Problem(law, law, 2))
    assert plan._beta < 1
    assert (plan.accept_probability == 1).all()
    assert plan.acceptance == pytest.approx(1, abs=1e-15)


@pytest.mark.parametrize("k", [1, 2, 3])
def test_laws_that_add_up_to_more_than_one_by_rounding(k: int) -> None:
    """Bug: β above one, and with it a probability."""
    law = np.full(10, 0.1) / 0.9999999999999999  # what ten times 0.1 add up to, one by one
    assert law.sum() > 1
    plan = KSeq(Problem(law, law, k))
    assert plan._beta == 1
    assert plan.acceptance == plan.acceptance_by_test == 1


def test_what_is_handed_out_is_a_number_or_cannot_be_written_to() -> None:
    """Bug: an array of a frozen plan that its user can change; a NumPy scalar, which prints so."""
    plan = KSeq(Problem([0.75, 0.25], [0.25, 0.75], 2), rho=1.75)
    assert not plan.accept_probability.flags.writeable
    assert not plan.accepted_mass.flags.writeable
    assert {type(plan.rho), type(plan.acceptance), type(plan.acceptance_by_test)} == {float}


def test_a_factor_that_a_float_holds_is_named_as_it_is() -> None:
    # bug: rounded up where nothing was to be rounded
    law = [Fraction(1, 2), Fraction(1, 2)]
    with pytest.raises(InvalidParameterError, match=r"at least ρ\* = 1\.0$"):
        KSeq(Problem(law, law, 2), rho=Fraction(1, 2))


def test_the_factor_that_a_step_of_the_bisection_hits_is_kept() -> None:
    """Bug: the upper end of the bracket where its middle is the factor."""
    uniform, half = [Fraction(1, 4)] * 4, [Fraction(1, 2)] * 2 + [Fraction(0)] * 2
    assert optimal_division_factor(Problem(uniform, half, 2)) == Fraction(3, 2)


def test_the_best_factor_is_a_number_of_python() -> None:
    """Bug: a NumPy scalar, where max q/p bounds the factor."""
    problem = Problem([0.25] * 4, [0.3, 0.3, 0.2, 0.2], 4)
    assert type(optimal_division_factor(problem)) is float
