"""The optimum for drafts that are not i.i.d.: closed forms against the exact maximum flow."""

from __future__ import annotations

import itertools
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from otm._core.arithmetic import Number, Probs
from otm._core.interval import Interval
from otm._core.probs.distribution import to_exact
from otm.drafts import (
    IID,
    DraftDistribution,
    Greedy,
    HubPairs,
    Independent,
    Joint,
    WithoutReplacement,
)
from otm.errors import InvalidDistributionError, InvalidParameterError, ProblemTooLargeError
from otm.optimum.cut import minimum_cut
from otm.optimum.non_iid_drafts import Optimum, optimum_of
from otm.optimum.solvers.max_flow import minimum_cut_by_max_flow
from otm.problem import Problem
from otm.testing.strategies import pairs

F = Fraction


def optimum(drafts: DraftDistribution, target: object, **options: Any) -> Optimum:
    return optimum_of(Problem(drafts, target), **options)


def optimal_value(drafts: DraftDistribution, target: object, **options: Any) -> Number | Interval:
    return optimum(drafts, target, **options).value


def small_law(rng: np.random.Generator, n: int) -> list[Fraction]:
    """Small whole weights: many zeros and ties."""
    weights = rng.integers(0, 6, n)
    weights[rng.integers(n)] += 1
    return [F(int(weight), int(weights.sum())) for weight in weights]


def closed_forms(law: object, k: int) -> list[DraftDistribution]:
    return [IID(law, k), WithoutReplacement(law, k), Greedy(law, k), HubPairs(law)]


def cut_value(drafts: DraftDistribution, target: Probs, tokens: list[int]) -> Number:
    """q(H) + 1 − Pr(S ⊆ H), by enumeration."""
    outside = sum((w for drawn, w in drafts.tuples() if not {*drawn} <= {*tokens}), F(0))
    return sum((target[token] for token in tokens), outside)


@pytest.mark.parametrize("block", range(4))
def test_the_closed_forms_are_the_maximum_flow(block: int) -> None:
    """640 exact instances, n up to 6 and k up to 5."""
    for seed in range(40 * block, 40 * (block + 1)):
        rng = np.random.default_rng(seed)
        n, k = int(rng.integers(1, 7)), int(rng.integers(1, 6))
        target = np.array(small_law(rng, n))
        for drafts in closed_forms(small_law(rng, n), k):
            best = optimum(drafts, target)
            assert best.value == minimum_cut_by_max_flow(drafts, target).value, (seed, drafts)
            assert best.value == cut_value(drafts, target, best.cut.tokens.tolist())


@settings(max_examples=60)
@given(pairs(exact=True), st.integers(1, 4))
def test_the_closed_forms_on_the_laws_that_break_rules(pair: tuple[Probs, Probs], k: int) -> None:
    draft, target = pair
    for drafts in closed_forms(draft, k):
        best = optimal_value(drafts, target)
        assert best == minimum_cut_by_max_flow(drafts, target).value


@given(pairs(), st.integers(1, 4))
def test_floats_agree_with_fractions(pair: tuple[Probs, Probs], k: int) -> None:
    draft, target = pair
    exact = Problem(draft, target, 1).to_exact().target
    for drafts in closed_forms(draft, k):
        value = optimal_value(drafts, target)
        assert isinstance(value, float)
        assert 0 <= value <= 1
        assert value == pytest.approx(float(optimal_value(drafts.to_exact(), exact)), abs=1e-13)


@given(pairs(exact=True), st.integers(1, 3))
def test_the_greedy_formula(pair: tuple[Probs, Probs], k: int) -> None:
    """α = q(A) + Σ min(q, p̃) beyond A: Hu et al., 2025."""
    draft, target = pair
    drafts = Greedy(draft, k)
    beyond = np.minimum(target, drafts.last)
    assert optimal_value(drafts, target) == target[drafts.sure].sum() + beyond.sum()


