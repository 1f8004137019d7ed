"""The Markdown pages: their examples run, their links and citations lead somewhere."""

import doctest
import re
from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest

from tests.repo.pages import ROOT, modules, read

PAGES = [x for place in ("*.md", "docs/**/*.md", "examples/**/*.md") for x in ROOT.glob(place)]
NAMES = sorted(x.relative_to(ROOT).as_posix() for x in PAGES if "_build" not in x.parts)

SLOW = ("docs/audit.md", "docs/audit-server.md")

BLOCKS = re.compile(r"^```.*?^```$|^\$\$$.*?^\$\$$", re.MULTILINE | re.DOTALL)
CODE = re.compile(r"`[^`\n]*`")
LINK = re.compile(r"(!?)\[([^\]]*)\]\(([^)\n]*)\)")
BIBLIOGRAPHY = re.findall(r"^@\w+\{(\w+),", read("docs/references.bib"), flags=re.MULTILINE)


@cache
def anchors(page: Path) -> set[str]:
    """List the anchors that code hosts and Sphinx make from the headings of a page."""
    prose = BLOCKS.sub("", page.read_text(encoding="utf-8"))
    headings = re.findall(r"^#+ +(.*)$", prose, flags=re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", x.lower()).replace(" ", "-") for x in headings}


def bad_links(page: Path, prose: str) -> list[str]:
    """List the links that lead to no file or heading, or show no text on a code host."""
    bad = []
    for image, text, link in LINK.findall(re.sub(r"\$[^$\n]*\$", "", prose)):
        path, _, anchor = link.partition("#")
        file = page.parent / path if path else page
        leads = file.exists() and (not anchor or anchor in anchors(file))
        if not (text.strip() or image) or not (leads or re.match("[a-z]+:", link)):
            bad.append(f"[{text}]({link})")
    return bad


def unknown_citations(text: str) -> set[str]:
    """List the keys that a page or a docstring cites but the bibliography lacks."""
    cited = re.findall(r"\[([a-z]+\d{4}\w*)\]_", text)
    for keys in re.findall(r"\{cite:\w+\}`([^`]*)`", text):
        cited += [key.strip() for key in re.sub(r"\{.*?\}", "", keys).split(",")]
    return set(cited) - set(BIBLIOGRAPHY)


def faults(page: Path) -> list[str]:
    """List bad links, unknown citations, and lines in which a formula does not end (a list)."""
    text = page.read_text(encoding="utf-8")
    prose = CODE.sub("", BLOCKS.sub("", text))
    open_ended = [line for line in prose.splitlines() if line.count("$") % 2]
    return [*bad_links(page, prose), *unknown_citations(text), *open_ended]


def test_links_citations_and_formulas() -> None:
    assert {name: faults(ROOT / name) for name in NAMES if faults(ROOT / name)} == {}
    texts = modules("otm", "figures").items()
    assert [name for name, text in texts if unknown_citations(text)] == []
    assert len(BIBLIOGRAPHY) == len(set(BIBLIOGRAPHY))


def parts() -> dict[str, str]:
    """Return the pages with examples; the blocks of a slow page run one by one."""
    pages = {x: read(x) for x in NAMES if x.startswith("docs/") or x == "README.md"}
    for page in SLOW:
        blocks = re.split("^(?=```python)", pages.pop(page), flags=re.MULTILINE)
        pages |= {f"{page}, block {number}": block for number, block in enumerate(blocks)}
    return {name: text for name, text in pages.items() if ">>> " in text}


PARTS = parts()


@pytest.mark.parametrize("name", PARTS)
def test_examples_print_what_the_page_says(name: str, need_pinned: Callable[[str], None]) -> None:
    names: dict[str, object] = {}
    page, is_block, _ = name.partition(", block ")
    if is_block or name == "docs/tutorial.md":  # where Hypothesis finds counterexamples
        need_pinned("hypothesis")
    if is_block:
        for example in doctest.DocTestParser().get_examples(read(page).split(PARTS[name])[0]):
            if re.match("from |import |def |class ", example.source):
                exec(example.source, names)
    text = re.sub("^```.*$", "", PARTS[name], flags=re.MULTILINE)
    test = doctest.DocTestParser().get_doctest(text, names, name, name, 0)
    results = doctest.DocTestRunner().run(test)
    assert results.failed == 0
    assert results.attempted >= 9 * (name == "README.md")


def test_the_checks_can_fail(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    good = "# A heading\n[a](page.md#a-heading) `[](x.md)` ![](page.md) $a$ [x](https://x) `$`\n"
    page.write_text(good + "{cite:t}`sun2023{Theorem 1}, hu2025` [sun2023]_\n")
    assert faults(page) == []
    bad = ["[b](none.md)", "[c](page.md#none)", "[](page.md)", "![x](none.png)", "a $x"]
    page.write_text("\n".join([good, *bad, "{cite:p}`x, sun2023`"]))
    assert faults(page) == [*bad[:3], "[x](none.png)", "x", "a $x"]
    assert unknown_citations("[sun2023]_ [nobody1999]_") == {"nobody1999"}
