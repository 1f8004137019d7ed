"""Block verification in torch and in Triton: the definition's decisions, bit for bit."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from otm.kernels import (  # noqa: E402
    block_definition,
    block_reference,
    block_triton,
    definition,
    softmax,
)

TYPES = [torch.float32, torch.float16, torch.bfloat16, torch.float64]


def on(device: str, arguments: Any) -> list[Any]:
    return [None if x is None else x.to(device) for x in arguments]


def arrays(arguments: Any) -> list[Any]:
    return [None if x is None else x.numpy() for x in arguments]


def assert_same(found: Any, expected: Any) -> None:
    assert found.tokens.dtype == found.accepted.dtype == torch.int64
    assert found.tokens.cpu().tolist() == expected.tokens.tolist()
    assert found.accepted.cpu().tolist() == expected.accepted.tolist()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.float64], ids=str)
@pytest.mark.parametrize("one_hot", [False, True], ids=["drawn", "one-hot"])
def test_torch_decides_as_the_definition(
    dtype: Any, one_hot: bool, chains: Callable[..., Any]
) -> None:
    rng = np.random.default_rng(1)
    longest = 0
    for gamma, size in [(0, 3), (1, 2), (2, 1), (3, 4), (4, 9), (4, 2)]:
        given = chains(rng, 80, gamma, size).to(dtype)
        given = given._replace(draft=None) if one_hot else given
        found = block_reference.verify_block(*given, validate=False)
        assert_same(found, block_definition.verify_block(*arrays(given), validate=False))
        longest += int((found.accepted == gamma).sum())
        logits = given._replace(target=given.target.log(), draft=None)
        heat = torch.tensor([0.0, 0.7, 1.0, 2.0]).double().repeat(20)
        found = block_reference.verify_block_from_logits(*logits, heat)
        with np.errstate(all="ignore"):
            expected = block_definition.verify_block_from_logits(*arrays(logits), heat.numpy())
        assert_same(found, expected)
    assert longest > 80


def test_of_one_draft_the_rules_are_the_same(chains: Callable[..., Any]) -> None:
    given = chains(np.random.default_rng(2), 300, 1, 5)
    chain = definition.verify_chain(*arrays(given))
    assert_same(block_reference.verify_block(*given), chain)


@pytest.mark.usefixtures("small_blocks")
@pytest.mark.parametrize("size", [1, 8, 17, 25])
def test_triton_on_probabilities(size: int, chains: Callable[..., Any], device: str) -> None:
    rng = np.random.default_rng(size)
    for count, dtype in enumerate(TYPES):
        given = chains(rng, 2, [3, 1, 0, 4][count], size).to(dtype)
        given = given._replace(draft=None) if count == 1 else given
        found = block_triton.verify_block(*on(device, given), validate=False)
        assert_same(found, block_reference.verify_block(*given, validate=False))


@pytest.mark.parametrize("size", [3, 20])
def test_triton_on_logits(
    size: int, chains: Callable[..., Any], device: str, small_blocks: int
) -> None:
    given = chains(np.random.default_rng(size), 3, 2, size).logits()
    heats = torch.tensor([0.0, 0.7, 1.0])
    found = block_triton.verify_block_from_logits(*on(device, given), heats.to(device))
    target, draft, tokens, uniforms = given
    laws = softmax.laws_from_logits(target, draft, tokens, heats, small_blocks)
    assert_same(found, block_reference.verify_block(*laws, tokens, uniforms, validate=False))


@pytest.mark.parametrize("triton", [False, True], ids=["torch", "triton"])
@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # of the interpreter, about NaN
@pytest.mark.usefixtures("small_blocks")
def test_no_garbage_gives_a_token_outside_the_vocabulary(triton: bool, device: str) -> None:
    module, device = (block_triton, device) if triton else (block_reference, "cpu")
    rng = np.random.default_rng(4)
    values = np.array([0, 1, -1, math.nan, math.inf, -math.inf, 1e30, -1e30, 0.5, 1e-40])
    batch = 3 if triton else 200
    for size in (1, 9):
        target = torch.from_numpy(rng.choice(values, (batch, 3, size))).float()
        draft = torch.from_numpy(rng.choice(values, (batch, 2, size))).float()
        tokens = torch.from_numpy(rng.integers(-2, 2 * size, (batch, 2)))
        uniforms = torch.from_numpy(rng.choice(values, (batch, 4)))
        for verify in (module.verify_block, module.verify_block_from_logits):
            found = verify(*on(device, (target, draft, tokens, uniforms)), validate=False)
            kept = found.tokens.cpu()
            assert ((kept >= -1) & (kept < size)).all()
            assert ((kept >= 0).sum(1) == found.accepted.cpu() + 1).all()