@given(pairs(exact=True))
def test_hub_pairs_are_worth_what_greedy_pairs_are(pair: tuple[Probs, Probs]) -> None:
    draft, target = pair
    assert optimal_value(HubPairs(draft), target) == optimal_value(Greedy(draft, 2), target)


@given(pairs(exact=True), st.integers(1, 4))
def test_repeated_drafts_are_never_better(pair: tuple[Probs, Probs], k: int) -> None:
    """A theorem: i.i.d. drafts are drafts without replacement, some of them repeated."""
    draft, target = pair
    with_replacement = optimal_value(IID(draft, k), target)
    assert with_replacement <= optimal_value(WithoutReplacement(draft, k), target)


def test_greedy_drafts_can_be_better_or_worse() -> None:
    """No order holds between greedy and random drafts, and none is claimed."""
    p, q = [F(1, 2), F(1, 4), F(1, 4)], [F(0), F(1, 2), F(1, 2)]
    greedy, without = (optimal_value(law(p, 2), q) for law in (Greedy, WithoutReplacement))
    assert (greedy, without) == (1, 1)
    q = [F(1), F(0), F(0)]
    greedy, without = (optimal_value(law(p, 2), q) for law in (Greedy, WithoutReplacement))
    assert (greedy, without) == (1, F(5, 6))
    p, q = [F(3, 5), F(1, 5), F(1, 5)], [F(0), F(1, 2), F(1, 2)]
    assert optimal_value(Greedy(p, 1), q) == optimal_value(WithoutReplacement(p, 1), q)


@given(pairs(exact=True))
def test_one_draft_is_one_draft(pair: tuple[Probs, Probs]) -> None:
    draft, target = pair
    expected = np.minimum(draft, target).sum()
    for drafts in (*closed_forms(draft, 1)[:3], Independent([draft])):
        assert optimal_value(drafts, target) == expected


def test_prefixes_are_not_optimal_for_independent_drafts() -> None:
    """Catches OTM-k's closed form applied to the mean distribution, which is off by 1/30 here."""
    laws = [[F(x, sum(w)) for x in w] for w in ([2, 0, 0, 1], [0, 2, 7, 1])]
    drafts, target = Independent(laws), np.array([F(x, 10) for x in (0, 1, 7, 2)])
    ratio = target / drafts.distribution_of_one()
    assert len({*ratio}) == 4  # no ties: there is one order
    order = np.argsort(ratio)
    prefixes = [cut_value(drafts, target, order[:j].tolist()) for j in range(5)]
    best = optimum(drafts, target)
    assert best.value == F(29, 30)
    assert min(prefixes) == 1
    assert cut_value(drafts, target, best.cut.tokens.tolist()) == F(29, 30)


def test_equal_independent_laws_are_the_iid_law() -> None:
    p, q = [F(1, 2), F(1, 3), F(1, 6)], [F(1, 6), F(1, 6), F(2, 3)]
    for k in (1, 2, 3):
        expected = minimum_cut(Problem(p, q, k)).value
        assert optimal_value(Independent([p] * k), q) == expected
        assert optimal_value(Joint(IID(p, k).tuples(), 3), q) == expected


def test_eight_tokens_and_four_drafts_are_exact() -> None:
    rng = np.random.default_rng(8)
    laws, target = [small_law(rng, 8) for _ in range(4)], small_law(rng, 8)
    value = optimal_value(Independent(laws), target)
    assert isinstance(value, Fraction)
    floats = optimal_value(np_independent(laws), np.array(target, dtype=float))
    assert floats == pytest.approx(float(value), abs=1e-15)
    sets = [list(s) for size in range(9) for s in itertools.combinations(range(8), size)]
    masses = Independent(laws).probs

    def cut(tokens: list[int]) -> Number:
        inside = masses[:, tokens].sum(axis=1) if tokens else np.array([F(0)])
        return 1 - inside.prod() + sum((target[x] for x in tokens), F(0))

    assert value == min(map(cut, sets))


def np_independent(laws: list[list[Fraction]]) -> Independent:
    return Independent(np.array(laws, dtype=np.float64))


