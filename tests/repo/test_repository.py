"""The files around the code agree with the code and with each other."""

from __future__ import annotations

import re
import shutil
import subprocess
import tomllib
from pathlib import Path

import pytest

from otm._core.optional import PACKAGES

ROOT = Path(__file__).resolve().parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
EXTRAS = PROJECT["optional-dependencies"]

# Written so that the pattern does not match itself.
PRIVATE = re.compile(
    rb"(?<![\w.-])/(?:home|root|Users)/\w"  # somebody's home
    rb"|--(?:extra-)?index[-]url|--find[-]links"  # somebody's package index
    rb"|(?:files\.python[h]osted|download\.py[t]orch)\.org"
)


def committed_files() -> list[Path]:
    """All files that git has or would take."""
    git = shutil.which("git")
    if git is None or not (ROOT / ".git").exists():
        pytest.skip("not a git checkout")
    command = [git, "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout
    files = [ROOT / name for name in listed.split("\0") if name]
    return [file for file in files if file.is_file()]


def packages_of(extra: str) -> set[str]:
    """Names of the packages that an extra brings, those of otm's own extras in it too, lowered."""
    own = [name for line in EXTRAS[extra] for name in re.findall(r"^otm\[(.+)\]", line)]
    others = [packages_of(name) for names in own for name in names.split(",")]
    return {name.lower() for name in required_packages(extra)}.union(*others)


def required_packages(extra: str) -> set[str]:
    """Names of the packages in an extra, without otm's own extras that it refers to."""
    names = (re.match(r"[\w.-]+", line) for line in EXTRAS[extra])
    return {name[0] for name in names if name} - {PROJECT["name"]}


def test_nothing_of_the_author_s_machine_is_committed() -> None:
    files = committed_files()
    assert ROOT / "pyproject.toml" in files
    found = [
        f"{file.relative_to(ROOT)}: {match[0].decode()}"
        for file in files
        if (match := PRIVATE.search(file.read_bytes()))
    ]
    assert not found


@pytest.mark.parametrize(
    "halves", [(b"in /home", b"/a"), (b"/root", b"/b"), (b"pip --index", b"-url x")]
)
def test_the_pattern_for_private_lines_matches(halves: tuple[bytes, bytes]) -> None:
    assert PRIVATE.search(b"".join(halves))


def test_the_changelog_starts_with_the_version_of_the_package() -> None:
    changelog = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    versions = re.findall(r"^## \[(\d[^\]]*)\]", changelog, flags=re.MULTILINE)
    assert versions[0] == PROJECT["version"]


def test_every_extra_that_a_message_names_exists() -> None:
    named = {
        (extra.strip(), path.relative_to(ROOT).as_posix())
        for place in ("otm/**/*.py", "figures/**/*.py", "*.md", "docs/**/*.md")
        for path in ROOT.glob(place)
        for extras in re.findall(r"\botm\[([\w, -]+)\]", path.read_text(encoding="utf-8"))
        for extra in extras.split(",")
    }
    assert {(extra, path) for extra, path in named if extra not in EXTRAS} == set()


def test_every_optional_package_is_in_the_extra_that_its_error_names() -> None:
    """Bug: an error whose advice does not bring the package that it misses."""
    needed = {re.match(r"[\w.-]+", line)[0] for line in PROJECT["dependencies"]}  # type: ignore[index]
    for module, package in PACKAGES.items():
        extra = re.fullmatch(r'"otm\[(\w+)\]"', package.install)
        if extra is None:  # no extra of otm: what it works on, or what it comes with
            assert module in {"flashinfer", "vllm"} or package.install in needed, module
        elif module != "triton":  # comes with torch's own builds for GPUs
            assert package.name.lower() in packages_of(extra[1]), module


def test_every_dependency_is_pinned_in_the_constraints() -> None:
    pins = re.findall(r"^([\w.-]+)==", (ROOT / "constraints.txt").read_text(), flags=re.MULTILINE)
    needed = {"numpy", "scipy", "highspy", "hatchling"}.union(*map(required_packages, EXTRAS))
    assert needed - set(pins) == {"triton"}  # GPU builds of torch pin their own


@pytest.mark.skipif(shutil.which("make") is None, reason="make is not installed")
def test_make_help_lists_every_target() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    targets = re.findall(r"^\.PHONY: (\w+)$", makefile, flags=re.MULTILINE)
    listed = subprocess.run(
        ["make", "--silent", "help"], cwd=ROOT, check=True, capture_output=True, text=True
    ).stdout
    assert [line.split()[1] for line in listed.splitlines()] == targets
