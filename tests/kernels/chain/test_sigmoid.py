"""The sigmoid variant: what the paper says, decision for decision, and how far from exact it is."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from otm.errors import InvalidDistributionError, InvalidParameterError  # noqa: E402
from otm.kernels import sigmoid_distance, verify_sigmoid  # noqa: E402
from otm.kernels.chain.sigmoid import output_distribution  # noqa: E402

LAST = 1 - 2.0**-53


def logits(seed: int, *shape: int) -> Any:
    return 4 * torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def test_it_does_what_the_paper_says() -> None:
    # a replica in float64 of section 3.2.2, one chain after another
    target, draft = logits(1, 300, 4, 9), logits(2, 300, 3, 9)
    rng = np.random.default_rng(3)
    tokens = rng.integers(0, 9, (300, 3))
    uniforms = rng.random((300, 5)) ** 0.2  # close to one, where sigmoids reject
    outcome = verify_sigmoid(
        target, draft, torch.from_numpy(tokens), torch.from_numpy(uniforms), (-10.0, 10.0)
    )
    t, d = (1 / (1 + np.exp(-(x.double().numpy() + 10) / 20)) for x in (target, draft))
    for b in range(300):
        output = []
        for i, x in enumerate(tokens[b]):
            if uniforms[b, i] >= min(1, t[b, i, x] / d[b, i, x]):
                weights, uniform = np.maximum(t[b, i] - d[b, i], 0), uniforms[b, 3]
                break
            output.append(x)
        else:
            weights, uniform = t[b, 3], uniforms[b, 4]
        law = weights / weights.sum()
        output.append((law.cumsum() <= uniform).sum())
        assert outcome.tokens[b, : len(output)].tolist() == output
    assert outcome.accepted.unique().tolist() == [0, 1, 2, 3]


@pytest.mark.usefixtures("small_blocks")
def test_triton_decides_as_torch(chains: Callable[..., Any], device: str) -> None:
    rng = np.random.default_rng(4)
    # the last: scales and a difference that float32 rounds
    for size, scales, dtype in [
        (9, (-1e1, 1e1), torch.float32),
        (17, (-1e4, 1e4), torch.bfloat16),
        (9, (-10 / 3, 7.1), torch.float32),
    ]:
        inputs = chains(rng, 4, 2, size).logits().to(dtype)
        inputs.uniforms[:, :2] = LAST
        expected = verify_sigmoid(*inputs, scales, validate=False)
        outcome = verify_sigmoid(
            *(x.to(device) for x in inputs), scales, backend="triton", validate=False
        )
        assert outcome.tokens.tolist() == expected.tokens.tolist()


def test_the_law_is_that_of_the_decisions() -> None:
    # the mean over a fine grid of coins and of points, of the code itself
    target, draft = logits(5, 4), logits(6, 4)
    grid = (torch.arange(1000, dtype=torch.float64) + 0.5) / 1000
    law = torch.zeros(4, dtype=torch.float64)
    for x, drawn in enumerate(draft.double().softmax(0)):
        for place in (0, 1):  # the coin, then the point of the residual
            uniforms = torch.zeros(1000, 3, dtype=torch.float64)
            uniforms[:, 0] = grid if place == 0 else LAST
            uniforms[:, 1] = grid
            rows = (target.expand(1000, 2, 4), draft.expand(1000, 1, 4))
            outcome = verify_sigmoid(*rows, torch.full((1000, 1), x), uniforms, (-5.0, 5.0))
            if place == 0:
                accepted = (outcome.accepted == 1).double().mean()
                law[x] += drawn * accepted
            elif (outcome.accepted == 0).any():
                tokens = outcome.tokens[:, 0].bincount(minlength=4)
                law += drawn * (1 - accepted) * tokens / 1000
    assert abs(law - output_distribution(target, draft, (-5.0, 5.0))).max() < 3e-3


def test_it_is_far_from_the_target_and_says_so() -> None:
    target = logits(7, 32_000)
    draft = target + 0.5 * logits(8, 32_000)
    own = (target.double().softmax(0) - draft.double().softmax(0)).abs().sum() / 2
    distances = [sigmoid_distance(target, draft, (-(10.0**n), 10.0**n)) for n in (1, 3, 4, 5)]
    # the wider the scales, the closer to the draft's own distribution: everything is accepted
    assert distances[0] < distances[1] <= distances[2] + 1e-9
    assert distances == pytest.approx([float(own)] * 4, abs=0.1)
    assert distances[2] == pytest.approx(float(own), abs=1e-3)
    assert sigmoid_distance(target, target) < 1e-12


def test_what_it_refuses() -> None:
    rest = (torch.zeros(1, 1).long(), torch.zeros(1, 3, dtype=torch.float64))
    rows = torch.zeros(1, 2, 3)
    for scales in [(1.0, 1.0), (2.0, 1.0), (-float("inf"), 1.0), (0.0, float("nan"))]:
        with pytest.raises(InvalidParameterError, match="scales"):
            verify_sigmoid(rows, rows[:, :1], *rest, scales)
    with pytest.raises(InvalidDistributionError, match="draft"):
        verify_sigmoid(rows, None, *rest)
