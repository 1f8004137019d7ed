"""The softmax of the kernels: its distance from the exact one, at full vocabulary."""

from __future__ import annotations

import math

import pytest

torch = pytest.importorskip("torch")

from otm.errors import InvalidDistributionError  # noqa: E402
from otm.kernels import verify_logits, verify_probs  # noqa: E402
from otm.kernels.common import runtime, softmax  # noqa: E402
from otm.kernels.common.distributions import triton as distributions  # noqa: E402
from otm.kernels.common.runtime import tl  # noqa: E402

UNIT = 2**61


def distance(a: torch.Tensor, b: torch.Tensor) -> float:
    return float((a - b).abs().sum() / 2)


def test_the_exponential_is_within_two_roundings() -> None:
    exponent = -torch.rand(100_000, generator=torch.Generator().manual_seed(1)) * 99
    exact = torch.exp2(exponent.double())
    assert ((softmax.exp2(exponent).double() - exact).abs() / exact).max() < 2 * 2.0**-24
    edges = torch.tensor([0.0, -1.0, -100.0, -100.01, -math.inf, math.nan])
    assert softmax.exp2(edges).tolist() == [1, 0.5, 2.0**-100, 0, 0, 0]


@runtime.jit
def write_powers(exponents, powers, count: tl.constexpr):  # type: ignore[no-untyped-def]
    place = tl.arange(0, count)
    tl.store(powers + place, distributions.exp2(tl.load(exponents + place)))


@pytest.mark.skipif(runtime.triton is None, reason="needs Triton")
def test_triton_computes_the_same_exponential_bit_for_bit(device: str) -> None:
    """Bug: a tie such as −2.5 is rounded to another integer, or a tiny power is not 0."""
    rng = torch.Generator().manual_seed(3)
    ties = torch.arange(0, 256) / -2
    edges = torch.tensor([-100.0, -100.01, -126.5, -127.0, -1e30, -math.inf, math.nan, -1e-30])
    exponents = torch.cat([ties, edges, -torch.rand(2**12 - 264, generator=rng) * 110]).to(device)
    powers = torch.empty_like(exponents)
    runtime.launch(write_powers, (1,), exponents, powers, len(exponents))
    assert powers.tolist() == softmax.exp2(exponents).tolist()


@pytest.mark.parametrize(
    ("spread", "temperature", "dtype"),
    [
        (0.5, 1.0, torch.float32),
        (3.0, 0.6, torch.bfloat16),
        (3.0, 1.0, torch.float32),
        (10.0, 2.0, torch.bfloat16),
    ],
)
def test_laws_at_full_vocabulary(spread: float, temperature: float, dtype: torch.dtype) -> None:
    # The summed masses give the distribution of a drawn token and of a chain of one draft.
    rng = torch.Generator().manual_seed(2)
    size = 128_256
    draft = spread * torch.randn(size, generator=rng)
    target = (draft + 0.6 * torch.randn(size, generator=rng)).to(dtype)
    draft = draft.to(dtype)
    exact_target, exact_draft = ((x.double() / temperature).softmax(-1) for x in (target, draft))
    warm = torch.full((), temperature, dtype=torch.float64)
    rounded = [softmax.softmax(x, warm) for x in (target, draft)]
    mass, subtracted = ((x * UNIT).long() for x in rounded)
    assert distance(mass.double() / mass.sum(), exact_target) < 1e-6

    accepted = exact_draft * (rounded[0].double() / rounded[1].double()).clamp(max=1)
    left = (mass - subtracted).clamp(min=0)
    law = accepted + (1 - accepted.sum()) * left.double() / left.sum()
    assert distance(law, exact_target) < 1e-6


def test_rows_without_a_softmax_are_zero_and_cold_ones_a_token() -> None:
    rows = torch.tensor([[-math.inf] * 3, [math.nan] * 3, [0.0, -math.inf, 0.0], [3e38, -3e38, 0]])
    temperature = torch.tensor([1.0, 1.0, 1e-300, 1e-8])
    outcome = softmax.softmax(rows, temperature, block=2)
    assert outcome.tolist() == [[0] * 3, [0] * 3, [0.5, 0, 0.5], [1, 0, 0]]
    assert torch.equal(softmax.softmax(rows[3:], torch.tensor([1e300]))[0] > 0.3, rows[3] == 3e38)


def test_greedy_laws_are_certain() -> None:
    target = torch.tensor([[[0.0, 2.0, 2.0], [1.0, 0.0, 0.0]]])
    laws = softmax.probs_from_logits(target, target[:, :1] - 5, torch.tensor([[2]]), 0.0)
    assert laws[0].tolist() == [[[0, 1, 0], [1, 0, 0]]]
    assert laws[1].tolist() == [[[0, 0, 1]]]


def test_decisions_differ_from_float64_near_edges_only() -> None:
    rng = torch.Generator().manual_seed(3)
    target = 2 * torch.randn(2000, 4, 50, generator=rng)
    draft = target[:, :3] + torch.randn(2000, 3, 50, generator=rng)
    tokens = torch.multinomial(draft.softmax(-1).flatten(0, 1), 1, generator=rng).view(2000, 3)
    uniforms = torch.rand(2000, 5, dtype=torch.float64, generator=rng)
    temperature = torch.tensor([0.0, 0.5, 1.0, 2.0]).repeat(500)
    laws = softmax.probs_from_logits(target, draft, tokens, temperature)
    outcome = verify_probs(*laws, tokens, uniforms, validate=False)
    exact = verify_logits(target, draft, tokens, uniforms, temperature=temperature)
    # about 10^-7 of the uniforms lie between the edges of the two: one of these 10^4 is unlikely
    assert torch.equal(outcome.tokens, exact.tokens)
    assert exact.accepted.unique().tolist() == [0, 1, 2, 3]


def test_a_vocabulary_that_could_overflow_is_refused() -> None:
    with pytest.raises(InvalidDistributionError, match="1,048,576"):
        softmax.softmax(torch.empty(2**20 + 1, device="meta"), torch.empty((), device="meta"))
