"""Claims of pages and messages, held against the records and theorems that they come from."""

import json
import re
import tomllib
from typing import Any

import numpy as np
import pytest

from benchmarks.solve import LAWS, pair_of_laws
from otm import Problem
from otm.coupling import OptimalPlan
from otm.optimum import optimal_value
from otm.rules import RULES
from tests.repo.pages import ROOT, read

COUNTS = (2, 8, 64)
WORDS = {8: "eight", 9: "nine", 14: "fourteen", 22: "Twenty-two"}
PLACES = "*.md docs/*.md examples/*.py figures/**/*.py figures/index.html otm/**/*.py otm/**/*.html"
UNCONDITIONAL = re.compile(
    r"\b(?:no|every|any) lossless (?:verifier|step)\b(?! has\b| of K i.i.d. chains \[without)"
    r"|\bno (?:lossless )?(?:verifier|rule) (?:can )?exceeds?\b(?! the)",
    re.IGNORECASE,
)
"""A bound on several tokens that is stated without the condition that it needs."""


def record(name: str) -> Any:
    return json.loads(read(f"benchmarks/results/{name}.json"))


def stated(pattern: str, page: str = "docs/reliability.md") -> tuple[str, ...]:
    """Find the numbers that a page states in this sentence."""
    match = re.search(pattern, " ".join(read(page).split()))
    assert match, pattern
    return match.groups()


def test_speeds_are_those_of_the_benchmark() -> None:
    """Bug: a range that the last measurement has left, or one of some distributions for all."""
    *ranges, near_plan, near_certificate = stated(
        r"takes (\S+) to (\S+) times as long as a sort .*? the plan (\S+) to (\S+) times, "
        r"the plan with a checked certificate (\S+) to (\S+) times; if the draft is within 1e-4 "
        r"of its target, the plan takes up to (\d+) times, with the certificate up to (\d+) times"
    )
    rows = record("solve")["times"]
    near = [row for row in rows if row["laws"] == "near"]
    others = [row for row in rows if row["laws"] != "near"]
    assert ranges == [
        f"{end(row[name] for row in some):.1f}"
        for name, some in (("alpha", rows), ("plan", others), ("certificate", others))
        for end in (min, max)
    ]
    assert f"{max(row['plan'] for row in near):.0f}" == near_plan
    assert f"{max(row['certificate'] for row in near):.0f}" == near_certificate


def assert_tight(measured: Any, limits: tuple[str, ...]) -> None:
    """Check that numbers are at most what is stated, and more than half of it."""
    for largest, limit in zip(measured, map(float, limits), strict=True):
        assert limit / 2 < largest <= limit


def test_distances_from_exact_are_those_of_the_benchmark() -> None:
    """Bug: "within 2e-14" where one pair of distributions is ten times as far from the optimum."""
    limits = stated(
        r"within (\S+) of the optimum, or within (\S+) if the draft is within 1e-4 of its target\. "
        r"With real numbers .*? total variation between output and target is at most (\S+)\. "
    )
    rows = record("solve")["accuracy"]
    assert {(row["laws"], row["k"]) for row in rows} == {(x, k) for x in LAWS for k in COUNTS}
    far, near = (
        max(row["acceptance"] for row in rows if (row["laws"] == "near") == is_near)
        for is_near in (False, True)
    )
    assert_tight([far, near, max(row["TV"] for row in rows)], limits)
    gap = stated(r"with up to 64 drafts it is below (\S+) up to")
    assert max(row["gap"] for row in rows) <= float(gap[0])
    # the control: rounding costs more here too where the draft is within 1e-4 of its target
    pairs = (pair_of_laws(kind, 20_000) for kind in ("language model", "near"))
    plans = [OptimalPlan(Problem(*pair, 64)) for pair in pairs]
    far, near = (abs(plan.acceptance - float(optimal_value(plan.problem))) for plan in plans)
    assert 10 * far < near <= 2e-13


def bounds(kind: str, n: int, k: int) -> tuple[float, float]:
    """How much acceptance a plan loses at most, and how far its output is at most (TV)."""
    plan, unit = OptimalPlan(Problem(*pair_of_laws(kind, n), k)), 2.0**-53
    slots, wanted, swaps = plan.slots, plan._target_win_ratio, plan.slots.swaps
    lacking = abs((wanted.mean - wanted.slope) * wanted.bins.draft).sum()
    bins, bits = wanted.slope.size, slots._grid_bits
    most = max(np.bincount(ends).max(initial=0) for ends in (swaps.low, swaps.high))
    rest = 14 * n * min(1.0, k * n * unit)
    rejected = (1 - float(optimal_value(plan.problem))) * (540 + n / 512)
    output = (30 + 2.0 ** (54 - bits) + (most + 8) * lacking + rest + rejected) * unit
    return k * (2.0 ** (1 - bits) + bins * 2.0**-62) + 30 * (bins + 2) * unit, output


