"""The check of phrases finds what it looks for, in its line, and lets plain English pass."""

import random
import re
from pathlib import Path

import pytest

from tests.repo.pages import ROOT, load, read

phrases = load("docs/phrases.py")

PLANTED = re.findall(
    r"\S[^.]*\.",
    """
It takes [so many] drafts. The [likeliest] token is first. The test [takes it that] rows are even.
Two mistakes are [told apart] by this pair. A pair [tells them apart]. Four drafts, two [of which]
are accepted. There are rows, and [none of them] sums to one. The output [shall] follow the target.
The rule draws from [what is left]. The tree is used [as it was made]. Rows, and [such that are]
empty. It takes [some hundred] steps. The argument [is no] number. Masses [are no] shares of a sum.
Drafts follow the [law] of the draft model. [Laws] of two models. It holds [whatever] they are. The
function [refuses] pickles.""".replace("\n", " "),
)
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


@pytest.mark.parametrize("planted", PLANTED)
def test_a_planted_phrase_is_found_in_its_line(planted: str) -> None:
    """Bug: a phrase that is missed in a comment, a message or a page, or with a wrong line."""
    (phrase,) = re.findall(r"\[(.*)\]", planted)
    for name, text in in_each_form(re.sub(r"[\[\]]", "", planted)).items():
        assert (4, phrase) in found(name, text), name
        assert {line for line, _ in found(name, text)} == {4}, name


def test_plain_english_and_code_pass() -> None:
    """The control: names, mentions and the same words in other senses are no hits."""
    for name, text in in_each_form(PLAIN.replace("\n", " ")).items():
        assert found(name, text) == [], name
    code = 'law = {"draft law": 1}\nis_no = shall(law)\n"""Text.\n\n>>> law  # of which\n1\n"""\n'
    assert {*found("a.py", code)} <= {(1, "law")}
    assert found("a.md", "```\nlaw of which\n```\n[Other laws](theory/other-drafts.md)\n") == []


@pytest.mark.parametrize(("name", "text", "expected"), [
    # a check line by line, which a line break or a comment sign hides the phrase from
    ("a.py", "x = 1\n# Drafts, some of\n# which are accepted.\n", [(2, "of which")]),
    ("a.py", 'f(\n    "Two drafts, one of "\n    f"which is {accepted}"\n)\n', [(2, "of which")]),
    ("a.py", 'x = ["one draft of", "which two"]\n', []),
    # "law" is a word of the theory pages, and tables of renames may hold old words
    ("docs/theory/cap.md", "The law of it.  What is left is a law.\n", [(1, "What is left")]),
    ("docs/decoding.md", "The law.  What is left is a law.\n", [
        (1, "What is left"), (1, "law"), (1, "law"),
    ]),
    ("CHANGELOG.md", "| law | distribution |\n", []),
    ("README.md", "| law | distribution |\n", [(1, "law")]),
])  # fmt: skip
def test_what_depends_on_lines_and_files(
    name: str, text: str, expected: list[tuple[int, str]]
) -> None:
    assert found(name, text) == expected


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
    hit = "README.md:1: 'law': write distribution (or probabilities)"
    assert [" ".join(x.split()) for x in capsys.readouterr().out.splitlines()] == [hit, "1 in ."]
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
