"""Install a built OTM without extras, and see that it works and names what is missing.

    python tests/repo/installed.py dist/otm-*.whl dist/otm-*.tar.gz

Each file gets an environment of its own, in a temporary folder.  Then a wheel is installed with its
extras, and the scripts of `tasks/` run there: what users come for, without a checkout.
"""

import os
import shlex
import subprocess
import sys
import tempfile
import venv
from pathlib import Path

CONSTRAINTS = Path(__file__).resolve().parents[2] / "constraints.txt"
TASKS = Path(__file__).resolve().parent / "tasks"
EXTRAS = "cli,huggingface,report"
IN_ORDER = ("rule_by_k.py", "pictures.py", "results.py", "progress.py", "production.py")

WORKS = """
from fractions import Fraction as F
from importlib.resources import files
import otm

for p, q in (([0.75, 0.25], [0.25, 0.75]), ([F(3, 4), F(1, 4)], [F(1, 4), F(3, 4)])):
    solution = otm.solve(p, q, 2)
    assert abs(solution.alpha - F(11, 16)) < 1e-15
    solution.certificate.check()
assert abs(otm.solve([0.75, 0.25], [0.25, 0.75], 2, method="lp-highs").alpha - 11 / 16) < 1e-9
assert otm.__version__
for name in ("py.typed", "models/data/king_james_bible_excerpt.txt", "gain/reports/page.html",
             "kernels/common/warps.json",
             "models/gpt/weights/target.safetensors"):
    assert (files("otm") / name).is_file(), name
"""

MISSING = {
    "cvxpy": "otm.solve([0.75, 0.25], [0.25, 0.75], 2, method='lp-cvxpy')",
    "torch": "from otm.models import load; load('target')",
}
"""What needs an extra, by the extra that the error must name."""


def try_out(built: Path, folder: Path) -> None:
    """Install one file, and raise CalledProcessError or AssertionError if anything is wrong."""
    venv.create(folder, with_pip=True)
    scripts = folder / ("Scripts" if sys.platform == "win32" else "bin")
    python = scripts / "python"

    def run(*command: str | Path) -> subprocess.CompletedProcess[str]:
        return subprocess.run(command, cwd=folder, check=False, capture_output=True, text=True)

    done = run(python, "-m", "pip", "install", "-q", "-c", CONSTRAINTS, built.resolve())
    assert done.returncode == 0, done.stderr
    done = run(python, "-W", "error", "-c", WORKS)
    assert done.returncode == 0, done.stderr
    for extra, code in MISSING.items():
        caught = f"import otm\ntry:\n    {code}\nexcept otm.OTMError as error:\n    print(error)"
        assert f"otm[{extra}]" in run(python, "-c", caught).stdout, extra
    done = run(scripts / "otm")
    assert done.returncode == 2, done.returncode
    assert done.stderr.count("\n") == 1, done.stderr
    assert "otm[cli]" in done.stderr, done.stderr


def try_tasks(wheel: Path, folder: Path) -> None:
    """Run the scripts of `tasks/` from a wheel, as a user who has nothing else."""
    venv.create(folder, with_pip=True)
    scripts = folder / ("Scripts" if sys.platform == "win32" else "bin")

    def run(*command: str | Path) -> None:
        done = subprocess.run(
            command,
            cwd=folder,
            env={**os.environ, "MPLBACKEND": "agg", "HF_HUB_OFFLINE": "1"},
            check=False,
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, done.stderr

    packages = f"{wheel.resolve()}[{EXTRAS}]"
    run(scripts / "python", "-m", "pip", "install", "-q", "-c", CONSTRAINTS, packages)
    run(scripts / "python", TASKS / "_prepare.py")
    for task in IN_ORDER:
        run(scripts / "python", TASKS / task)
        print(f"  {task} runs")
    for line in (TASKS / "commands.txt").read_text(encoding="utf-8").splitlines():
        name, *arguments = shlex.split(line)
        run(scripts / name, *arguments)
        print(f"  {line}")


def main(files: list[str]) -> None:
    for name in files:
        with tempfile.TemporaryDirectory() as folder:
            try_out(Path(name), Path(folder))
        print(f"{name}: installs and works")
    for name in files:
        if name.endswith(".whl"):
            with tempfile.TemporaryDirectory() as folder:
                try_tasks(Path(name), Path(folder))


if __name__ == "__main__":
    main(sys.argv[1:])
