"""Leviathan et al.'s closed forms: curves and printed numbers, recomputed in fractions."""

from __future__ import annotations

import math
from fractions import Fraction
from itertools import pairwise

import numpy as np
import pytest

from figures.leviathan.curves import figure_2, figure_3, figure_4
from figures.leviathan.printed import (
    improvement_comparison,
    improvement_range,
    numbers_in_text,
    table_1,
    table_4,
)
from figures.table import Table
from otm.gain.formulas import single_draft_improvement

HALF_DIGIT = Fraction(1, 200)
"""What two printed decimals leave open."""


def tokens(alpha: Fraction, gamma: int) -> Fraction:
    """Sum 1 + α + … + α^γ term by term."""
    return sum((alpha**drafts for drafts in range(gamma + 1)), Fraction(0))


def improvement(alpha: Fraction, gamma: int, cost: Fraction) -> Fraction:
    """Theorem 3.8, without the division that is 0/0 at α = 1."""
    return tokens(alpha, gamma) / (1 + gamma * cost)


def best_improvement(alpha: Fraction, cost: Fraction) -> Fraction:
    """Best of all γ up to 50, which is beyond the maximum for all α and c here."""
    return max(improvement(alpha, gamma, cost) for gamma in range(51))


def verdicts(table: Table) -> dict[str, str]:
    return dict(zip(table["item"].tolist(), table["verdict"].tolist(), strict=True))


@pytest.fixture(scope="module")
def curves_2() -> Table:
    return figure_2()


@pytest.fixture(scope="module")
def curves_3() -> Table:
    return figure_3()


@pytest.fixture(scope="module")
def curves_4() -> Table:
    return figure_4()


@pytest.fixture(scope="module")
def in_text() -> Table:
    return numbers_in_text()


def test_expected_tokens_are_the_geometric_sum(curves_2: Table) -> None:
    """Bug: γ instead of γ + 1 terms, 0/0 at α = 1, a grid that stops before 1."""
    for gamma in (1, 3, 5, 7, 10):
        curve = curves_2.where(gamma=gamma)
        assert (curve["alpha"][0], curve["alpha"][-1]) == (0, 1)
        assert (curve["tokens"][0], curve["tokens"][-1]) == (1, gamma + 1)
        assert (np.diff(curve["tokens"]) > 0).all()
        for alpha, value in zip(curve["alpha"][::20], curve["tokens"][::20], strict=True):
            assert value == pytest.approx(float(tokens(Fraction(str(alpha)), gamma)), rel=1e-13)


def test_the_limit_of_expected_tokens_bounds_all_curves(curves_2: Table) -> None:
    """Bug: the dashed line is another finite γ, or is missing at α = 1."""
    limit = curves_2.where(gamma=math.inf)
    assert limit["tokens"][-1] == math.inf
    assert limit.where(alpha=0.75)["tokens"].tolist() == [4]
    for less, more in pairwise((1, 3, 5, 7, 10, math.inf)):
        gained = curves_2.where(gamma=more)["tokens"] - curves_2.where(gamma=less)["tokens"]
        assert gained[0] == 0
        assert (gained[1:] >= 0).all()
        assert gained[100] > 0


@pytest.mark.parametrize("cost", ["0.01", "0.02", "0.05", "0.1"])
def test_the_steps_of_the_best_gamma_are_where_brute_force_has_them(
    curves_3: Table, cost: str
) -> None:
    """Bug: a bisection that misses a step, or a tie that goes to the larger γ."""
    curve = curves_3.where(c=float(cost))
    gammas, alphas = curve["gamma"], curve["alpha"]
    assert (alphas[0], alphas[-1], gammas[0]) == (0, 0.95, 0)
    steps = np.flatnonzero(np.diff(gammas))
    assert (np.diff(gammas) >= 0).all()
    assert gammas[steps[-1] + 1] == gammas[-1] >= 10
    for place in [0, *steps, *(steps + 1), len(gammas) - 1]:
        alpha = Fraction(str(alphas[place]))
        powers, total, best = Fraction(1), Fraction(1), (Fraction(1), 0)
        for gamma in range(1, gammas[-1] + 10):
            powers *= alpha
            total += powers
            best = max(best, (total / (1 + gamma * Fraction(cost)), -gamma))
        assert gammas[place] == -best[1], (alpha, cost)


