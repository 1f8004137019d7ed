"""The page from our theorems to the code: complete, and true.

And what no other test shows of a theorem: continuity of the optimum, masses that are misplaced, and
factors below the best one.
"""

from __future__ import annotations

import math
import random
import re
import runpy
from fractions import Fraction
from itertools import product
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest

import otm
from otm.coupling import KSeq, OptimalPlan
from otm.coupling.optimal.slots import winning_probabilities

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
PAPERS = runpy.run_path(str(Path(__file__).with_name("test_paper_map.py")))
is_there, found = PAPERS["is_there"], PAPERS["found"]

TABLE = "theory/theorem-to-code"
PROOFS = (DOCS / "theory" / "proofs" / "Statements.v").read_text(encoding="utf-8")
STATEMENTS = set(re.findall(r"^Definition (\w+) : Prop", PROOFS, flags=re.MULTILINE))
NUMBERED = re.compile(
    r"^(?:## (Theorem \d+\.\d+): (.*)|\*\*(Lemma \d+\.\d+)\.\*\*.*)$", re.MULTILINE
)
ROW = re.compile(r"^\| \*\*(\w+ [\d.]+)\*\*: \[(.*)\]\((.*)\) \| (.*) \| (.*) \| (.*) \|$")

F = Fraction


class Row(NamedTuple):
    """What a theorem is in code, which tests try it, and what is proved of it in Coq."""

    title: str
    names: list[str]
    tests: list[str]
    statements: list[str]


def pages_of(index: str) -> list[str]:
    """Return the pages of the theory in their order, without the notation before them."""
    (tree,) = re.findall(r":caption: Theory\n.*?```", index, flags=re.DOTALL)
    return re.findall(r"^theory/[\w-]+$", tree, flags=re.MULTILINE)


def rows_of(page: str) -> dict[str, Row]:
    """Read the rows of all tables of the page, by theorem."""
    rows = {}
    for line in page.splitlines():
        if line.startswith("| **"):
            match = ROW.fullmatch(line)
            assert match, line
            name, title, _, code, shown, coq = match.groups()
            assert name not in rows, name
            tests = ["::".join(test) for test in re.findall(r"`([^`]+\.py)` `(\w+)`", shown)]
            names, statements = (re.findall(r"`([^`]+)`", cell) for cell in (code, coq))
            rows[name] = Row(title, names, tests, statements)
    return rows


PAGES = pages_of((DOCS / "index.md").read_text(encoding="utf-8"))
TEXTS = [(DOCS / f"{page}.md").read_text(encoding="utf-8") for page in PAGES]
ROWS = rows_of(TEXTS[PAGES.index(TABLE)])


def test_theorems_have_the_number_of_their_page_and_their_place() -> None:
    """Bug: a page that was put between two others, or a theorem between two."""
    for number, text in enumerate(TEXTS, 1):
        names = [one or other for one, _, other in NUMBERED.findall(text)]
        assert [name.split()[1] for name in names] == [
            f"{number}.{place}" for place in range(1, len(names) + 1)
        ]


def test_every_theorem_has_a_row() -> None:
    """Bug: a theorem that was added, or whose title changed."""
    stated = {one or other: title for text in TEXTS for one, title, other in NUMBERED.findall(text)}
    assert len(stated) > 80
    assert list(ROWS) == list(stated)
    assert all(ROWS[name].title == title for name, title in stated.items() if title)


def test_every_row_names_code_and_a_test_that_are_there() -> None:
    """Bug: a function or a test that was renamed, moved or deleted."""
    pytest.importorskip("torch")
    for name, row in ROWS.items():
        assert row.names
        assert all(callable(found(each)) for each in row.names), name
        assert row.tests, name
        assert [test for test in row.tests if not is_there(test)] == [], name


def test_what_is_proved_in_coq_is_in_the_row_of_its_theorem() -> None:
    """Bug: a statement that no row names, or one that is not there."""
    named = {each for row in ROWS.values() for each in row.statements}
    assert named <= STATEMENTS
    of_theorems = {each for each in STATEMENTS if each.startswith("theorem_")}
    assert named == of_theorems
    for name, row in ROWS.items():
        own = "theorem_" + name.split()[1].replace(".", "_")
        assert {each for each in of_theorems if re.match(own + r"(_[a-z]|$)", each)} <= set(
            row.statements
        )


