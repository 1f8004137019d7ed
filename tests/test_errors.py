"""Errors: what callers catch them by, and how they say what is not installed."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import otm
from otm import errors
from otm._core.optional import PACKAGES, not_installed

INSTALL = re.compile(r'.+ is not installed; to .+: pip install ("otm\[.+?\]"|[a-z-]+)( \(.+\))?')
USES = {"check_installed", "is_installed", "not_installed", "optional", "require"}


def calls() -> Iterator[tuple[str, list[ast.expr]]]:
    """Functions that are called by name in the package and its figures, with their arguments."""
    package = Path(otm.__file__).parent
    for path in (*package.rglob("*.py"), *(package.parent / "figures").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call):
                yield ast.unparse(node.func), node.args


@pytest.mark.parametrize("package", PACKAGES)
def test_every_hint_to_install_has_one_wording(package: str) -> None:
    """Bug: three wordings, and some do not name the extra."""
    assert INSTALL.fullmatch(str(not_installed(package)))
    assert INSTALL.fullmatch(str(not_installed(f"{package}.part", "or do without", part="part")))


def test_every_error_about_a_package_is_made_from_the_table() -> None:
    """Bug: a message of its own, which no table checks; a package that the table lacks."""
    found = list(calls())
    assert [name for name, _ in found].count("MissingDependencyError") == 1  # that of the table
    used = {
        argument.value.partition(".")[0]
        for name, arguments in found
        if name in USES
        for argument in arguments[: None if name == "check_installed" else 1]
        if isinstance(argument, ast.Constant)
    }
    assert used == set(PACKAGES) - {"rich", "typer"}  # these two in a loop, in otm.cli


def test_the_tree_of_errors() -> None:
    """Catches an error that callers who know only Python's own would no longer catch."""
    python = {
        "InvalidInputError": ValueError,
        "CertificateError": ValueError,
        "ProblemTooLargeError": MemoryError,
        "SolverError": RuntimeError,
        "MissingDependencyError": ImportError,
    }
    for name in errors.__all__:
        error = getattr(errors, name)
        assert issubclass(error, otm.OTMError)
        assert issubclass(error, python.get(name, Exception))
        if name.startswith("Invalid") or name == "UnknownMethodError":
            assert issubclass(error, errors.InvalidInputError)
