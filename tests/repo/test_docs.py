"""The Markdown pages: their examples run, their links and citations lead somewhere."""

from __future__ import annotations

import doctest
import re
from collections.abc import Callable
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
# Hypothesis finds the counterexamples on these pages, each version in its own way.
SEARCHED = {"audit.md", "tutorial.md"}
PAGES = sorted([*ROOT.glob("*.md"), *DOCS.rglob("*.md"), *ROOT.glob("examples/**/*.md")])
PAGES = [page for page in PAGES if "_build" not in page.parts]
NAMES = [page.relative_to(ROOT).as_posix() for page in PAGES]

FENCED = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
FENCE = re.compile(r"^```.*$", re.MULTILINE)
DISPLAYED = re.compile(r"^\$\$$.*?^\$\$$", re.MULTILINE | re.DOTALL)
CODE_OR_FORMULA = re.compile(r"`[^`\n]*`|\$[^$\n]*\$")
HEADING = re.compile(r"^#+ +(.*)$", re.MULTILINE)
NO_TEXT = re.compile(r"(?<!!)\[\s*\]\([^)\n]*\)")
LINK = re.compile(r"\[[^\]\n]*\]\(([^)\s]+)\)")
CITATION = re.compile(r"\{cite:\w+\}`([^`]*)`")
DOCSTRING_CITATION = re.compile(r"\[([a-z]+\d{4}\w*)\]_")
BIBLIOGRAPHY = re.findall(
    r"^@\w+\{(\w+),", (DOCS / "references.bib").read_text(encoding="utf-8"), flags=re.MULTILINE
)


def prose(page: Path) -> str:
    """Return the text of a page without code blocks and displayed formulas."""
    return DISPLAYED.sub("", FENCED.sub("", page.read_text(encoding="utf-8")))


def anchors(page: Path) -> set[str]:
    """List the anchors that code hosts and Sphinx make from the headings of a page."""
    return {
        re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")
        for heading in HEADING.findall(prose(page))
    }


def broken_links(page: Path) -> list[str]:
    """List the relative links of a page that lead to no file or no heading."""
    broken = []
    for link in LINK.findall(CODE_OR_FORMULA.sub("", prose(page))):
        if re.match(r"[a-z]+:", link):
            continue
        path, _, anchor = link.partition("#")
        target = page.parent / path if path else page
        if not target.exists() or (anchor and anchor not in anchors(target)):
            broken.append(link)
    return broken


def links_without_text(page: Path) -> list[str]:
    """List the links of a page that show nothing where they are not filled in."""
    return NO_TEXT.findall(CODE_OR_FORMULA.sub("", prose(page)))


def unknown_citations(text: str) -> set[str]:
    """List the keys that a text cites but the bibliography lacks."""
    cited = [
        key for keys in CITATION.findall(text) for key in re.sub(r"\{.*?\}", "", keys).split(",")
    ]
    return {key.strip() for key in cited + DOCSTRING_CITATION.findall(text)} - set(BIBLIOGRAPHY)


@pytest.mark.parametrize("page", PAGES, ids=NAMES)
def test_links_lead_somewhere(page: Path) -> None:
    assert broken_links(page) == []


@pytest.mark.parametrize("page", PAGES, ids=NAMES)
def test_links_have_a_text(page: Path) -> None:
    """Bug: a link whose text Sphinx fills in, which nobody sees on a code host."""
    assert links_without_text(page) == []


@pytest.mark.parametrize("page", PAGES, ids=NAMES)
def test_citations_are_in_the_bibliography(page: Path) -> None:
    assert unknown_citations(page.read_text(encoding="utf-8")) == set()


def test_citations_of_docstrings_are_in_the_bibliography() -> None:
    found = {
        key
        for folder in ("otm", "figures")
        for file in ROOT.glob(f"{folder}/**/*.py")
        for key in unknown_citations(file.read_text())
    }
    assert found == set()
    assert len(BIBLIOGRAPHY) == len(set(BIBLIOGRAPHY))


@pytest.mark.parametrize("page", PAGES, ids=NAMES)
def test_formulas_stay_on_their_line(page: Path) -> None:
    # a formula broken before its + or − would become a list
    without_code = re.sub(r"`[^`\n]*`", "", prose(page))
    assert [line for line in without_code.splitlines() if line.count("$") % 2] == []


@pytest.mark.parametrize("page", [page for page in PAGES if DOCS in page.parents])
def test_examples_print_what_the_page_says(page: Path, need_pinned: Callable[[str], None]) -> None:
    if page.name in SEARCHED:
        need_pinned("hypothesis")
    text = FENCE.sub("", page.read_text(encoding="utf-8"))
    test = doctest.DocTestParser().get_doctest(text, {}, page.name, str(page), 0)
    assert doctest.DocTestRunner().run(test).failed == 0


def test_the_checks_can_fail(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(
        "# A heading\n[a](page.md#a-heading) [b](none.md) [c](page.md#none) {cite:p}`x`\n"
    )
    assert broken_links(page) == ["none.md", "page.md#none"]
    assert unknown_citations(page.read_text()) == {"x"}
    page.write_text("# A heading\n[](page.md) [a](page.md) `[](x.md)` ![](x.png)\n")
    assert links_without_text(page) == ["[](page.md)"]
    assert unknown_citations("{cite:t}`sun2023{Theorem 1}, hu2025` [sun2023]_ [nobody1999]_") == {
        "nobody1999"
    }
