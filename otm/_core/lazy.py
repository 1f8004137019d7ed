"""Lazy imports: packages that load their public names on first use, so `import otm` is fast.

A package lists its lazy imports under `if TYPE_CHECKING`, for readers and type checkers.
`lazy` runs each lazy import when the imported name is first used.
"""

from __future__ import annotations

import ast
import linecache
import sys
from collections.abc import Callable
from functools import cache
from importlib import import_module
from typing import Any

from otm._core.optional import PACKAGES, not_installed


def imported(module: str) -> Any:
    """Import a module; if a package is missing, raise an error that names its extra."""
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        if error.name in PACKAGES:
            raise not_installed(error.name) from error
        raise


def lazy(package: str) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Return `__getattr__` and `__dir__` for a package with lazy imports."""
    module = sys.modules[package]

    @cache
    def sources() -> dict[str, str]:
        """Read from the package's source which module defines each name."""
        source = "".join(linecache.getlines(str(module.__file__), vars(module)))
        guarded = (
            statement
            for block in ast.parse(source).body
            if isinstance(block, ast.If) and ast.unparse(block.test) == "TYPE_CHECKING"
            for statement in block.body
        )
        return {
            name.name: str(statement.module)
            for statement in guarded
            if isinstance(statement, ast.ImportFrom)
            for name in statement.names
        }

    def load(name: str) -> Any:
        if name not in sources():
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        source = sources()[name]
        if source == package:
            value: Any = import_module(f"{package}.{name}")
        else:
            value = getattr(imported(source), name)
        setattr(module, name, value)
        return value

    return load, lambda: sorted({*vars(module), *sources()})
