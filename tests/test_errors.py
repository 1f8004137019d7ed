"""What is not installed is said in one way everywhere."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import otm

INSTALL = re.compile(
    r'.+ (is|\{verb\}) not installed; to .+: pip install ("otm\[.+?\]"|[a-z-]+)( \(.+\))?'
)


def messages(path: Path) -> list[str]:
    """Messages of the errors about dependencies in a module, what is put into them in braces."""
    found = []
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "MissingDependencyError":
            (message,) = node.args
            parts = message.values if isinstance(message, ast.JoinedStr) else [message]
            found.append(
                "".join(
                    str(part.value)
                    if isinstance(part, ast.Constant)
                    else f"{{{ast.unparse(part.value)}}}"  # type: ignore[attr-defined]
                    for part in parts
                )
            )
    return found


def test_every_hint_to_install_has_one_wording() -> None:
    """Bug: three ways to say it, of which some name no extra."""
    modules = Path(otm.__file__).parent.rglob("*.py")
    found = [message for path in modules for message in messages(path)]
    assert len(found) > 15
    assert [message for message in found if not INSTALL.fullmatch(message)] == []
