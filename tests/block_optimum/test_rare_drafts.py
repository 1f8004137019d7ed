"""Drafts with probabilities down to the smallest float, and up to 2^30 paths."""

from __future__ import annotations

import itertools
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

import otm
from otm import solve_block
from otm.errors import OTMError, ProblemTooLargeError
from tests.block_optimum.oracles import Law, Path

F = Fraction
RARE = [5e-324, 1e-323, 2.3e-308, 1e-300, 1e-200, 1e-160, 1e-100, 1e-17]
MANY = [1, 2, 3, 4, 8, 64, 1000, 2**16, 2**20, 2**26, 2**30]


def constant(*probs: Any) -> Law:
    return lambda path: list(probs)


def random_row(vocabulary: int, rng: np.random.Generator) -> list[float]:
    """Draw ordinary, log-uniform, rare or one-sided probabilities."""
    kind = rng.integers(5)
    if kind == 0:
        weights = rng.dirichlet(np.ones(vocabulary)).tolist()
    elif kind == 1:
        weights = (10.0 ** -rng.uniform(0, 323, vocabulary)).tolist()
    elif kind == 2:
        weights = [float(rng.choice([0, 1e-9, 0.5, *RARE])) for _ in range(vocabulary)]
    elif kind == 3:
        weights = [float(rng.choice(RARE)) for _ in range(vocabulary)]
    else:
        weights = [0.0] * vocabulary
    largest = int(rng.integers(vocabulary))
    weights[largest] = 0.0
    weights = [x / 2 for x in weights] if sum(weights) >= 1 else weights
    weights[largest] = 1 - sum(weights)
    return weights


def random_problem(seed: int) -> tuple[Law, Law, int, int, int | None]:
    """Draw two distributions, k, the length and `top`; some small ones are in fractions."""
    rng = np.random.default_rng([seed, 7])
    vocabulary, length = int(rng.integers(2, 5)), int(rng.integers(1, 4))
    length = min(length, 2) if vocabulary == 4 else length
    laws = []
    exact = rng.random() < 0.25 and vocabulary * length <= 6
    paths = [p for d in range(length) for p in itertools.product(range(vocabulary), repeat=d)]
    for _ in range(2):
        rows: dict[Path, Any] = {path: random_row(vocabulary, rng) for path in paths}
        if exact:
            for path, row in rows.items():
                fractions = [F(x) for x in row]
                rows[path] = [x / sum(fractions) for x in fractions]
        laws.append(rows.__getitem__)
    top = int(rng.integers(1, vocabulary)) if rng.random() < 0.15 else None
    return laws[0], laws[1], int(rng.choice(MANY)), length, top


@pytest.mark.parametrize("seed", range(20))
def test_random_problems_are_solved_and_certified(seed: int) -> None:
    """Bug: products that underflow, and prices of rare nodes that the solver does not look at."""
    solved = 0
    for i in range(15):
        draft, target, k, length, top = random_problem(100 * seed + i)
        exact = isinstance(draft(())[0], Fraction)
        try:
            solution = solve_block(draft, target, k, length, top=top)
        except ProblemTooLargeError:
            assert exact  # floats never make a problem too large
            continue
        except OTMError as error:
            message = str(error)
            exact &= "give floats" in message
            assert exact, message
            continue
        solution.certificate.check()
        assert top or not isinstance(solution.accepted, otm.Interval)
        solved += 1
    assert solved > 7


@pytest.mark.parametrize("length", [1, 2, 3])
@pytest.mark.parametrize("k", [1, 2, 4, 2**26, 2**30])
def test_a_rare_draft_is_worth_what_no_draft_is(k: int, length: int) -> None:
    """Bug: a division by a product that underflowed, or a certificate that the checker rejects."""
    for target in ([0.5, 0.25, 0.25], [0.0, 0.5, 0.5], [1e-200, 5e-324, 1.0]):
        without = solve_block(constant(1.0, 0.0, 0.0), constant(*target), k, length)
        for rare in (5e-324, 1e-320, 1e-200, 1e-160, 1e-100):
            solution = solve_block(constant(1.0, rare, 0.0), constant(*target), k, length)
            solution.certificate.check()
            assert solution.accepted == pytest.approx(without.accepted, abs=1e-12)
            assert solution.certificate.gap < 1e-12
            assert solution.bound == pytest.approx(without.bound, abs=1e-12)


def test_a_rare_draft_that_k_paths_make_frequent() -> None:
    """Bug: all rare drafts thrown away, however many paths there are."""
    rare = 2.0**-30
    solution = solve_block(constant(1 - rare, rare), constant(0.25, 0.75), 2**30, 1)
    assert solution.accepted == pytest.approx(0.25 + 1 - np.exp(-1), abs=1e-9)
    rare = 1e-290  # smaller than the products that the solver can distinguish
    solution = solve_block(constant(1 - rare, rare), constant(0.25, 0.75), 2**30, 1)
    assert solution.accepted == pytest.approx(0.25, abs=1e-12)


def test_large_trees_with_rare_drafts() -> None:
    """Bug: polygons, which divide by D(y) too."""
    rng = np.random.default_rng(0)
    paths = [path for depth in range(4) for path in itertools.product(range(4), repeat=depth)]
    rows = {path: (random_row(4, rng), rng.dirichlet(np.ones(4))) for path in paths}
    for draft, target in ((0, 1), (1, 0), (0, 0)):
        solution = solve_block(
            lambda path, at=draft: rows[path][at], lambda path, at=target: rows[path][at], 4, 4
        )
        solution.certificate.check()
        assert solution.certificate.gap < 1e-8


def test_tables_with_rare_trees() -> None:
    """Bug: integers of the flow that a rare chance makes long."""
    table = {((0,), (1,)): 1 - 1e-200, ((0, 1),): 1e-200, ((1, 1),): 5e-324}
    solution = solve_block(table, constant(0.5, 0.5))
    solution.certificate.check()
    assert solution.accepted == pytest.approx(1, abs=1e-12)


@pytest.mark.parametrize("k", [2**26, 2**30, 2**63 - 1])
def test_powers_of_fractions_that_are_too_long_are_refused_before_they_are_taken(k: int) -> None:
    """Bug: hours of work, or the checker's own exception, which no caller expects."""
    laws = constant(F(2, 3), F(1, 3)), constant(F(1, 3), F(2, 3))
    with pytest.raises(ProblemTooLargeError, match=r"[\d,]+ bits, .*Give floats"):
        solve_block(*laws, k, 1)
    in_floats = solve_block(constant(2 / 3, 1 / 3), constant(1 / 3, 2 / 3), k, 2)
    in_floats.certificate.check()
    assert in_floats.accepted == pytest.approx(2, abs=1e-9)
    certain = solve_block(constant(F(1), F(0)), laws[1], k, 2)  # powers of one are short
    assert certain.accepted == F(1, 3) + F(1, 9)
