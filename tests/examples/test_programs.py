"""The examples in C and in JavaScript: right, and with mistakes that the audit must name."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from otm.audit import lossless, process
from otm.audit.instances import INSTANCES
from tests.repo.pages import ROOT, read

pytest.importorskip("hypothesis")

FEW = [INSTANCES[name] for name in ("rows differ", "zeros", "three tokens", "two drafts")]

FOLDER = "examples/process"

C = [
    ("", "", ""),
    (">= t[x]", "> t[x]", "u ≤ ratio"),
    ("fmax(t[v] - d[v], 0)", "fabs(t[v] - d[v])", "residual not clamped"),
    ("target + gamma * v", "target + (gamma - 1) * v", "bonus of the row before"),
    ("fmax(t[v] -", "fmax(t[vocabulary + v] -", "residual of the next row"),
    ("uniforms[i] * d[x]", "uniforms[0] * d[x]", "one coin for all drafts"),
]
JAVASCRIPT = [
    ("", "", ""),
    (">= target[i][x]", "> target[i][x]", "u ≤ ratio"),
    ("Math.max(p - draft[i][token], 0)", "p", "no residual"),
    ("sample(target[gamma]", "sample(target[gamma - 1]", "bonus of the row before"),
    ("residual = target[i]", "residual = target[i + 1]", "residual of the next row"),
    ("sample(residual, uniforms[gamma])", "sample(residual, uniforms[i])", "coin draws the"),
]
LOOP = [
    ("", "", ""),
    ("let next = target[gamma]", "let next = target[gamma - 1]", "bonus of the row before"),
    ("prompt.length + maxTokens)", "text.length)", "cut off the additional tokens"),
]


def changed(name: str, old: str, new: str, folder: Path) -> Path:
    """Write an example with a mistake to a folder."""
    text = read(f"{FOLDER}/{name}")
    assert not old or text.count(old) >= 1
    start, found, end = text.rpartition(old) if old else (text, "", "")
    path = folder / name
    path.write_text(start + (new if found else "") + end, encoding="utf-8")
    return path


def check(command: Sequence[str | Path], says: str, few: Any = FEW, **options: Any) -> None:
    report = lossless(process(command, **options), instances=few, examples=0)
    assert report.method == "breakpoints"
    assert report.verdict == ("not lossless" if says else "lossless on everything tried")
    assert says in str(report), report


@pytest.mark.parametrize(("old", "new", "says"), C)
def test_the_verifier_in_c(old: str, new: str, says: str, tmp_path: Path) -> None:
    """Bug: the example is wrong; the audit of a program misses what it finds in Python."""
    compiler = shutil.which("gcc") or shutil.which("cc")
    if compiler is None:
        pytest.skip("no compiler for C")
    source, program = changed("verifier.c", old, new, tmp_path), tmp_path / "verifier"
    flags = ["-O1", "-Wall", "-Wextra", "-Werror"]
    subprocess.run([compiler, *flags, "-o", program, source, "-lm"], check=True)
    check([program], says)


@pytest.mark.skipif(shutil.which("node") is None, reason="no Node.js")
@pytest.mark.parametrize(("old", "new", "says"), JAVASCRIPT)
def test_the_verifier_in_javascript(old: str, new: str, says: str, tmp_path: Path) -> None:
    """Bug: the example is wrong; the audit of a program misses what it finds in Python."""
    check(["node", changed("verifier.js", old, new, tmp_path)], says)


@pytest.mark.skipif(shutil.which("node") is None, reason="no Node.js")
@pytest.mark.parametrize(("old", "new", "says"), LOOP)
def test_the_loop_in_javascript(old: str, new: str, says: str, tmp_path: Path) -> None:
    """Bug: a loop that is right for the audit's own questions alone."""
    path = changed("loop.js", old, new, tmp_path)
    check(["node", path], says, [INSTANCES["two tokens"], INSTANCES["rows differ"]], kind="loop")


def test_the_page_names_every_example() -> None:
    """Bug: an example that the page does not say how to run."""
    page = read(f"{FOLDER}/ABOUT.md")
    assert len(page.split()) <= 150
    assert all(path.name in page for path in (ROOT / FOLDER).glob("[!A.]*"))
