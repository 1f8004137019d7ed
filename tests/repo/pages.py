"""What the tests of the repository share: its files, and code that is in no package."""

import doctest
import inspect
import re
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Any

ROOT = Path(__file__).resolve().parents[2]


def read(name: str) -> str:
    """Return the text of a file of the repository."""
    return (ROOT / name).read_text(encoding="utf-8")


def load(name: str, module_name: str = "") -> ModuleType:
    """Import a file that is in no package, anew at each call."""
    spec: Any = spec_from_file_location(module_name or Path(name).stem, ROOT / name)
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def rule_tests(name: str) -> dict[str, Any]:
    """Load the tests of a file that take a rule, without the parameters that they give it."""
    found = {}
    for test_name, test in vars(load(name)).items():
        if test_name.startswith("test_") and "rule" in inspect.signature(test).parameters:
            marks = getattr(test, "pytestmark", [])
            test.pytestmark = [mark for mark in marks if mark.args[:1] != ("rule",)]
            found[test_name] = test
    return found


def run_definitions(text: str, module: ModuleType) -> None:
    """Run the imports, functions and decorated classes of a page, and no other example of it."""
    for example in doctest.DocTestParser().get_examples(text):
        if re.match(r"from |import |def |@|class FirstDraft\b", example.source):
            exec(example.source, vars(module))


def modules(*folders: str) -> dict[str, str]:
    """Return the text of each Python file by the name of its module."""
    paths = [path for folder in folders for path in sorted((ROOT / folder).rglob("*.py"))]
    parts = [path.relative_to(ROOT).with_suffix("").parts for path in paths]
    names = [".".join(x[:-1] if x[-1] == "__init__" else x) for x in parts]
    texts = (path.read_text(encoding="utf-8") for path in paths)
    return dict(zip(names, texts, strict=True))
