"""Digests of what numbers depend on: this package's code and data, and the packages below it."""

from __future__ import annotations

import hashlib
import importlib.metadata
import platform
from collections.abc import Iterator
from functools import cache
from importlib.resources import files
from importlib.resources.abc import Traversable

PACKAGES = ("numpy", "scipy", "highspy", "torch")
"""Packages that numbers are computed with."""


@cache
def digest_of_code() -> str:
    """Digest of this package and of `versions`: 64 hexadecimal digits."""
    whole = hashlib.sha256(data_files().encode())
    for name, code in sources(files("otm")):
        whole.update(name.encode() + hashlib.sha256(code).digest())
    whole.update(repr(sorted(versions().items())).encode())
    return whole.hexdigest()


@cache
def versions() -> dict[str, str]:
    """Versions of Python and of `PACKAGES`, as far as they are installed."""
    found = {"python": platform.python_version()}
    for package in PACKAGES:
        try:
            found[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found


@cache
def data_files() -> str:
    """Digest of the texts and weights of this package, as 64 hexadecimal digits."""
    whole = hashlib.sha256()
    for folder in (files("otm.models") / "data", files("otm.models.gpt") / "weights"):
        for file in sorted(folder.iterdir(), key=lambda file: file.name):
            if file.is_file():
                whole.update(file.name.encode() + hashlib.sha256(file.read_bytes()).digest())
    return whole.hexdigest()


def sources(folder: Traversable, path: str = "") -> Iterator[tuple[str, bytes]]:
    """Modules below a folder, always in the same order: their paths there, and what they hold."""
    for file in sorted(folder.iterdir(), key=lambda file: file.name):
        if file.is_dir():
            yield from sources(file, f"{path}{file.name}/")
        elif file.name.endswith(".py"):
            yield path + file.name, file.read_bytes()
