"""SpecTr's Figures 4 to 6: their numbers are the closed forms of the paper."""

from __future__ import annotations

from fractions import Fraction
from itertools import pairwise

import numpy as np
import pytest

from figures.registry import load
from figures.rules import K_SEQ, MULTI_ROUND, OPTIMUM
from figures.spectr.acceptance import SUPPORTS
from figures.table import Table

TOLERANCE = 1e-12


@pytest.fixture(scope="module")
def figure_4() -> Table:
    return load("spectr_figure_4")()


@pytest.fixture(scope="module")
def figure_5() -> Table:
    return load("spectr_figure_5")()


@pytest.fixture(scope="module")
def figure_6() -> Table:
    return load("spectr_figure_6")()


def equation_10(b: float, k: int) -> Fraction:
    """Optimum for p = Ber(1/4) and q = Ber(b), exactly."""
    p, q = Fraction(1, 4), Fraction(b)
    return min(q, 1 - (1 - p) ** k) + min(1 - q, 1 - p**k)


def k_seq_of_bernoulli(b: float, k: int) -> float:
    """Find the acceptance of k-Seq for p = Ber(1/4), q = Ber(b) by bisecting equation 6."""
    p, q = np.array([0.75, 0.25]), np.array([1 - b, b])

    def accepted(rho: float) -> float:
        return 1 - (1 - float(np.minimum(p, q / rho).sum())) ** k

    low, high = 1.0, float(k)
    for _ in range(200):
        rho = (low + high) / 2
        if accepted(rho) > rho * float(np.minimum(p, q / rho).sum()):
            low = rho
        else:
            high = rho
    return accepted(high)


def recursive_rejection_of_bernoulli(b: float, k: int) -> Fraction:
    """Find the acceptance of recursive rejection round by round, as it is defined."""
    p = (Fraction(3, 4), Fraction(1, 4))
    q = (1 - Fraction(b), Fraction(b))
    rejected = Fraction(1)
    for _ in range(k):
        left = [max(qx - px, Fraction(0)) for px, qx in zip(p, q, strict=True)]
        rejected *= sum(left)
        if rejected == 0:
            break
        q = (left[0] / sum(left), left[1] / sum(left))
    return 1 - rejected


@pytest.mark.parametrize("figure", ["figure_4", "figure_6"])
def test_the_optimum_is_equation_10(figure: str, request: pytest.FixtureRequest) -> None:
    """Bug: draft and target swapped, heads and tails swapped, k off by one."""
    rows = request.getfixturevalue(figure).where(rule=OPTIMUM).rows
    assert [k for _, _, k, _ in rows][:20] == list(range(1, 21))
    for b, _, k, value in rows:
        assert value == pytest.approx(float(equation_10(b, k)), abs=TOLERANCE), (b, k)


def test_k_seq_of_bernoulli_laws(figure_4: Table) -> None:
    """Bug: the curve is drawn at another division factor than ρ*."""
    for b, _, k, value in figure_4.where(rule=K_SEQ).rows:
        assert value == pytest.approx(k_seq_of_bernoulli(float(b), int(k)), abs=1e-9), (b, k)


def test_recursive_rejection_of_bernoulli_laws(figure_6: Table) -> None:
    """Bug: rounds too many or too few, or a residual that is not normalised."""
    for b, _, k, value in figure_6.where(rule=MULTI_ROUND).rows:
        exact = recursive_rejection_of_bernoulli(float(b), int(k))
        assert value == pytest.approx(float(exact), abs=TOLERANCE), (b, k)


def test_the_paper_s_values_of_b(figure_4: Table, figure_6: Table) -> None:
    """Bug: the target distributions differ from the paper's; Figure 6 leaves out b = 0.25."""
    assert set(figure_4["b"]) == {0.1, 0.25, 0.75, 1}
    assert set(figure_6["b"]) == {0.1, 0.75, 1}


def test_equal_laws_are_always_accepted(figure_4: Table) -> None:
    """Bug: k-Seq divides by a factor above one where the two distributions are equal."""
    np.testing.assert_allclose(figure_4.where(b=0.25)["acceptance"], 1, rtol=0, atol=TOLERANCE)


def test_what_the_paper_says_about_figure_4(figure_4: Table) -> None:
    """k-Seq is worse at b = 0.1 and 0.75, equal at b = 1; every curve increases to one."""
    for b in (0.1, 0.75, 1.0):
        curves = [figure_4.where(b=b, rule=rule)["acceptance"] for rule in (OPTIMUM, K_SEQ)]
        for curve in curves:
            assert all(later >= earlier - TOLERANCE for earlier, later in pairwise(curve))
            assert 0.99 < curve[-1] <= 1
        loss = curves[0] - curves[1]
        if b == 1:
            np.testing.assert_allclose(loss, 0, rtol=0, atol=TOLERANCE)
        else:
            assert loss.min() >= -TOLERANCE
            assert loss[1] > 0.02


def test_uniform_laws_have_their_closed_form_under_both_rules(figure_5: Table) -> None:
    """Bug: a support off by one token, or a k-Seq below the optimum that it attains here."""
    assert {(rule, d) for d, rule, _, _ in figure_5.rows} == {
        (rule, d) for rule in (OPTIMUM, K_SEQ) for d in SUPPORTS
    }
    for d, rule, k, value in figure_5.rows:
        assert 120 % int(d) == 0
        exact = 1 - (1 - Fraction(int(d), 120)) ** int(k)
        assert value == pytest.approx(float(exact), abs=TOLERANCE), (d, rule, k)


def test_what_the_paper_says_about_figure_6(figure_6: Table) -> None:
    """Both of the paper's rules beat multi-round at b = 0.1 and 0.75; at b = 1 all are equal."""
    for b in (0.1, 0.75):
        optimum, k_seq, multi_round = (
            figure_6.where(b=b, rule=rule)["acceptance"] for rule in (OPTIMUM, K_SEQ, MULTI_ROUND)
        )
        np.testing.assert_allclose([k_seq[0], multi_round[0]], optimum[0], rtol=0, atol=TOLERANCE)
        assert (optimum[1:6] > k_seq[1:6]).all()
        assert (k_seq[1:6] > multi_round[1:6]).all()
        assert (k_seq >= multi_round - TOLERANCE).all()
    point = figure_6.where(b=1.0)
    np.testing.assert_allclose(point["acceptance"], 1 - 0.75 ** point["k"], rtol=0, atol=TOLERANCE)
