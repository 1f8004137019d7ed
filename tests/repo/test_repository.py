"""The files around the code agree with the code and with each other."""

import contextlib
import importlib.metadata
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
from packaging.version import Version

import otm
from otm._core.optional import PACKAGES
from tests.repo.pages import ROOT, load, read

PROJECT = tomllib.loads(read("pyproject.toml"))["project"]
EXTRAS = PROJECT["optional-dependencies"]
FOR_USERS = "cvxpy torch huggingface figures report flow sinkhorn testing cli server".split()
NO_PIN = "triton"  # builds of torch for GPUs pin their own

# Written so that the pattern does not match itself.
PRIVATE = re.compile(
    rb"(?<![\w.-])/(?:home|root|Users)/\w"  # somebody's home
    rb"|--(?:extra-)?index[-]url|--find[-]links"  # somebody's package index
    rb"|(?:files\.python[h]osted|download\.py[t]orch)\.org"
)


def pins(name: str) -> dict[str, str]:
    """Version by package, of a file of constraints."""
    return dict(re.findall(r"^([\w.-]+)==(\S+)", read(name), flags=re.MULTILINE))


def needed(*extras: str) -> dict[str, str | None]:
    """Oldest version, if one is stated, of what OTM and some extras need, without own extras."""
    lines = [*PROJECT["dependencies"], *(line for extra in extras for line in EXTRAS[extra])]
    found = [re.match(r"([\w.-]+)(?:>=([\w.]+))?", line) for line in lines]
    return {match[1]: match[2] for match in found if match and match[1] != PROJECT["name"]}


def with_own_extras(extra: str) -> set[str]:
    """List an extra and those of otm's own that it brings."""
    own = re.findall(r"^otm\[(.+)\]", "\n".join(EXTRAS[extra]), flags=re.MULTILINE)
    return {extra}.union(*(with_own_extras(x) for names in own for x in names.split(",")))


