"""`import otm` is light, the core needs NumPy alone, and packages import only from below."""

import ast
import graphlib
import re
import subprocess
import sys
from functools import cache
from pathlib import Path

from tests.repo.pages import ROOT, modules, read

HEAVY = {
    *"scipy highspy cvxpy clarabel torch triton matplotlib networkx hypothesis pandas ot".split(),
    *"transformers safetensors joblib jinja2 typer rich pytest".split(),
}

# From below to above, as in docs/architecture.md.  A package imports from itself and from
# the layers below it, not from its neighbours.
LAYERS = [{*layer.split()} for layer in """
    certificate errors / _core / rules / drafts kernels models / problem / block_optimum optimum /
    coupling / certificate_builder / solution / solve / otm / decoding / coupled / integrations /
    gain / testing / audit / cli / __main__
""".split("/")]  # fmt: skip
ALONE = {"certificate"}  # the checker imports nothing of otm


def package(module: str) -> str:
    """First folder or file below the package; "otm" for the package itself."""
    return module.split(".")[1] if "." in module else "otm"


MODULES = modules("otm")
BESIDE = modules("figures", "benchmarks")
"""Modules beside the package, which a wheel does not have."""
ALL = MODULES | BESIDE
HEAVY_ALLOWED = r"otm\.(integrations|gain|testing|audit|cli|__main__|kernels\.|coupled\.clocks\.)"
LIGHT = [name for name in MODULES if not re.match(HEAVY_ALLOWED, name)]


@cache
def imports(module: str) -> set[str]:
    """Modules that a module imports, also within functions."""
    found = set()
    for node in ast.walk(ast.parse(ALL[module])):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            if node.module == module == "otm":
                continue  # `otm` loads its packages for those who name them, and uses none
            names = {f"{node.module}.{alias.name}" for alias in node.names}
            found |= {name if name in ALL else str(node.module) for name in names}
    return found


def allowed(of: str) -> set[str]:
    """List the packages that a package may import from, itself among them."""
    places = [i for i, layer in enumerate(LAYERS) if of in layer]
    assert places, f"otm/{of} is in no layer: add it to LAYERS and to docs/architecture.md"
    return {of}.union(*([] if of in ALONE else LAYERS[: places[0]]))


def test_packages_import_only_from_layers_below() -> None:
    """Catches a shortcut upwards, also in a function, and a wheel that needs a checkout."""
    for module in MODULES:
        below = {package(name) for name in imports(module) & {"otm", *MODULES}}
        assert below <= allowed(package(module)), module
        assert not imports(module) & set(BESIDE), module
    # within a package too there are no circles, which work from one end and not from the other
    graph = {module: imports(module) & set(ALL) - {module} for module in ALL}
    graphlib.TopologicalSorter(graph).prepare()  # raises CycleError


def test_the_scan_sees_imports_of_every_form() -> None:
    """Catches a scan that finds nothing and therefore approves of everything."""
    assert len(BESIDE) > 50
    of_proof = {"otm.certificate", "otm._core.arithmetic", "otm.coupling.optimal.plan"}
    assert imports("otm.certificate_builder") >= of_proof
    assert "otm.optimum.torch" in imports("otm.solve")  # within a function
    assert not imports("otm.certificate") & set(ALL)
    assert allowed("kernels") == {"kernels", "certificate", "errors", "_core", "rules"}


def test_the_page_has_the_same_layers_and_limit_of_files() -> None:
    """Bug: a layer that the page puts elsewhere; a file that is longer than the page allows."""
    page = read("docs/architecture.md")
    section = page.split("## Layers")[1].split("\n## ")[0]
    rows = re.findall(r"(?m)^\| ((?:`\w+`(?:, )?)+) \|", section)
    assert [set(re.findall(r"\w+", row)) for row in rows] == LAYERS[::-1]
    (limit,) = re.findall(r"at most (\d+) lines, except `otm/certificate.py`", page)
    assert [x for x, y in MODULES.items() if y.count("\n") > int(limit)] == ["otm.certificate"]


def run(code: str) -> str:
    """Run code in a fresh interpreter that finds this working tree first."""
    code = f"import sys; sys.path.insert(0, {str(ROOT)!r})\n{code}"
    command = [sys.executable, "-W", "error", "-c", code]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_packages_are_there_without_an_import_of_their_own() -> None:
    """Bug: module 'otm' has no attribute 'audit', until somebody imports it."""
    code = f"""
import otm
names = [name for name in dir(otm) if name in {sorted({package(name) for name in MODULES})!r}]
for name in names:
    assert getattr(otm, name) is getattr(otm, name), name
assert {{"audit", "coupled", "gain", "kernels", "rules", "testing"}} <= set(names), names
assert otm.audit.lossless and otm.kernels.verify_probs and otm.__all__
assert set(otm.coupling.__all__) <= set(dir(otm.coupling))
assert not hasattr(otm, "missing")
"""
    assert run(code) == ""


def test_imports_of_otm_and_its_core_load_nothing_heavy() -> None:
    """Catches an import at the top of an adapter, which all its importers pay for."""
    lines = "\n".join(f"import {name}" for name in ("otm", *LIGHT))
    assert run(f"{lines}\nprint(*({HEAVY!r} & set(sys.modules)))") == ""


def test_the_core_works_with_numpy_alone(tmp_path: Path) -> None:
    """Catches a hidden dependency: here nothing but NumPy can be imported."""
    code = f"""
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
"""
    assert run(code) == "done"
