"""The kernels that docs/add-a-kernel.md adds, put through the tests that every kernel passes."""

from __future__ import annotations

import doctest
import inspect
import re
import sys
from collections.abc import Callable
from fractions import Fraction
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import otm.rules

pytest.importorskip("torch")

from otm.audit import LOSSLESS, lossless
from otm.audit.adapters.otm_verifiers import kernel
from otm.audit.instances import INSTANCES
from otm.rules import Rule

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "add-a-kernel.md").read_text(encoding="utf-8")
FILE = re.compile(
    r"^```python\n>>> # (otm/kernels/\w+/\w+)\.py\n(.*?)^```", re.MULTILINE | re.DOTALL
)
LINE = re.compile(r"^ {7}(Rule\(.*?^ {7}\)),$", re.MULTILINE | re.DOTALL)
IMPORT_OR_DEF = re.compile(r"from |import |def ")


EXCERPT = re.compile(
    r"^```python\n# (otm/kernels/\w+/\w+\.py)\n(.*?)^```", re.MULTILINE | re.DOTALL
)


def imported(path: str) -> ModuleType:
    """Import tests, which are in no package."""
    spec = spec_from_file_location(Path(path).stem, ROOT / "tests" / "kernels" / path)
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def files_of_the_page() -> dict[str, ModuleType]:
    """Run the imports and the functions of each file of the page, and no other example of it."""
    modules = {}
    for path, text in FILE.findall(PAGE):
        module = modules[path.replace("/", ".")] = ModuleType(path.replace("/", "."))
        for example in doctest.DocTestParser().get_examples(text):
            if IMPORT_OR_DEF.match(example.source):
                exec(example.source, vars(module))
    return modules


@pytest.fixture
def rule(monkeypatch: pytest.MonkeyPatch) -> str:
    """Put the files and the line of the page in their places, and name the rule."""
    for name, module in files_of_the_page().items():
        monkeypatch.setitem(sys.modules, name, module)
    (line,) = LINE.findall(PAGE)
    rule: Rule = eval(line, {"Rule": Rule})
    monkeypatch.setitem(otm.rules._BY_NAME, rule.name, rule)
    return rule.name


@pytest.fixture
def several() -> Callable[..., list[Any]]:
    """Draw chains as the tests of the kernels do."""
    drawn: Callable[..., list[Any]] = imported("conftest.py").draw_several
    return drawn


DEFINITION = imported("multi_draft/test_numpy.py")


def for_the_page(test: Any) -> Any:
    """Let a test take its rule from the fixture, and not from the registry."""
    test.pytestmark = [mark for mark in test.pytestmark if mark.args[:1] != ("rule",)]
    return test


OF_EVERY_RULE = {
    name: for_the_page(test)
    for name, test in vars(imported("torch/test_multi_draft.py")).items()
    if name.startswith("test_") and "rule" in inspect.signature(test).parameters
}
globals().update(OF_EVERY_RULE)


def test_the_tests_of_every_rule_are_among_these() -> None:
    """Bug: tests that were renamed, or take the rule under another name, and are not found."""
    assert set(OF_EVERY_RULE) >= {
        "test_torch_decides_as_the_definition",
        "test_nothing_waits_for_the_device",
    }
    assert len(files_of_the_page()) == 2


@pytest.mark.parametrize(("size", "lengths"), [(3, (1, 1)), (2, (2, 2)), (2, (1, 2)), (3, (0, 1))])
def test_the_joint_law_is_exactly_the_target_s(
    size: int, lengths: tuple[int, ...], rule: str
) -> None:
    rng = np.random.default_rng(len(lengths) + 10 * size)
    target = DEFINITION.random_model(rng, size, max(lengths) + 1)
    draft = DEFINITION.random_model(rng, size, max(lengths))
    law: dict[tuple[int, ...], Fraction] = DEFINITION.law_of_output(
        target, draft, lengths, size, rule
    )
    assert law == {tokens: DEFINITION.probability(target, tokens) for tokens in law}


def test_the_audit_takes_it(rule: str) -> None:
    report = lossless(kernel(rule), instances=[INSTANCES["pairs"]], examples=0)
    assert (report.verdict, report.method) == (LOSSLESS, "exact paths")


def test_the_lines_that_the_page_shows_are_in_the_kernel() -> None:
    """Bug: an excerpt that the code has left behind, or in another order."""
    excerpts = EXCERPT.findall(PAGE)
    assert [path for path, _ in excerpts] == ["otm/kernels/common/one_chain.py"]
    for path, text in excerpts:
        lines = iter((ROOT / path).read_text(encoding="utf-8").splitlines())
        assert len(text.splitlines()) > 3
        assert all(line in lines for line in text.splitlines())
