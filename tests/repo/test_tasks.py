"""What users come for, each as a script of a few lines, on two models of Hugging Face.

`make dist` runs the same scripts from the built wheel, in an environment without a checkout.
"""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest

pytest.importorskip("torch")
pytest.importorskip("transformers")
for package in ("joblib", "jinja2", "matplotlib"):
    pytest.importorskip(package)

TASKS = Path(__file__).parent / "tasks"
MOST_LINES = 10
SAYS = {
    "rule_by_k.py": "otm.coupling:RecursiveRejection  0.",
    "pictures.py": "drafts \\ output  the",
    "results.py": "block efficiency",
    "progress.py": "",
    "production.py": "tokens for each call",
}
"""By task, in the order in which they run, a part of what it prints."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder that the scripts run in."""
    folder = tmp_path_factory.mktemp("tasks")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        runpy.run_path(str(TASKS / "_prepare.py"))
    return folder


def test_every_task_is_short_and_listed() -> None:
    scripts = {path.name: path for path in TASKS.glob("[!_]*.py")}
    assert set(scripts) == set(SAYS)
    for path in scripts.values():
        assert len(path.read_text(encoding="utf-8").splitlines()) <= MOST_LINES, path.name


@pytest.mark.xdist_group("tasks")
def test_the_tasks(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """Catches a name, an argument or a file of the tasks that has changed."""
    monkeypatch.chdir(folder)
    monkeypatch.setenv("MPLBACKEND", "agg")
    for name, part in SAYS.items():
        if name == "production.py":
            with pytest.warns(UserWarning, match="samples with T 1, top-k 50"):
                runpy.run_path(str(TASKS / name))
        else:
            runpy.run_path(str(TASKS / name))
        assert part in capfd.readouterr().out
    made = {"means.csv", "means.png", "transport.png", "bars.png"}
    assert made <= {path.name for path in folder.iterdir()}
    pytest.importorskip("matplotlib.pyplot").close("all")