def test_larger_laws_give_an_interval_and_never_a_number() -> None:
    rng = np.random.default_rng(0)
    laws, target = rng.dirichlet(np.ones(60), 3), rng.dirichlet(np.ones(60))
    best = optimum(Independent(laws), target, tolerance=1e-3)
    assert isinstance(best.value, Interval)
    assert 0 < best.value.gap <= 1e-3
    assert best.cut.value == best.value.upper
    closer = optimal_value(Independent(laws), target, iterations=500, tolerance=0)
    assert isinstance(closer, Interval)
    assert closer.gap < best.value.gap
    assert closer.lower <= best.value.upper
    assert best.value.lower <= closer.upper


def test_the_interval_holds_the_closed_form_at_full_size() -> None:
    """i.i.d. drafts passed off as independent ones: an oracle at a size that no flow reaches."""
    rng = np.random.default_rng(5)
    p, q = rng.dirichlet(np.full(5_000, 0.3), 2)
    value = optimal_value(IID(p, 2), q)
    interval = optimal_value(Independent([p, p]), q)
    assert isinstance(interval, Interval)
    assert interval.lower <= value <= interval.upper
    assert interval.gap <= 1e-5


@pytest.mark.parametrize("law", [IID, WithoutReplacement, Greedy])
def test_results_are_exact_only_if_both_laws_are(law: type) -> None:
    p, q = [F(1, 2), F(1, 4), F(1, 4)], [F(1, 4), F(1, 4), F(1, 2)]
    floats = [float(x) for x in p], [float(x) for x in q]
    exact = optimal_value(law(p, 2), q)
    assert isinstance(exact, Fraction)
    for draft, target in ((p, floats[1]), (floats[0], q), floats):
        value = optimal_value(law(draft, 2), target)
        assert isinstance(value, float)
        assert value == pytest.approx(float(exact), abs=1e-15)
    assert isinstance(optimal_value(law(p, 2), [0, 0, 1]), Fraction)


def test_targets_on_another_vocabulary_are_refused() -> None:
    with pytest.raises(InvalidDistributionError, match=r"3 tokens and the target distribution 2"):
        optimal_value(Greedy([0.5, 0.25, 0.25], 2), [0.5, 0.5])
    with pytest.raises(InvalidDistributionError, match="target distribution"):
        optimal_value(Greedy([0.5, 0.5], 2), [0.5, 0.6])


def test_drafts_without_replacement_at_full_vocabulary() -> None:
    rng = np.random.default_rng(2)
    p, q = rng.dirichlet(np.full(20_000, 0.3), 2)
    without, with_ = (optimal_value(law(p, 4), q) for law in (WithoutReplacement, IID))
    assert isinstance(without, float)
    assert isinstance(with_, float)
    assert with_ < without <= q[p > 0].sum()


def test_large_exact_problems_say_what_to_do() -> None:
    p = [F(1, 60)] * 60
    with pytest.raises(ProblemTooLargeError, match="floats"):
        optimal_value(WithoutReplacement(p, 4), p)
    with pytest.raises(ProblemTooLargeError, match=r"otm\.alpha"):
        minimum_cut_by_max_flow(Independent([p] * 4), np.array(p))


def test_parameters_of_the_interval_are_checked() -> None:
    laws = np.full((4, 50), 0.02)
    with pytest.raises(InvalidParameterError, match="iterations"):
        optimal_value(Independent(laws), laws[0], iterations=0)


def test_tokens_of_subnormal_probability_are_told_apart() -> None:
    # bug: q/p overflowed for all of them, and the order of the prefixes was any
    drafts = WithoutReplacement([5e-324, 5e-324, 5e-324, 1.0], k=2)
    target = [0.2, 0.4, 0.2, 0.2]
    exact = optimal_value(drafts.to_exact(), to_exact(np.array(target)))
    assert optimal_value(drafts, target) == pytest.approx(float(exact), abs=1e-13)
