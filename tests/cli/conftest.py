"""One tree of commands for all tests: typer makes it anew in each call of `main`."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from importlib import import_module
from importlib.util import find_spec

import pytest


@pytest.fixture(scope="package", autouse=True)
def _commands_once() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        if find_spec("typer"):
            typer = import_module("typer.main")
            patch.setattr(typer, "get_command", cache(typer.get_command))
        yield
