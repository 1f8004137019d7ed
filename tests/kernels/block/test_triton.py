"""Block verification in Triton: torch's decisions, bit for bit."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from otm.kernels import verify_logits, verify_probs  # noqa: E402
from otm.kernels.common import softmax  # noqa: E402

TYPES = [torch.float32, torch.float16, torch.bfloat16, torch.float64]


def on(device: str, arguments: Any) -> list[Any]:
    return [None if x is None else x.to(device) for x in arguments]


def assert_same(outcome: Any, expected: Any) -> None:
    assert outcome.tokens.dtype == outcome.accepted.dtype == torch.int64
    assert outcome.tokens.cpu().tolist() == expected.tokens.tolist()
    assert outcome.accepted.cpu().tolist() == expected.accepted.tolist()


@pytest.mark.usefixtures("small_blocks")
@pytest.mark.parametrize("size", [1, 8, 17, 25])
def test_triton_on_probabilities(size: int, chains: Callable[..., Any], device: str) -> None:
    rng = np.random.default_rng(size)
    for count, dtype in enumerate(TYPES):
        inputs = chains(rng, 2, [3, 1, 0, 4][count], size).to(dtype)
        inputs = inputs._replace(draft=None) if count == 1 else inputs
        outcome = verify_probs(*on(device, inputs), rule="block", backend="triton", validate=False)
        assert_same(outcome, verify_probs(*inputs, rule="block", validate=False))


@pytest.mark.parametrize("size", [3, 20])
def test_triton_on_logits(
    size: int, chains: Callable[..., Any], device: str, small_blocks: int
) -> None:
    inputs = chains(np.random.default_rng(size), 3, 2, size).logits()
    temperatures = torch.tensor([0.0, 0.7, 1.0])
    outcome = verify_logits(
        *on(device, inputs), temperature=temperatures.to(device), rule="block", backend="triton"
    )
    target, draft, tokens, uniforms = inputs
    laws = softmax.probs_from_logits(target, draft, tokens, temperatures, small_blocks)
    assert_same(outcome, verify_probs(*laws, tokens, uniforms, rule="block", validate=False))


@pytest.mark.parametrize("triton", [False, True], ids=["torch", "triton"])
@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # of the interpreter, about NaN
@pytest.mark.usefixtures("small_blocks")
def test_no_garbage_gives_a_token_outside_the_vocabulary(triton: bool, device: str) -> None:
    backend, device = ("triton", device) if triton else ("torch", "cpu")
    options = {"rule": "block", "backend": backend, "validate": False}
    rng = np.random.default_rng(4)
    values = np.array([0, 1, -1, math.nan, math.inf, -math.inf, 1e30, -1e30, 0.5, 1e-40])
    batch = 3 if triton else 200
    for size in (1, 9):
        target = torch.from_numpy(rng.choice(values, (batch, 3, size))).float()
        draft = torch.from_numpy(rng.choice(values, (batch, 2, size))).float()
        tokens = torch.from_numpy(rng.integers(-2, 2 * size, (batch, 2)))
        uniforms = torch.from_numpy(rng.choice(values, (batch, 4)))
        for verify in (verify_probs, verify_logits):
            outcome = verify(*on(device, (target, draft, tokens, uniforms)), **options)
            kept = outcome.tokens.cpu()
            assert ((kept >= -1) & (kept < size)).all()
            assert ((kept >= 0).sum(1) == outcome.accepted.cpu() + 1).all()
