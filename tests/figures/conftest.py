"""The committed figures, which the tests draw again instead of computing them again."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from figures.table import Table

FOLDER = Path(__file__).parents[2] / "figures" / "drawn"


@pytest.fixture(scope="session")
def committed() -> Callable[[str], Table]:
    """Read the data of a figure; skip where they were never measured."""

    def read(name: str) -> Table:
        file = FOLDER / f"{name}.csv"
        if not file.exists():
            pytest.skip(f"{name} has not been measured on any machine")
        return Table.read(file)

    return read
