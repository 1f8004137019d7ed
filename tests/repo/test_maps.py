"""The tables from papers and theorems to code are complete, and every name in them exists."""

import re
from collections import defaultdict
from pkgutil import resolve_name
from typing import NamedTuple

import pytest

from tests.repo.pages import ROOT, read

NUMBERED = {
    "Leviathan, Kalman and Matias 2023": (
        "Algorithm 1; Definition 3.1 3.2 3.7 3.10; Lemma 3.3; Corollary 3.4 3.6 3.9; "
        "Theorem 3.5 3.8 3.11; Equation 1; Figure 1 2 3 4 5; Table 1 2 3 4 5"
    ),
    "Sun et al. 2023, SpecTr": (
        "Algorithm 1 2 3 4; Definition 1 2; Claim 1; Lemma 1 2 3 4; Theorem 1 2; "
        "Equation 1 2 3 4 5 6 7 8 9 10 11 12; Figure 1 2 3 4 5 6; Table 1 2 3 4"
    ),
    "Wagner et al. 2024": "Equation 1 2 3 4 5 6 7; Figure 1 2 3 4 5; Table 1 2 3 4 5 6 7 8",
}
"""What each paper numbers, in its own numbers."""

STATED = re.compile(r"^(?:## (Theorem \d+\.\d+): (.*)|\*\*(Lemma \d+\.\d+)\.\*\*.*)$", re.MULTILINE)


class Row(NamedTuple):
    """A row of a table: its item in bold, and the code, tests and Coq statements that it names."""

    item: str
    title: str
    names: list[str]
    tests: list[str]
    statements: list[str]


def rows_of(page: str) -> dict[str, list[Row]]:
    """Rows of the tables of a page, by the heading above; a test is written as FILE NAME."""
    tables = defaultdict(list)
    heading = ""
    for line in page.splitlines():
        if line.startswith("## "):
            heading = line[3:]
        elif line.startswith("| **"):
            first, *cells = line.strip("| ").split(" | ")
            pairs = re.findall(r"`([^`]+\.py)` `(\w+)`", line)
            code = re.findall(r"`([^`]+)`", re.sub(r"\{cite:t\}`.*?`", "", " ".join(cells)))
            code = [name for name in code if name not in sum(pairs, ())]
            names = [name for name in code if "." in name]
            (title,) = re.findall(r"\*\*: \[(.*)\]\(", first) or [""]
            lists = names, ["::".join(pair) for pair in pairs], [x for x in code if x not in names]
            tables[heading].append(Row(first.split("**")[1], title, *lists))
    return tables


def theory_pages(index: str) -> list[str]:
    """List the pages of the theory in their order, without the notation before them."""
    (tree,) = re.findall(r":caption: Theory\n.*?```", index, flags=re.DOTALL)
    return re.findall(r"^theory/[\w-]+$", tree, flags=re.MULTILINE)


THEORY = [read(f"docs/{page}.md") for page in theory_pages(read("docs/index.md"))]
PAGES = {name: read(f"docs/tables/{name}.md") for name in ("papers", "theorems")}
PAPERS, THEOREMS = (rows_of(page) for page in PAGES.values())
THEOREM_ROWS = [row for rows in THEOREMS.values() for row in rows]


def is_test(test: str) -> bool:
    """Whether FILE::NAME is a test below `tests/`; the file is read and not run."""
    file, _, name = test.partition("::")
    text = read(f"tests/{file}") if (ROOT / "tests" / file).is_file() else ""
    return name.startswith("test_") and bool(re.search(rf"(?m)^(async )?def {name}\b", text))


