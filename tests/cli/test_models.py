"""``otm models``: the list of models, and a download."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from otm.cli import main
from otm.models.downloads import folder
from otm.models.downloads.catalogue import CATALOGUE


def test_the_list_says_what_is_here(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Bugs: a list without licences, or one that downloads."""
    monkeypatch.setenv(folder.VARIABLE, str(tmp_path / "models"))
    assert main(["models"]) == 0
    out, err = capsys.readouterr()
    assert not err
    assert not (tmp_path / "models").exists()
    for model in CATALOGUE:
        assert model.licence in out
        assert len(model.sha256) == 64
        assert all(len(wheel.sha256) == 64 for wheel in model.wheels)
    assert f"Folder: {tmp_path / 'models'}" in out
    assert main(["models", "--json"]) == 0
    listed = json.loads(capsys.readouterr().out)
    assert [(x["name"], x["folder"]) for x in listed] == [(x.name, None) for x in CATALOGUE]


def test_a_download_says_the_licence_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Bugs: terms that come after the download, or an unknown name after a long one."""
    asked: list[str] = []
    monkeypatch.setattr("otm.cli.models.download", asked.append)
    monkeypatch.setenv(folder.VARIABLE, str(tmp_path))
    assert main(["models", "gemma-3-270m"]) == 0
    assert asked == ["gemma-3-270m"]
    out, err = capsys.readouterr()
    assert err == "gemma-3-270m: Gemma Terms of Use (ai.google.dev/gemma/terms)\n"
    assert "SmolLM2" not in out
    assert main(["models", "SmolLM2-135M", "gpt-9"]) == 2
    assert asked == ["gemma-3-270m"]
    assert "SmolLM2-135M, gemma-3-270m" in capsys.readouterr().err
