"""A digest of all inputs of a figure's numbers.

The digest covers the code of a module and of all modules of its package and of OTM that it imports,
directly or indirectly.  It also covers OTM's data files, and the versions of Python and of the
packages that compute.  It does not cover docstrings, comments and code that only draws: functions
outside of OTM named `draw` or `draw_…`, and the modules that the caller names.  So a changed colour
recomputes no data, and a changed solver recomputes all data that depend on it.
"""

from __future__ import annotations

import ast
import hashlib
from collections.abc import Iterator
from functools import cache
from importlib.resources import files
from importlib.resources.abc import Traversable

from otm._core.digest import data_files, versions


def digest_of(module: str, drawing: tuple[str, ...] = ()) -> str:
    """Return the digest of a module's code and data, 64 hexadecimal digits.

    `module` is a full name; `drawing` names the modules and packages that compute no numbers.
    """
    whole = hashlib.sha256()
    for name in sorted(_needed(module, ("otm._core.drawing", *drawing))):
        whole.update(f"{name}\n{_code(name)[0]}\n".encode())
    whole.update(bytes.fromhex(data_files()))
    whole.update(repr(sorted(versions().items())).encode())
    return whole.hexdigest()


def _needed(module: str, drawing: tuple[str, ...]) -> set[str]:
    """Return the names of a module and of all its imports from its package and from OTM."""
    found, waiting = set[str](), [module]
    while waiting:
        name = waiting.pop()
        if name in found or name.startswith(drawing):
            continue
        found.add(name)
        waiting += _code(name)[1]
    return found


@cache
def _code(module: str) -> tuple[str, tuple[str, ...]]:
    """Return a module's code without drawing functions and docstrings, and its imports."""
    tree = ast.parse(_file_of(module).read_text(encoding="utf-8"))
    package = module.partition(".")[0]
    if package != "otm":  # in OTM, functions named `draw` draw tokens
        tree.body = [
            node
            for node in tree.body
            if not (isinstance(node, ast.FunctionDef) and f"{node.name}_".startswith("draw_"))
        ]
    imported = dict.fromkeys(name for name in _imports(tree, package) if _file_of(name).is_file())
    for node in ast.walk(tree):
        body = getattr(node, "body", None)
        if isinstance(body, list):
            node.body = [part for part in body if not _is_text(part)]  # type: ignore[attr-defined]
    return ast.dump(tree), tuple(imported)


def _imports(tree: ast.Module, package: str) -> Iterator[str]:
    """Yield imported names that may be modules of OTM or `package`, and their parent packages."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            names = [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
        else:
            continue
        for name in names:
            parts = name.split(".")
            if parts[0] in ("otm", package):
                yield from (".".join(parts[: i + 1]) for i in range(len(parts)))


def _is_text(node: ast.AST) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)


def _file_of(module: str) -> Traversable:
    package, *parts = module.split(".")
    path = files(package).joinpath(*parts)
    return path / "__init__.py" if path.is_dir() else path.parent / f"{path.name}.py"  # type: ignore[attr-defined]