def test_bounds_on_rounding_are_those_of_the_theorems() -> None:
    """Theorems 5.7 and 5.8 for the distributions of the benchmark, by the tables of the plans."""
    found = np.array([bounds(kind, 150_000, k) for kind in LAWS for k in COUNTS])
    sentence = r"roundings, are (\S+) for the acceptance and (\S+) for the output \("
    assert_tight(found.max(axis=0), stated(sentence))
    few, many = (bounds("random", 20_000, k) for k in (2, 10**6))
    assert many[0] > 100 * few[0] > 0, "the control: with more drafts more can be lost"
    assert few[1] == pytest.approx(5e-14, rel=0.5)


def unconditional(text: str) -> list[str]:
    """List the bounds of a text that hold for memoryless verifiers alone and do not say so."""
    return UNCONDITIONAL.findall(" ".join(text.split()))


def test_bounds_say_that_they_are_of_memoryless_verifiers() -> None:
    """Bug: "no lossless verifier exceeds", which is false for one with a state (Theorem 19.3).

    The pages of theory say at their top that lossless means memoryless.
    """
    texts = [path for place in PLACES.split() for path in ROOT.glob(place)]
    assert len(texts) > 300
    claims = {(x.name, claim) for x in texts for claim in unconditional(x.read_text("utf-8"))}
    # a frontier of rules that are not lossless, for one token
    frontier = {(name, "no rule exceeds") for name in ("lossy_texts.py", "index.html")}
    assert {(name, claim) for name, claim in claims if name != "CHANGELOG.md"} <= frontier
    reports = "cli/report.py gain/reports/page.html gain/reports/summary.py gain/recommendation.py"
    for name in reports.split():
        assert re.search(r"memoryless lossless\s+verifier", read(f"otm/{name}")), name
    # the search can fail
    bounds = "no lossless verifier exceeds 4.2 tokens; No lossless\nverifier can have more; "
    bounds += "an upper bound for every lossless step; what no rule can exceed"
    assert all(unconditional(claim) for claim in bounds.split("; "))
    assert not unconditional("no memoryless lossless verifier exceeds 4.2 tokens a step")
    assert not unconditional("without which no verifier is called lossless")


def test_the_rules_are_counted() -> None:
    """Bug: "fourteen lossless rules" beside a table of twenty-two, without a word why."""
    lossless = [rule for rule in RULES.values() if rule.lossless]
    plans = sum(bool(rule.plan) for rule in lossless)
    plan, verifier = WORDS[plans], WORDS[len(lossless) - plans]
    pattern = r"(\w+) lossless rules return one token .*?: .*? (\w+) more rules verify chains "
    pattern += r"and trees: .*? (\w+) lossy rules"
    lossy = WORDS[len(RULES) - len(lossless)].capitalize()
    assert stated(pattern, "README.md") == (plan.capitalize(), verifier.capitalize(), lossy)
    pattern = r"([\w-]+) are lossless: the (\w+) \*plans\*.*? and (\w+) that are only verifiers"
    assert stated(pattern, "docs/comparison.md") == (WORDS[len(lossless)], plan, verifier)


def test_how_to_choose_gives_the_numbers_of_its_own_tables() -> None:
    """Bug: times of an earlier measurement beside a table of a later one."""
    found, page = record("rules"), "docs/how-to-choose.md"
    use = "k drafts for one token only, both distributions at hand"
    (one_token,) = re.findall(rf"(?m)^\| {use} \|.*$", read(page))
    optimal, k_seq = (found["acceptance"][name]["4"] for name in ("optimal", "k-Seq"))
    assert f"accepts {optimal:.3f} instead of {k_seq:.3f} for k = 4" in one_token
    build = {name: cost["build ms"] for name, cost in found["cost"].items()}
    assert f"{build['optimal']:.3g} ms against {build['k-Seq']:.3g} ms to prepare" in one_token
    sentence = r"At 32,000 tokens `GreedyRule`'s tables take (\S+) ms to build, and the tables for "
    times = stated(rf"{sentence}one draft take (\S+) \(\[What they cost\]", page)
    assert times == tuple(f"{build[name]:.1f}" for name in ("greedy", "maximal coupling"))


def test_pages_and_metadata_say_nothing_twice_or_that_nobody_measured() -> None:
    """Bug: "OS Independent", untested; two addresses for reports; "ten minutes" of 2,700 words."""
    project = tomllib.loads(read("pyproject.toml"))["project"]
    systems = [x for x in project["classifiers"] if x.startswith("Operating System")]
    assert systems == ["Operating System :: POSIX :: Linux"]
    assert stated(r"What has not been run.*?(macOS and Windows)\.", "docs/support.md")
    texts = {path.name: path.read_text(encoding="utf-8") for path in ROOT.glob("*.md")}
    assert [name for name, text in texts.items() if "REPORT-TO:" in text] == ["SECURITY.md"]
    assert "SECURITY.md#how-to-report-a-problem" in texts["CONTRIBUTING.md"]
    assert not [name for name, text in texts.items() if "page of this repository" in text]
    for name in ("README.md", "docs/index.md", "docs/tutorial.md"):
        assert "ten minutes" not in read(name)
