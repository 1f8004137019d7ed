"""Find phrases that readers had to read twice, and print what to write instead.

python docs/phrases.py            checks all pages, docstrings, comments and messages
python docs/phrases.py FILE ...   checks these files, as the pre-commit hook does

The check reads prose only.  It skips code, code spans in backquotes, formulas, doctests, link
targets, and the tables of the changelog.
"""

from __future__ import annotations

import io
import re
import sys
import tokenize
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]

PLACES = (
    "*.md", "*.toml", "*.py", "Makefile", ".ci/*", ".github/**/*.md", ".github/**/*.yml",
    "docs/*.md", "docs/*.py", "docs/theory/**/*.md", "docs/theory/**/*.py",
    "examples/**/*.py", "examples/**/*.md",
    "otm/**/*.py", "otm/**/*.html", "otm/**/*.md", "figures/**/*.py", "figures/**/*.md",
    "benchmarks/**/*.py", "benchmarks/**/*.md", "tests/**/*.py", "tests/**/*.txt", "tests/**/*.md",
)  # fmt: skip
"""Files with prose."""

SKIPPED = {
    "docs/phrases.py",
    "tests/repo/test_phrases.py",
    "docs/tables/dependencies.md",
    "otm/models/gpt/weights/README.md",
}
"""This list, its test, licences of other projects, and a page whose digest is in records."""

LAW_PLACES = ("docs/theory/", "docs/notation.md")
"""Pages that say "law" for a distribution, as the mathematical literature does."""


class Phrase(NamedTuple):
    """A pattern and its replacement; a match whose group `ok` matched is allowed."""

    pattern: re.Pattern[str]
    instead: str


def phrase(pattern: str, instead: str) -> Phrase:
    """Compile a pattern in which a space stands for any white space, line breaks included."""
    return Phrase(re.compile(pattern.replace(" ", r"\s+"), re.IGNORECASE), instead)


COMPARATIVES = (
    r"(?:more|less|worse|doubt|different|exception|longer|shorter|better|larger|smaller|bigger|"
    r"greater|faster|slower|later|earlier|higher|lower|farther|further|closer|nearer|fewer|other|"
    r"wider|easier|harder|older|newer|cheaper|deeper|stronger|weaker)\b"
)
"""Words after "is no" that make plain English, such as "is no longer"."""

LAW = phrase(
    r"(?<!\*)\blaws?\b(?!\*)(?P<ok> of (?:large numbers|total \w+|the iterated))?",
    "distribution (or probabilities)",
)

PHRASES = (
    phrase(r"\bso many\b", "the number, by its name"),
    phrase(
        rf"(?P<ok>\bthere )?\b(?:is|are|was|were) no (?!{COMPARATIVES})(?=\w)", "is not a (are not)"
    ),
    phrase(r"\blikeliest\b", "most probable"),
    phrase(r"\btak(?:e|es|ing|en) it that\b", "assume(s) that"),
    phrase(r"\b(?:told|tells?|telling)(?: \w+){0,3} apart\b", "distinguish"),
    phrase(r"\bof which\b", "a new sentence that names the thing"),
    phrase(r"\bnone of (?:them|these|those|it|its|their)\b", "no …, with the noun"),
    phrase(r"\bshall\b", "must, will or should"),
    phrase(r"\bwhat (?:is|was|are) left\b", "the remaining …, or the residual mass"),
    phrase(r"\bwhat (?:it|they) takes?\b", "the cost, or the time"),
    phrase(r"\bas (?:it|they) (?:was|were) made\b", "unchanged, or as built"),
    phrase(r"\bsuch (?:that|as) are\b", "those that are …, with the noun"),
    phrase(r"\bsome (?:hundred|thousand|million|dozen)s?\b", "several hundred, or the number"),
    phrase(r"\bwhatever\b", "any …, with the noun"),
    phrase(r"\brefus(?:e|es|ed|ing)\b", "raise, reject, or not accept"),
    phrase(r"\b(?:is|are|was|were|be|been) looked at\b", "is read, or is inspected"),
    phrase(r"\b(?:is|are|was|were) told\b(?P<ok> apart\b)?", "receives, or is called with"),
    phrase(r"\ba bug of OTM\b", "a bug in OTM"),
    phrase(r"\bhonest drafts?\b", "drafts sampled from the stated distribution"),
    phrase(r"\bfor ever\b", "forever"),
    phrase(r"\bmostly\b", "usually"),
)
"""Each phrase with what to write instead."""


class Hit(NamedTuple):
    """A phrase in a file."""

    file: str
    line: int
    found: str
    instead: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line}: {self.found!r}: write {self.instead}"


# Other characters than prose become one of these two, so that every place keeps its line.
CODE, SPAN = "\x01", "\x02"


def blank(text: str, by: str = CODE) -> str:
    """Replace all characters but line breaks."""
    return re.sub(r"[^\n]", by, text)


def without(pattern: str, text: str, by: str = SPAN) -> str:
    """Blank what a pattern matches."""
    return re.sub(pattern, lambda match: blank(match[0], by), text, flags=re.MULTILINE | re.DOTALL)


def without_spans(text: str) -> str:
    """Blank code in backquotes, formulas and addresses."""
    text = without(r"``[^`]+``|`[^`]*`", text)
    return without(r"\$[^$\n]+\$|https?://\S+", text)


