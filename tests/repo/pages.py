"""What the tests of the repository share: its files, and code that is in no package."""

from __future__ import annotations

import doctest
import sys
from collections.abc import Iterator
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType

ROOT = Path(__file__).resolve().parents[2]


def read(name: str) -> str:
    """Return the text of a file of the repository."""
    return (ROOT / name).read_text(encoding="utf-8")


def load(name: str) -> ModuleType:
    """Import a file that is in no package, anew at each call."""
    spec = spec_from_file_location(Path(name).stem, ROOT / name)
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def run_examples(text: str, module: str, starts: tuple[str, ...]) -> ModuleType:
    """Run the examples of a page that start so, as the module of this name."""
    made = sys.modules[module] = ModuleType(module)  # where pickle looks for its classes
    for example in doctest.DocTestParser().get_examples(text):
        if example.source.startswith(starts):
            exec(example.source, vars(made))
    return made


def python_files(*folders: str) -> Iterator[tuple[str, str]]:
    """Yield the path below the root and the text of each Python file."""
    for folder in folders:
        for path in sorted((ROOT / folder).rglob("*.py")):
            yield path.relative_to(ROOT).as_posix(), path.read_text(encoding="utf-8")
