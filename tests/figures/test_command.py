"""``python -m figures`` passes its options on, and reports mistakes in one line."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from figures.__main__ import main
from figures.registry import FIGURES
from figures.run import Done

NAME = "spectr_figure_5"


def test_the_names_are_those_of_the_registry(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--list"]) == 0
    assert capsys.readouterr().out.split() == list(FIGURES)
    assert main(["--list", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == list(FIGURES)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nonsense"], "no figure 'nonsense'; there are"),
        ([NAME, "--jobs", "0"], "at least one process"),
        ([NAME, "--jobs", "many"], "argument --jobs: invalid int value: 'many'"),
    ],
)
def test_a_mistake_is_refused_before_anything_is_written(
    arguments: list[str],
    message: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(arguments) == 2
    out, err = capsys.readouterr()
    assert not out
    assert message in err
    assert err.count("\n") == 1
    assert not list(tmp_path.iterdir())


def test_figures_are_drawn_as_asked_and_listed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Bug: an option that is read and forgotten."""
    asked: list[Any] = []

    def write_all(names: Any, folder: Path, results: Path, **options: Any) -> Iterator[Done]:
        asked.append((names, folder, results, options))
        yield Done(NAME, "computed", 0.25)

    monkeypatch.setattr("figures.run.write_all", write_all)
    monkeypatch.setattr("figures.run.write_gallery", lambda folder: folder / "index.html")
    output = tmp_path / "a" / "b"
    options = ["--output", str(output), "--results", "elsewhere", "--full", "--jobs", "3"]
    assert main([NAME, NAME, *options, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    done = {"figure": NAME, "state": "computed", "seconds": 0.2, "differences": None}
    assert found["figures"] == [done]
    assert found["page"] == str(output / "index.html")
    assert asked == [([NAME], output / "drawn", Path("elsewhere"), {"full": True, "jobs": 3})]
    assert output.is_dir()
    assert main(["--output", str(output)]) == 0
    assert asked[1][0] == list(FIGURES)
    assert re.search(rf"^{NAME} +computed +0.2 s$", capsys.readouterr().out, re.MULTILINE)
