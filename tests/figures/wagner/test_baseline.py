"""The step-by-step version: the reference's decisions, up to float32."""

from __future__ import annotations

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from figures.wagner import baseline  # noqa: E402
from otm.kernels import verify_logits, verify_probs  # noqa: E402


@pytest.mark.parametrize("one_hot", [False, True], ids=["drawn", "one-hot"])
@pytest.mark.parametrize("logits", [False, True], ids=["probabilities", "logits"])
def test_decisions_differ_near_edges_only(one_hot: bool, logits: bool) -> None:
    rng = np.random.default_rng(51)
    batch, gamma, size, small = 5000, 3, 30, 20
    target = torch.from_numpy(rng.normal(size=(batch, gamma + 1, size)) * 2).float()
    scores = target[:, :gamma, :small] + torch.from_numpy(rng.normal(size=(batch, gamma, small)))
    draft = scores.float()
    tokens = torch.multinomial(
        draft.softmax(-1).reshape(-1, small), 1, generator=torch.Generator().manual_seed(1)
    ).reshape(batch, gamma)
    lengths = torch.from_numpy(rng.integers(0, gamma + 1, batch))
    tokens[torch.arange(gamma) >= lengths[:, None]] = -1
    uniforms = torch.from_numpy(rng.random((batch, gamma + 2)))
    if logits:
        arguments = (target, None if one_hot else draft, tokens, uniforms)
        temperatures = torch.full((batch,), 0.9)
        outcome = baseline.verify_from_logits(*arguments, temperatures)
        expected = verify_logits(*arguments, temperature=temperatures)
    else:
        laws = (target.softmax(-1), None if one_hot else draft.softmax(-1))
        outcome = baseline.verify(*laws, tokens, uniforms)
        expected = verify_probs(*laws, tokens, uniforms)
    # about V · 2^-24 of the uniforms lie within rounding of an edge: here fewer than 1 in 10^5
    assert (outcome.tokens != expected.tokens).any(1).sum() <= 1
    assert expected.accepted.unique().tolist() == [0, 1, 2, 3]


def test_degenerate_laws() -> None:
    # With equal distributions only rounding can reject, and the residual is not divided by zero.
    laws = torch.tensor([[[0.0, 0.25, 0.75], [0.0, 0.0, 1.0]]])
    for u in (0.0, 0.5, 1 - 2.0**-53):
        uniforms = torch.tensor([[u, u, u]], dtype=torch.float64)
        result = baseline.verify(laws, laws[:, :1], torch.tensor([[1]]), uniforms)
        assert result.tokens.tolist() in ([[1, 2]], [[2, -1]])
    uniforms = torch.zeros(1, 3, dtype=torch.float64)
    result = baseline.verify(laws, None, torch.tensor([[0]]), uniforms)
    assert result.tokens.tolist() == [[1, -1]]  # u = 0, and the target cannot produce the draft
