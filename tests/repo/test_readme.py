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
from otm.rules import RULES

ROOT = Path(__file__).parents[2]
README = ROOT / "README.md"
TEXT = " ".join(README.read_text(encoding="utf-8").split())
RECORD = json.loads((ROOT / "benchmarks" / "results" / "solve.json").read_text(encoding="utf-8"))
N, COUNTS = 150_000, (2, 8, 64)
WORDS = {6: "six", 14: "fourteen"}


def test_readme_examples() -> None:
    results = doctest.testfile(str(README), module_relative=False, encoding="utf-8")
    assert results.attempted >= 9
    assert results.failed == 0


def test_speeds_are_those_of_the_benchmark() -> None:
    """Bug: a range that the last measurement has left, or one of some distributions for all."""
    stated = re.search(
        r"takes (\S+) to (\S+) times as long as a sort .*? the plan (\S+) to (\S+) times, "
        r"the plan with a checked certificate (\S+) to (\S+) times; where the draft is within "
        r"1e-4 of its target, up to (\d+) and (\d+) times",
        TEXT,
    )
    assert stated
    *ranges, near_plan, near_certificate = stated.groups()
    others = [row for row in RECORD["times"] if row["laws"] != "near"]
    assert ranges == [
        f"{end(row[name] for row in rows):.1f}"
        for name, rows in (("alpha", RECORD["times"]), ("plan", others), ("certificate", others))
        for end in (min, max)
    ]
    near = [row for row in RECORD["times"] if row["laws"] == "near"]
    for name, most in (("plan", near_plan), ("certificate", near_certificate)):
        assert f"{max(row[name] for row in near):.0f}" == most


def test_distances_from_exact_are_those_of_the_benchmark() -> None:
    """Bug: "within 2e-14" where one pair of distributions is ten times as far from the optimum."""
    stated = re.search(
        r"within (\S+) of the optimum, within (\S+) where the draft is within 1e-4 of its "
        r"target, and the total variation of its output from the target within (\S+),",
        TEXT,
    )
    assert stated
    assert {(row["laws"], row["k"]) for row in RECORD["accuracy"]} == {
        (kind, k) for kind in LAWS for k in COUNTS
    }
    near = np.array([row["laws"] == "near" for row in RECORD["accuracy"]])
    acceptance, variation = (
        np.array([row[name] for row in RECORD["accuracy"]]) for name in ("acceptance", "TV")
    )
    measured = acceptance[~near].max(), acceptance[near].max(), variation.max()
    for largest, limit in zip(measured, map(float, stated.groups()), strict=True):
        assert limit / 2 < largest <= limit
    gap = re.search(r"with up to 64 drafts it is below (\S+) up to", TEXT)
    assert gap
    assert max(row["gap"] for row in RECORD["accuracy"]) <= float(gap[1])


def test_the_pair_that_is_far_from_exact_is_so_here_too() -> None:
    """The control: rounding costs more where the draft is within 1e-4 of its target."""
    lost = {}
    for kind in ("language model", "near"):
        plan = OptimalPlan(Problem(*pair_of_laws(kind, 20_000), 64))
        lost[kind] = abs(plan.acceptance - float(optimal_value(plan.problem)))
    assert lost["near"] > 10 * lost["language model"]
    assert lost["near"] <= 2e-13


def test_the_rules_are_counted() -> None:
    """Bug: "fourteen lossless rules" beside a table of twenty, without a word why."""
    stated = re.search(
        r"(\w+) lossless rules return one token, .*? \((\w+) more verify \[chains and trees\]", TEXT
    )
    assert stated
    counted = {True: 0, False: 0}
    for rule in RULES.values():
        if rule.lossless:
            counted[bool(rule.plan)] += 1
    assert stated.groups() == (WORDS[counted[True]].capitalize(), WORDS[counted[False]])


def test_bounds_on_rounding_are_those_of_the_theorems() -> None:
    """Theorems 5.7 and 5.8 for the distributions of the benchmark, by the tables of the plans."""
    stated = re.search(r"roundings, are (\S+) and (\S+) \(", TEXT)
    assert stated
    found = np.array([bounds(*pair_of_laws(kind, N), k) for kind in LAWS for k in COUNTS])
    for largest, limit in zip(found.max(axis=0), map(float, stated.groups()), strict=True):
        assert limit / 2 < largest <= limit


def bounds(p: np.ndarray, q: np.ndarray, k: int) -> tuple[float, float]:
    """How much acceptance a plan loses at most, and how far its output is at most (TV)."""
    plan, unit = OptimalPlan(Problem(p, q, k)), 2.0**-53
    slots, wanted, swaps = plan.slots, plan._target_win_ratio, plan.slots.swaps
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
