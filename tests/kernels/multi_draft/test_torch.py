"""Several chains in torch: the definition's decisions, bit for bit."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from otm.kernels import verify_probs  # noqa: E402
from otm.kernels.registry import uniforms_per_position  # noqa: E402
from otm.rules import names  # noqa: E402

SEVERAL = names("kernel", several=True)


def typed(arguments: list[Any], dtype: Any) -> list[Any]:
    return [*(x.to(dtype) for x in arguments[:2]), *arguments[2:]]


def assert_same(outcome: Any, expected: Any) -> None:
    for mine, other in zip(outcome, expected, strict=True):
        assert mine.dtype == torch.int64
        assert mine.cpu().tolist() == other.tolist()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.float64], ids=str)
@pytest.mark.parametrize("rule", SEVERAL)
def test_torch_decides_as_the_definition(
    rule: str, dtype: Any, several: Callable[..., Any]
) -> None:
    rng = np.random.default_rng(1)
    accepted = others = 0
    for count, gamma, size in [(1, 3, 5), (2, 0, 3), (2, 2, 3), (3, 3, 4), (5, 1, 9), (4, 2, 1)]:
        inputs = typed(several(rng, 25, count, gamma, size, rule=rule), dtype)
        outcome = verify_probs(*inputs, rule=rule, validate=False)
        arrays = [x.numpy() for x in inputs]
        expected = verify_probs(*arrays, rule=rule, validate=False)
        assert_same(outcome, expected)
        accepted += int((outcome.accepted > 0).sum())
        others += int((outcome.chain > 0).sum())
    assert accepted > 30
    assert others > 5


def test_one_chain_is_chain_verification(several: Callable[..., Any]) -> None:
    rng = np.random.default_rng(2)
    inputs = several(rng, 300, 1, 3, 6)
    chain = verify_probs(*(x[:, 0] for x in inputs[:3]), inputs[3])
    assert_same(verify_probs(*inputs, rule="grid k-Seq")[:2], chain[:2])


@pytest.mark.parametrize("rule", SEVERAL)
def test_nothing_waits_for_the_device(rule: str) -> None:
    # Tensors of the device "meta" hold no numbers, so reading one raises.
    def on_meta(*shape: int, dtype: Any = torch.float32) -> Any:
        return torch.empty(shape, dtype=dtype, device="meta")

    size = 2 * uniforms_per_position(rule, 3) + 2
    rest = on_meta(5, 3, 2, dtype=torch.int32), on_meta(5, size, dtype=torch.float64)
    inputs = (on_meta(5, 3, 3, 100), on_meta(5, 3, 2, 90), *rest)
    result = verify_probs(*inputs, rule=rule, validate=False)
    assert result.tokens.shape == (5, 3)
    assert result.accepted.shape == result.chain.shape == (5,)
    with pytest.raises((RuntimeError, NotImplementedError)):
        bool(inputs[0].any())
