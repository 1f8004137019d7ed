"""`import otm` is light, the core needs NumPy alone, and packages import only from below."""

from __future__ import annotations

import ast
import graphlib
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import otm

PACKAGE = Path(otm.__file__).parent
HEAVY = [
    "scipy", "highspy", "cvxpy", "clarabel", "torch", "triton", "matplotlib", "networkx",
    "hypothesis", "pandas", "ot", "transformers", "safetensors", "joblib", "jinja2", "typer",
    "rich", "pytest",
]  # fmt: skip

# From below to above; CONTRIBUTING.md has the same list.  A package imports from itself and from
# the layers below it, not from its neighbours.
LAYERS = [
    {"certificate", "errors"},
    {"_core"},
    {"rules"},
    {"drafts", "kernels", "models"},
    {"problem"},
    {"block", "optimum"},
    {"coupling"},
    {"proof"},
    {"solution"},
    {"solve"},
    {"otm"},
    {"decoding"},
    {"coupled"},
    {"integrations"},
    {"gain"},
    {"testing"},
    {"audit"},
    {"cli"},
    {"__main__"},
]
ALONE = {"certificate"}  # the checker imports nothing of otm
HEAVY_ALLOWED = {"integrations", "gain", "testing", "audit", "cli", "__main__"}


def source_files() -> Iterator[tuple[str, Path]]:
    """Every module by its name, in the working tree."""
    for file in sorted(PACKAGE.rglob("*.py")):
        parts = ["otm", *file.relative_to(PACKAGE).with_suffix("").parts]
        yield ".".join(parts[:-1] if parts[-1] == "__init__" else parts), file


MODULES = dict(source_files())


def package(module: str) -> str:
    """First folder or file below the package; "otm" for the package itself."""
    return module.split(".")[1] if "." in module else "otm"


def imports(module: str) -> set[str]:
    """Modules of otm that a module imports, also within functions."""
    found = set()
    for node in ast.walk(ast.parse(MODULES[module].read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{module} has a relative import"
            for alias in node.names:
                name = f"{node.module}.{alias.name}"
                found.add(name if name in MODULES else str(node.module))
    return {name for name in found if name.partition(".")[0] == "otm"}


def allowed(of: str) -> set[str]:
    """List the packages that a package may import from, itself among them."""
    below: set[str] = set()
    for layer in LAYERS:
        if of in layer:
            return {of} if of in ALONE else {of} | below
        below |= layer
    raise AssertionError(f"otm/{of} is in no layer: add it to LAYERS and to CONTRIBUTING.md")


@pytest.mark.parametrize("module", MODULES)
def test_packages_import_only_from_layers_below(module: str) -> None:
    """Catches a shortcut upwards, also one that hides in a function."""
    wrong = {name for name in imports(module) if package(name) not in allowed(package(module))}
    assert not wrong


@pytest.mark.parametrize("module", MODULES)
def test_nothing_imports_what_is_beside_the_package(module: str) -> None:
    """Catches a wheel that works in a checkout alone, where `figures` and `benchmarks` lie."""
    tree = ast.parse(MODULES[module].read_text(encoding="utf-8"))
    imported = {
        name.partition(".")[0]
        for node in ast.walk(tree)
        for name in (
            [alias.name for alias in node.names]
            if isinstance(node, ast.Import)
            else [str(node.module)]
            if isinstance(node, ast.ImportFrom)
            else []
        )
    }
    beside = {path.parent.name for path in PACKAGE.parent.glob("*/__init__.py")} - {"otm"}
    assert beside >= {"figures", "benchmarks"}
    assert not imported & beside


def test_the_scan_sees_imports_of_every_form() -> None:
    """Catches a scan that finds nothing and therefore approves of everything."""
    assert imports("otm.proof") >= {
        "otm.certificate",
        "otm._core.arithmetic",
        "otm.coupling.optimal",
    }
    assert "otm.optimum.torch" in imports("otm.solve")  # within a function
    assert not imports("otm.certificate")
    assert allowed("kernels") == {"kernels", "certificate", "errors", "_core", "rules"}
    assert allowed("optimum") >= {"problem", "errors", "optimum"}
    assert allowed("optimum").isdisjoint({"coupling", "solve", "testing", "decoding"})
    assert allowed("decoding").isdisjoint({"integrations", "gain", "testing"})
    assert allowed("drafts").isdisjoint({"optimum", "problem"})


def test_no_module_imports_itself_in_a_circle() -> None:
    """Catches circles within a package too; they work until somebody imports from the other end."""
    graph = {
        module: imports(module) - {module}
        for module in MODULES
        if package(module) not in HEAVY_ALLOWED
    }
    list(graphlib.TopologicalSorter(graph).static_order())  # raises CycleError


def run(code: str) -> subprocess.CompletedProcess[str]:
    """Run code in a fresh interpreter that finds this working tree first."""
    start = f"import sys; sys.path.insert(0, {str(PACKAGE.parent)!r})\n"
    command = [sys.executable, "-W", "error", "-c", start + code]
    return subprocess.run(command, check=False, capture_output=True, text=True)


LIGHT = [
    name
    for name in MODULES
    if package(name) not in HEAVY_ALLOWED
    and not name.startswith(("otm.kernels.", "otm.coupled.clocks."))
]


def test_import_otm_loads_nothing_heavy() -> None:
    done = run(f"import otm\nprint(*(set({HEAVY!r}) & set(sys.modules)))")
    assert (done.returncode, done.stdout.strip()) == (0, ""), done.stderr


def test_no_module_of_the_core_loads_anything_heavy() -> None:
    """Catches an import at the top of an adapter, which all its importers pay for."""
    lines = "\n".join(f"import {name}" for name in LIGHT)
    done = run(f"{lines}\nprint(*(set({HEAVY!r}) & set(sys.modules)))")
    assert (done.returncode, done.stdout.strip()) == (0, ""), done.stderr


def test_the_core_works_with_numpy_alone(tmp_path: Path) -> None:
    """Catches a hidden dependency: here nothing but NumPy can be imported."""
    done = run(f"""
for name in {HEAVY!r}:
    sys.modules[name] = None
import otm, otm.coupling
from fractions import Fraction as F
for p, q in (([0.75, 0.25], [0.25, 0.75]), ([F(3, 4), F(1, 4)], [F(1, 4), F(3, 4)])):
    solution = otm.solve(p, q, 2)
    assert abs(solution.alpha - F(11, 16)) < 1e-15
    solution.certificate.check()
    solution.certificate.save({str(tmp_path / "player.json")!r})
    otm.Certificate.load({str(tmp_path / "player.json")!r})
    solution.plan.select([0, 1], [F(1, 2)] * 4 if solution.problem.exact else [0.5] * 4)
    repr(solution), solution._repr_html_(), otm.coupling.KSeq(solution.problem).acceptance
try:
    otm.solve([0.75, 0.25], [0.25, 0.75], 2, method="lp-cvxpy")
except otm.OTMError as error:
    assert isinstance(error, ImportError) and "otm[" in str(error), error
    print("done")
""")
    assert (done.returncode, done.stdout.strip()) == (0, "done"), done.stderr
