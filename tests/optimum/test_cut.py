"""The closed form of α_k: against all cuts, golden values, and the properties of Lemma 1."""

from __future__ import annotations

import itertools
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from otm._core.arithmetic import Number, Probs, at_least_once
from otm._core.ratios.bins import RatioBins
from otm.optimum.cut import cut_in_bins, cuts_in_bins, minimum_cut, optimal_cap, optimal_value
from otm.problem import Problem
from otm.testing.strategies import pairs, problems

F = Fraction


def alpha(draft: object, target: object, k: int) -> Number:
    return minimum_cut(Problem(draft, target, k)).value


def cut_value(problem: Problem, tokens: list[int]) -> Number:
    """q(H) + 1 − p(H)^k of any set H of tokens."""
    value: Number = problem.target[tokens].sum() + 1 - problem.draft[tokens].sum() ** problem.k
    return value


@given(problems(exact=True))
def test_the_minimum_is_over_all_cuts(problem: Problem) -> None:
    subsets = itertools.chain.from_iterable(
        itertools.combinations(range(problem.n), size) for size in range(problem.n + 1)
    )
    cut = minimum_cut(problem)
    assert cut.value == min(cut_value(problem, list(subset)) for subset in subsets)
    assert cut.value == cut_value(problem, cut.tokens.tolist())


def test_along_the_prefixes_the_value_is_not_unimodal() -> None:
    # a search that bisects for a threshold ends at the wrong cut here
    draft, target = [F(x, 17) for x in (7, 2, 6, 2)], [F(x, 9) for x in (1, 1, 4, 3)]
    problem = Problem(draft, target, 2)
    values = [
        cut_value(problem, problem.by_ratio.tokens[:j].tolist()) for j in range(problem.n + 1)
    ]
    assert [a > b for a, b in itertools.pairwise(values)] == [True, False, True, False]
    assert minimum_cut(problem).value == min(values)


@pytest.mark.parametrize("k", [1, 2, 3, 8])
@pytest.mark.parametrize("b", [F(0), F(1, 8), F(1, 4), F(1, 2), F(7, 8), F(1)])
def test_bernoulli_laws(b: Fraction, k: int) -> None:
    # SpecTr, equation 10, with p = Ber(1/4) and q = Ber(b)
    expected = min(b, 1 - F(3, 4) ** k) + min(1 - b, 1 - F(1, 4) ** k)
    assert alpha([F(3, 4), F(1, 4)], [1 - b, b], k) == expected
    assert alpha([0.75, 0.25], [float(1 - b), float(b)], k) == pytest.approx(
        float(expected), abs=1e-15
    )


