"""The page from papers to code: complete, and true.

And the two statements of SpecTr that no other test shows: where drafts come from (equations 7 and
8, Algorithm 4), and that Theorem 2 does not hold as it is printed.
"""

from __future__ import annotations

import ast
import math
import re
from collections import defaultdict
from fractions import Fraction
from functools import cache
from importlib import import_module
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from otm.coupling import KSeq
from otm.decoding import ModelDrafter, spectr_verifier, stream
from otm.decoding.draft_tree import Randomness
from otm.decoding.drafters.base import Branching
from otm.models import TableModel
from otm.testing.sequences import (
    continued_distribution,
    output_distribution_of,
    sequence_distribution,
)

ROOT = Path(__file__).resolve().parents[2]
TESTS = ROOT / "tests"
PAGE = (ROOT / "docs" / "paper-to-code.md").read_text(encoding="utf-8")

# What each paper numbers, in its own numbers.
NUMBERED = {
    "Leviathan, Kalman and Matias 2023": {
        "Algorithm": ["1"],
        "Definition": ["3.1", "3.2", "3.7", "3.10"],
        "Lemma": ["3.3"],
        "Corollary": ["3.4", "3.6", "3.9"],
        "Theorem": ["3.5", "3.8", "3.11"],
        "Equation": ["1"],
        "Figure": ["1", "2", "3", "4", "5"],
        "Table": ["1", "2", "3", "4", "5"],
    },
    "Sun et al. 2023, SpecTr": {
        "Algorithm": ["1", "2", "3", "4"],
        "Definition": ["1", "2"],
        "Claim": ["1"],
        "Lemma": ["1", "2", "3", "4"],
        "Theorem": ["1", "2"],
        "Equation": [str(number) for number in range(1, 13)],
        "Figure": ["1", "2", "3", "4", "5", "6"],
        "Table": ["1", "2", "3", "4"],
    },
    "Wagner et al. 2024": {
        "Equation": [str(number) for number in range(1, 8)],
        "Figure": ["1", "2", "3", "4", "5"],
        "Table": ["1", "2", "3", "4", "5", "6", "7", "8"],
    },
}
SLIPS, OTHERS = "Slips of the papers", "Methods of other papers"


class Row(NamedTuple):
    """A row of a table: what it is about, the names of code and the tests in its last cell."""

    item: str
    names: list[str]
    tests: list[str]


def rows_of(page: str) -> dict[str, list[Row]]:
    """Rows of the tables of a page, by the heading above them.

    A row begins with its item in bold; its last cell has names, and tests as FILE NAME.
    """
    tables = defaultdict(list)
    heading = ""
    for line in page.splitlines():
        if line.startswith("## "):
            heading = line[3:]
        elif line.startswith("| **"):
            item, *_, shown = line.strip("| ").split("|")
            code = re.findall(r"`([^`]+)`", shown)
            tests = ["::".join(test) for test in re.findall(r"`([^`]+\.py)` `(\w+)`", shown)]
            names = [name for name in code if name not in "::".join(tests).split("::")]
            tables[heading].append(Row(item.split("**")[1], names, tests))
    return tables


ROWS = rows_of(PAGE)


