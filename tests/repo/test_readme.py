"""The README's examples print what it says; its figures are those of benchmarks and theorems."""

import doctest
import json
import re
from pathlib import Path

import numpy as np
import pytest

from benchmarks.solve import LAWS, pair_of_laws
from otm import Problem
from otm.coupling import OptimalPlan
from otm.optimum import optimal_value

ROOT = Path(__file__).parents[2]
README = ROOT / "README.md"
TEXT = " ".join(README.read_text(encoding="utf-8").split())
N, COUNTS = 150_000, (2, 8, 64)


def test_readme_examples() -> None:
    results = doctest.testfile(str(README), module_relative=False, encoding="utf-8")
    assert results.attempted >= 9
    assert results.failed == 0


def test_speeds_are_those_of_the_benchmark() -> None:
    """Bug: a range that the last measurement has left, or one wider than it."""
    record = json.loads((ROOT / "benchmarks" / "results" / "solve.json").read_text())
    stated = re.search(
        r"takes (\S+) to (\S+) times as long as a sort .*? the plan (\S+) to (\S+) times, "
        r"the plan with a checked certificate (\S+) to (\S+) times",
        TEXT,
    )
    assert stated
    measured = [
        f"{end(row[name] for row in record['times']):.1f}"
        for name in ("alpha", "plan", "certificate")
        for end in (min, max)
    ]
    assert list(stated.groups()) == measured


def test_bounds_on_rounding_are_those_of_the_theorems() -> None:
    """Theorems 5.7 and 5.8 for the distributions of the benchmark, by the tables of the plans."""
    stated = re.search(r"roundings, are (\S+) and (\S+) for the distributions", TEXT)
    assert stated
    found = np.array([bounds(*pair_of_laws(kind, N), k) for kind in LAWS for k in COUNTS])
    for largest, limit in zip(found.max(axis=0), map(float, stated.groups()), strict=True):
        assert limit / 2 < largest <= limit


def bounds(p: np.ndarray, q: np.ndarray, k: int) -> tuple[float, float]:
    """How much acceptance a plan loses at most, and how far its output is at most (TV)."""
    plan, unit = OptimalPlan(Problem(p, q, k)), 2.0**-53
    slots, wanted, swaps = plan.slots, plan._wanted, plan.slots.swaps
    lacking = abs((wanted.mean - wanted.slope) * wanted.bins.draft).sum()
    bins, bits = wanted.slope.size, slots._grid_bits
    most = max(np.bincount(ends).max(initial=0) for ends in (swaps.low, swaps.high))
    rest = 14 * N * min(1.0, k * N * unit)
    rejected = (1 - float(optimal_value(plan.problem))) * (540 + N / 512)
    output = (30 + 2.0 ** (54 - bits) + (most + 8) * lacking + rest + rejected) * unit
    return k * (2.0 ** (1 - bits) + bins * 2.0**-62) + 30 * (bins + 2) * unit, output


def test_the_bounds_grow_with_what_they_bound() -> None:
    """The control: with more drafts more acceptance can be lost."""
    few, many = (bounds(*pair_of_laws("random", 20_000), k) for k in (2, 10**6))
    assert many[0] > 100 * few[0] > 0
    assert few[1] == pytest.approx(5e-14, rel=0.5)
