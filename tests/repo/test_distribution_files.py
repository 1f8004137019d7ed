"""What is published beside the code: metadata, licences, versions, what the wheel holds."""

from __future__ import annotations

import importlib.metadata
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest

import otm

ROOT = Path(__file__).resolve().parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
EXTRAS = PROJECT["optional-dependencies"]
FOR_USERS = {
    "cvxpy",
    "torch",
    "huggingface",
    "figures",
    "report",
    "flow",
    "sinkhorn",
    "testing",
    "cli",
    "server",
}
LOWER_BOUND = re.compile(r"([\w.-]+)>=([\w.]+)")
PIN = re.compile(r"^([\w.-]+)==(\S+)", re.MULTILINE)


def pins(name: str) -> dict[str, str]:
    """Version by package, of a file of constraints."""
    return dict(PIN.findall((ROOT / name).read_text(encoding="utf-8")))


def lower_bounds(extras: set[str]) -> dict[str, str]:
    """Oldest version by package, of OTM and of some extras."""
    lines = [*PROJECT["dependencies"], *(line for extra in extras for line in EXTRAS[extra])]
    return dict(bound.groups() for line in lines if (bound := LOWER_BOUND.match(line)))


def test_the_oldest_versions_are_the_lower_bounds() -> None:
    """Catches a bound that is lowered, or a feature that raises it, without a run that shows it."""
    oldest = pins("constraints-oldest.txt")
    bounds = lower_bounds(FOR_USERS | {"test"})
    del bounds["triton"]  # see the head of the file
    assert {name: oldest.get(name) for name in bounds} == bounds
    assert set(oldest) - set(bounds) == {"click", "pyparsing"}


def test_no_pin_is_older_than_its_bound() -> None:
    """Catches constraints that pip could not meet."""

    def key(version: str) -> list[int]:
        return [int(part) for part in re.findall(r"\d+", version)]

    newest = pins("constraints.txt")
    for name, oldest in lower_bounds(set(EXTRAS)).items():
        assert name == "triton" or key(newest[name]) >= key(oldest), name


def listed_licences() -> dict[str, tuple[str, str]]:
    """Version and licence by package, as docs/dependencies.md lists them."""
    text = (ROOT / "docs" / "dependencies.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| (\S+) \| (\S*) ?\| (.+?) \| .+ \|$", text, flags=re.MULTILINE)
    return {name: (version, licence) for name, version, licence in rows if name != "package"}


def test_every_pinned_package_is_listed_with_its_licence() -> None:
    """Catches a new dependency whose licence nobody has looked at."""
    listed = listed_licences()
    del listed["---"]
    versions = {name: version for name, (version, _) in listed.items()}
    assert versions == pins("constraints.txt") | {"triton": ""}
    assert set(lower_bounds(set(EXTRAS))) <= set(listed)
    assert not [name for name, (_, licence) in listed.items() if licence == "not stated"]


def test_listed_licences_are_what_the_packages_say() -> None:
    """Catches a licence that changed with a version, where that version is installed."""
    sys.path.insert(0, str(ROOT / "docs"))
    try:
        from licences import licence_of
    finally:
        sys.path.pop(0)
    compared = 0
    for name, (version, licence) in listed_licences().items():
        try:
            found = importlib.metadata.metadata(name)
        except importlib.metadata.PackageNotFoundError:
            continue
        if found["Version"].partition("+")[0] == version:
            assert licence_of(found) == licence, name
            compared += 1
    if not compared:
        pytest.skip("no package has the pinned version")


def test_what_is_needed_by_what_is_not_code_is_in_the_wheel() -> None:
    """Catches a file that works in a checkout and is missing once OTM is installed."""
    builder: Any = pytest.importorskip("hatchling.builders.wheel").WheelBuilder(str(ROOT))
    inside = {file.distribution_path for file in builder.recurse_included_files()}
    others = {name for name in inside if not name.endswith(".py")}
    kept = {path.relative_to(ROOT).as_posix() for path in ROOT.glob("otm/**/*") if path.is_file()}
    kept = {name for name in kept if "__pycache__" not in name}
    assert inside == kept | {"_otm_pytest_plugin.py"}
    assert others == {
        "otm/py.typed",
        "otm/models/data/README.md",
        "otm/models/data/king_james_bible_excerpt.txt",
        "otm/models/gpt/weights/README.md",
        *(f"otm/models/gpt/weights/{name}.safetensors" for name in (
            "large", "medium", "small", "target",
        )),
        "otm/gain/reports/page.html",
        "otm/kernels/common/warps.json",
    }  # fmt: skip


def test_the_citation_is_that_of_this_version_and_of_the_papers() -> None:
    """Catches a release that is cited under the name of the last one."""
    text = (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    assert f"\nversion: {PROJECT['version']}\n" in text
    assert f"\nlicense: {PROJECT['license']}\n" in text
    assert f'- name: "{PROJECT["authors"][0]["name"]}"' in text
    bibliography = (ROOT / "docs" / "references.bib").read_text(encoding="utf-8")
    for key in ("leviathan2023", "sun2023", "wagner2024"):
        entry = bibliography.split("{" + key + ",")[1].split("\n}")[0]
        title = re.sub(r"[{}]", "", entry.split("title     = {")[1].split("},\n")[0])
        assert f'title: "{title}"' in text


def test_the_citation_is_yaml() -> None:
    yaml = pytest.importorskip("yaml")
    found = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    assert {"cff-version", "message", "title", "authors", "references"} <= set(found)
    assert [len(paper["authors"]) for paper in found["references"]] == [3, 6, 6]


def test_the_version_is_that_of_the_installed_package() -> None:
    """Catches a second place where the version stands."""
    try:
        installed = importlib.metadata.version("otm")
    except importlib.metadata.PackageNotFoundError:
        with pytest.raises(AttributeError, match="once it is installed"):
            _ = otm.__version__
    else:
        assert otm.__version__ == installed


def test_the_version_costs_nothing_until_it_is_asked_for() -> None:
    """Catches an import that everybody pays for and hardly anybody needs."""
    code = "import {}, sys; print('importlib.metadata' in sys.modules)"
    loaded = [
        subprocess.run(
            [sys.executable, "-c", code.format(name)], cwd=ROOT, stdout=subprocess.PIPE, check=True
        )
        for name in ("numpy", "otm")
    ]
    assert loaded[0].stdout == loaded[1].stdout != b""
