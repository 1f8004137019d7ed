"""Examples, tasks, the notebook and the galleries run, and show what they promise.

The tasks are what users come for, each as a script of a few lines on two models of Hugging Face;
`make dist` runs them from the built wheel too, in an environment without a checkout.
"""

import contextlib
import os
import re
import runpy
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from figures.registry import FIGURES
from tests.installed.try_out import TASKS
from tests.repo.pages import ROOT, read

for package in ("joblib", "jinja2", "matplotlib", "torch", "transformers"):
    pytest.importorskip(package)

NUMBERS = r" +8 +0\.\d{4} +0\.\d{3} +\de-1\d "
EXAMPLES = {
    "first_steps.py": [
        r"α +0\.738$", r"^The certificate holds\.$", r"^  k = 1  alpha = 0\.450000  #+$",
        r"^  k = 8  alpha = 1\.000000  #+$", r"^  upper 0\.7380  ᾱ_k  \(Lemma 3\)$",
        r"^Drafted \[.*\], output '\w+': (draft \d|no draft) accepted\.$",
    ],
    "compare_rules.py": [
        r"^50,000 tokens", r"^maximal coupling +\d +0\.\d{4} +0\.\d{3} +\de-1\d ",
        *("^" + name + NUMBERS for name in ("recursive rejection", "k-Seq", "OTM-k")),
    ],
    "two_models_deployment.py": [
        r"^generate samples with T 1$", r"^  block efficiency  [34]\.\d{3} tokens for each call$",
        r"^\d+ setups, 373 contexts of 8 prompts, 95 % intervals$",
        r"samples with T 1, top-k 5, but the report assumed T 1: ",
        r"^the same greedy text: True$",
        r"^On this machine drafts (pay|are not certain to pay): .*, K = [14], γ = [24]$",
    ],
    "explicit_plans.py": [
        r"^p = Ber\(1/4\), q = Ber\(3/4\)$", r"k = 2  acceptance 11/16 +=",
        r"^p = U\(12\), q = U\(4\)$", r"k = 3  acceptance 19/27 +=",
    ],
    "rollouts.py": [
        r"^800 tokens, 2\.\d\d for each call", r"\(same: True\)$",
        r"^lossless: lossless on everything tried, ", r"^use these rollouts$",
        r"^lenient: not lossless, ", r"^do not use these rollouts$",
    ],
}  # fmt: skip
NO_WINDOW = "ignore:FigureCanvasAgg is non-interactive:UserWarning"
AS_NOTEBOOK = "two_models_research.py"
SHOWN = {"table": 1, "steps": 1, "gain": 0, "sample": 1, "recordings[0]": 0, "steps.plot()": 0}
"""Results of the notebook, each as the last value of a cell, and how many tables it shows."""


def printed_by(name: str) -> str:
    """Run an example as a program of its own."""
    path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    settings = {"PYTHONPATH": path, "PYTHONIOENCODING": "utf-8", "MPLBACKEND": "agg"}
    command = [sys.executable, "-W", "error", "-W", NO_WINDOW, f"examples/{name}"]
    options: Any = {"cwd": ROOT, "env": {**os.environ, **settings}, "encoding": "utf-8"}
    return subprocess.check_output(command, **options)


