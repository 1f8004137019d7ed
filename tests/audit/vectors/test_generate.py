"""The file of test vectors: what its problems are, and that the generator gives them again."""

import itertools
import json
from collections import Counter
from fractions import Fraction
from typing import Any

import pytest

from otm.audit.vectors import path
from otm.audit.vectors.generate import COUNTS, HEAD, vectors

TEXT = path().read_text(encoding="utf-8")
DOCUMENT = json.loads(TEXT)
PROBLEMS: list[dict[str, Any]] = DOCUMENT["problems"]


def of_rule(rule: str) -> list[dict[str, Any]]:
    return [problem for problem in PROBLEMS if problem["rule"] == rule]


def rows(problem: dict[str, Any], name: str) -> list[list[int]]:
    found = problem.get(name, [])
    return found if not found or isinstance(found[0], list) else [found]


def test_the_generator_gives_the_committed_file_again() -> None:
    """Bug: a change of the generator that leaves an old file, or a choice that is not seeded."""
    assert {name: x for name, x in DOCUMENT.items() if name != "problems"} == HEAD
    for rule in COUNTS:
        first = of_rule(rule)[:25]
        again = [{"id": first[i]["id"], **x} for i, x in enumerate(vectors(rule, 25))]
        assert again == first, rule


def test_the_file_has_every_size_and_stays_small() -> None:
    """Bug: a filter that leaves only easy problems; a file that makes the wheel large."""
    assert [problem["id"] for problem in PROBLEMS] == list(range(sum(COUNTS.values())))
    assert Counter(problem["rule"] for problem in PROBLEMS) == COUNTS
    assert len(TEXT.encode()) < 1_000_000
    for rule in COUNTS:
        lengths = {len(problem["drafts"]) for problem in of_rule(rule)}
        assert lengths == {*range(not rule.startswith(("chain", "block")), 5)}, rule
        widths = {len(rows(problem, "target")[0]) for problem in of_rule(rule)}
        assert widths >= ({2, 3, 4, 5} if rule == "walk and keep" else {2, 3, 4, 5, 6, 8, 12})
    for rule in ("chain", "block"):
        ends = {(len(x["drafts"]), x["expected"]["accepted"]) for x in of_rule(rule)}
        assert ends == {(n, i) for n in range(5) for i in range(n + 1)}
    ends = {(len(x["drafts"]), x["expected"]["index"]) for x in of_rule("k-Seq")}
    assert ends == {(k, i) for k in range(1, 5) for i in range(-1, k)}


def test_rows_are_distributions_and_drafts_can_be_drawn() -> None:
    """Bug: a row that does not sum to one in float32, or a draft of probability zero."""
    kinds: Counter[str] = Counter()
    for problem in PROBLEMS:
        draft = rows(problem, "draft") + rows(problem, "winner")
        target = rows(problem, "target")
        assert {sum(row) for row in (*target, *draft)} == {1024}
        assert min(map(min, (*target, *draft))) >= 0
        for i, token in enumerate(problem["drafts"]):
            assert draft[min(i, len(draft) - 1)][token] > 0
        for t, d in zip(target, draft, strict=False):
            kinds["equal"] += t == d
            kinds["disjoint"] += not any(map(min, t, d))
            kinds["one-hot draft"] += max(d) == 1024
            kinds["one-hot target"] += max(t) == 1024
            kinds["zero in the target"] += any(x and not y for x, y in zip(d, t, strict=True))
            kinds["zero in the draft"] += any(y and not x for x, y in zip(d, t, strict=True))
    assert min(kinds.values()) > 100, kinds
    assert len(kinds) == 6


def thresholds(problem: dict[str, Any]) -> list[Fraction]:
    """Compute the threshold of each uniform, by the definition of its rule."""
    target, draft, drafts = rows(problem, "target"), rows(problem, "draft"), problem["drafts"]
    if problem["rule"] == "k-Seq":
        return [Fraction(target[0][x] * 16, problem["factor"] * draft[0][x]) for x in drafts]
    ratios = [Fraction(t[x], d[x]) for t, d, x in zip(target, draft, drafts, strict=False)]
    if problem["rule"] == "chain":
        return ratios
    weights = [
        Fraction(1),
        *itertools.accumulate(ratios, lambda w, r: min(w * r, Fraction(1)), initial=Fraction(1)),
    ][1:]
    tests = []
    for i, weight in enumerate(weights[1:], start=1):
        if i == len(drafts):
            tests.append(weight)
            continue
        both = zip(target[i], draft[i], strict=True)
        mass = sum((max(weight * t - d, Fraction(0)) for t, d in both), Fraction(0)) / 1024
        tests.append(mass / (mass + 1 - weight) if mass else Fraction(0))
    return tests


@pytest.mark.parametrize("rule", ["chain", "block", "k-Seq"])
def test_uniforms_keep_away_from_thresholds_except_ties(rule: str) -> None:
    """Bug: a uniform so near to a threshold that a correct engine in float32 fails."""
    ties = above = 0
    for problem in of_rule(rule):
        pairs = zip(problem["uniforms"], thresholds(problem), strict=True)
        distances = [abs(Fraction(u, 4096) - t) for u, t in pairs]
        on_threshold = [x for x in distances if x == 0]
        assert bool(on_threshold) == problem.get("tie", False), problem
        assert all(x > Fraction(1, 1000) for x in distances if x), problem
        assert all(0 <= u < 4096 for u in problem["uniforms"])
        ties += bool(on_threshold)
        above += any(u for u, x in zip(problem["uniforms"], distances, strict=True) if not x)
    assert ties == COUNTS[rule] // 8
    assert above >= ties // 2
