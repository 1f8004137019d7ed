"""Files of a figure, byte for byte the same whenever its data are."""

from __future__ import annotations

from pathlib import Path

from otm.figures.registry import load
from otm.figures.style import journal_style

__all__ = ["write"]

# no dates and no versions
_METADATA: dict[str, dict[str, None]] = {
    "pdf": {"CreationDate": None, "Creator": None, "Producer": None},
    "svg": {"Date": None, "Creator": None},
    "png": {"Software": None},
}


def write(name: str, folder: Path, *, full: bool = False) -> list[Path]:
    """Compute and draw a figure, and write ``name.csv``, ``.pdf``, ``.svg`` and ``.png``.

    Parameters
    ----------
    name : str
        A figure of `otm.figures.registry.FIGURES`.
    folder : Path
        Where to write; made if it does not exist.
    full : bool, optional
        Compute the longer version of the data, if the figure has one.

    Returns
    -------
    list of Path
        The files.

    Raises
    ------
    UnknownMethodError
        If there is no figure of this name.
    MissingDependencyError
        If matplotlib or tqdm is not installed.
    """
    module = load(name)
    table = getattr(module, "full_data", module.data)() if full else module.data()
    figure = module.draw(table)
    folder.mkdir(parents=True, exist_ok=True)
    files = [folder / f"{name}.{suffix}" for suffix in ("csv", *_METADATA)]
    files[0].write_text(table.to_csv(), encoding="utf-8", newline="\n")
    with journal_style():
        for file in files[1:]:
            figure.savefig(file, metadata=_METADATA[file.suffix[1:]])
    return files
