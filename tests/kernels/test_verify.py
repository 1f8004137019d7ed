"""One entry: the backend that fits, or an error that says what does."""

from __future__ import annotations

import itertools
import subprocess
import sys
from collections.abc import Callable
from decimal import Decimal
from fractions import Fraction
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from otm.errors import (
    InvalidDistributionError,
    InvalidDraftsError,
    InvalidInputError,
    InvalidUniformsError,
    MissingDependencyError,
    UnknownMethodError,
)
from otm.kernels import verify_logits, verify_probs
from otm.kernels.registry import VARIABLE, uniforms_per_position
from otm.rules import names

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize("rule", ["chain", "block"])
def test_every_backend_decides_the_same(rule: str, chains: Callable[..., Any], device: str) -> None:
    inputs = chains(np.random.default_rng(1), 4, 2, 8)
    verify_warm = partial(verify_logits, temperature=0.8)
    for verify, arguments in ((verify_probs, inputs), (verify_warm, inputs.logits())):
        expected = verify(*(x.numpy() for x in arguments), rule=rule)
        for backend in ("auto", "torch", "triton"):
            outcome = verify(*(x.to(device) for x in arguments), rule=rule, backend=backend)
            assert outcome.tokens.cpu().tolist() == expected.tokens.tolist()


def test_several_chains_on_every_backend(device: str) -> None:
    rng = np.random.default_rng(5)
    target, draft = rng.dirichlet(np.ones(4), (3, 1, 2)), rng.dirichlet(np.ones(4), (3, 1, 1))
    arrays = [target.repeat(2, 1), draft.repeat(2, 1), rng.integers(0, 4, (3, 2, 1))]
    arrays.append(rng.random((3, 4)))
    expected = verify_probs(*arrays, rule="grid k-Seq")
    torch = pytest.importorskip("torch")
    tensors = [torch.from_numpy(x).to(device) for x in arrays]
    for backend in ("auto", "torch", "triton"):
        outcome = verify_probs(*tensors, rule="grid k-Seq", backend=backend)
        assert outcome.tokens.cpu().tolist() == expected.tokens.tolist()
    with pytest.raises(UnknownMethodError, match="numpy, torch, triton"):
        verify_probs(*arrays, rule="grid k-Seq", backend="cuda")


def test_the_rules_differ(chains: Callable[..., Any]) -> None:
    inputs = chains(np.random.default_rng(2), 500, 3, 4)
    chain, block = (verify_probs(*inputs, rule=rule).accepted for rule in ("chain", "block"))
    assert block.sum() > chain.sum()


def test_what_does_not_exist_or_fit_is_explained(chains: Callable[..., Any]) -> None:
    inputs = chains(np.random.default_rng(3), 2, 1, 3)
    arrays = [x.numpy() for x in inputs]
    with pytest.raises(
        UnknownMethodError, match="chain, block, grid k-Seq, grid optimal, grid walk and keep"
    ):
        verify_probs(*inputs, rule="tree")
    with pytest.raises(UnknownMethodError, match="numpy, torch, triton"):
        verify_probs(*inputs, backend="cuda")
    with pytest.raises(UnknownMethodError, match="no rule of type ndarray"):
        verify_probs(*inputs, rule=np.array(["chain", "block"]))  # type: ignore[arg-type]
    for arguments, backend in itertools.chain([(inputs, "numpy")], [(arrays, "torch")]):
        with pytest.raises(InvalidInputError, match=f"'{backend}' cannot"):
            verify_probs(*arguments, backend=backend)
    with pytest.raises(InvalidInputError, match="list"):
        verify_probs([[[1.0]]], None, [[]], [[0.5, 0.5]])


