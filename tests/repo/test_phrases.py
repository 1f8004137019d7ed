"""The check of phrases finds what it looks for, in its line, and lets plain English pass."""

from __future__ import annotations

import random
import re
from pathlib import Path

import pytest

from tests.repo.pages import ROOT, load, read

phrases = load("docs/phrases.py")

PLANTED = [
    ("so many", "It takes so many drafts."),
    ("likeliest", "The likeliest token is first."),
    ("takes it that", "The test takes it that rows are independent."),
    ("told apart", "Two mistakes are told apart by this pair."),
    ("tells them apart", "A pair tells them apart."),
    ("of which", "Four drafts, two of which are accepted."),
    ("none of them", "There are rows, and none of them sums to one."),
    ("shall", "The output shall follow the target."),
    ("what is left", "The rule draws from what is left."),
    ("as it was made", "The tree is used as it was made."),
    ("such that are", "Rows, and such that are empty."),
    ("some hundred", "It takes some hundred steps."),
    ("is no", "The argument is no number."),
    ("are no", "Masses are no shares of the sum."),
    ("law", "Drafts follow the law of the draft model."),
    ("Laws", "Laws of two models."),
    ("whatever", "It holds whatever the drafts are."),
    ("refuses", "The function refuses pickles."),
]
PLAIN = """There is no draft left.  It is no longer needed.  It is no
faster than before.  By the law of large
numbers the mean converges.  Lawful names, `law`, `is no number` and $\\text{law}$ are code.  The
word *law* is mentioned.  Many drafts are accepted.  A marshall is not a modal verb."""


def found(name: str, text: str) -> list[tuple[int, str]]:
    return sorted((hit.line, hit.found) for hit in phrases.hits(name, text))


def in_each_form(sentence: str) -> dict[str, str]:
    """Put a sentence where prose may be; each time in the fourth line."""
    return {
        "a.md": f"# A page\n\n1\n{sentence}\n",
        "a.py": f'"""A module."""\n\n\n# {sentence}\nx = 1\n',
        "b.py": f'def f() -> None:\n    """Return nothing.\n\n    {sentence}\n    """\n',
        "c.py": f'x = 1\n\nraise ValueError(\n    f"{{x}}: {sentence}"\n)\n',
        "a.html": f"<html>\n<body>\n<p>\n{sentence}</p>",
        "Makefile": f"all:\n\techo\n\n# {sentence}\n",
        "a.yml": f"on: push\njobs:\n  test:\n    timeout: 3 # {sentence}\n",
    }


@pytest.mark.parametrize(("phrase", "sentence"), PLANTED)
def test_a_planted_phrase_is_found_in_its_line(phrase: str, sentence: str) -> None:
    """Bug: a phrase that is missed in a comment, a message or a page, or with a wrong line."""
    for name, text in in_each_form(sentence).items():
        assert (4, phrase) in found(name, text), name
        assert {line for line, _ in found(name, text)} == {4}, name


def test_plain_english_and_code_pass() -> None:
    """The control: names, mentions and the same words in other senses are no hits."""
    for name, text in in_each_form(PLAIN.replace("\n", " ")).items():
        assert found(name, text) == [], name
    code = 'law = {"draft law": 1}\nis_no = shall(law)\n"""Text.\n\n>>> law  # of which\n1\n"""\n'
    assert [hit for hit in found("a.py", code) if hit != (1, "law")] == []
    assert found("a.md", "```\nlaw of which\n```\n[Other laws](theory/other-drafts.md)\n") == []


def test_a_phrase_over_two_lines_is_found_where_it_begins() -> None:
    """Bug: a check line by line, which a line break or a comment sign hides the phrase from."""
    assert found("a.py", "x = 1\n# Drafts, some of\n# which are accepted.\n") == [(2, "of which")]
    two = 'f(\n    "Two drafts, one of "\n    f"which is {accepted}"\n)\n'
    assert found("a.py", two) == [(2, "of which")]
    assert found("a.py", 'x = ["one draft of", "which two"]\n') == []


def test_law_is_a_word_of_the_theory_pages() -> None:
    text = "The law of the draft.  What is left is the residual law.\n"
    assert [hit for _, hit in found("docs/theory/cap.md", text)] == ["What is left"]
    assert len(found("docs/decoding.md", text)) == 3


def test_tables_of_renames_may_hold_old_words() -> None:
    text = "| law | distribution |\n"
    assert found("CHANGELOG.md", text) == []
    assert found("README.md", text) == [(1, "law")]


def test_every_file_keeps_its_lines() -> None:
    """Bug: text that is dropped or added, after which all lines are wrong."""
    names = phrases.files([])
    assert {"README.md", "otm/solve.py", "otm/gain/reports/page.html", "Makefile"} <= set(names)
    assert len(names) > 800
    for name in random.Random(0).sample(names, 60):
        text = read(name)
        prose = phrases.prose_of(name, text)
        assert prose.count("\n") == text.count("\n"), name
        assert len(prose) == len(text), name


def test_the_command_prints_hits_and_fails(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(phrases, "ROOT", tmp_path)
    (tmp_path / "README.md").write_text("The law.\n", encoding="utf-8")
    assert phrases.main([]) == 1
    first, count = capsys.readouterr().out.splitlines()
    assert first == "README.md:1: 'law': write distribution (or probabilities)"
    assert count.split() == ["1", "in", "."]
    (tmp_path / "README.md").write_text("The distribution.\n", encoding="utf-8")
    assert phrases.main([str(tmp_path / "README.md")]) == 0
    assert capsys.readouterr().out == ""


def test_make_and_pre_commit_run_the_check() -> None:
    """Bug: a hook that formats with another ruff than `make check`."""
    hooks = read(".pre-commit-config.yaml")
    assert "$(BIN)/python docs/phrases.py" in read("Makefile")
    assert "entry: python docs/phrases.py" in hooks
    (pin,) = re.findall(r"(?m)^ruff==(\S+)$", read("constraints.txt"))
    assert f"rev: v{pin} " in hooks
    assert not [name for name in phrases.SKIPPED if not (ROOT / name).exists()]
