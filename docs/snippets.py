"""Check the types of the Python snippets on the pages with mypy, each page as one module.

python docs/snippets.py            checks README.md and all pages in docs/
python docs/snippets.py PAGE ...   checks these pages

Snippets are doctest sessions and blocks of ```python.  Each keeps its lines, so that mypy reports
the line of the page.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]

IGNORED = (
    # A snippet has no annotations, so mypy cannot follow what it defines.
    "no-untyped-def", "no-untyped-call", "var-annotated", "no-any-return", "type-arg", "misc",
    # A page uses a name several times, with values of other types.
    "assignment", "no-redef",
    # A page knows which member of a union it gets.
    "union-attr", "operator", "index",
    # A name may come from a block that is not Python.
    "func-returns-value",
)  # fmt: skip
"""Codes of mypy that are no mistakes on a page."""

FOLDER = ROOT / "docs" / "_build" / "snippets"
"""Modules made from the pages; git ignores them, and mypy keeps its cache of them."""

BLOCK = re.compile(r"^( *)```(\w*)[^\n]*\n(.*?)^ *```$", re.MULTILINE | re.DOTALL)
SESSION = re.compile(r"^ *(?:>>>|\.\.\.)(?: (.*))?$")


def code_of_block(language: str, block: str) -> list[str]:
    """Return the code of a block, a line for each of its lines; other lines are empty."""
    lines = block.splitlines()
    if re.search(r"^ *>>> ", block, re.MULTILINE):
        code = []
        is_session = False
        for line in lines:
            match = SESSION.match(line)
            is_session = match is not None and (is_session or line.lstrip().startswith(">>>"))
            code.append((match[1] or "") if match and is_session else "")
        return code
    # A block that begins with an indented line is a part of a function.
    first = next((line for line in lines if not line.lstrip().startswith("#")), " ")
    is_whole = language == "python" and not first.startswith(" ")
    return lines if is_whole else [""] * len(lines)


def code_of_page(text: str) -> str:
    """Return the snippets of a page, each line in its place; all other lines are empty."""
    lines = [""] * (text.count("\n") + 1)
    for match in BLOCK.finditer(text):
        code = code_of_block(match[2], match[3])
        start = text.count("\n", 0, match.start(3))
        lines[start : start + len(code)] = code
    return "\n".join(lines)


def module_of(page: Path) -> Path:
    """Name the module of a page."""
    name = page.relative_to(ROOT).with_suffix("").as_posix()
    return FOLDER / f"{re.sub(r'[^a-z0-9]', '_', name.lower())}_page.py"


def check(pages: Iterable[Path]) -> list[str]:
    """Write the modules, run mypy once, and return its errors with the names of the pages."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    modules = {module_of(page): page for page in pages}
    for module, page in modules.items():
        module.write_text(code_of_page(page.read_text(encoding="utf-8")), encoding="utf-8")
    ignored = [f"--disable-error-code={code}" for code in IGNORED]
    command = [sys.executable, "-m", "mypy", "--no-error-summary", "--hide-error-context"]
    run = subprocess.run(
        [*command, *ignored, *map(str, modules)], cwd=ROOT, check=False, capture_output=True, text=True
    )
    if run.returncode not in (0, 1):
        raise SystemExit(run.stderr or run.stdout)
    text = run.stdout
    for module, page in modules.items():
        text = text.replace(module.relative_to(ROOT).as_posix(), page.relative_to(ROOT).as_posix())
    return text.splitlines()


def main(chosen: Iterable[str]) -> int:
    """Print the errors; return 1 if there are any."""
    pages = [Path(name).resolve() for name in chosen]
    pages = pages or [ROOT / "README.md", *sorted(ROOT.glob("docs/**/*.md"))]
    left_out = ROOT / "docs" / "_build", ROOT / "docs" / "auto_examples"
    errors = check(page for page in pages if not page.is_relative_to(left_out[0]) and not page.is_relative_to(left_out[1]))
    print(*errors, sep="\n", end="\n" if errors else "")
    return bool(errors)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
