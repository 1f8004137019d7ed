"""Several chains from logits: the decisions of the reference, with a temperature for each."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from otm.errors import (  # noqa: E402
    InvalidDistributionError,
    InvalidDraftsError,
    InvalidInputError,
    InvalidParameterError,
    InvalidUniformsError,
)
from otm.kernels import verify_logits, verify_probs  # noqa: E402
from otm.kernels.common import softmax  # noqa: E402
from otm.rules import names  # noqa: E402

SEVERAL = names("kernel", several=True, backend="triton")
TYPES = [torch.float32, torch.bfloat16, torch.float16]
SHAPES = {1: (2, 1), 3: (3, 1), 5: (3, 2), 7: (1, 1), 9: (2, 1), 17: (2, 0)}
"""K and γ, by V: one token, blocks of four and of eight ± 1, three blocks, padded to four."""

TEMPERATURES = torch.tensor([0.0, 0.7, 1.0, 1e-8, 2.0])


def as_logits(inputs: list[Any], dtype: Any = torch.float32) -> list[Any]:
    """Return the arguments with logits; impossible tokens have −∞."""
    return [*(x.log().to(dtype) for x in inputs[:2]), *inputs[2:]]


def on(device: str, arguments: Any) -> list[Any]:
    return [x.to(device) for x in arguments]


def assert_same(outcome: Any, expected: Any) -> None:
    for mine, other in zip(outcome, expected, strict=True):
        assert mine.dtype == torch.int64
        assert mine.cpu().tolist() == other.tolist()


@pytest.mark.parametrize("rule", names("kernel", several=True, backend="torch"))
def test_torch_decides_as_the_definition(rule: str, several: Callable[..., Any]) -> None:
    rng = np.random.default_rng(1)
    accepted = 0
    for count, gamma, size in [(1, 3, 5), (2, 0, 3), (2, 2, 3), (3, 3, 4), (5, 1, 9), (4, 2, 1)]:
        inputs = as_logits(several(rng, 25, count, gamma, size, rule=rule))
        inputs[3] = torch.from_numpy(rng.random(inputs[3].shape))  # none on an edge
        temperatures = TEMPERATURES.double().repeat(5)
        outcome = verify_logits(*inputs, temperature=temperatures, rule=rule)
        *arrays, temperature = (x.numpy() for x in (*inputs, temperatures))
        assert_same(outcome, verify_logits(*arrays, temperature=temperature, rule=rule))
        accepted += int((outcome.accepted > 0).sum())
    assert accepted > 30


@pytest.mark.parametrize("rule", SEVERAL)
@pytest.mark.parametrize("size", SHAPES)
def test_triton_decides_as_torch(
    size: int, rule: str, several: Callable[..., Any], device: str, small_blocks: int
) -> None:
    # blocks of 8 tokens for the softmax and of 4 for the rest; greedy sequences beside sampled ones
    rng = np.random.default_rng(size)
    inputs = as_logits(several(rng, 2, *SHAPES[size], size, rule=rule), TYPES[size % 3])
    if size > 8:  # a whole block that is impossible
        inputs[0][1, :, :, :8], inputs[0][1, :, :, 8] = -math.inf, 0.0
    temperatures = TEMPERATURES.roll(-size)[:2]
    options = {"rule": rule, "validate": False}
    outcome = verify_logits(
        *on(device, inputs), temperature=temperatures.to(device), backend="triton", **options
    )
    laws = softmax.probs_from_logits(*inputs[:3], temperatures, small_blocks)
    assert_same(outcome, verify_probs(*laws, *inputs[2:], **options))


@pytest.mark.usefixtures("small_blocks")
@pytest.mark.parametrize("rule", SEVERAL)
def test_greedy_chains_follow_the_largest_logit(
    rule: str, several: Callable[..., Any], device: str
) -> None:
    inputs = as_logits(several(np.random.default_rng(3), 3, 2, 2, 5, rule=rule))
    target, draft, tokens, _ = inputs
    target[..., 1] = target[..., 2] = target.amax(-1) + 1  # of equal logits the first counts
    best = torch.ones_like(target[..., 0]).long()
    tokens[:] = 1 + (torch.arange(2) == torch.arange(3)[:, None, None]).long()
    draft[:] = math.nan  # not looked at
    drafted = tokens[:, 0] == best[:, 0, :2]
    accepted = drafted.cumprod(1).sum(1)
    for backend, where in (("torch", "cpu"), ("triton", device)):
        outcome = verify_logits(*on(where, inputs), temperature=0.0, rule=rule, backend=backend)
        assert outcome.accepted.tolist() == accepted.tolist()
        for b, row in enumerate(outcome.tokens.tolist()):
            end = int(accepted[b]) + 1
            assert row == [*best[b, 0, :end].tolist(), *[-1] * (3 - end)]
    assert accepted.tolist() == [0, 1, 2]


@pytest.mark.usefixtures("small_blocks")
def test_one_chain_is_chain_verification(several: Callable[..., Any], device: str) -> None:
    rng = np.random.default_rng(4)
    inputs = as_logits(several(rng, 4, 1, 2, 6))
    uniforms = inputs[3] = torch.from_numpy(rng.random((4, 4)))
    temperatures = torch.tensor([0.0, 0.7, 1.0, 2.0])
    expected = verify_logits(*(x[:, 0] for x in inputs[:3]), uniforms, temperature=temperatures)
    for backend, where in (("torch", "cpu"), ("triton", device)):
        options = {"rule": "grid k-Seq", "backend": backend}
        outcome = verify_logits(*on(where, inputs), temperature=temperatures.to(where), **options)
        assert_same(outcome[:2], expected[:2])


@pytest.mark.usefixtures("small_blocks")
@pytest.mark.parametrize("rule", SEVERAL)
def test_every_backend_decides_the_same(
    rule: str, several: Callable[..., Any], device: str
) -> None:
    rng = np.random.default_rng(5)
    inputs = as_logits(several(rng, 2, 2, 1, 6, rule=rule))
    inputs[3] = torch.from_numpy(rng.random(inputs[3].shape))
    # distributions that the chains share, in another order of the memory
    tensors = [x[:, :1].to(device).expand(x.shape) for x in inputs[:2]] + on(device, inputs[2:])
    for temperature in (0.0, 0.8):
        choice = {"rule": rule, "temperature": temperature}
        expected = verify_logits(*(x.numpy() for x in inputs), **choice)
        for backend in ("torch", "triton"):
            outcome = verify_logits(*tensors, **choice, backend=backend)
            assert_same(outcome, expected)


@pytest.mark.parametrize("rule", SEVERAL)
@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # of the interpreter, about NaN
@pytest.mark.usefixtures("small_blocks")
def test_no_garbage_gives_a_token_outside_the_vocabulary(rule: str, device: str) -> None:
    rng = np.random.default_rng(6)
    values = np.array([0, 1, -1, math.nan, math.inf, -math.inf, 1e30, -1e30, 0.5, 1e-40])
    target = torch.from_numpy(rng.choice(values, (4, 2, 2, 9))).float()
    draft = torch.from_numpy(rng.choice(values, (4, 2, 1, 9))).float()
    target[0] = -math.inf
    tokens = torch.from_numpy(rng.integers(-2, 18, (4, 2, 1)))
    uniforms = torch.from_numpy(rng.choice(values, (4, 7)))
    temperatures = torch.tensor([1.0, math.nan, 0.0, -1.0])
    *inputs, temperatures = on(device, [target, draft, tokens, uniforms, temperatures])
    options = {"rule": rule, "backend": "triton", "validate": False}
    outcome = verify_logits(*inputs, temperature=temperatures, **options)
    kept = outcome.tokens.cpu()
    assert ((kept >= -1) & (kept < 9)).all()
    assert ((kept >= 0).sum(1) == outcome.accepted.cpu() + 1).all()
    assert ((outcome.chain >= 0) & (outcome.chain < 2)).all()


def test_nothing_waits_for_the_device() -> None:
    # Tensors of the device "meta" hold no numbers, so reading one raises.
    def on_meta(*shape: int, dtype: Any = torch.float32) -> Any:
        return torch.empty(shape, dtype=dtype, device="meta")

    rest = on_meta(5, 3, 2, dtype=torch.int32), on_meta(5, 8, dtype=torch.float64)
    inputs = (on_meta(5, 3, 3, 100), on_meta(5, 3, 2, 90), *rest)
    for temperature in (0.7, on_meta(5)):
        options = {"rule": "grid k-Seq", "validate": False}
        result = verify_logits(*inputs, temperature=temperature, **options)
        assert result.tokens.shape == (5, 3)


def arguments() -> dict[str, Any]:
    return {
        "target_logits": np.zeros((2, 2, 2, 3)),
        "draft_logits": np.zeros((2, 2, 1, 3)),
        "draft_tokens": np.zeros((2, 2, 1), dtype=np.int64),
        "uniforms": np.full((2, 4), 0.5),
        "temperature": np.array([0.0, 1.0]),
    }


def at(name: str, index: tuple[int, ...], value: float) -> Any:
    changed = arguments()[name].copy()
    changed[index] = value
    return changed


@pytest.mark.parametrize(
    ("name", "wrong", "error", "words"),
    [
        ("temperature", -1.0, InvalidParameterError, "at least 0"),
        ("temperature", math.inf, InvalidParameterError, "finite"),
        ("temperature", np.ones(4), InvalidParameterError, "each of the 2 sequences"),
        ("temperature", np.array([1.0, math.nan]), InvalidParameterError, "at least 0"),
        ("temperature", "cold", InvalidParameterError, "str"),
        (
            "target_logits",
            at("target_logits", (0, 1, 1, 0), math.nan),
            InvalidDistributionError,
            "NaN",
        ),
        ("target_logits", np.zeros((2, 2, 2, 3), dtype=int), InvalidDistributionError, "int64"),
        ("target_logits", np.full((2, 2, 2, 3), -math.inf), InvalidDistributionError, "everywhere"),
        ("target_logits", np.zeros((2, 2, 1, 3)), InvalidDistributionError, "target has shape"),
        (
            "draft_logits",
            at("draft_logits", (1, 1, 0, 1), math.inf),
            InvalidDistributionError,
            "draft",
        ),
        ("draft_logits", at("draft_logits", (1, 0, 0, 0), -math.inf), InvalidDraftsError, "prob"),
        (
            "draft_logits",
            np.zeros((2, 2, 1, 4)),
            InvalidDistributionError,
            "at most the target's 3",
        ),
        ("draft_logits", None, InvalidInputError, "needs the distributions of the drafts"),
        ("draft_tokens", np.full((2, 2, 1), 3), InvalidDraftsError, "vocabulary"),
        ("uniforms", np.full((2, 3), 0.5), InvalidUniformsError, r"\(2, 4\)"),
        ("uniforms", np.full((2, 4), 1.0), InvalidUniformsError, "excludes NaN"),
    ],
)
def test_what_is_refused(name: str, wrong: Any, error: type[Exception], words: str) -> None:
    def tensors(inputs: dict[str, Any]) -> dict[str, Any]:
        return {
            key: torch.from_numpy(x) if isinstance(x, np.ndarray) else x
            for key, x in inputs.items()
        }

    verify_logits(**arguments(), rule="grid k-Seq")
    inputs = {**arguments(), name: wrong}
    with pytest.raises(error, match=words):
        verify_logits(**inputs, rule="grid k-Seq")
    for backend in ("torch", "triton"):
        with pytest.raises(error, match=words):
            verify_logits(**tensors(inputs), rule="grid k-Seq", backend=backend)


def test_logits_of_a_greedy_draft_are_not_checked() -> None:
    inputs = {**arguments(), "draft_logits": at("draft_logits", (0,), math.nan)}  # type: ignore[arg-type]
    verify_logits(**inputs, rule="grid k-Seq")
    with pytest.raises(InvalidDistributionError, match="logits of draft"):
        verify_logits(**{**inputs, "temperature": 1.0}, rule="grid k-Seq")
