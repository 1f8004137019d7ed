"""The kernels that docs/add-a-kernel.md adds, put through the tests that every kernel passes."""

import re
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import otm.rules

pytest.importorskip("torch")

import torch

from otm.audit import LOSSLESS, lossless
from otm.audit.adapters.otm_verifiers import kernel
from otm.audit.instances import INSTANCES
from otm.kernels import verify_logits, verify_probs
from otm.rules import Rule
from tests.repo.pages import load, read, rule_tests, run_definitions

PAGE = read("docs/add-a-kernel.md")
FILES = dict(re.findall(r"(?ms)^```python\n>>> # (otm/kernels/\w+/\w+)\.py\n(.*?)^```", PAGE))
TRITON = dict(re.findall(r"(?ms)^```python\n# (otm/kernels/\w+/triton)\.py\n(.*?)^```", PAGE))
DEFINITION = load("tests/kernels/multi_draft/test_numpy.py")


@pytest.fixture
def rule(monkeypatch: pytest.MonkeyPatch) -> str:
    """Put the files and the line of the page in their places, and return the name of the rule."""
    for path, text in FILES.items():
        module = ModuleType(path.replace("/", "."))
        run_definitions(text, module)
        monkeypatch.setitem(sys.modules, module.__name__, module)
    (line,) = re.findall(r"(?ms)^ {7}(Rule\(.*?^ {7}\)),$", PAGE)
    rule: Rule = eval(line, {"Rule": Rule})
    monkeypatch.setitem(otm.rules._BY_NAME, rule.name, rule)
    return rule.name


@pytest.fixture
def several() -> Any:
    """Draw chains as the tests of the kernels do."""
    return load("tests/kernels/conftest.py").draw_several


OF_EVERY_RULE = rule_tests("tests/kernels/multi_draft/test_torch.py")
globals().update(OF_EVERY_RULE)


def test_the_rule_tests_are_among_these_and_the_audit_takes_the_rule(rule: str) -> None:
    """Bug: tests that were renamed, or take the rule under another name, and are not found."""
    found = {"test_torch_decides_as_the_definition", "test_nothing_waits_for_the_device"}
    assert found <= set(OF_EVERY_RULE)
    assert len(FILES) == 2
    report = lossless(kernel(rule), instances=[INSTANCES["pairs"]], examples=0)
    assert (report.verdict, report.method) == (LOSSLESS, "exact paths")


@pytest.mark.parametrize(("size", "lengths"), [(3, (1, 1)), (2, (2, 2)), (2, (1, 2)), (3, (0, 1))])
def test_the_joint_law_is_exactly_the_target_s(size: int, lengths: Any, rule: str) -> None:
    rng = np.random.default_rng(len(lengths) + 10 * size)
    target = DEFINITION.random_model(rng, size, max(lengths) + 1)
    draft = DEFINITION.random_model(rng, size, max(lengths))
    law = DEFINITION.law_of_output(target, draft, lengths, size, rule)
    assert law == {tokens: DEFINITION.probability(target, tokens) for tokens in law}


@pytest.fixture
def with_triton(rule: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Import the Triton file of the page; Triton reads the source of a kernel from its file."""
    ((path, text),) = TRITON.items()
    (tmp_path / "triton.py").write_text(text, encoding="utf-8")
    name = path.replace("/", ".")
    monkeypatch.setitem(sys.modules, name, load(str(tmp_path / "triton.py"), name))
    return rule


@pytest.mark.usefixtures("small_blocks")
@pytest.mark.parametrize(
    "case",
    ["1 3 5 float32", "2 0 3 float64", "2 2 1 float16", "3 2 4 bfloat16", "4 2 30 float32"],
)
def test_the_triton_kernel_decides_as_torch(
    case: str, with_triton: str, several: Callable[..., list[Any]], device: str
) -> None:
    """Bug: a kernel on the page that does not run, or draws another token."""
    *shape, dtype = case.split()
    count, gamma, size = map(int, shape)
    inputs = several(np.random.default_rng(size), 40, count, gamma, size, rule=with_triton)
    inputs = [*(rows.to(getattr(torch, dtype)) for rows in inputs[:2]), *inputs[2:]]
    options: dict[str, Any] = {"rule": with_triton, "validate": False}
    expected = verify_probs(*inputs, backend="torch", **options)
    outcome = verify_probs(*(x.to(device) for x in inputs), backend="triton", **options)
    assert [mine.tolist() for mine in outcome] == [other.tolist() for other in expected]


@pytest.mark.usefixtures("small_blocks")
@pytest.mark.filterwarnings("ignore:invalid value encountered in cast")
def test_the_triton_kernel_reads_strided_rows_and_survives_nan(
    with_triton: str, several: Callable[..., list[Any]], device: str
) -> None:
    inputs = several(np.random.default_rng(3), 20, 2, 2, 9, rule=with_triton)
    options: dict[str, Any] = {"rule": with_triton, "backend": "triton", "validate": False}
    expected = verify_probs(*(x.to(device) for x in inputs), **options)
    spaced = [x.to(device).repeat_interleave(2, dim=-1)[..., ::2] for x in inputs[:2]]
    outcome = verify_probs(*spaced, *(x.to(device) for x in inputs[2:]), **options)
    assert outcome.tokens.tolist() == expected.tokens.tolist()
    unknown = [torch.full_like(x, torch.nan) for x in spaced]
    outcome = verify_probs(*unknown, *(x.to(device) for x in inputs[2:]), **options)
    assert int(outcome.tokens.min()) >= -1
    assert int(outcome.tokens.max()) < 9


def test_the_triton_kernel_rejects_other_input(with_triton: str, device: str) -> None:
    rows = torch.zeros(1, 2, 2, 3, device=device), torch.zeros(1, 2, 1, 3, device=device)
    drafts = torch.zeros(1, 2, 1, dtype=torch.int64, device=device)
    uniforms = torch.zeros(1, 3, dtype=torch.float64, device=device)
    with pytest.raises(NotImplementedError, match="takes dense probabilities"):
        verify_logits(*rows, drafts, uniforms, rule=with_triton, backend="triton")