def test_the_checks_can_fail() -> None:
    row = "| **Theorem 1.1**: [a](b.md#c) | `x.y` | `a.py` `test_b` <br> `c.py` `d` | `e`, `f` |"
    assert rows_of(row) == {
        "Theorem 1.1": Row("a", ["x.y"], ["a.py::test_b", "c.py::d"], ["e", "f"])
    }
    with pytest.raises(AssertionError):
        rows_of(row.replace(" | `e`", ""))
    assert pages_of(":caption: Theory\nnotation\ntheory/b-c\n```\ntheory/d\n") == ["theory/b-c"]


# What no other test shows


def law(rng: random.Random, n: int, *, full: bool = False) -> list[Fraction]:
    """Draw a law of small fractions, with zeros unless it must be full."""
    weights = [rng.randint(1 if full else 0, 6) for _ in range(n)]
    weights[rng.randrange(n)] += 1
    return [F(weight, sum(weights)) for weight in weights]


def distance(p: list[Fraction], q: list[Fraction]) -> Fraction:
    """Total variation distance."""
    return sum((abs(x - y) for x, y in zip(p, q, strict=True)), F(0)) / 2


def test_the_optimum_moves_no_faster_than_the_laws() -> None:
    """Theorem 2.4.  It is sharp: some laws move as far as they may."""
    rng, sharp = random.Random(0), 0
    for _ in range(300):
        n, k = rng.randint(1, 4), rng.randint(1, 3)
        p, other_p, q, other_q = (law(rng, n) for _ in range(4))
        tuples = [
            [
                math.prod((x[token] for token in drafts), start=F(1))
                for drafts in product(range(n), repeat=k)
            ]
            for x in (p, other_p)
        ]
        moved = abs(F(otm.alpha(p, q, k)) - F(otm.alpha(other_p, other_q, k)))
        limit = distance(tuples[0], tuples[1]) + distance(q, other_q)
        assert moved <= limit
        sharp += moved == limit > 0
    assert sharp


def winning_law(table: list[list[Fraction]], k: int) -> tuple[list[Fraction], list[Fraction]]:
    """Return the law of the winner in a table [slots][tokens], and the slope of each slot."""
    before, slopes = F(0), []
    for row in table:
        after = before + sum(row)
        slopes.append((after**k - before**k) / sum(row))
        before = after
    won = [
        sum((row[x] * w for row, w in zip(table, slopes, strict=True)), F(0))
        for x in range(len(table[0]))
    ]
    return won, slopes


def test_a_misplaced_mass_costs_what_it_gains() -> None:
    """Theorem 5.6, for a mass so small that what is not of first order does not count."""
    rng, tiny, largest = random.Random(1), F(1, 10**12), F(0)
    for _ in range(200):
        slots, n, k = rng.randint(2, 5), rng.randint(2, 4), rng.randint(2, 6)
        masses = law(rng, slots * n, full=True)
        table = [masses[i * n : (i + 1) * n] for i in range(slots)]
        won, slopes = winning_law(table, k)
        (low, high), token = rng.sample(range(slots), 2), rng.randrange(n)
        table[low][token] -= tiny
        table[high][token] += tiny
        change = 2 * distance(won, winning_law(table, k)[0]) / tiny
        limit = 2 * abs(slopes[high] - slopes[low])
        assert change <= limit + F(1, 10**6)
        largest = max(largest, change / limit)
    assert largest > F(1, 2)  # more than the tokens that moved


def test_nothing_is_gained_below_the_best_factor() -> None:
    """Theorem 6.3: where a smaller factor is lossless, it accepts the same mass.

    `KSeq` refuses smaller ones, so what the test accepts is computed here.
    """
    rng, lossless = random.Random(2), 0
    for _ in range(300):
        n, k = rng.randint(1, 3), rng.randint(2, 3)
        p, q = law(rng, n), law(rng, n)
        best = F(KSeq(otm.Problem(p, q, k)).rho or 1)  # the upper end of a narrow bracket
        for rho in (F(1), (1 + best) / 2):
            (mass, at_best) = (accepted_by_k_seq(p, q, k, factor) for factor in (rho, best))
            if rho < best - F(1, 100) and all(x <= y for x, y in zip(mass, q, strict=True)):
                assert max(abs(x - y) for x, y in zip(mass, at_best, strict=True)) < F(1, 10**9)
                lossless += 1
    assert lossless