def without_doctests(text: str) -> str:
    """Blank the examples of a docstring, with their output."""
    return without(r"^ *>>> .*?(?=^\s*$|\Z)", text, CODE)


def prose_of_page(text: str, *, changelog: bool = False) -> str:
    """Blank everything on a Markdown page that is not prose."""
    text = without(r"^[ >]*```.*?^[ >]*```|^\$\$.*?\$\$|<!--.*?-->", text, CODE)
    # A block of code is indented below an empty line; paragraphs of list items have fewer spaces.
    text = without(r"(?:(?<=\n\n)|\A)(?: {4}[^\n]*\n)+", text, CODE)
    if changelog:
        text = without(r"^\|[^\n]*$", text, CODE)
    text = without_spans(text)
    text = without(r"\[[^\]]*\]\((?:\w*/)*theory/[^)]*\)", text)  # the titles of theory pages
    return without(r"(?<=\])\([^)\n]*\)|<[^>\n]+>", text)


def prose_of_html(text: str) -> str:
    """Blank scripts, styles, templates and tags."""
    text = without(r"<(script|style)\b.*?</\1>|\{[{%#].*?[}%#]\}|<[^>]+>", text)
    return without_spans(text)


def prose_of_settings(text: str) -> str:
    """Keep the comments of a Makefile, of YAML, TOML or a shell script."""
    lines = []
    for line in text.splitlines(keepends=True):
        code, sign, comment = line.partition("#")
        if not sign or code.rstrip() == code != "":  # no comment, or a # inside a word
            lines.append(blank(line))
        else:
            lines.append(f"{blank(code) if code.strip() else code} {comment}")
    return without_spans("".join(lines))


def prose_of_string(literal: str) -> str:
    """Blank what is not prose in a string literal; all of it unless it has several words."""
    body = re.fullmatch(r"(\w*)(\"\"\"|'''|\"|')(.*)\2", literal, re.DOTALL)
    if body is None or len(re.findall(r"[A-Za-z]{2,}", body[3])) < 2 or " " not in body[3]:
        return blank(literal)
    text = without_doctests(body[3])
    if "f" in body[1].lower():
        text = without(r"\{[^{}]*(?:\{[^{}]*\}[^{}]*)*\}", text)
    quotes = " " * len(body[2])
    return f"{' ' * len(body[1])}{quotes}{without_spans(text)}{quotes}"


def prose_of_python(text: str) -> str:
    """Keep docstrings, comments and strings of several words; code becomes a break."""
    lines = text.splitlines(keepends=True)
    starts = [0]
    for line in lines:
        starts.append(starts[-1] + len(line))

    def place(position: tuple[int, int]) -> int:
        return starts[position[0] - 1] + position[1]

    prose, end = [], 0
    opened: list[int] = []  # where f-strings began; from Python 3.12 on they are several tokens
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        name = tokenize.tok_name[token.type]
        begin, last = place(token.start), place(token.end)
        if name == "FSTRING_START":
            opened.append(begin)
        if name == "FSTRING_END":
            begin = opened.pop()
        if opened or name not in {"STRING", "COMMENT", "FSTRING_END"}:
            continue
        between = text[end:begin]
        prose.append(between if not between.strip() else blank(between))
        found = text[begin:last]
        prose.append(
            f" {without_spans(found[1:])}" if name == "COMMENT" else prose_of_string(found)
        )
        end = last
    prose.append(blank(text[end:]))
    return "".join(prose)


def prose_of(name: str, text: str) -> str:
    """Return a text of the same length in which everything but prose is blanked."""
    if name.endswith(".py"):
        return prose_of_python(text)
    if name.endswith(".md"):
        return prose_of_page(text, changelog=name == "CHANGELOG.md")
    if name.endswith(".txt"):  # examples of internals
        return prose_of_page(without_doctests(text))
    if name.endswith(".html"):
        return prose_of_html(text)
    return prose_of_settings(text)


def hits(name: str, text: str) -> Iterator[Hit]:
    """Yield the phrases of a file, in the order of the list."""
    prose = prose_of(name, text)
    phrases = PHRASES if name.startswith(LAW_PLACES) else (LAW, *PHRASES)
    for pattern, instead in phrases:
        for match in pattern.finditer(prose):
            if not match.groupdict().get("ok"):
                line = prose.count("\n", 0, match.start()) + 1
                yield Hit(name, line, " ".join(match[0].split()), instead)


def files(chosen: Iterable[str]) -> list[str]:
    """List the files to check, relative to the root."""
    found = (path for place in PLACES for path in ROOT.glob(place) if path.is_file())
    known = {path.relative_to(ROOT).as_posix() for path in found}
    names = {Path(name).resolve().relative_to(ROOT).as_posix() for name in chosen} or known
    left_out = re.compile(r"docs/(?:_build|auto_examples)/|build/|.*__pycache__")
    return sorted(name for name in names & known - SKIPPED if not left_out.match(name))


def folder(name: str) -> str:
    """Folder by which hits are counted: the first two levels of a path."""
    return "/".join(name.split("/")[:2][: name.count("/")]) or "."


def main(chosen: Iterable[str]) -> int:
    """Print the hits, then their number by folder; return 1 if there are any."""
    found = [hit for name in files(chosen) for hit in hits(name, (ROOT / name).read_text("utf-8"))]
    for hit in sorted(found):
        print(hit)
    for name, number in sorted(Counter(folder(hit.file) for hit in found).items()):
        print(f"{number:5} in {name}")
    return bool(found)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
