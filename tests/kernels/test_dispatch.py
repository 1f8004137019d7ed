"""One entry: the backend that fits, or an error that says what does."""

from __future__ import annotations

import itertools
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import otm.kernels
from otm.errors import InvalidInputError, MissingDependencyError, UnknownMethodError
from otm.kernels import triton_

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize("rule", ["chain", "block"])
def test_every_backend_decides_the_same(rule: str, chains: Callable[..., Any], device: str) -> None:
    given = chains(np.random.default_rng(1), 4, 2, 8)
    for temperature, arguments in ((None, given), (0.8, given.logits())):
        choice = {"rule": rule, "temperature": temperature}
        arrays = [x.numpy() for x in arguments]
        expected = otm.kernels.verify(*arrays, **choice)
        for backend in ("auto", "torch", "triton"):
            found = otm.kernels.verify(
                *(x.to(device) for x in arguments), **choice, backend=backend
            )
            assert found.tokens.cpu().tolist() == expected.tokens.tolist()


def test_several_chains_on_every_backend(device: str) -> None:
    rng = np.random.default_rng(5)
    target, draft = rng.dirichlet(np.ones(4), (3, 1, 2)), rng.dirichlet(np.ones(4), (3, 1, 1))
    arrays = [target.repeat(2, 1), draft.repeat(2, 1), rng.integers(0, 4, (3, 2, 1))]
    arrays.append(rng.random((3, 4)))
    expected = otm.kernels.verify_drafts(*arrays)
    torch = pytest.importorskip("torch")
    tensors = [torch.from_numpy(x).to(device) for x in arrays]
    for backend in ("auto", "torch", "triton"):
        found = otm.kernels.verify_drafts(*tensors, backend=backend)
        assert found.tokens.cpu().tolist() == expected.tokens.tolist()
    with pytest.raises(UnknownMethodError, match="numpy, torch, triton"):
        otm.kernels.verify_drafts(*arrays, backend="cuda")


def test_the_rules_differ(chains: Callable[..., Any]) -> None:
    given = chains(np.random.default_rng(2), 500, 3, 4)
    chain, block = (otm.kernels.verify(*given, rule=rule).accepted for rule in ("chain", "block"))
    assert block.sum() > chain.sum()


def test_what_does_not_exist_or_fit_is_explained(chains: Callable[..., Any]) -> None:
    given = chains(np.random.default_rng(3), 2, 1, 3)
    arrays = [x.numpy() for x in given]
    with pytest.raises(UnknownMethodError, match="chain, block"):
        otm.kernels.verify(*given, rule="tree")
    with pytest.raises(UnknownMethodError, match="numpy, torch, triton"):
        otm.kernels.verify(*given, backend="cuda")
    with pytest.raises(UnknownMethodError, match="no rule of type ndarray"):
        otm.kernels.verify(*given, rule=np.array(["chain", "block"]))  # type: ignore[arg-type]
    for arguments, backend in itertools.chain([(given, "numpy")], [(arrays, "torch")]):
        with pytest.raises(InvalidInputError, match=f"'{backend}' cannot"):
            otm.kernels.verify(*arguments, backend=backend)
    with pytest.raises(InvalidInputError, match="list"):
        otm.kernels.verify([[[1.0]]], None, [[]], [[0.5, 0.5]])


@pytest.mark.parametrize("rule", ["k-seq", "levels"])
def test_a_rule_of_the_other_function_is_said_to_be_there(rule: str) -> None:
    """Bug: "there is no rule", of one that the package has."""
    with pytest.raises(UnknownMethodError, match=f"'{rule}' is one of otm.kernels.verify_drafts;"):
        otm.kernels.verify(None, None, None, None, rule=rule)
    with pytest.raises(UnknownMethodError, match=r"'block' is one of otm.kernels.verify;"):
        otm.kernels.verify_drafts(None, None, None, None, rule="block")


def test_triton_where_it_cannot_run(
    chains: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    given = chains(np.random.default_rng(4), 2, 1, 3)
    monkeypatch.setattr(triton_, "interpreted", lambda: False)
    if triton_.triton is not None:
        with pytest.raises(InvalidInputError, match="CUDA"):
            otm.kernels.verify(*given, backend="triton")
    monkeypatch.setattr(triton_, "triton", None)
    with pytest.raises(MissingDependencyError, match="Triton"):
        otm.kernels.verify(*given, backend="triton")
    otm.kernels.verify(*given)


def test_the_package_loads_numpy_alone_and_its_modules_load_without_triton() -> None:
    names = ["chain_triton", "block_triton", "multi_draft_triton", "sigmoid", "softmax"]
    code = f"""
import sys
import otm.kernels
assert not {{"torch", "triton"}} & set(sys.modules)
sys.modules["triton"] = None
for name in {names}:
    __import__("otm.kernels." + name)
assert "torch" not in sys.modules
"""
    subprocess.run([sys.executable, "-W", "error", "-c", code], cwd=ROOT, check=True)
