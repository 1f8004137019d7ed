"""The number of drafts: against all others, in fractions."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from otm.errors import InvalidParameterError
from otm.gain import best_gamma, oracle_speedup, single_draft_improvement, walltime_improvement

F = Fraction
rates = st.fractions(0, 1, max_denominator=30)
costs = st.fractions(0, 3, max_denominator=100)


@given(rates, costs)
def test_some_number_of_drafts_improves_just_if_the_corollary_says_so(
    alpha: Fraction, cost: Fraction
) -> None:
    """Corollary 3.9, in both directions, and its factor."""
    improvements = walltime_improvement(alpha, range(1, 40), cost)
    assert max(improvements) >= single_draft_improvement(alpha, cost) == improvements[0]
    assert (max(improvements) > 1) == (alpha > cost) == (single_draft_improvement(alpha, cost) > 1)


@given(rates, costs)
def test_the_best_gamma_by_trying_all(alpha: Fraction, cost: Fraction) -> None:
    """Catches a neighbour of the best, and a larger one of equals (α = c, α = c = 1)."""
    improvements = walltime_improvement(alpha, range(60), cost).tolist()
    best = improvements.index(max(improvements))
    assert best_gamma(alpha, cost, max_gamma=59) == best
    assert best_gamma(alpha, cost, max_gamma=3) == min(best, 3)
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
    assert best_gamma(0.5, 0, max_gamma=10_000) == 10_000  # 2^−10000 underflows
    assert best_gamma(F(1, 2), F(0), max_gamma=2**40) == 2**40
    assert best_gamma(0.0, 0.0) == best_gamma(0.3, 0.3) == best_gamma(0, 5) == 0
    assert best_gamma(0.9, 0.01, max_gamma=0) == 0


@pytest.mark.parametrize(("alpha", "cost"), [(0.5, 0), (1, 0), (F(1), F(1, 2)), ([0, 0.1], 0.0)])
def test_no_best_number_of_drafts(alpha: Any, cost: Any) -> None:
    """Catches a search without an end."""
    with pytest.raises(InvalidParameterError, match="give `max_gamma`"):
        best_gamma(alpha, cost)