@pytest.mark.filterwarnings(NO_WINDOW)
@pytest.mark.parametrize("name", EXAMPLES)
def test_example(
    name: str, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """Bug: an example that has fallen behind the package, or gives a warning."""
    if name == "first_steps.py":  # the others run here, where torch and transformers are loaded
        printed = printed_by(name)
    else:
        monkeypatch.chdir(ROOT)
        monkeypatch.setenv("MPLBACKEND", "agg")
        runpy.run_path(str(ROOT / "examples" / name), run_name="__main__")
        printed = capfd.readouterr().out
        pytest.importorskip("matplotlib.pyplot").close("all")
    for line in EXAMPLES[name]:
        assert re.search(line, printed, flags=re.MULTILINE), line
    assert "False" not in printed
    if name == "compare_rules.py":  # the order is what the example is there to show
        rows = re.findall(r"(?m)^\S.*? +\d +(0\.\d{4}) ", printed)
        assert len(rows) == 4
        assert rows == sorted(rows)


def test_every_example_and_figure_is_listed_here_or_in_a_gallery() -> None:
    """Bug: a new example that nobody runs; a figure that no page shows, or older than its page."""
    scripts = {path.name for path in ROOT.glob("examples/*.py")}
    assert scripts == {*EXAMPLES, AS_NOTEBOOK}
    (order,) = re.findall(r'"within_subsection_order": \[([^]]*)\]\.index', read("docs/conf.py"))
    assert set(re.findall(r'"(.+?)"', order)) == scripts
    papers = re.findall(r"(?m)^```\{figure-gallery\} (\w+)$", read("docs/figures.md"))
    assert sorted(papers) == sorted({name.partition("_")[0] for name in FIGURES})
    drawn = {path.stem for path in ROOT.glob("figures/drawn/*.png")}
    cards = re.findall(r'<article class="card" id="(\w+)">', read("figures/index.html"))
    assert set() < drawn <= set(cards) & set(FIGURES)


def shown_by(cells: list[str], monkeypatch: pytest.MonkeyPatch) -> list[list[dict[str, str]]]:
    """Run cells in a kernel of this process, which has loaded torch, and return what each shows."""
    kernels = pytest.importorskip("ipykernel.inprocess.manager")
    plt = pytest.importorskip("matplotlib.pyplot")
    no_history = pytest.importorskip("traitlets.config").Config(HistoryManager={"enabled": False})
    monkeypatch.setitem(sys.modules, "__main__", sys.modules["__main__"])  # a kernel has its own
    monkeypatch.setenv("PYDEVD_DISABLE_FILE_VALIDATION", "1")
    monkeypatch.chdir(ROOT)
    backend, manager = plt.get_backend(), kernels.InProcessKernelManager(config=no_history)
    manager.start_kernel()
    client, shown = manager.client(), []
    client.start_channels()
    with plt.rc_context():
        for cell in ["%matplotlib inline", *cells]:
            client.execute(cell)
            reply, messages = client.get_shell_msg()["content"], []
            assert reply["status"] == "ok", reply
            while client.iopub_channel.msg_ready():
                messages.append(client.get_iopub_msg())
            kinds = {"display_data", "execute_result"}
            shown.append([x["content"]["data"] for x in messages if x["msg_type"] in kinds])
        plt.switch_backend(backend)
        plt.uninstall_repl_displayhook()
    thread = manager.kernel.iopub_thread
    thread.io_loop.add_callback(thread._event_pipe_gc_task.cancel)
    while not thread._event_pipe_gc_task.done():  # a warning of it could come in a later test
        time.sleep(0.01)
    thread.stop()
    type(manager.kernel.shell).clear_instance()
    return shown[1:]


@pytest.mark.filterwarnings("default")
def test_the_researchers_day_as_a_notebook(monkeypatch: pytest.MonkeyPatch) -> None:
    """Catches a cell that fails, a plot that is drawn twice or not at all, a flood of numbers."""
    text = re.sub(r"(?m)^# %%\n(#.*\n)*", "# %%\n", read(f"examples/{AS_NOTEBOOK}"))
    code = text.split("# %%\n")
    cells = shown_by([*code, *SHOWN], monkeypatch)

    def outputs(cell: list[dict[str, str]], kind: str) -> list[str]:
        return [data[kind] for data in cell if kind in data]

    assert sum(len(outputs(cell, "image/png")) for cell in cells[: len(code)]) == 2
    assert all(len(text) <= 2000 for cell in cells for text in outputs(cell, "text/plain"))
    assert [len(outputs(cell, "text/html")) for cell in cells[len(code) :]] == [*SHOWN.values()]
    assert len(outputs(cells[-1], "image/png")) == 1


def test_the_tasks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """Catches a name, an argument or a file of the tasks that has changed; a task that grew."""
    assert {*TASKS} == {*TASKS[0].parent.glob("[!_]*.py")}
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MPLBACKEND", "agg")
    runpy.run_path(str(TASKS[0].with_name("_prepare.py")))
    says = "otm.coupling:RecursiveRejection  0.|drafts \\ output  the|block efficiency|"
    says += "|tokens for each call"
    for path, part in zip(TASKS, says.split("|"), strict=True):
        assert len(path.read_text(encoding="utf-8").splitlines()) <= 10
        warned = pytest.warns(UserWarning, match="samples with T 1, top-k 50")
        with warned if path.name == "production.py" else contextlib.nullcontext():
            runpy.run_path(str(path))
        assert part in capfd.readouterr().out
    files = "means.csv means.png transport.png bars.png".split()
    assert [name for name in files if not (tmp_path / name).is_file()] == []
    pytest.importorskip("matplotlib.pyplot").close("all")