def test_no_draft_pays_up_to_its_cost(curves_3: Table) -> None:
    """Corollary 3.9: drafting improves just if α > c."""
    for cost, alpha, gamma in curves_3.rows:
        assert (gamma > 0) == (alpha > cost), (cost, alpha)


def test_a_cheaper_draft_model_drafts_no_less(curves_3: Table) -> None:
    """Bug: lines named after the wrong cost."""
    lines = [curves_3.where(c=cost)["gamma"] for cost in (0.01, 0.02, 0.05, 0.1)]
    for cheap, dear in pairwise(lines):
        assert (cheap >= dear).all()
        assert (cheap > dear).any()


def test_speed_and_operations_multiply_to_the_runs_of_a_block(curves_4: Table) -> None:
    """Bug: one of the two formulas at another γ; for c = ĉ = 0 their product is γ + 1."""
    for gamma in (2, 3, 5, 10):
        curve = curves_4.where(gamma=gamma)
        product = curve["speed"] * curve["operations"]
        np.testing.assert_allclose(product, gamma + 1, rtol=1e-13)
        ends = curve["speed"][[0, -1]].tolist(), curve["operations"][[0, -1]].tolist()
        assert ends == ([1, gamma + 1], [gamma + 1, 1])
        assert (np.diff(curve["speed"]) > 0).all()
        assert (np.diff(curve["operations"]) < 0).all()


def test_the_dots_of_figure_4_are_on_its_grid(curves_4: Table) -> None:
    """Bug: a setting of Table 1 that the curves do not have, so that no dot is drawn."""
    for alpha, gamma, operations, speed in (
        (0.6, 2, 1.53, 1.96),
        (0.7, 3, 1.58, 2.53),
        (0.8, 2, 1.23, 2.44),
        (0.8, 5, 1.63, 3.69),
        (0.9, 2, 1.11, 2.71),
        (0.9, 10, 1.60, 6.86),
    ):
        ((_, _, drawn_speed, drawn_operations),) = curves_4.where(alpha=alpha, gamma=gamma).rows
        assert drawn_speed == pytest.approx(speed, abs=0.005)
        assert drawn_operations == pytest.approx(operations, abs=0.005)


def test_table_1_agrees_in_all_twelve_numbers() -> None:
    """Bug: operations and speed swapped, a number misread from the paper."""
    table = table_1()
    printed = [1.53, 1.96, 1.58, 2.53, 1.23, 2.44, 1.63, 3.69, 1.11, 2.71, 1.60, 6.86]
    assert table["printed"].tolist() == printed
    assert set(table["decimals"]) == {2}
    assert set(table["verdict"]) == {"agrees"}
    assert set(table["reason"]) == {""}


TABLE_4 = (
    ("EnDe, T5-small, T = 0", 7, "0.75", "0.02", 3.2),
    ("EnDe, T5-base, T = 0", 7, "0.8", "0.04", 3.3),
    ("EnDe, T5-large, T = 0", 7, "0.82", "0.11", 2.5),
    ("EnDe, T5-small, T = 1", 7, "0.62", "0.02", 2.3),
    ("EnDe, T5-base, T = 1", 5, "0.68", "0.04", 2.4),
    ("EnDe, T5-large, T = 1", 3, "0.71", "0.11", 2.0),
    ("CNNDM, T5-small, T = 0", 5, "0.65", "0.02", 2.4),
    ("CNNDM, T5-base, T = 0", 5, "0.73", "0.04", 2.6),
    ("CNNDM, T5-large, T = 0", 3, "0.74", "0.11", 2.0),
    ("CNNDM, T5-small, T = 1", 5, "0.53", "0.02", 1.9),
    ("CNNDM, T5-base, T = 1", 3, "0.55", "0.04", 1.8),
    ("CNNDM, T5-large, T = 1", 3, "0.56", "0.11", 1.6),
)