def test_nothing_of_the_author_s_machine_is_committed() -> None:
    git = shutil.which("git")
    if git is None or not (ROOT / ".git").exists():
        pytest.skip("not a git checkout")
    command = [git, "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.check_output(command, cwd=ROOT, text=True).split("\0")
    assert "pyproject.toml" in listed
    files = [ROOT / name for name in listed if (ROOT / name).is_file()]
    assert [file for file in files if PRIVATE.search(file.read_bytes())] == []
    halves = [(b"in /home", b"/a"), (b"/root", b"/b"), (b"pip --index", b"-url x")]
    assert all(PRIVATE.search(b"".join(line)) for line in halves), "the pattern finds such lines"


def test_the_extras_of_messages_exist_and_bring_the_package_that_an_error_misses() -> None:
    places = ("otm/**/*.py", "figures/**/*.py", "*.md", "docs/**/*.md")
    for path in (path for place in places for path in ROOT.glob(place)):
        for extras in re.findall(r"\botm\[([\w, -]+)\]", path.read_text(encoding="utf-8")):
            assert {extra.strip() for extra in extras.split(",")} <= set(EXTRAS), path
    for module, package in PACKAGES.items():
        extra = re.fullmatch(r'"otm\[(\w+)\]"', package.install)
        if extra is None:  # no extra of otm: what it works on, or what it comes with
            assert module in {"flashinfer", "vllm"} or package.install in needed(), module
        elif module != NO_PIN:
            brought = needed(*with_own_extras(extra[1]))
            assert package.name.lower() in {name.lower() for name in brought}, module


def test_every_dependency_is_pinned_not_below_its_bound_and_the_oldest_at_it() -> None:
    """Catches a bound that moves without a run that shows it; constraints that pip cannot meet."""
    oldest_pins = pins("constraints-oldest.txt")
    bounds = {name: version for name, version in needed(*FOR_USERS, "test").items() if version}
    del bounds[NO_PIN]  # see the head of the file
    assert {name: oldest_pins.get(name) for name in bounds} == bounds
    assert set(oldest_pins) - set(bounds) == {"click", "pyparsing"}
    newest, bounds = pins("constraints.txt"), needed(*EXTRAS)
    assert {*bounds, "highspy", "hatchling"} - set(newest) == {NO_PIN}
    for name, oldest in bounds.items():
        assert name == NO_PIN or Version(newest[name]) >= Version(oldest or "0"), name


def test_every_pinned_package_is_listed_with_its_licence() -> None:
    """Catches a new dependency whose licence nobody has looked at, or one that has changed."""
    page = read("docs/tables/dependencies.md")
    _, _, *rows = re.findall(r"(?m)^\| (\S+) \| (\S*) ?\| (.+?) \| .+ \|$", page)
    assert {name: version for name, version, _ in rows} == pins("constraints.txt") | {NO_PIN: ""}
    assert not [name for name, _, licence in rows if licence == "not stated"]
    licence_of = load("docs/licences.py").licence_of
    for name, version, licence in rows:
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            found = importlib.metadata.metadata(name)
            if found["Version"].partition("+")[0] == version:
                assert licence_of(found) == licence, name


def test_what_is_needed_by_what_is_not_code_is_in_the_wheel() -> None:
    """Catches a file that works in a checkout and is missing once OTM is installed."""
    builder: Any = pytest.importorskip("hatchling.builders.wheel").WheelBuilder(str(ROOT))
    inside = {file.distribution_path for file in builder.recurse_included_files()}
    kept = {path.relative_to(ROOT).as_posix() for path in ROOT.glob("otm/**/*") if path.is_file()}
    kept = {name for name in kept if "__pycache__" not in name}
    assert inside == kept | {"_otm_pytest_plugin.py"}
    data = """py.typed audit/vectors/README.md audit/vectors/vectors-1.json gain/reports/page.html
        kernels/common/warps.json models/data/README.md models/data/king_james_bible_excerpt.txt
        models/gpt/weights/README.md models/hidden_states/weights/LICENSE
        models/hidden_states/weights/README.md
        models/hidden_states/weights/SmolLM2-135M.safetensors""".split()
    data += [f"models/gpt/weights/{x}.safetensors" for x in "large medium small target".split()]
    assert {x for x in inside if not x.endswith(".py")} == {f"otm/{name}" for name in data}


def test_the_version_stands_in_one_place_and_costs_nothing() -> None:
    """Catches a second place, and an import that everybody pays for and hardly anybody needs."""
    assert re.findall(r"(?m)^## \[(\d[^\]]*)\]", read("CHANGELOG.md"))[0] == PROJECT["version"]
    if {"otm"} <= {found.name for found in importlib.metadata.distributions()}:
        assert otm.__version__ == importlib.metadata.version("otm")
    else:
        with pytest.raises(AttributeError, match="once it is installed"):
            _ = otm.__version__
    code = "import {}, sys; print('importlib.metadata' in sys.modules)"
    commands = [[sys.executable, "-c", code.format(name)] for name in ("numpy", "otm")]
    by_numpy, by_otm = (subprocess.check_output(command, cwd=ROOT) for command in commands)
    assert by_numpy == by_otm != b""


def test_the_citation_is_that_of_this_version_and_of_the_papers() -> None:
    """Catches a release that is cited under the name of the last one."""
    text = read("CITATION.cff")
    assert f"\nversion: {PROJECT['version']}\n" in text
    assert f"\nlicense: {PROJECT['license'].split(' AND ')[0]}\n" in text
    assert f'- name: "{PROJECT["authors"][0]["name"]}"' in text
    for key in ("leviathan2023", "sun2023", "wagner2024"):
        entry = read("docs/references.bib").split("{" + key + ",")[1]
        title = re.sub(r"[{}]", "", entry.split("title     = {")[1].split("},\n")[0])
        assert f'title: "{title}"' in text
    found = pytest.importorskip("yaml").safe_load(text)
    assert {"cff-version", "message", "title", "authors", "references"} <= set(found)
    assert [len(paper["authors"]) for paper in found["references"]] == [3, 6, 6]


@pytest.mark.skipif(shutil.which("make") is None, reason="make is not installed")
def test_make_help_lists_every_target() -> None:
    targets = re.findall(r"^\.PHONY: (\w+)$", read("Makefile"), flags=re.MULTILINE)
    listed = subprocess.check_output(["make", "--silent", "help"], cwd=ROOT, text=True)
    assert [line.split()[1] for line in listed.splitlines()] == targets


@pytest.mark.parametrize(("place", "pattern", "least"), [
    ("Makefile", r"tests/[\w/]+\.py", 15),
    (".ci/run", r"tests/\w+", 5),
    (".github/workflows/test.yml", r"tests/[\w/]+(?:\.\w+)?", 6),
    (".github/CODEOWNERS", r"(?m)^#? ?/(\S+)", 9),
    (".github/**/*.*", r"[\w/-]+\.(?:md|txt|bib)\b", 9),
    ("CONTRIBUTING.md", r"\.github/\w+", 1),
])  # fmt: skip
def test_files_that_settings_and_templates_name_are_there(
    place: str, pattern: str, least: int
) -> None:
    """Bug: a test that was moved and is left out; an area that has no owner after a move."""
    if not (ROOT / ".github").exists():
        pytest.skip("no checkout")
    texts = [path.read_text(encoding="utf-8") for path in ROOT.glob(place)]
    names = [name for text in texts for name in re.findall(pattern, text)]
    assert len(names) >= least
    assert [name for name in names if not (ROOT / name).exists()] == []


PYTHONS = {
    "python3": "echo 12 first", "python3_14": "echo 14 newest", "python3_12": "echo 12 second",
    "python3_13": "echo missing >&2; exit 127", "python3_11": "echo 11 oldest",
}  # fmt: skip
"""The Pythons on the PATH of a machine, each a line of shell."""
THIS = [f"{sys.version_info[1]} {sys.executable}"] * (sys.version_info < (3, 15))
NEWER = f'exec {sys.executable} -c "${{2/(3, 15)/sys.version_info[:2]}}"'
OF_CI = {
    "each version once, oldest first": ([], PYTHONS, ["11 oldest", "12 first", "14 newest"]),
    "this one": ([], {"python3": f'exec {sys.executable} "$@"'}, THIS),
    "newer than otm": ([], {"python3": NEWER}, []),
    "none": ([], {}, []),
    "named": (["3.14", "3.12"], PYTHONS, ["12 first", "14 newest"]),
    "half a name": (["3.1"], PYTHONS, []),
}  # fmt: skip
"""Versions that CI is asked for, the Pythons of its machine, and those that it then finds."""


@pytest.mark.parametrize("case", OF_CI)
def test_ci_finds_the_pythons_of_a_machine_or_those_named(case: str, tmp_path: Path) -> None:
    """Bug: a name without a version ends the search; CI red for a Python that came after OTM."""
    if not (ROOT / ".ci").exists() or shutil.which("bash") is None:
        pytest.skip("no bash, or no checkout: the sdist has no .ci")
    versions, scripts, found = OF_CI[case]
    for tool in ("bash", "sort", "env", "dirname", "tr"):
        (tmp_path / tool).symlink_to(str(shutil.which(tool)))
    for name, line in scripts.items():
        file = tmp_path / name.replace("_", ".")
        file.write_text(f"#!/usr/bin/env bash\n{line}\n", encoding="utf-8")
        file.chmod(0o755)

    def run(script: str, *versions: str) -> tuple[str, str, int]:
        command = [tmp_path / "bash", ROOT / ".ci" / script, *versions]
        options: Any = {"env": {"PATH": str(tmp_path)}, "capture_output": True, "text": True}
        done = subprocess.run(command, check=False, **options)
        return done.stdout, done.stderr, done.returncode

    assert run("pythons", *versions) == ("".join(f"{line}\n" for line in found), "", 0)
    if case == "named":  # a job fails without the Python that it names
        missing = "Python 3.13 is not here: 11 oldest;12 first;14 newest;\n"
        assert run("run", "3.13")[1:] == (missing, 1)


def test_the_workflow_runs_every_python_that_the_metadata_name() -> None:
    """Bug: a new Python in the metadata that no job runs; a job without a limit or with rights."""
    if not (ROOT / ".github").exists():
        pytest.skip("no checkout")
    text = read(".github/workflows/test.yml")
    workflow = pytest.importorskip("yaml").safe_load(text)
    prefix = "Programming Language :: Python :: "
    named = [x.removeprefix(prefix) for x in PROJECT["classifiers"] if x.startswith(prefix + "3.")]
    assert workflow["jobs"]["all"]["strategy"]["matrix"]["python"] == named
    assert workflow["permissions"] == {"contents": "read"}
    for job in workflow["jobs"].values():
        assert 0 < job["timeout-minutes"] <= 120
        assert "permissions" not in job
    actions = re.findall(r"uses: (.+)", text)
    assert all(re.fullmatch(r"actions/[\w-]+@v\d+", action) for action in actions)
    assert ".ci/run ${{ matrix.python }}" in text
