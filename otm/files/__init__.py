"""Files of numbers and JSON that others wrote: checked before anything is loaded, without pickles.

`open_arrays` reads headers alone and says what is in a `.npy`, `.npz` or `.safetensors` file;
numbers follow in blocks of rows.  `read_json` takes what the JSON standard allows and no more.
Whatever is wrong with a file is an `InvalidInputError` of one line that names it.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from otm.errors import InvalidInputError
from otm.files.json_ import parse_json, read_json
from otm.files.npy import npy_arrays
from otm.files.npz import npz_arrays
from otm.files.opening import AnyPath, as_path, file_label, file_size
from otm.files.rows import StoredArray
from otm.files.safetensors_ import safetensors_arrays

__all__ = ["StoredArray", "file_label", "file_size", "open_arrays", "parse_json", "read_json"]

FORMATS: dict[str, Callable[[Path], dict[str, StoredArray]]] = {
    ".npy": npy_arrays,
    ".npz": npz_arrays,
    ".safetensors": safetensors_arrays,
}
"""Readers of headers, by the end of a file's name."""


def open_arrays(path: AnyPath) -> dict[str, StoredArray]:
    """Say which arrays a file holds; nothing but headers is read.

    Parameters
    ----------
    path : str or Path
        A `.npy`, `.npz` or `.safetensors` file.

    Returns
    -------
    dict from str to StoredArray
        The arrays by name; the only one of a `.npy` file has an empty name.

    Raises
    ------
    InvalidInputError
        If it is no such file, or its headers promise anything but plain numbers that are there.

    Examples
    --------
    >>> import tempfile
    >>> import numpy as np
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder) / "pair.npz"
    ...     np.savez_compressed(path, draft=np.ones((4, 2)), target=np.arange(8.0).reshape(4, 2))
    ...     arrays = open_arrays(path)
    ...     print(*arrays, arrays["target"].shape, arrays["target"].read(1, 2))
    draft target (4, 2) [[2. 3.]]
    """
    path = as_path(path)
    reader = FORMATS.get(path.suffix.lower())
    if reader is None:
        raise InvalidInputError(
            f"{file_label(path)} ends in none of {', '.join(FORMATS)}; arrays are read from these"
        )
    return reader(path.absolute())  # whoever reads rows may be in another folder
