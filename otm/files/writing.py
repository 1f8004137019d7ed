"""Files that are there as a whole or not at all."""

from __future__ import annotations

import os
from pathlib import Path

from otm._core.text import shown
from otm.errors import InvalidInputError
from otm.files.opening import file_label


def check_place(path: Path) -> None:
    """Refuse a path where no file can be written: before the work rather than after it."""
    try:
        exists, taken = path.parent.is_dir(), path.is_dir()
    except OSError as error:
        raise InvalidInputError(f"{file_label(path)} cannot be written: {error.strerror}") from None
    if not exists:
        raise InvalidInputError(f"there is no folder {shown(str(path.parent))}; make it first")
    if taken:
        raise InvalidInputError(f"{shown(str(path))} is a folder; give a file in it")


def write_whole(path: Path, content: bytes) -> None:
    """Write a file whole or not at all: beside its place, then moved there.

    A process that ends meanwhile leaves no half of a file, and two writers do not mix.
    """
    beside = path.with_name(f"{path.name}.{os.getpid()}.part")
    beside.write_bytes(content)
    beside.replace(path)