@pytest.mark.parametrize("backend", ["torch", "triton", "numpy", "auto", ""])
def test_arrays_have_one_backend_whatever_the_environment_says(
    backend: str, chains: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Bug: the environment variable for models on a GPU makes every call with arrays raise."""
    monkeypatch.setenv(VARIABLE, backend)
    arrays = [x.numpy() for x in chains(np.random.default_rng(8), 2, 1, 3)]
    assert isinstance(verify_probs(*arrays).tokens, np.ndarray)


@pytest.mark.parametrize("rule", names("kernel", several=True))
def test_a_rule_for_other_chains_is_explained(rule: str, chains: Callable[..., Any]) -> None:
    """Bug: an index error, or a broadcast, where arrays are for the other kind of rule."""
    one_chain = chains(np.random.default_rng(6), 2, 1, 3)
    with pytest.raises(InvalidDraftsError, match=r"several chains takes \[B, K, γ\] with K ≥ 1"):
        verify_probs(*one_chain, rule=rule)
    several = [x[:, None] for x in one_chain[:3]]
    with pytest.raises(InvalidDraftsError, match=r"one chain takes \[B, γ\]"):
        verify_probs(*several, one_chain.uniforms, rule="block")


@pytest.mark.parametrize("rule", names("kernel"))
def test_logits_in_the_place_of_probabilities_are_refused_with_the_remedy(
    rule: str, chains: Callable[..., Any]
) -> None:
    """Bug: the tokens follow no distribution, and no error says so."""
    target, draft, tokens, uniforms = chains(np.random.default_rng(7), 2, 1, 3)
    tokens[:] = 0
    rows = [target + 1, draft + 1]
    logits: list[Any] = [*(x.log() - 5 for x in rows), tokens]
    sums: list[Any] = [*rows, tokens]
    if rule in names("kernel", several=True):
        logits, sums = ([x[:, None] for x in arrays] for arrays in (logits, sums))
        torch = pytest.importorskip("torch")
        uniforms = torch.full((2, 5), 0.5, dtype=torch.float64)
        uniforms = uniforms[:, : 2 + uniforms_per_position(rule, 1)]
    for arrays, words in ((logits, "less than 0"), (sums, "does not sum to one")):
        with pytest.raises(InvalidDistributionError, match=f"{words}.*verify_logits"):
            verify_probs(*arrays, uniforms, rule=rule)


def test_triton_where_it_cannot_run(
    chains: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    inputs = chains(np.random.default_rng(4), 2, 1, 3)
    pytest.importorskip("torch")
    from otm.kernels.common import runtime

    monkeypatch.setattr(runtime, "interpreted", lambda: False)
    if runtime.triton is not None:
        with pytest.raises(InvalidInputError, match="CUDA"):
            verify_probs(*inputs, backend="triton")
    monkeypatch.setattr(runtime, "triton", None)
    with pytest.raises(MissingDependencyError, match="Triton"):
        verify_probs(*inputs, backend="triton")
    verify_probs(*inputs)


def test_the_package_loads_numpy_alone_and_its_modules_load_without_triton() -> None:
    code = """
import sys
import otm.kernels
assert not {"torch", "triton"} & set(sys.modules)
from otm.kernels.registry import VARIABLE, uniforms_per_position
from otm.rules import named, names
for rule in names("kernel"):
    named(rule, "kernel").load_kernel("numpy")
assert not {"torch", "triton"} & set(sys.modules)
sys.modules["triton"] = None
import otm.kernels.chain.sigmoid, otm.kernels.common.softmax
for rule in names("kernel", backend="triton"):
    named(rule, "kernel").load_kernel("triton")
"""
    subprocess.run([sys.executable, "-W", "error", "-c", code], cwd=ROOT, check=True)


@pytest.mark.parametrize("uniform", ["0.5", "NaN"])
def test_decimals_are_refused_beside_fractions(uniform: str) -> None:
    """Bug: they raised TypeError in the first product, and InvalidOperation for NaN."""
    target = np.array([[[Fraction(1, 2)] * 2] * 2])
    uniforms = np.array([[Decimal(uniform)] * 3])
    with pytest.raises(InvalidUniformsError, match="uniforms are of type Decimal"):
        verify_probs(target, target[:, :1], np.array([[1]]), uniforms)