def accepted_by_k_seq(
    p: list[Fraction], q: list[Fraction], k: int, rho: Fraction
) -> list[Fraction]:
    """Return the mass that the test accepts, draft by draft."""
    passes = [min(x, y / rho) for x, y in zip(p, q, strict=True)]
    reached = sum(((1 - sum(passes)) ** i for i in range(k)), F(0))
    return [reached * x for x in passes]


def test_the_optimum_depends_on_capped_sums() -> None:
    """Theorem 10.1: every cap bounds the optimum, and some cap attains it."""
    rng = np.random.default_rng(3)
    for k in (1, 2, 5):
        for _ in range(20):
            p, q = rng.dirichlet(np.full(6, 0.5), 2)
            m = np.append(0, np.geomspace(1e-9, 1, 20_001))  # the draft mass outside of the cut
            caps = k * (1 - m) ** (k - 1)
            most = 1 - (1 - m) ** k - caps * m  # at the m where caps is the slope of h
            values = most + np.minimum(q, caps[:, None] * p).sum(axis=1)
            alpha = otm.alpha(p, q, k)
            assert values.min() >= alpha - 1e-12
            assert values.min() <= alpha + 1e-4


def test_an_error_of_the_winning_law_is_passed_on_once() -> None:
    """Theorem 11.3, and that it is sharp."""
    rng, sharp = random.Random(4), 0
    for _ in range(300):
        n = rng.randint(1, 4)
        really, used, q = (law(rng, n) for _ in range(3))
        accept = [min(F(1), y / v) if v else F(1) for v, y in zip(used, q, strict=True)]
        mass = [w * a for w, a in zip(really, accept, strict=True)]
        rest = [y - min(y, v) for v, y in zip(used, q, strict=True)]
        residual = [x / sum(rest) if sum(rest) else y for x, y in zip(rest, q, strict=True)]
        output = [a + (1 - sum(mass)) * r for a, r in zip(mass, residual, strict=True)]
        assert distance(output, q) <= distance(really, used)
        sharp += distance(output, q) == distance(really, used) > 0
    assert sharp


def test_walk_and_keep_accepts_as_much_as_the_recursion_with_its_winner() -> None:
    """Theorem 14.5, for two paths of two tokens and the winners of optimal plans."""
    rng, more = random.Random(5), 0
    for _ in range(100):
        n = rng.randint(2, 3)
        first = OptimalPlan(otm.Problem(law(rng, n, full=True), law(rng, n), 2))
        accepted, by_recursion = F(0), F(0)
        for token in range(n):
            draft, target = law(rng, n, full=True), law(rng, n)
            ways = {count: wins_with(first, token, count) for count in (1, 2)}
            passed = sum(ways.values(), F(0))  # W
            assert passed == first.winner_distribution[token]
            kept = min(passed, first.problem.target[token])  # S
            accepted, by_recursion = accepted + kept, by_recursion + kept
            if not kept:
                continue
            winners = {
                count: OptimalPlan(otm.Problem(draft, target, count)).winner_distribution
                for count in ways
            }
            for z, of_target in enumerate(target):
                walked = sum((ways[count] * winners[count][z] for count in ways), F(0))
                accepted += min(kept * of_target, walked)
                by_recursion += sum(
                    ways[count] * kept / passed * min(winners[count][z], of_target)
                    for count in ways
                )
        assert accepted >= by_recursion
        more += accepted > by_recursion
    assert more > 10


def wins_with(plan: OptimalPlan, token: int, count: int) -> Fraction:
    """Probability that a token wins among two drafts, with so many drafts equal to it."""
    probs, found = plan.problem.draft, F(0)
    for drafts in product(range(plan.problem.n), repeat=2):
        if drafts.count(token) == count:
            wins = winning_probabilities([plan.slot_law(x) for x in drafts])
            won = sum((w for x, w in zip(drafts, wins, strict=True) if x == token), F(0))
            found += probs[drafts[0]] * probs[drafts[1]] * won
    return found
