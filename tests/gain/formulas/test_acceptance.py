"""Divergence and acceptance at one prefix: by definition, in fractions."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import assume, given

from otm._core.arithmetic import Probs
from otm.coupling import MaximalCoupling
from otm.gain import acceptance_from_divergence, lk_divergence
from otm.problem import Problem
from otm.testing.strategies import pairs

F = Fraction


@given(pairs(exact=True))
def test_the_divergence_by_its_definition(pair: tuple[Probs, Probs]) -> None:
    """Definition 3.2, Lemma 3.3, Corollary 3.4; catches a sum that is not halved."""
    p, q = pair
    divergence = lk_divergence(p, q)
    middle = (p + q) / 2
    assert type(divergence) is Fraction
    assert divergence == np.abs(p - middle).sum() == np.abs(q - middle).sum()
    assert divergence == 1 - np.minimum(p, q).sum() == lk_divergence(q, p)
    assert (divergence == 0) == (p == q).all()
    assert (divergence == 1) == (not ((p > 0) & (q > 0)).any())


@given(pairs(exact=True))
def test_acceptance_is_that_of_algorithm_1(pair: tuple[Probs, Probs]) -> None:
    """Theorem 3.5: the probability that u < q(x)/p(x) for x drawn from the draft distribution."""
    p, q = pair
    beta = acceptance_from_divergence(lk_divergence(p, q))
    assert beta == sum(x * min(1, y / x) for x, y in zip(p, q, strict=True) if x > 0)
    assert beta == MaximalCoupling(Problem(p, q, 1)).acceptance


@given(pairs())
def test_the_divergence_of_floats(pair: tuple[Probs, Probs]) -> None:
    """Catches 1 − Σ min, which has no digits left for distributions that are nearly equal."""
    exact = lk_divergence(*([F(x) for x in law] for law in pair))
    assume(exact == 0 or exact > 1e-15)  # below, the division of a distribution by its sum decides
    divergence = lk_divergence(*pair)
    assert divergence == pytest.approx(float(exact), rel=1e-9, abs=2e-16)
    assert 0 <= divergence <= 1


def test_divergences_of_rows() -> None:
    draft = np.array([[[0.5, 0.5, 0]], [[0, 0, 1]]])
    target = np.array([[0.5, 0.5, 0], [0.25, 0.25, 0.5], [0, 0, 1]])
    expected = [[0, 0.5, 1], [1, 0.5, 0]]
    assert lk_divergence(draft, target).tolist() == expected
    assert acceptance_from_divergence(expected).tolist() == [[1, 0.5, 0], [0, 0.5, 1]]
