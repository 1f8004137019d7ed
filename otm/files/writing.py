"""Files that are there as a whole or not at all."""

from __future__ import annotations

import os
from pathlib import Path

from otm._core.text import shown
from otm.errors import InvalidInputError
from otm.files.opening import file_label


def check_place(path: Path) -> None:
    """Refuse a place where no file can be: better before the work than after it.

    Parameters
    ----------
    path : Path
        Where a file is to be written.

    Raises
    ------
    InvalidInputError
        If its folder does not exist, it is a folder itself, or no file can have this name.

    Examples
    --------
    >>> check_place(Path("no such folder/proof.json"))
    Traceback (most recent call last):
    otm.errors.InvalidInputError: there is no folder 'no such folder'; make it first
    """
    try:
        exists, taken = path.parent.is_dir(), path.is_dir()
    except OSError as error:
        raise InvalidInputError(f"{file_label(path)} cannot be written: {error.strerror}") from None
    if not exists:
        raise InvalidInputError(f"there is no folder {shown(str(path.parent))}; make it first")
    if taken:
        raise InvalidInputError(f"{shown(str(path))} is a folder; give a file in it")


def write_whole(path: Path, content: bytes) -> None:
    """Write a file so that whoever reads it finds the old one or the new one, whole.

    It is written beside its place and then moved there: a process that ends meanwhile leaves no
    half of a file, and two that write the same file do not mix.

    Parameters
    ----------
    path : Path
        The file; its folder must exist.
    content : bytes
        All of it.

    Raises
    ------
    OSError
        If the folder cannot be written to.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write_whole(Path(folder) / "a.txt", b"all")
    ...     [(file.name, file.read_bytes()) for file in Path(folder).iterdir()]
    [('a.txt', b'all')]
    """
    beside = path.with_name(f"{path.name}.{os.getpid()}.part")
    beside.write_bytes(content)
    beside.replace(path)
