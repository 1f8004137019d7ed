"""The race of exponential clocks, against distributions that can be counted."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest

from otm.drafts import WithoutReplacement
from otm.drafts import without_replacement as clocks

F = Fraction


@pytest.mark.parametrize(("n", "k"), [(1, 1), (2, 2), (9, 1), (20, 3), (50, 8), (200, 64)])
def test_uniform_laws(n: int, k: int) -> None:
    """All sets of k tokens are equally likely: an oracle in integers at any k."""
    missed = WithoutReplacement(np.full(n, 1 / n), k).miss_probability(np.arange(n))
    expected = [float(1 - F(math.comb(j, k), math.comb(n, k))) for j in range(n + 1)]
    np.testing.assert_allclose(missed, expected, rtol=3e-14, atol=0)


@pytest.mark.parametrize("k", [2, 8, 40])
def test_a_finer_quadrature_changes_nothing(k: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Catches a step that is too long for many drafts, and ends that are cut too early."""
    rng = np.random.default_rng(k)
    law = rng.dirichlet(np.full(700, 0.1))
    drafts, order = WithoutReplacement(law, k), rng.permutation(700)
    missed = drafts.miss_probability(order)
    step = clocks._step(k)
    monkeypatch.setattr(clocks, "_step", lambda _: step / 2)
    monkeypatch.setattr(clocks, "LOG_PRECISION", 60.0)
    np.testing.assert_allclose(drafts.miss_probability(order), missed, rtol=1e-13, atol=0)


def test_chunks_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    drafts, order = WithoutReplacement(rng.dirichlet(np.ones(90)), 4), rng.permutation(90)
    missed = drafts.miss_probability(order)
    monkeypatch.setattr(clocks, "CHUNK", 90)
    np.testing.assert_allclose(drafts.miss_probability(order), missed, rtol=1e-14, atol=0)


def test_subnormal_masses() -> None:
    """Catches times beyond the largest float: the second of two such clocks rings after 2^1074."""
    law = [1.0, 2.0**-1074, 3 * 2.0**-1074]
    drafts = WithoutReplacement(law, 2)
    expected = WithoutReplacement([F(x) for x in law], 2).miss_probability(np.array([0, 1, 2]))
    assert drafts.miss_probability(np.array([0, 1, 2])).tolist() == pytest.approx(
        [float(x) for x in expected], rel=1e-13
    )


def test_two_drafts_against_the_sum_over_the_first() -> None:
    """At k = 2 the first draft x leaves p(H) − p(x) out of 1 − p(x): a sum of n terms."""
    rng = np.random.default_rng(3)
    law = rng.dirichlet(np.full(300, 0.2))
    order = rng.permutation(300)
    p = law[order]
    above = np.append(np.cumsum(p[::-1])[::-1], 0)
    rest = np.array([np.delete(p, x).sum() for x in range(300)])
    expected = [above[j] + (p[:j] * above[j] / rest[:j]).sum() for j in range(301)]
    missed = WithoutReplacement(law, 2).miss_probability(order)
    np.testing.assert_allclose(missed, np.minimum(expected, 1), rtol=1e-12, atol=0)
