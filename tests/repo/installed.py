"""Install a built OTM without extras, and see that it works and names what is missing.

    python tests/repo/installed.py dist/otm-*.whl dist/otm-*.tar.gz

Each file gets an environment of its own, in a temporary folder.
"""

import subprocess
import sys
import tempfile
import venv
from pathlib import Path

CONSTRAINTS = Path(__file__).resolve().parents[2] / "constraints.txt"

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
for name in ("py.typed", "models/data/king_james_bible_excerpt.txt", "gain/page.html",
             "kernels/triton/warps.json",
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


def main(files: list[str]) -> None:
    for name in files:
        with tempfile.TemporaryDirectory() as folder:
            try_out(Path(name), Path(folder))
        print(f"{name}: installs and works")


if __name__ == "__main__":
    main(sys.argv[1:])