@pytest.mark.parametrize(("d", "r"), [(2, 2), (6, 3), (12, 4), (5, 5)])
@pytest.mark.parametrize("k", [1, 2, 5])
def test_uniform_laws(d: int, r: int, k: int) -> None:
    # p = U(d), q = U(d/r): 1 − (1 − 1/r)^k
    target = [F(r, d)] * (d // r) + [F(0)] * (d - d // r)
    assert alpha([F(1, d)] * d, target, k) == 1 - (1 - F(1, r)) ** k
    assert alpha(target, [F(1, d)] * d, k) == F(1, r)


def test_swapped_arguments_fail() -> None:
    # Inputs: swapped arguments
    p, q = [F(1, 2), F(1, 2), F(0)], [F(1, 4), F(1, 4), F(1, 2)]
    assert alpha(p, q, 2) == F(1, 2)
    assert alpha(q, p, 2) == F(3, 4)


def test_one_token_is_always_accepted() -> None:
    # Inputs: V = 1
    assert alpha([1.0], [1.0], 3) == 1
    assert alpha([F(1)], [F(1)], 1) == 1


@given(pairs(exact=True))
def test_one_draft_is_accepted_but_for_the_distance(pair: tuple[Probs, Probs]) -> None:
    # Inputs: k = 1 → 1 − TV
    draft, target = pair
    assert alpha(draft, target, 1) == 1 - abs(draft - target).sum() / 2


@given(pairs(exact=True), st.integers(1, 4))
def test_another_draft_never_lowers_alpha(pair: tuple[Probs, Probs], k: int) -> None:
    # Inputs: k → k + 1 (SpecTr, Lemma 1, monotonicity)
    assert alpha(*pair, k) <= alpha(*pair, k + 1)


@given(pairs())
def test_many_drafts_reach_what_can_be_drafted(pair: tuple[Probs, Probs]) -> None:
    # SpecTr, Lemma 1, consistency; not for subnormal drafts, which 10^6 draws do not hit
    draft, target = pair
    if draft[draft > 0].min() > 1e-4:
        expected = target[draft > 0].sum()
        assert alpha(draft, target, 10**6) == pytest.approx(expected, abs=1e-12)


@given(problems(exact=True))
def test_the_simple_upper_bound(problem: Problem) -> None:
    # Inputs: α ≤ Σ min(q, 1 − (1 − p)^k)
    bound = np.minimum(problem.target, at_least_once(problem.draft, problem.k)).sum()
    assert minimum_cut(problem).value <= bound


@given(problems(exact=True), st.data())
def test_permuted_tokens_leave_the_value(problem: Problem, data: st.DataObject) -> None:
    # Inputs: permuted tokens
    order = data.draw(st.permutations(range(problem.n)))
    permuted = alpha(problem.draft[order], problem.target[order], problem.k)
    assert permuted == minimum_cut(problem).value


@given(problems(exact=True, kinds=["equal"]), problems(exact=True, kinds=["disjoint"]))
def test_equal_and_disjoint_laws(equal: Problem, disjoint: Problem) -> None:
    # Degenerate distributions
    assert minimum_cut(equal).value == 1
    assert minimum_cut(disjoint).value == 0


@given(problems(kinds=["equal"]))
def test_equal_floats_give_one_up_to_rounding(problem: Problem) -> None:
    # Degenerate distributions: draft and target equal bit for bit
    assert 1 - 1e-15 <= minimum_cut(problem).value <= 1


def test_rounding_does_not_lift_alpha_above_one() -> None:
    weights = np.array([4, 6, 4, 6, 1, 6, 2, 1, 3, 9, 6, 6, 6])  # found by search
    law = weights / weights.sum()
    assert alpha(law, law, 1) == 1


@given(problems())
def test_floats_agree_with_fractions(problem: Problem) -> None:
    value = minimum_cut(problem).value
    assert abs(F(value) - minimum_cut(problem.to_exact()).value) <= 1e-14
    assert 0 <= value <= 1


def test_a_tiny_alpha_keeps_its_digits() -> None:
    # 1 + min(Q − P^k) is 0 here
    assert alpha([1 - 2e-20, 2e-20], [0.0, 1.0], 3) == pytest.approx(6e-20, rel=1e-14)
    assert alpha([1.0, 1e-300], [1e-290, 1.0], 1) == pytest.approx(1e-290, rel=1e-14)


@given(problems(exact=True))
def test_the_cap_gives_a_feasible_mass_of_alpha(problem: Problem) -> None:
    cap, value = optimal_cap(problem), minimum_cut(problem).value
    accepted = np.minimum(problem.target, cap * problem.draft)
    assert 1 <= cap <= problem.k
    assert accepted.sum() == value
    for size in range(problem.n + 1):  # v(A) ≤ Pr(some draft in A), for all sets A
        for tokens in itertools.combinations(range(problem.n), size):
            chosen = list(tokens)
            some_draft = at_least_once(problem.draft[chosen].sum() + F(0), problem.k)
            assert accepted[chosen].sum() <= some_draft


def test_a_cap_below_one_and_the_value() -> None:
    """Bug: a cap that is raised to more than one, where rounding may have taken it below."""
    problem = Problem([F(1, 2), F(1, 2)], [F(0), F(1)], 2)
    assert optimal_value(problem, 2) == F(3, 4)
    assert optimal_cap(problem) == F(3, 2)


def test_the_cap_is_k_where_every_draft_helps() -> None:
    assert optimal_cap(Problem([F(1, 2), F(1, 2), 0], [F(1, 4), F(1, 4), F(1, 2)], 3)) == 3


def test_the_cap_is_that_of_the_value_however_little_is_lost() -> None:
    """Bug: in fractions too, a value that is one but for rounding."""
    little = F(1, 10**30)
    problem = Problem([F(1, 2), F(1, 2)], [F(1, 4) - little, F(3, 4) + little], 2)
    assert optimal_value(problem) == 1 - little
    assert optimal_cap(problem) == F(3, 2)


def test_the_value_and_the_prefix_belong_together() -> None:
    problem = Problem([F(3, 4), F(1, 4)], [F(1, 4), F(3, 4)], 2)
    assert optimal_value(problem, 2) == F(11, 16)
    assert optimal_value(problem, 1) == F(1, 2)
    assert minimum_cut(problem).tokens.tolist() == [0]


@pytest.mark.parametrize("law", [[0.1] * 10, [1 / 3, 1 / 5, 7 / 15], [0.25] * 4])
def test_the_cap_of_equal_laws_is_the_one_of_fractions(law: list[float]) -> None:
    """Bug: a cap that rounding decides, where every cap from one on gives the same mass."""
    draft = np.array(law) / sum(law)
    assert optimal_cap(Problem(draft, draft, 3)) == 3
    assert optimal_cap(Problem(*[[F(x) / sum(map(F, law)) for x in law]] * 2, 3)) == 3


def test_the_cap_is_at_least_one_where_floats_cancel() -> None:
    problem = Problem([6e-32, 1.0], [0.157, 0.843], 3)
    assert 1 <= optimal_cap(problem) <= 3


def test_the_cap_is_at_most_k_where_floats_cancel() -> None:
    # bug: for one draft a cap of 1 + 1e-8, where a rare draft leaves little mass above
    rare = 2.69447894e-09
    problem = Problem([rare, 1 - rare], [0.44314183, 0.55685817], 1)
    value = optimal_value(problem)
    cap, _ = problem.bins.cap_of_mass(value)
    assert cap is not None
    assert cap > 1
    assert optimal_cap(problem) == 1


@pytest.mark.parametrize("bits", [46, 52])
def test_bins_that_are_split_give_the_cuts_of_single_ratios(bits: int) -> None:
    """Catches a bin that is not split although a cut inside of it is better, for one k of several.

    With 52 bits a bin holds all ratios of an octave.
    """
    rng = np.random.default_rng(3)
    ks = [1, 2, 5, 40]
    for _ in range(10):
        p, q = rng.dirichlet(np.ones(200), 2)
        values, sizes, bins = cuts_in_bins(RatioBins.of(p, q, few=0, bits=bits), ks)
        for k, value, size in zip(ks, values, sizes, strict=True):
            single, count, single_bins = cut_in_bins(RatioBins.of(p, q), k)
            assert type(value) is float
            assert value == pytest.approx(single, rel=1e-14)
            assert bins.tokens_below(size).tolist() == single_bins.tokens_below(count).tolist()
