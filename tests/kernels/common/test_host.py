"""One chain on a CPU: read row by row where rows are long, with the decisions of whole batches."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from otm.kernels import verify_logits, verify_probs  # noqa: E402
from otm.kernels.common import host  # noqa: E402
from otm.kernels.common.distributions.numpy import mass  # noqa: E402
from otm.kernels.common.distributions.torch import locate_all  # noqa: E402
from otm.kernels.common.host import LEAST_VOCABULARY  # noqa: E402

LAST = 1 - 2.0**-53
SIZE = 9_001  # two blocks of masses and a part of a third


def chains(dtype: Any, rng: np.random.Generator, size: int = SIZE) -> list[Any]:
    """Probabilities of 12 chains of up to 3 drafts, near each other, and uniforms with edges."""
    target = torch.from_numpy(2 * rng.normal(size=(12, 4, size)))
    draft = target[:, :3, : size - 100] + torch.from_numpy(rng.normal(size=(12, 3, size - 100)))
    target, draft = (x.softmax(-1).to(dtype) for x in (target, draft))
    cumulative = draft.double().cumsum(-1)
    points = torch.from_numpy(rng.random((12, 3, 1))) * cumulative[..., -1:]
    tokens = (cumulative <= points).sum(-1)
    tokens[torch.arange(3) >= torch.from_numpy(rng.integers(1, 4, (12, 1)))] = -1
    uniforms = rng.random((12, 5))
    uniforms[rng.random(uniforms.shape) < 0.1] = 0
    uniforms[rng.random(uniforms.shape) < 0.1] = LAST
    return [target, draft, tokens, torch.from_numpy(uniforms)]


@pytest.mark.parametrize("rule", ["chain", "block"])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32, torch.float64])
def test_rows_and_batches_decide_the_same_in_a_large_vocabulary(
    rule: str, dtype: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Bug: a row that is widened wrongly, or a token located in the wrong block."""
    rng = np.random.default_rng(1)
    accepted = set()
    for one_hot in (False, False, True):
        arguments = chains(dtype, rng)
        arguments[1] = None if one_hot else arguments[1]
        outcomes = []
        for least in (0, 2**62):
            monkeypatch.setattr(host, "LEAST_VOCABULARY", least)
            outcomes.append(verify_probs(*arguments, rule=rule, validate=False))
        assert torch.equal(outcomes[0].tokens, outcomes[1].tokens)
        assert torch.equal(outcomes[0].accepted, outcomes[1].accepted)
        accepted |= set(outcomes[0].accepted.tolist())
    assert {0, 1, 2} <= accepted


@pytest.mark.parametrize("rule", ["chain", "block"])
def test_logits_of_bfloat16_are_read_without_a_copy(
    rule: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Bug: bits of another type, or the rows of another sequence, where the layout is unusual."""
    rng = np.random.default_rng(2)
    target, draft, tokens, uniforms = chains(torch.float32, rng)
    uniforms = torch.from_numpy(rng.random(uniforms.shape))  # the softmaxes differ in last bits
    rows = [x.log().bfloat16() for x in (target, draft)]
    strided = [x.transpose(0, 1).contiguous().transpose(0, 1).requires_grad_() for x in rows]
    found = [
        verify_logits(*x, tokens, uniforms, temperature=0.7, rule=rule) for x in (rows, strided)
    ]
    monkeypatch.setattr(host, "LEAST_VOCABULARY", 2**62)
    found.append(verify_logits(*rows, tokens, uniforms, temperature=0.7, rule=rule))
    assert found[0].tokens.tolist() == found[1].tokens.tolist() == found[2].tokens.tolist()


def test_short_rows_and_several_chains_are_batched() -> None:
    """Bug: thousands of calls from Python where one operation does it."""
    for size, by_rows in ((host.LEAST_VOCABULARY - 1, False), (host.LEAST_VOCABULARY, True)):
        rows = torch.empty(2, 3, size)
        assert host.reads_rows("block", rows) is by_rows
        assert not host.reads_rows("grid optimal", rows)
        assert not host.reads_rows("chain", rows.to("meta"))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_draws_are_those_of_the_tensor_operations(dtype: torch.dtype) -> None:
    """Catches a block's edge, a token of probability 0, and a uniform on a total."""
    size = 3 * LEAST_VOCABULARY + 5
    probs = torch.from_numpy(np.random.default_rng(0).dirichlet(np.full(size, 0.1), (2, 3)))
    probs = probs.to(dtype)
    probs[0, 0] = 0
    probs[0, 0, -1] = 1
    uniforms = torch.rand((2, 3, 40), dtype=torch.float64)
    uniforms[..., 0], uniforms[..., 1] = 0, 1 - 2.0**-53
    drawn = host.draw(probs, uniforms)
    assert torch.equal(drawn, locate_all(mass(probs), uniforms))
    assert (probs.gather(2, drawn) > 0).all()
