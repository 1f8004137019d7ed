"""Install a built OTM without extras, and see that it works and names what is missing.

    python tests/installed/try_out.py dist/otm-*.whl dist/otm-*.tar.gz

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

HERE = Path(__file__).resolve().parent
CONSTRAINTS = HERE.parents[1] / "constraints.txt"
IN_ORDER = "rule_by_k pictures results progress production".split()
TASKS = [HERE / "tasks" / f"{name}.py" for name in IN_ORDER]

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
             "kernels/common/warps.json", "audit/vectors/vectors-1.json",
             "models/gpt/weights/target.safetensors"):
    assert (files("otm") / name).is_file(), name
"""

MISSING = {
    "cvxpy": "otm.solve([0.75, 0.25], [0.25, 0.75], 2, method='lp-cvxpy')",
    "torch": "from otm.models import load; load('target')",
}
"""What needs an extra, by the extra that the error must name."""


class Environment:
    """An environment in which one file is installed; its commands run in its folder."""

    def __init__(self, folder: str, built: Path, extras: str = "") -> None:
        venv.create(folder, with_pip=True)
        self.folder = Path(folder)
        self.run("python", "-m", "pip", "install", "-q", "-c", CONSTRAINTS, f"{built}{extras}")

    def run(self, name: str, *arguments: str | Path, code: int = 0) -> tuple[str, str]:
        """Run a command, raise if it ends with another code, and return what it prints."""
        program = self.folder / ("Scripts" if sys.platform == "win32" else "bin") / name
        settings = {**os.environ, "MPLBACKEND": "agg", "HF_HUB_OFFLINE": "1"}
        done = subprocess.run(
            [program, *arguments],
            cwd=self.folder, env=settings, check=False, capture_output=True, text=True,
        )  # fmt: skip
        assert done.returncode == code, (done.returncode, done.stderr)
        return done.stdout, done.stderr


def try_out(alone: Environment) -> None:
    """See that what is installed without extras works, and names what it misses."""
    alone.run("python", "-W", "error", "-c", WORKS)
    for extra, code in MISSING.items():
        caught = f"import otm\ntry:\n    {code}\nexcept otm.OTMError as error:\n    print(error)"
        assert f"otm[{extra}]" in alone.run("python", "-c", caught)[0], extra
    _, error = alone.run("otm", code=2)
    assert error.count("\n") == 1, error
    assert "otm[cli]" in error, error


def try_tasks(complete: Environment) -> None:
    """Run the scripts of `tasks/`, as a user who has nothing else."""
    complete.run("python", HERE / "tasks" / "_prepare.py")
    lines = (HERE / "tasks" / "commands.txt").read_text(encoding="utf-8").splitlines()
    for command in (*(["python", str(task)] for task in TASKS), *map(shlex.split, lines)):
        complete.run(*command)
        print(f"  {shlex.join(command)}")


if __name__ == "__main__":
    for built in (Path(name).resolve() for name in sys.argv[1:]):
        with tempfile.TemporaryDirectory() as folder:
            try_out(Environment(folder, built))
        print(f"{built.name}: installs and works")
        if built.suffix == ".whl":
            with tempfile.TemporaryDirectory() as folder:
                try_tasks(Environment(folder, built, "[cli,huggingface,report]"))
