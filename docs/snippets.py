"""Check the types of the Python snippets on the pages with mypy.

python docs/snippets.py            checks README.md and all pages in docs/
python docs/snippets.py PAGE ...   checks these pages

The doctest sessions of a page are one module, and its other blocks of ```python are a second one.
Each snippet keeps its lines, so that mypy reports the line of the page.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]

ALLOWED = re.compile(
    r'type "\*\*?(?:dict|list)\['  # options that a page collects in a dictionary
    r'|expected "ndarray\['  # lists and fractions where a field holds an array
    r'|type "(?:float \| Fraction|ABC)'  # a number that is a fraction in exact mode; a joined type
    r'|variant of "append"'  # NumPy's types do not know arrays of fractions
)
"""Errors that are not mistakes on a page; `pyproject.toml` switches other kinds off."""

FOLDER = ROOT / "docs" / "_build" / "snippets"
"""Modules made from the pages; git ignores them, and mypy keeps its cache of them."""

BLOCK = re.compile(r"^( *)```(\w*)[^\n]*\n(.*?)^ *```$", re.MULTILINE | re.DOTALL)
SESSION = re.compile(r"^ *(?:>>>|\.\.\.)(?: (.*))?$")


def session(block: str) -> list[str]:
    """Return the code of a block with doctests, a line for each of its lines."""
    code = []
    is_session = False
    for line in block.splitlines():
        match = SESSION.match(line)
        is_session = match is not None and (is_session or line.lstrip().startswith(">>>"))
        code.append((match[1] or "") if match and is_session else "")
    return code


def code_of_page(text: str) -> tuple[str, str]:
    """Return the sessions and the other blocks of a page; lines without code are empty."""
    empty = [""] * (text.count("\n") + 1)
    sessions, blocks = [*empty], [*empty]
    for match in BLOCK.finditer(text):
        language, block = match[2], match[3]
        start, end = (text.count("\n", 0, place) for place in match.span(3))
        first = next((line for line in block.splitlines() if not line.startswith("#")), " ")
        if re.search(r"^ *>>> ", block, re.MULTILINE):
            sessions[start:end] = session(block)
        elif language == "python" and not first.startswith(" "):  # not a part of a function
            blocks[start:end] = block.splitlines()
    return "\n".join(sessions), "\n".join(blocks)


def check(pages: Iterable[Path]) -> list[str]:
    """Write two modules for each page, run mypy once, and return its errors, by page and line."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    (FOLDER / "__init__.py").touch()
    page_of: dict[str, str] = {}
    for page in pages:
        name = page.relative_to(ROOT).as_posix()
        stem = re.sub(r"[^a-z0-9]", "_", name.removesuffix(".md").lower())
        for kind, code in zip(
            ("sessions", "blocks"), code_of_page(page.read_text("utf-8")), strict=True
        ):
            module = FOLDER / f"{stem}_{kind}.py"
            module.write_text(code, encoding="utf-8")
            page_of[module.relative_to(ROOT).as_posix()] = name
    options = "--no-error-summary", "--no-color-output"
    command = [sys.executable, "-m", "mypy", *options, *page_of]
    run = subprocess.run(command, cwd=ROOT, check=False, capture_output=True, text=True)
    if run.returncode not in (0, 1):
        raise SystemExit(run.stderr or run.stdout)
    errors = [line.partition(":") for line in run.stdout.splitlines() if ": error: " in line]
    return [
        f"{page_of.get(file, file)}:{error}"
        for file, _, error in errors
        if not ALLOWED.search(error)
    ]


def main(chosen: Iterable[str]) -> int:
    """Print the errors; return 1 if there are any."""
    pages = [Path(name).resolve() for name in chosen]
    pages = pages or [ROOT / "README.md", *sorted(ROOT.glob("docs/**/*.md"))]
    made = ("docs/_build/", "docs/auto_examples/")
    errors = check(x for x in pages if not x.relative_to(ROOT).as_posix().startswith(made))
    print(*errors, sep="\n", end="\n" if errors else "")
    return bool(errors)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