@cache
def functions_of(path: Path) -> frozenset[str]:
    """Names of the test functions of a file, which is read and not run."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    functions = (ast.FunctionDef, ast.AsyncFunctionDef)
    return frozenset(node.name for node in tree.body if isinstance(node, functions))


def is_there(test: str) -> bool:
    """Whether FILE::NAME is a test below `tests/`."""
    file, _, name = test.partition("::")
    path = TESTS / file
    return name.startswith("test_") and path.is_file() and name in functions_of(path)


def found(name: str) -> Any:
    """Import the longest module in a dotted name, and look up the rest in it."""
    module, _, attribute = name.rpartition(".")
    return getattr(import_module(module), attribute)


@pytest.mark.parametrize("paper", NUMBERED)
def test_nothing_that_a_paper_numbers_is_left_out(paper: str) -> None:
    """Bug: a theorem without a row, two rows of one table, or a number that the paper lacks."""
    kinds = "|".join(kind for kinds in NUMBERED.values() for kind in kinds)
    listed = [row.item for row in ROWS[paper] if re.fullmatch(rf"({kinds}) [\d.]+", row.item)]
    expected = [
        f"{kind} {number}" for kind, numbers in NUMBERED[paper].items() for number in numbers
    ]
    assert sorted(listed) == sorted(expected)


def test_the_tables_are_those_of_the_papers_and_the_slips() -> None:
    """Bug: a table that is not read because its heading changed."""
    assert set(ROWS) == {*NUMBERED, SLIPS, OTHERS}
    rows = [line for line in PAGE.splitlines() if "`otm." in line or "`figures." in line]
    assert sum(map(len, ROWS.values())) == len(rows) > 100


@pytest.mark.parametrize("heading", ROWS)
def test_every_row_names_code_and_a_test(heading: str) -> None:
    """Bug: a row that shows nothing; a test that is named where code should be."""
    assert [row for row in ROWS[heading] if not (row.names and row.tests)] == []
    assert all(name.startswith(("otm.", "figures.")) for row in ROWS[heading] for name in row.names)


def test_every_name_can_be_imported() -> None:
    """Bug: a function that was renamed or moved."""
    pytest.importorskip("torch")
    for name in sorted({name for rows in ROWS.values() for row in rows for name in row.names}):
        assert callable(found(name)), name


def test_every_test_is_there() -> None:
    """Bug: a test that was renamed, moved or deleted."""
    named = {test for rows in ROWS.values() for row in rows for test in row.tests}
    assert sorted(test for test in named if not is_there(test)) == []


def test_the_checks_can_fail() -> None:
    rows = rows_of("## A\n| paper | x |\n| --- | --- |\n| **Lemma 1**: x | `otm.y` `a.py` `b` |\n")
    assert rows == {"A": [Row("Lemma 1", ["otm.y"], ["a.py::b"])]}
    assert not is_there("test_paper_map.py::test_nothing")
    assert not is_there("test_none.py::test_every_test_is_there")
    assert not is_there("test_paper_map.py::rows_of")
    with pytest.raises(AttributeError):
        found("otm.decoding.nothing")


# What no other test shows

F = Fraction
AFTER = {0: [F(1, 3), F(2, 3)], 1: [F(3, 4), F(1, 4)]}  # law of a draft after each token


@pytest.mark.parametrize(
    ("branching", "levels"), [(2, (2, 1)), ((2, 1), (2, 1)), ((1, 2), (1, 2))], ids=str
)
def test_chains_and_trees_are_drawn_from_the_draft_model(
    branching: Branching, levels: tuple[int, int]
) -> None:
    """Bug: line 5 of SpecTr's Algorithm 4, drafts of the target; siblings that depend."""
    model = TableModel({(): AFTER[0], (1,): AFTER[1]})

    def drawn(uniforms: Randomness) -> Any:
        (tree,) = ModelDrafter(model, branching).draft([(0,)], [2], None, [uniforms])
        return tuple(sorted(tree.drawn_paths()))

    expected: dict[Any, Fraction] = defaultdict(Fraction)
    roots, ends = levels
    for first in product((0, 1), repeat=roots):
        for second in product((0, 1), repeat=roots * ends):
            paths = [(first[i // ends], token) for i, token in enumerate(second)]
            expected[tuple(sorted(paths))] += math.prod(AFTER[0][token] for token in first) * (
                math.prod(AFTER[token][following] for token, following in paths)
            )
    assert output_distribution_of(drawn) == expected


def test_theorem_2_does_not_hold_given_the_number_of_tokens() -> None:
    """Bug: a claim of ours that conditions on how much was accepted, as SpecTr's Theorem 2 does."""
    target, draft = (TableModel({(): law}) for law in ([F(3, 4), F(1, 4)], [F(1, 2), F(1, 2)]))

    def output(uniforms: Randomness) -> tuple[int, ...]:
        drafter, verify = ModelDrafter(draft), spectr_verifier(KSeq)
        return next(stream(target, [(0,)], drafter, verify, gamma=1, uniforms=[uniforms])).output

    law = output_distribution_of(output)
    assert [tokens for tokens in law if len(tokens) == 1] == [(0,)]  # and never the second token
    assert continued_distribution(law, target, (0,), 2) == sequence_distribution(target, (0,), 2)
