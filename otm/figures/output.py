"""Files of a figure, byte for byte the same whenever its data are."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from otm._core.digest import data_files, digest_of, versions
from otm._core.drawing import journal_style
from otm._core.files.paths import write_whole
from otm.errors import InvalidInputError
from otm.figures.measurements import where, with_pattern
from otm.figures.registry import Kind, load, module_name
from otm.figures.table import Table

# no dates and no versions
_METADATA: dict[str, dict[str, None]] = {
    "pdf": {"CreationDate": None, "Creator": None, "Producer": None},
    "svg": {"Date": None, "Creator": None},
    "png": {"Software": None},
}

SUFFIXES = ("csv", "json", *_METADATA)
"""Of the files of a figure: the data, where they come from, and the pictures."""

CACHE = ".cache"
"""Folder, in that of the figures, of data that need not be computed again."""


@dataclass(frozen=True)
class Outcome:
    """What became of a figure.

    Parameters
    ----------
    name : str
        The figure.
    state : str
        "computed", "cached", "measured" (read from a record) or "not measured".
    """

    name: str
    state: str


def digest_for(name: str) -> str | None:
    """Digest of the code that a figure is computed by; None if it shows a record."""
    return None if hasattr(load(name), "RECORDED") else digest_of(module_name(name))


def write(
    name: str, folder: Path, results: Path, *, full: bool = False, digest: str | None = None
) -> Outcome:
    """Compute and draw a figure, and write its CSV, JSON, PDF, SVG and PNG.

    Data that were computed before from the same code and the same files are taken from the folder's
    cache.  Of a figure of measurements that were never made nothing is written.

    Parameters
    ----------
    name : str
        A figure of `otm.figures.registry.FIGURES`.
    folder : Path
        Where to write; made if it does not exist.
    results : Path
        Where the benchmarks' records are.
    full : bool, optional
        Compute the longer version of the data, if the figure has one.
    digest : str, optional
        From `digest_for`, before the figure's code was loaded; that of the files as they are now if
        left out.

    Raises
    ------
    UnknownMethodError
        If there is no figure of this name.
    MissingDependencyError
        If a package that the figure needs is not installed.
    """
    module = load(name)
    source: dict[str, Any] = {"figure": name, "kind": str(module.KIND)}
    if hasattr(module, "RECORDED"):
        records = with_pattern(results, module.RECORDED)
        if not records:
            return Outcome(name, "not measured")
        table, state = module.data([record.content for record in records]), "measured"
        source["command"] = module.COMMAND
        source["measured on"] = [where(record.content) for record in records]
        source["records"] = {f"{record.name}.json": record.digest for record in records}
        source["versions"] = {
            key: value
            for record in records
            for key, value in {
                "python": record.content.get("python"),
                **record.content.get("versions", {}),
            }.items()
            if value
        }
    else:
        longer = full and hasattr(module, "full_data")
        digest = digest or digest_of(module_name(name))
        table, state = _data(name, folder / CACHE, digest, longer=longer)
        source["command"] = f"python -m otm.figures {name}{' --full' if longer else ''}"
        if module.KIND == Kind.EXPERIMENT:
            source["texts and weights"] = data_files()
        source["versions"] = versions()
        if hasattr(module, "SEED"):
            source["seed"] = module.SEED
    folder.mkdir(parents=True, exist_ok=True)
    _save(folder / f"{name}.csv", table.to_csv())
    _save(folder / f"{name}.json", json.dumps(source, indent=1, ensure_ascii=False) + "\n")
    figure = module.draw(table)
    with journal_style():
        for suffix, metadata in _METADATA.items():
            figure.savefig(folder / f"{name}.{suffix}", metadata=metadata)
    return Outcome(name, state)


def _data(name: str, cache: Path, digest: str, *, longer: bool) -> tuple[Table, str]:
    """Take the data from the cache, or compute them and leave them there."""
    stem = f"{name}{'-full' if longer else ''}"
    file = cache / f"{stem}.{digest[:32]}.csv"
    if file.is_file():
        try:
            return Table.read(file), "cached"
        except InvalidInputError:
            pass  # damaged since: computed again
    module = load(name)
    table: Table = module.full_data() if longer else module.data()
    cache.mkdir(parents=True, exist_ok=True)
    for old in cache.glob(f"{stem}.*.csv"):
        old.unlink(missing_ok=True)  # another run may have been faster
    _save(file, table.to_csv())
    return table, "computed"


def _save(file: Path, text: str) -> None:
    write_whole(file, text.encode())
