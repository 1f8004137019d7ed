"""The README's examples print what it says they print."""

import doctest
from pathlib import Path

README = Path(__file__).parents[2] / "README.md"


def test_readme_examples() -> None:
    results = doctest.testfile(str(README), module_relative=False, encoding="utf-8")
    assert results.attempted >= 9
    assert results.failed == 0
