"""The optimum of bins in torch: the definition's decisions, bit for bit."""

from __future__ import annotations

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from otm.kernels.optimal import numpy as numpy_bins  # noqa: E402
from otm.kernels.optimal import torch as torch_bins  # noqa: E402


def test_torch_decides_as_the_definition() -> None:
    rng = np.random.default_rng(6)
    accepted = rejected = moved = 0
    for _ in range(15):
        batch, count, size = 5, int(rng.integers(1, 6)), int(rng.integers(1, 40))
        target, draft = rng.dirichlet(np.full(size, rng.choice([0.1, 0.5, 3])), (2, batch))
        draft[0] = target[0]
        draft[1, ::2] *= rng.random() < 0.5
        draft[1, 0] += 1e-3
        dtype = rng.choice([np.float32, np.float64])
        target, draft = target.astype(dtype), (draft / draft.sum(1, keepdims=True)).astype(dtype)
        points = rng.random((batch, count, 1)) * draft.sum(1)[:, None, None]
        tokens = (draft.cumsum(1)[:, None] <= points).sum(2).clip(max=size - 1)
        tokens[rng.random(tokens.shape) < 0.2] = -1
        uniforms = rng.random((batch, count + 1))
        uniforms[rng.random(uniforms.shape) < 0.1] = 0
        uniforms[rng.random(uniforms.shape) < 0.1] = 1 - 2.0**-53
        steps = int(rng.choice([1, 3, 256]))
        ratios = torch_bins.ratio_grid(count, steps, torch.zeros(1)).tolist()
        assert numpy_bins.ratio_grid(count, steps) == ratios or steps == 3
        tensors = map(torch.from_numpy, (target, draft, tokens, uniforms))
        indices, residuals = torch_bins.select(*tensors, steps)
        for b in range(batch):
            one = (target[b], draft[b], tokens[b], uniforms[b])
            index, residual = numpy_bins.select(*one, steps)
            assert int(indices[b]) == index
            if index < 0:
                assert residuals[b].tolist() == residual.tolist()
            accepted, rejected = accepted + (index >= 0), rejected + (index < 0)
            moved += moves(*one, steps)
    assert min(accepted, rejected, moved) > 12


def moves(
    target: np.ndarray, draft: np.ndarray, tokens: np.ndarray, uniforms: np.ndarray, steps: int
) -> int:
    """Count the drafts that take the slot of another bin."""
    chains, uniforms, tokens = tokens.size, uniforms[:-1][tokens >= 0], tokens[tokens >= 0]
    if not tokens.size:
        return 0
    rows = target.astype(float), draft.astype(float)
    places, table = numpy_bins.bin_tokens(
        *rows, numpy_bins.deterministic_count(tokens.size), chains, steps
    )
    drafted = numpy_bins.Places(*(x[tokens] for x in places))
    return int((numpy_bins.choose_slots(table, drafted, uniforms) != drafted.bin).sum())
