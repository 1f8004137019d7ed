"""Several chains in Triton: torch's decisions, bit for bit."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from otm.kernels import verify_probs  # noqa: E402
from otm.kernels.registry import uniforms_per_position  # noqa: E402
from otm.rules import names  # noqa: E402

SEVERAL = names("kernel", several=True, backend="triton")
TYPES = [torch.float32, torch.float16, torch.bfloat16, torch.float64]


def typed(arguments: list[Any], dtype: Any) -> list[Any]:
    return [*(x.to(dtype) for x in arguments[:2]), *arguments[2:]]


def on(device: str, arguments: list[Any]) -> list[Any]:
    return [x.to(device) for x in arguments]


def assert_same(outcome: Any, expected: Any) -> None:
    for mine, other in zip(outcome, expected, strict=True):
        assert mine.dtype == torch.int64
        assert mine.cpu().tolist() == other.tolist()


@pytest.mark.usefixtures("small_blocks")
@pytest.mark.parametrize("size", [1, 2, 3, 4, 5, 17])
def test_triton_decides_as_torch(size: int, several: Callable[..., Any], device: str) -> None:
    rng = np.random.default_rng(size)
    for number, dtype in enumerate(TYPES if size in {1, 17} else TYPES[:2]):
        count, gamma = [(3, 2), (1, 1), (2, 0), (4, 1)][number]
        inputs = typed(several(rng, 2, count, gamma, size), dtype)
        options = {"rule": "grid k-Seq", "validate": False}
        outcome = verify_probs(*on(device, inputs), backend="triton", **options)
        assert_same(outcome, verify_probs(*inputs, **options))


@pytest.mark.usefixtures("small_blocks")
@pytest.mark.parametrize("rule", ["grid optimal", "grid walk and keep"])
def test_triton_decides_as_torch_by_bins(
    rule: str, several: Callable[..., Any], device: str
) -> None:
    rng = np.random.default_rng(6)
    shapes = [(3, 2, 17), (1, 1, 4), (2, 0, 9), (2, 1, 1), (2, 1, 2), (3, 1, 3), (2, 1, 5)]
    for (count, gamma, size), dtype in zip(shapes, itertools.cycle(TYPES), strict=False):
        inputs = typed(several(rng, 2, count, gamma, size, rule=rule), dtype)
        options = {"rule": rule, "validate": False}
        outcome = verify_probs(*on(device, inputs), backend="triton", **options)
        assert_same(outcome, verify_probs(*inputs, **options))


@pytest.mark.parametrize("rule", SEVERAL)
@pytest.mark.usefixtures("small_blocks")
def test_what_lies_beyond_the_end_of_a_chain_is_not_looked_at(
    rule: str, several: Callable[..., Any], device: str
) -> None:
    # also where the first of the chains that agree has ended and another has a draft
    inputs = several(np.random.default_rng(7), 60, 3, 2, 5, rule=rule)
    target, draft, tokens, _ = inputs
    tokens[:, 2] = tokens[:, 1]  # alike, and not always of the same length
    tokens[::2, 1, 1:] = -1
    expected = verify_probs(*(x.numpy() for x in inputs), rule=rule)
    length = (tokens >= 0).cumprod(2).sum(2)[..., None]
    target[torch.arange(3) > length] = math.nan
    draft[torch.arange(2) >= length] = math.nan
    outcome = verify_probs(*(x.numpy() for x in inputs), rule=rule)
    for mine, other in zip(outcome, expected, strict=True):
        assert mine.tolist() == other.tolist()
    assert_same(verify_probs(*inputs, rule=rule), expected)
    assert (outcome.accepted > 1).any()
    few = [x[:4] for x in inputs]
    outcome = verify_probs(*on(device, few), rule=rule, backend="triton")
    assert_same(outcome, [x[:4] for x in expected])


@pytest.mark.usefixtures("small_blocks")
def test_broadcast_laws_and_a_sequence_alone(several: Callable[..., Any], device: str) -> None:
    inputs = several(np.random.default_rng(3), 3, 3, 2, 12)
    options = {"rule": "grid k-Seq", "backend": "triton"}
    expected = verify_probs(*inputs, rule="grid k-Seq")
    broadcast = [x[:, :1].to(device).expand(x.shape) for x in inputs[:2]]
    tokens, uniforms = on(device, inputs[2:])
    tokens = tokens.int().transpose(0, 2).contiguous().transpose(0, 2)
    assert_same(verify_probs(*broadcast, tokens, uniforms, **options), expected)
    for b in range(3):
        one = [x[b : b + 1] for x in on(device, inputs)]
        alone = verify_probs(*one, **options)
        assert_same(alone, [x[b : b + 1] for x in expected])


@pytest.mark.parametrize(
    ("backend", "rule"),
    [(x, rule) for x in ("torch", "triton") for rule in names("kernel", several=True, backend=x)],
)
@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # of the interpreter, about NaN
@pytest.mark.usefixtures("small_blocks")
def test_no_garbage_gives_a_token_outside_the_vocabulary(
    backend: str, rule: str, device: str
) -> None:
    triton = backend == "triton"
    device = device if triton else "cpu"
    rng = np.random.default_rng(4)
    values = np.array([0, 1, -1, math.nan, math.inf, -math.inf, 1e30, -1e30, 0.5, 1e-40])
    batch = 3 if triton else 100
    for size in (1, 9):
        target = torch.from_numpy(rng.choice(values, (batch, 2, 3, size))).float()
        draft = torch.from_numpy(rng.choice(values, (batch, 2, 2, size))).float()
        tokens = torch.from_numpy(rng.integers(-2, 2 * size, (batch, 2, 2)))
        uniforms = torch.from_numpy(
            rng.choice(values, (batch, 2 * uniforms_per_position(rule, 2) + 2))
        )
        inputs = on(device, [target, draft, tokens, uniforms])
        outcome = verify_probs(*inputs, rule=rule, backend=backend, validate=False)
        kept = outcome.tokens.cpu()
        assert ((kept >= -1) & (kept < size)).all()
        assert ((kept >= 0).sum(1) == outcome.accepted.cpu() + 1).all()
        assert ((outcome.chain >= 0) & (outcome.chain < 2)).all()


@pytest.mark.parametrize("backend", ["torch", "triton"])
def test_no_sequences(backend: str, several: Callable[..., Any], device: str) -> None:
    inputs = [x[:0] for x in on(device, several(np.random.default_rng(5), 2, 2, 1, 3))]
    outcome = verify_probs(*inputs, rule="grid k-Seq", backend=backend)
    assert tuple(outcome.tokens.shape) == (0, 2)
