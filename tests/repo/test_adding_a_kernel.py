"""The kernels that docs/add-a-kernel.md adds, put through the tests that every kernel passes."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
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
from tests.repo.pages import load, read, rule_tests, run_definitions

PAGE = read("docs/add-a-kernel.md")
FILES = dict(re.findall(r"(?ms)^```python\n>>> # (otm/kernels/\w+/\w+)\.py\n(.*?)^```", PAGE))
DEFINITION = load("tests/kernels/multi_draft/test_numpy.py")


@pytest.fixture
def rule(monkeypatch: pytest.MonkeyPatch) -> str:
    """Put the files and the line of the page in their places, and name the rule."""
    for path, text in FILES.items():
        module = ModuleType(path.replace("/", "."))
        run_definitions(text, module)
        monkeypatch.setitem(sys.modules, module.__name__, module)
    (line,) = re.findall(r"(?ms)^ {7}(Rule\(.*?^ {7}\)),$", PAGE)
    rule: Rule = eval(line, {"Rule": Rule})
    monkeypatch.setitem(otm.rules._BY_NAME, rule.name, rule)
    return rule.name


@pytest.fixture
def several() -> Callable[..., list[Any]]:
    """Draw chains as the tests of the kernels do."""
    drawn: Callable[..., list[Any]] = load("tests/kernels/conftest.py").draw_several
    return drawn


OF_EVERY_RULE = rule_tests("tests/kernels/multi_draft/test_torch.py")
globals().update(OF_EVERY_RULE)


def test_the_rule_tests_are_among_these() -> None:
    """Bug: tests that were renamed, or take the rule under another name, and are not found."""
    assert "test_torch_decides_as_the_definition" in OF_EVERY_RULE
    assert "test_nothing_waits_for_the_device" in OF_EVERY_RULE
    assert len(FILES) == 2


@pytest.mark.parametrize(("size", "lengths"), [(3, (1, 1)), (2, (2, 2)), (2, (1, 2)), (3, (0, 1))])
def test_the_joint_law_is_exactly_the_target_s(
    size: int, lengths: tuple[int, ...], rule: str
) -> None:
    rng = np.random.default_rng(len(lengths) + 10 * size)
    target = DEFINITION.random_model(rng, size, max(lengths) + 1)
    draft = DEFINITION.random_model(rng, size, max(lengths))
    law = DEFINITION.law_of_output(target, draft, lengths, size, rule)
    assert law == {tokens: DEFINITION.probability(target, tokens) for tokens in law}


def test_the_audit_takes_it(rule: str) -> None:
    report = lossless(kernel(rule), instances=[INSTANCES["pairs"]], examples=0)
    assert (report.verdict, report.method) == (LOSSLESS, "exact paths")


def test_the_lines_that_the_page_shows_are_in_the_kernel() -> None:
    """Bug: an excerpt that the code has left behind, or in another order."""
    ((path, text),) = re.findall(r"(?ms)^```python\n# (otm/kernels/\w+/\w+\.py)\n(.*?)^```", PAGE)
    assert path == "otm/kernels/common/one_chain.py"
    lines = iter(read(path).splitlines())
    assert len(text.splitlines()) > 3
    assert all(line in lines for line in text.splitlines())
