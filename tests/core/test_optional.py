"""Optional packages: a missing one is named with its extra; a broken one is not called missing."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from otm._core.optional import PACKAGES, check_installed, is_installed, optional, require
from otm.errors import MissingDependencyError


@pytest.fixture
def networkx(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Folder of a small package, which stands for one of the table."""
    real = {name: sys.modules.pop(name) for name in list(sys.modules) if _is_networkx(name)}
    monkeypatch.syspath_prepend(tmp_path)
    folder = tmp_path / "networkx"
    folder.mkdir()
    (folder / "__init__.py").write_text("VALUE = 3\n")
    yield folder
    for name in list(sys.modules):
        if _is_networkx(name):
            del sys.modules[name]
    sys.modules.update(real)


def _is_networkx(module: str) -> bool:
    return module.partition(".")[0] == "networkx"


def test_what_is_there_is_returned(networkx: Path) -> None:
    assert require("networkx").VALUE == 3
    assert require("networkx", "VALUE") == 3
    assert optional("networkx").VALUE == 3  # type: ignore[union-attr]
    assert is_installed("networkx")
    check_installed("networkx")


@pytest.mark.parametrize("package", PACKAGES)
def test_what_is_absent_is_named_with_what_to_install(
    package: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in list(sys.modules):
        if name.partition(".")[0] == package:
            monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, package, None)
    row = PACKAGES[package]
    message = f"{row.name} is not installed; to {row.purpose}: pip install {row.install}"
    for use in (require, check_installed):
        with pytest.raises(MissingDependencyError) as caught:
            use(package)
        assert str(caught.value) == message
        with pytest.raises(MissingDependencyError) as caught:
            use(package, advice="or do without")
        assert str(caught.value) == f"{message} (or do without)"
    with pytest.raises(MissingDependencyError, match=rf"^{row.name} is not installed"):
        require(f"{package}.part.of_it")
    assert optional(package) is None
    assert not is_installed(package)


def test_a_version_without_the_part_is_told_from_none(networkx: Path) -> None:
    with pytest.raises(MissingDependencyError, match=r"^networkx with networkx\.flow is not inst"):
        require("networkx.flow")
    with pytest.raises(MissingDependencyError, match=r"^networkx with networkx\.FLOW is not inst"):
        require("networkx", "FLOW")


@pytest.mark.parametrize(
    ("source", "error", "message"),
    [
        ("import a_library_that_it_needs", ModuleNotFoundError, "'a_library_that_it_needs'"),
        ("from networkx import flow", ImportError, "cannot import name 'flow'"),
        ("import networkx.flow", ModuleNotFoundError, r"'networkx\.flow'"),
        ("raise ImportError('libcuda.so')", ImportError, r"^libcuda\.so$"),
    ],
)
def test_an_error_inside_an_installed_package_is_not_its_absence(
    source: str, error: type[ImportError], message: str, networkx: Path
) -> None:
    """Bug: "not installed", to a user who has installed it, and the reason lost."""
    (networkx / "__init__.py").write_text(source)
    for use in (require, optional):
        with pytest.raises(error, match=message) as caught:
            use("networkx")
        assert not isinstance(caught.value, MissingDependencyError)
