"""The order by q/p and its cumulative masses, against the sums that define them."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from otm._core.arithmetic import Probs
from otm._core.ratio_order import RatioOrder
from otm.testing.strategies import pairs

F = Fraction
exact_pairs = pairs(exact=True)
caps = st.fractions(0, 6, max_denominator=20)
Pair = tuple[Probs, Probs]


def capped(pair: Pair, cap: Fraction) -> Fraction:
    return sum(min(q, cap * p) for p, q in zip(*pair, strict=True))


@given(exact_pairs)
def test_tokens_that_can_be_drafted_ascend_by_ratio(pair: Pair) -> None:
    draft, target = pair
    order = RatioOrder(draft, target)
    assert sorted(order.tokens) == np.flatnonzero(draft > 0).tolist()
    ratios = [target[token] / draft[token] for token in order.tokens]
    assert ratios == sorted(ratios) == order.ratio.tolist()
    assert order.draft.tolist() == draft[order.tokens].tolist()
    assert order.target.tolist() == target[order.tokens].tolist()


@given(exact_pairs)
def test_masses_below_and_above(pair: Pair) -> None:
    order = RatioOrder(*pair)
    m = order.tokens.size
    assert order.draft_below.tolist() == [order.draft[:j].sum() for j in range(m + 1)]
    assert order.draft_above.tolist() == [order.draft[j:].sum() for j in range(m + 1)]
    assert order.target_below.tolist() == [order.target[:j].sum() for j in range(m + 1)]


def test_the_mass_above_does_not_cancel() -> None:
    # 1 − P_j would be 0 here
    order = RatioOrder(np.array([1 - 1e-20, 1e-20]), np.array([0.5, 0.5]))
    assert order.draft_above.tolist() == [1, 1e-20, 0]


@given(exact_pairs, caps)
def test_capped_mass(pair: Pair, cap: Fraction) -> None:
    assert RatioOrder(*pair).capped_mass(cap) == capped(pair, cap)


@given(exact_pairs, caps)
def test_cap_of_mass_is_the_smallest(pair: Pair, cap: Fraction) -> None:
    order = RatioOrder(*pair)
    mass = capped(pair, cap)
    found = order.cap_of_mass(mass)
    if found is None:  # the mass of all tokens that can be drafted
        assert mass == order.target.sum()
    else:
        assert capped(pair, found) == mass
        assert found <= cap
        assert found == 0 or capped(pair, found - F(1, 10**9)) < mass


@given(pairs(), st.floats(0, 6))
def test_floats_agree_with_the_sums(pair: Pair, cap: float) -> None:
    order = RatioOrder(*pair)
    expected = capped(pair, cap)
    assert order.capped_mass(cap) == pytest.approx(expected, rel=1e-13, abs=1e-300)
    found = order.cap_of_mass(expected)
    if found is not None:
        assert capped(pair, found) == pytest.approx(expected, rel=1e-13, abs=1e-300)


def test_a_ratio_beyond_the_floats_is_infinite_and_silent() -> None:
    order = RatioOrder(np.array([5e-324, 1.0]), np.array([0.5, 0.5]))
    assert order.ratio.tolist() == [0.5, np.inf]
    assert order.tokens.tolist() == [1, 0]
    assert order.capped_mass(2.0) == 0.5 + 2 * 5e-324