def test_table_4_is_theorem_3_8_row_by_row() -> None:
    """Bug: γ, α or c of another row."""
    for row, (item, gamma, alpha, cost, printed) in zip(table_4().rows, TABLE_4, strict=True):
        assert str(row[0]).startswith(f"{item} (γ = {gamma}, ")
        assert row[1:3] == (printed, 1)
        exact = improvement(Fraction(alpha), gamma, Fraction(cost))
        assert row[3] == pytest.approx(float(exact), rel=1e-13)


def test_table_4_differs_in_these_three_rows() -> None:
    """Bug: a new difference, or one that was explained and is gone."""
    table = table_4()
    differing = {
        item.partition(" (")[0]: reason
        for item, verdict, reason in zip(
            table["item"].tolist(), table["verdict"].tolist(), table["reason"].tolist(), strict=True
        )
        if verdict != "agrees"
    }
    assert set(differing) == {
        "EnDe, T5-base, T = 1",
        "EnDe, T5-large, T = 1",
        "CNNDM, T5-large, T = 1",
    }
    assert all("and some round to" in reason for reason in differing.values())
    assert sum(map(bool, table["reason"].tolist())) == 3


def test_what_the_caption_says_about_the_differences_of_table_4() -> None:
    """Bug: a cause that is named and is not enough: α in two rows, in the third c and not α."""
    cost, other_cost = Fraction("0.11"), Fraction("0.11") - HALF_DIGIT
    assert improvement(Fraction("0.68") + HALF_DIGIT, 5, Fraction("0.04")) >= Fraction("2.35")
    assert improvement(Fraction("0.56") + HALF_DIGIT, 3, cost) >= Fraction("1.55")
    assert improvement(Fraction("0.71") + HALF_DIGIT, 3, cost) < Fraction("1.95")
    assert improvement(Fraction("0.71"), 3, other_cost) >= Fraction("1.95")


def test_the_range_of_rounded_inputs_is_that_of_a_fine_grid() -> None:
    """Bug: the wrong corner, or half a digit too much or too little."""
    alphas = [Fraction(615 + step, 1000) for step in range(11)]
    costs = [Fraction(145 + step, 10_000) for step in range(11)]
    for gamma in (7, None):
        grid = [
            best_improvement(alpha, cost) if gamma is None else improvement(alpha, gamma, cost)
            for alpha in alphas
            for cost in costs
        ]
        expected = pytest.approx((float(min(grid)), float(max(grid))), rel=1e-13)
        assert improvement_range("0.62", gamma, "0.015") == expected


def test_a_number_out_of_reach_is_said_to_be_so() -> None:
    """Bug: every difference is put down to rounding."""
    assert improvement_comparison("", "2.35", "0.68", 5, "0.04").reason == ""
    assert "and some round to 2.4" in improvement_comparison("", "2.4", "0.68", 5, "0.04").reason
    assert "and none rounds to 2.5" in improvement_comparison("", "2.5", "0.68", 5, "0.04").reason
    assert "and none rounds to 2.2" in improvement_comparison("", "2.2", "0.68", 5, "0.04").reason


def test_numbers_in_the_text_as_printed(in_text: Table) -> None:
    """Bug: a number misread from the paper, or left out."""
    assert in_text["printed"].tolist() == [
        *(60, 1.25),
        *(1, 2, 3, 10),
        *(2.5, 3.1, 3.6, 5),
        *(3.3, 3.3, 3.9, 4.9),
    ]


def test_numbers_in_the_text_recomputed(in_text: Table) -> None:
    """Bug: another α, γ or c than the paper names; γ that is not the best."""
    cost = Fraction("0.015")
    expected = [
        Fraction("1.248"),
        *(1, 2, Fraction(10, 3), 10),
        *(best_improvement(Fraction(alpha), cost) for alpha in ("0.62", "0.71", "0.76", "0.84")),
        *(improvement(Fraction(alpha), 8, cost) for alpha in ("0.75", "0.75", "0.8", "0.87")),
    ]
    assert in_text["computed"][1:].tolist() == pytest.approx(list(map(float, expected)), rel=1e-13)


