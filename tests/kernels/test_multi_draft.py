"""Several chains in torch and in Triton: the definition's decisions, bit for bit."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from types import ModuleType
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from otm.kernels.multi_draft_checks import RULES, coins_of  # noqa: E402

from otm.kernels import (  # noqa: E402
    multi_draft_definition,
    multi_draft_reference,
    multi_draft_triton,
    reference,
)

TYPES = [torch.float32, torch.float16, torch.bfloat16, torch.float64]


def typed(arguments: list[Any], dtype: Any) -> list[Any]:
    return [*(x.to(dtype) for x in arguments[:2]), *arguments[2:]]


def on(device: str, arguments: list[Any]) -> list[Any]:
    return [x.to(device) for x in arguments]


def assert_same(found: Any, expected: Any) -> None:
    for mine, other in zip(found, expected, strict=True):
        assert mine.dtype == torch.int64
        assert mine.cpu().tolist() == other.tolist()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.float64], ids=str)
@pytest.mark.parametrize("rule", RULES)
def test_torch_decides_as_the_definition(
    rule: str, dtype: Any, several: Callable[..., Any]
) -> None:
    rng = np.random.default_rng(1)
    accepted = others = 0
    for count, gamma, size in [(1, 3, 5), (2, 0, 3), (2, 2, 3), (3, 3, 4), (5, 1, 9), (4, 2, 1)]:
        given = typed(several(rng, 25, count, gamma, size, rule=rule), dtype)
        found = multi_draft_reference.verify_drafts(*given, rule=rule, validate=False)
        arrays = [x.numpy() for x in given]
        expected = multi_draft_definition.verify_drafts(*arrays, rule=rule, validate=False)
        assert_same(found, expected)
        accepted += int((found.accepted > 0).sum())
        others += int((found.chain > 0).sum())
    assert accepted > 30
    assert others > 5


def test_one_chain_is_chain_verification(several: Callable[..., Any]) -> None:
    rng = np.random.default_rng(2)
    given = several(rng, 300, 1, 3, 6)
    chain = reference.verify_chain(*(x[:, 0] for x in given[:3]), given[3])
    assert_same(multi_draft_reference.verify_drafts(*given)[:2], chain)


@pytest.mark.usefixtures("small_blocks")
@pytest.mark.parametrize("size", [1, 2, 3, 4, 5, 17])
def test_triton_decides_as_torch(size: int, several: Callable[..., Any], device: str) -> None:
    rng = np.random.default_rng(size)
    for number, dtype in enumerate(TYPES if size in {1, 17} else TYPES[:2]):
        count, gamma = [(3, 2), (1, 1), (2, 0), (4, 1)][number]
        given = typed(several(rng, 2, count, gamma, size), dtype)
        found = multi_draft_triton.verify_drafts(*on(device, given), validate=False)
        assert_same(found, multi_draft_reference.verify_drafts(*given, validate=False))


@pytest.mark.usefixtures("small_blocks")
def test_triton_decides_as_torch_by_levels(several: Callable[..., Any], device: str) -> None:
    rng = np.random.default_rng(6)
    shapes = [(3, 2, 17), (1, 1, 4), (2, 0, 9), (2, 1, 1), (2, 1, 2), (3, 1, 3), (2, 1, 5)]
    for (count, gamma, size), dtype in zip(shapes, itertools.cycle(TYPES), strict=False):
        given = typed(several(rng, 2, count, gamma, size, rule="levels"), dtype)
        choice = {"rule": "levels", "validate": False}
        found = multi_draft_triton.verify_drafts(*on(device, given), **choice)
        assert_same(found, multi_draft_reference.verify_drafts(*given, **choice))


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.usefixtures("small_blocks")
def test_what_lies_beyond_the_end_of_a_chain_is_not_looked_at(
    rule: str, several: Callable[..., Any], device: str
) -> None:
    # also where the first of the chains that agree has ended and another has a draft
    given = several(np.random.default_rng(7), 60, 3, 2, 5, rule=rule)
    target, draft, tokens, _ = given
    tokens[:, 2] = tokens[:, 1]  # alike, and not always of the same length
    tokens[::2, 1, 1:] = -1
    expected = multi_draft_definition.verify_drafts(*(x.numpy() for x in given), rule=rule)
    length = (tokens >= 0).cumprod(2).sum(2)[..., None]
    target[torch.arange(3) > length] = math.nan
    draft[torch.arange(2) >= length] = math.nan
    found = multi_draft_definition.verify_drafts(*(x.numpy() for x in given), rule=rule)
    for mine, other in zip(found, expected, strict=True):
        assert mine.tolist() == other.tolist()
    assert_same(multi_draft_reference.verify_drafts(*given, rule=rule), expected)
    assert (found.accepted > 1).any()
    few = [x[:4] for x in given]
    found = multi_draft_triton.verify_drafts(*on(device, few), rule=rule)
    assert_same(found, [x[:4] for x in expected])


@pytest.mark.usefixtures("small_blocks")
def test_broadcast_laws_and_a_sequence_alone(several: Callable[..., Any], device: str) -> None:
    given = several(np.random.default_rng(3), 3, 3, 2, 12)
    expected = multi_draft_reference.verify_drafts(*given)
    broadcast = [x[:, :1].to(device).expand(x.shape) for x in given[:2]]
    tokens, uniforms = on(device, given[2:])
    tokens = tokens.int().transpose(0, 2).contiguous().transpose(0, 2)
    assert_same(multi_draft_triton.verify_drafts(*broadcast, tokens, uniforms), expected)
    for b in range(3):
        one = [x[b : b + 1] for x in on(device, given)]
        alone = multi_draft_triton.verify_drafts(*one)
        assert_same(alone, [x[b : b + 1] for x in expected])


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("triton", [False, True], ids=["torch", "triton"])
@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # of the interpreter, about NaN
@pytest.mark.usefixtures("small_blocks")
def test_no_garbage_gives_a_token_outside_the_vocabulary(
    triton: bool, rule: str, device: str
) -> None:
    module, device = (multi_draft_triton, device) if triton else (multi_draft_reference, "cpu")
    rng = np.random.default_rng(4)
    values = np.array([0, 1, -1, math.nan, math.inf, -math.inf, 1e30, -1e30, 0.5, 1e-40])
    batch = 3 if triton else 100
    for size in (1, 9):
        target = torch.from_numpy(rng.choice(values, (batch, 2, 3, size))).float()
        draft = torch.from_numpy(rng.choice(values, (batch, 2, 2, size))).float()
        tokens = torch.from_numpy(rng.integers(-2, 2 * size, (batch, 2, 2)))
        uniforms = torch.from_numpy(rng.choice(values, (batch, 2 * coins_of(rule, 2) + 2)))
        given = on(device, [target, draft, tokens, uniforms])
        found = module.verify_drafts(*given, rule=rule, validate=False)
        kept = found.tokens.cpu()
        assert ((kept >= -1) & (kept < size)).all()
        assert ((kept >= 0).sum(1) == found.accepted.cpu() + 1).all()
        assert ((found.chain >= 0) & (found.chain < 2)).all()


@pytest.mark.parametrize("rule", RULES)
def test_nothing_waits_for_the_device(rule: str) -> None:
    # tensors of the device "meta" have no numbers: whatever asks for one fails
    def on_meta(*shape: int, dtype: Any = torch.float32) -> Any:
        return torch.empty(shape, dtype=dtype, device="meta")

    size = 2 * coins_of(rule, 3) + 2
    rest = on_meta(5, 3, 2, dtype=torch.int32), on_meta(5, size, dtype=torch.float64)
    given = (on_meta(5, 3, 3, 100), on_meta(5, 3, 2, 90), *rest)
    result = multi_draft_reference.verify_drafts(*given, rule=rule, validate=False)
    assert result.tokens.shape == (5, 3)
    assert result.accepted.shape == result.chain.shape == (5,)
    with pytest.raises((RuntimeError, NotImplementedError)):
        multi_draft_reference.verify_drafts(*given, rule=rule)


@pytest.mark.parametrize("module", [multi_draft_reference, multi_draft_triton])
def test_no_sequences(module: ModuleType, several: Callable[..., Any], device: str) -> None:
    given = [x[:0] for x in on(device, several(np.random.default_rng(5), 2, 2, 1, 3))]
    assert tuple(module.verify_drafts(*given).tokens.shape) == (0, 2)
