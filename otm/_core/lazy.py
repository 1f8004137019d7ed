"""Packages whose public names are loaded on first use, so that `import otm` stays quick."""

from __future__ import annotations

import pkgutil
from collections.abc import Callable, Iterable, Sequence
from importlib import import_module
from typing import Any


def lazy(package: str, path: Iterable[str], names: Sequence[str]) -> Callable[[str], Any]:
    """Make the `__getattr__` of a package: a name is that of its first module that has it."""

    def load(name: str) -> Any:
        for module in pkgutil.iter_modules(path) if name in names else ():
            found = vars(import_module(f"{package}.{module.name}"))
            if name in found:
                return found[name]
        raise AttributeError(f"module {package!r} has no attribute {name!r}")

    return load
