"""Files that are there as a whole or not at all."""

from __future__ import annotations

import os
from pathlib import Path

__all__ = ["write_whole"]


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
