"""Digests of everything that results depend on: code and data of OTM, and package versions."""

from __future__ import annotations

import hashlib
import importlib.metadata
import platform
from collections.abc import Iterator
from functools import cache
from importlib.resources import files
from importlib.resources.abc import Traversable

PACKAGES = ("numpy", "scipy", "highspy", "torch")
"""Packages whose versions may change computed numbers."""


@cache
def digest_of_code() -> str:
    """Compute a digest of OTM's code and of `versions`: 64 hexadecimal digits."""
    whole = hashlib.sha256(data_files().encode())
    for name, code in sources(files("otm")):
        whole.update(name.encode() + hashlib.sha256(code).digest())
    whole.update(repr(sorted(versions().items())).encode())
    return whole.hexdigest()


@cache
def versions() -> dict[str, str]:
    """Return the versions of Python and of the installed `PACKAGES`."""
    found = {"python": platform.python_version()}
    for package in PACKAGES:
        try:
            found[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found


@cache
def data_files() -> str:
    """Compute a digest of the texts and weights in OTM: 64 hexadecimal digits."""
    whole = hashlib.sha256()
    for folder in (files("otm.models") / "data", files("otm.models.gpt") / "weights"):
        for file in sorted(folder.iterdir(), key=lambda file: file.name):
            if file.is_file():
                whole.update(file.name.encode() + hashlib.sha256(file.read_bytes()).digest())
    return whole.hexdigest()


def sources(folder: Traversable, path: str = "") -> Iterator[tuple[str, bytes]]:
    """Yield the path and content of each module below a folder, in a fixed order."""
    for file in sorted(folder.iterdir(), key=lambda file: file.name):
        if file.is_dir():
            yield from sources(file, f"{path}{file.name}/")
        elif file.name.endswith(".py"):
            yield path + file.name, file.read_bytes()
