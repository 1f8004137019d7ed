"""CI finds the Pythons of a machine, and only those that work."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / ".ci" / "pythons"


def found(tmp_path: Path, **scripts: str) -> list[str]:
    """Run the script where these are the only Pythons on the PATH, each a line of shell."""
    if not SCRIPT.exists():
        pytest.skip("no checkout: the sdist has no .ci")
    if shutil.which("bash") is None:
        pytest.skip("bash is not installed")
    for tool in ("bash", "sort", "env"):
        (tmp_path / tool).symlink_to(str(shutil.which(tool)))
    for name, line in scripts.items():
        file = tmp_path / name.replace("_", ".")
        file.write_text(f"#!/usr/bin/env bash\n{line}\n", encoding="utf-8")
        file.chmod(0o755)
    run = subprocess.run(
        [str(tmp_path / "bash"), str(SCRIPT)],
        env={"PATH": str(tmp_path)},
        check=True,
        capture_output=True,
        text=True,
    )
    assert run.stderr == ""
    return run.stdout.splitlines()


def test_each_version_is_named_once_oldest_first(tmp_path: Path) -> None:
    """Bug: a name without a version behind it, as pyenv has them, ends the search."""
    lines = found(
        tmp_path,
        python3="echo 12 first",
        python3_14="echo 14 newest",
        python3_13="echo missing >&2; exit 127",
        python3_12="echo 12 second",
        python3_11="echo 11 oldest",
    )
    assert lines == ["11 oldest", "12 first", "14 newest"]


def test_versions_that_otm_does_not_name_are_left_out(tmp_path: Path) -> None:
    """Bug: CI red on a machine for a Python that came out after OTM."""
    inside = (3, 11) <= sys.version_info < (3, 15)
    assert len(found(tmp_path, python3=f'exec {sys.executable} "$@"')) == inside
    (tmp_path / "newer").mkdir()
    newer = f'exec {sys.executable} -c "${{2/(3, 15)/sys.version_info[:2]}}"'
    assert found(tmp_path / "newer", python3=newer) == []


def test_a_machine_without_python_has_none(tmp_path: Path) -> None:
    assert found(tmp_path) == []