def test_nothing_that_a_paper_numbers_is_left_out() -> None:
    """Bug: a theorem without a row or with two, a number that the paper lacks, an unread table."""
    assert set(PAPERS) == {*NUMBERED, "Slips of the papers", "Methods of other papers"}
    lines = PAGES["papers"].splitlines()
    rows = [line for line in lines if "`otm." in line or "`figures." in line]
    assert sum(map(len, PAPERS.values())) == len(rows) > 100
    numbered = re.compile(r"(?!Section|Footnote)\w+ [\d.]+")
    for paper, text in NUMBERED.items():
        parts = [part.split() for part in text.split("; ")]
        expected = [f"{kind} {number}" for kind, *numbers in parts for number in numbers]
        listed = [row.item for row in PAPERS[paper] if numbered.fullmatch(row.item)]
        assert sorted(listed) == sorted(expected), paper


@pytest.mark.parametrize("tables", [PAPERS, THEOREMS], ids=PAGES)
def test_every_row_names_code_and_tests_that_are_there(tables: dict[str, list[Row]]) -> None:
    """Bug: a row that shows nothing, a function or a test that was renamed, moved or deleted."""
    rows = [row for rows in tables.values() for row in rows]
    for row in rows:
        assert row.names, row
        assert row.tests, row
        assert [test for test in row.tests if not is_test(test)] == []
        assert all(name.startswith(("otm.", "figures.")) for name in row.names), row
    assert tables is THEOREMS or not any(row.statements for row in rows)
    pytest.importorskip("torch")
    for name in {name for row in rows for name in row.names}:
        assert callable(resolve_name(":".join(name.rsplit(".", 1)))), name


def test_theorems_have_a_row_and_the_number_of_their_page_and_place() -> None:
    """Bug: a theorem or page put between two others, one that was added, or with a new title."""
    stated = {}
    for number, text in enumerate(THEORY, 1):
        found = STATED.findall(text)
        names = {one or other: title for one, title, other in found}
        assert [x.split()[1] for x in names] == [f"{number}.{i + 1}" for i in range(len(found))]
        stated |= names
    lines = [x for x in PAGES["theorems"].splitlines() if x.startswith("| **")]
    assert {line.count(" | ") for line in lines} == {3}
    assert [row.item for row in THEOREM_ROWS] == list(stated)
    assert len(stated) > 80
    assert all(row.title == (stated[row.item] or row.title) for row in THEOREM_ROWS)


def test_what_is_proved_in_coq_is_in_the_row_of_its_theorem() -> None:
    """Bug: a statement that no row names, one that is not there, or in another row."""
    proofs = read("docs/theory/proofs/Statements.v")
    stated = re.findall(r"^Definition (theorem_\w+) : Prop", proofs, flags=re.MULTILINE)
    assert {name for row in THEOREM_ROWS for name in row.statements} == set(stated)
    for row in THEOREM_ROWS:
        own = f"theorem_{row.item.split()[1].replace('.', '_')}(_[a-z]|$)"
        assert {name for name in stated if re.match(own, name)} <= set(row.statements)


def test_the_checks_can_fail() -> None:
    paper = "## A\n| paper | x |\n| --- | --- |\n| **Lemma 1**: x | `otm.y` `a.py` `b` |\n"
    assert rows_of(paper) == {"A": [Row("Lemma 1", "", ["otm.y"], ["a.py::b"], [])]}
    theorem = "| **Theorem 1.1**: [a](b.md#c) | `x.y` | `a.py` `t` <br> `c.py` `d` | `e`, `f` |"
    row = Row("Theorem 1.1", "a", ["x.y"], ["a.py::t", "c.py::d"], ["e", "f"])
    assert rows_of(theorem) == {"": [row]}
    assert theory_pages(":caption: Theory\nnotation\ntheory/b-c\n```\ntheory/d\n") == ["theory/b-c"]
    for test in ("test_maps.py::test_nothing", "test_none.py::test_a", "test_maps.py::rows_of"):
        assert not is_test(f"repo/{test}")
    assert is_test("repo/test_maps.py::test_the_checks_can_fail")
    with pytest.raises(AttributeError):
        resolve_name("otm.decoding:nothing")