def test_numbers_in_the_text_differ_in_these_four(in_text: Table) -> None:
    """Bug: a new difference, or one that was explained and is gone."""
    differing = {item for item, verdict in verdicts(in_text).items() if verdict != "agrees"}
    assert differing == {
        "3.5: gain by an oracle over a fixed γ, in %",
        "A.5: improvement, standard, l = 1 (α = 0.62, best γ, c = 0.015)",
        "A.5: improvement, standard, l = 0.5 (α = 0.71, best γ, c = 0.015)",
        "A.5: improvement, standard, l = 0.3 (α = 0.76, best γ, c = 0.015)",
    }
    reasons = [reason for reason in in_text["reason"].tolist() if reason]
    assert len(reasons) == 4
    assert all("and none rounds to" in reason for reason in reasons[1:])


@pytest.mark.parametrize("cost", ["0.0075", "0.009"])
def test_a_smaller_cost_would_give_all_improvements_by_lenience(cost: str) -> None:
    """What the caption says: with about half of c = 0.015 all four are within rounding."""
    for alpha, low, high in (
        ("0.62", "2.45", "2.55"),
        ("0.71", "3.05", "3.15"),
        ("0.76", "3.55", "3.65"),
        ("0.84", "4.5", "5.5"),
    ):
        least = best_improvement(Fraction(alpha) - HALF_DIGIT, Fraction(cost))
        largest = best_improvement(Fraction(alpha) + HALF_DIGIT, Fraction(cost))
        assert least <= Fraction(high), (alpha, cost)
        assert largest >= Fraction(low), (alpha, cost)


def test_the_gain_by_an_oracle(in_text: Table) -> None:
    """Bug: drafts of the oracle that cost nothing, or a γ that is not the best.

    With t = (1 − α) γ and r = c/(1 − α) the gain tends to (1 + r t)/((1 + r)(1 − e^−t)) as c falls
    to 0; its least over t is 1/(1 − t e^−t), whose largest is e/(e − 1), at t = 1.
    """
    gain = in_text["computed"][0]
    alpha, cost = 0.993, 0.01
    fixed = max(math.fsum(alpha**i for i in range(g + 1)) / (1 + g * cost) for g in range(400))
    assert gain == pytest.approx(100 * (1 / (1 - alpha + alpha * cost) / fixed - 1), rel=1e-12)
    assert 57 < gain < 100 / (math.e - 1)
    reason = str(in_text["reason"][0])
    assert "57.9 (c = 0.01, α = 0.993)" in reason
    assert "47.5 for α up to 0.9" in reason
    assert reason.endswith("58.2")


def test_the_gain_by_an_oracle_tends_to_its_limit() -> None:
    """What the reason says: e/(e − 1) as c falls to 0, from below, at 1 − α = (e − 2) c."""
    gains = []
    for cost in (1e-2, 1e-3, 1e-4):
        alpha = 1 - (math.e - 2) * cost
        gammas = np.arange(int(5 / cost))
        fixed = (1 - alpha ** (gammas + 1)) / (1 - alpha) / (1 + gammas * cost)
        gains.append(1 / (1 - alpha + alpha * cost) / fixed.max())
    limit = math.e / (math.e - 1)
    assert gains[0] < gains[1] < gains[2] < limit
    assert gains[2] == pytest.approx(limit, abs=1e-3)


def test_corollary_3_9_is_a_lower_bound() -> None:
    """What the caption says: the best γ improves by at least (1 + α)/(1 + c), if any does."""
    for alpha in (Fraction(step, 20) for step in range(20)):
        for cost in (Fraction(1, 100), Fraction(1, 20), Fraction(1, 5), Fraction(1, 2)):
            best = best_improvement(alpha, cost)
            assert (best > 1) == (alpha > cost)
            if best > 1:
                assert best >= single_draft_improvement(alpha, cost) > 1
