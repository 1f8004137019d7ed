"""Block verification in torch: the definition's decisions, bit for bit."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from otm.kernels import verify_logits, verify_probs  # noqa: E402
from otm.kernels.common import host  # noqa: E402


@pytest.fixture(autouse=True, params=["batched", "by rows"])
def path(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both ways of torch on a CPU, at any size."""
    least = 0 if request.param == "by rows" else 2**62
    monkeypatch.setattr(host, "LEAST_VOCABULARY", least)


def arrays(arguments: Any) -> list[Any]:
    return [None if x is None else x.numpy() for x in arguments]


def assert_same(outcome: Any, expected: Any) -> None:
    assert outcome.tokens.dtype == outcome.accepted.dtype == torch.int64
    assert outcome.tokens.cpu().tolist() == expected.tokens.tolist()
    assert outcome.accepted.cpu().tolist() == expected.accepted.tolist()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.float64], ids=str)
@pytest.mark.parametrize("one_hot", [False, True], ids=["drawn", "one-hot"])
def test_torch_decides_as_the_definition(
    dtype: Any, one_hot: bool, chains: Callable[..., Any]
) -> None:
    rng = np.random.default_rng(1)
    longest = 0
    for gamma, size in [(0, 3), (1, 2), (2, 1), (3, 4), (4, 9), (4, 2)]:
        inputs = chains(rng, 80, gamma, size).to(dtype)
        inputs = inputs._replace(draft=None) if one_hot else inputs
        outcome = verify_probs(*inputs, rule="block", validate=False)
        assert_same(outcome, verify_probs(*arrays(inputs), rule="block", validate=False))
        longest += int((outcome.accepted == gamma).sum())
        # in float32 the softmaxes differ in their last bits, so there no uniform is put on an edge
        wide = inputs._replace(target=inputs.target.double().log(), draft=None)
        uniforms = torch.from_numpy(rng.random(inputs.uniforms.shape))
        narrow = inputs._replace(target=inputs.target.log(), draft=None, uniforms=uniforms)
        temperature = torch.tensor([0.0, 0.7, 1.0, 2.0]).double().repeat(20)
        for logits in (wide, narrow):
            outcome = verify_logits(*logits, temperature=temperature, rule="block")
            expected = verify_logits(*arrays(logits), temperature=temperature.numpy(), rule="block")
            assert_same(outcome, expected)
    assert longest > 80


def test_of_one_draft_the_rules_are_the_same(chains: Callable[..., Any]) -> None:
    inputs = chains(np.random.default_rng(2), 300, 1, 5)
    chain = verify_probs(*arrays(inputs))
    assert_same(verify_probs(*inputs, rule="block"), chain)
