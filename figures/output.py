"""The files of a figure, identical byte for byte for equal data."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from figures.digest import digest_of
from figures.drawing.style import PICTURES, save_pictures
from figures.records import records_of, where
from figures.registry import DataFigure, Kind, load, module_name
from figures.table import Table
from otm._core.digest import data_files
from otm._core.files.paths import write_atomically
from otm.errors import InvalidInputError

SUFFIXES = ("csv", "json", *PICTURES)
"""Suffixes of a figure's files."""

CACHE = ".cache"
"""Subfolder of cached data."""

_ONLY_DRAW = ("figures.drawing", "figures.progress", "figures.registry")


def digest_for(name: str) -> str | None:
    """Return the digest of a figure's code, or None if the figure shows a record."""
    return None if load(name).record else digest_of(module_name(name), _ONLY_DRAW)


def write(
    name: str, folder: Path, results: Path, *, full: bool = False, digest: str | None = None
) -> str:
    """Compute and draw a figure, and write its CSV, JSON, PNG, PDF and SVG.

    The folder's cache provides data that were computed earlier by the same code from the same
    files.  Without records, a figure of measurements has no files.

    Parameters
    ----------
    name : str
        A figure of `figures.registry.FIGURES`.
    folder : Path
        Output folder, created if it does not exist.
    results : Path
        Folder of the benchmarks' records.
    full : bool, optional
        Compute the longer version of the data, if the figure has one.
    digest : str, optional
        Result of `digest_for` before the figure's code was loaded.  The default is the digest of
        the current files.

    Returns
    -------
    str
        "computed", "cached", "measured" (read from a record) or "not measured".

    Raises
    ------
    UnknownMethodError
        If there is no figure of this name.
    MissingDependencyError
        If a package that the figure needs is not installed.
    """
    figure = load(name)
    source: dict[str, Any] = {"figure": name, "kind": str(figure.kind)}
    if figure.record:
        records = records_of(results, figure.record)
        if not records:
            return "not measured"
        contents = [record.content for record in records]
        table, state = figure(contents), "measured"
        source["command"] = figure.command
        source["measured on"] = [where(content) for content in contents]
        source["records"] = {f"{record.name}.json": record.digest for record in records}
        source["versions"] = {
            package: version
            for content in contents
            for package, version in {
                "python": content.get("python"),
                **content.get("versions", {}),
            }.items()
            if version
        }
    else:
        longer = full and figure.full is not None
        digest = digest or digest_for(name) or ""
        stem = f"{name}-full" if longer else name
        table, state = _data(figure, folder / CACHE, stem, digest, longer=longer)
        source["command"] = f"python -m figures {name}{' --full' if longer else ''}"
        if figure.kind == Kind.EXPERIMENT:
            source["texts and weights"] = data_files()
        if figure.seed is not None:
            source["seed"] = figure.seed
    folder.mkdir(parents=True, exist_ok=True)
    write_atomically(folder / f"{name}.csv", table.to_csv().encode())
    text = json.dumps(source, indent=1, ensure_ascii=False) + "\n"
    write_atomically(folder / f"{name}.json", text.encode())
    save_pictures(figure.draw(table), folder, name)
    return state


def _data(
    figure: DataFigure, cache: Path, stem: str, digest: str, *, longer: bool
) -> tuple[Table, str]:
    """Return the data from the cache, or compute and cache them."""
    file = cache / f"{stem}.{digest[:32]}.csv"
    if file.is_file():
        try:
            return Table.read(file), "cached"
        except InvalidInputError:
            pass  # the file is damaged, so compute the data again
    table = figure(**figure.full()) if longer and figure.full else figure()
    cache.mkdir(parents=True, exist_ok=True)
    for old in cache.glob(f"{stem}.*.csv"):
        old.unlink(missing_ok=True)  # another process may have removed it
    write_atomically(file, table.to_csv().encode())
    return table, "computed"
