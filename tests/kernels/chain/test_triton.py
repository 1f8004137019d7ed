"""Chain verification in Triton: the reference's decisions, bit for bit, for all inputs."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from otm.errors import InvalidDistributionError, InvalidInputError, MissingDependencyError  # noqa: E402
from otm.kernels import verify_logits, verify_probs  # noqa: E402
from otm.kernels.common import (  # noqa: E402
    runtime,
    softmax,
)

from_probs = partial(verify_probs, backend="triton")
from_logits = partial(verify_logits, backend="triton")

LAST = 1 - 2.0**-53  # the largest uniform of 53 bits
TYPES = [torch.float32, torch.float16, torch.bfloat16, torch.float64]
TEMPERATURES = torch.tensor([0.0, 0.7, 1e-8, 1.0, 0.0])

# Sizes: one token, block sizes ± 1, and three blocks, which Triton pads to four.
SIZES = [1, 2, 7, 8, 9, 17, 24, 25]


def on(device: str, arguments: Any) -> list[Any]:
    return [None if x is None else x.to(device) for x in arguments]


def assert_same(outcome: Any, expected: Any) -> None:
    assert outcome.tokens.dtype == outcome.accepted.dtype == torch.int64
    assert outcome.tokens.cpu().tolist() == expected.tokens.tolist()
    assert outcome.accepted.cpu().tolist() == expected.accepted.tolist()


@pytest.mark.usefixtures("small_blocks")
@pytest.mark.parametrize("size", SIZES)
def test_probabilities(size: int, chains: Callable[..., Any], device: str) -> None:
    rng = np.random.default_rng(size)
    for count, dtype in enumerate(TYPES):
        inputs = chains(rng, 3, [3, 1, 0, 4][count], size).to(dtype)
        if count % 2:
            inputs = inputs._replace(draft=None)  # one-hot
        outcome = from_probs(*on(device, inputs), validate=False)
        assert_same(outcome, verify_probs(*inputs, validate=False))


@pytest.mark.parametrize("size", [2, 9, 25])
def test_logits(size: int, chains: Callable[..., Any], device: str, small_blocks: int) -> None:
    rng = np.random.default_rng(size)
    for count, dtype in enumerate(TYPES[:3]):
        inputs = chains(rng, 3, [2, 1, 0][count], size).logits().to(dtype)
        if count == 1:
            inputs = inputs._replace(draft=None)
        temperatures = TEMPERATURES.roll(-count)[:3]
        outcome = from_logits(
            *on(device, inputs), temperature=temperatures.to(device), validate=False
        )
        target, draft, tokens, uniforms = inputs
        laws = softmax.probs_from_logits(target, draft, tokens, temperatures, small_blocks)
        assert_same(outcome, verify_probs(*laws, tokens, uniforms, validate=False))


def test_one_temperature_for_all(chains: Callable[..., Any], device: str) -> None:
    inputs = chains(np.random.default_rng(1), 3, 2, 12).logits()
    for temperature in (0.0, 0.7):
        outcome = from_logits(*on(device, inputs), temperature=temperature)
        assert_same(outcome, verify_logits(*inputs, temperature=temperature))


@pytest.mark.usefixtures("small_blocks")
def test_empty_blocks_and_edges(device: str) -> None:
    # Dyadic distributions over four blocks; the first and the last block have no mass.
    target = torch.zeros(1, 2, 30)
    target[..., 8], target[..., 15], target[..., 17] = 0.25, 0.25, 0.5
    draft = torch.zeros(1, 1, 30)
    draft[..., 0], draft[..., 15] = 0.5, 0.5
    uniforms = torch.tensor(
        [
            [0.5, 0.0, 0.0],  # u · draft = target: rejected; the residual is 8, 17, 17
            [0.0, 0.0, 0.0],  # accepted; the edges of the bonus token belong to the next
            [0.0, 0.0, 0.25],
            [0.0, 0.0, 0.5],
            [0.0, 0.0, LAST],
            [0.5, 1 / 3 + 1e-9, 0.0],
            [0.5, LAST, 0.0],
        ],
        dtype=torch.float64,
    )
    count = len(uniforms)
    inputs = (target.expand(count, -1, -1), draft.expand(count, -1, -1))
    tokens = torch.full((count, 1), 15)
    outcome = from_probs(*on(device, (*inputs, tokens, uniforms)))
    assert outcome.tokens.cpu().tolist() == [
        [8, -1], [15, 8], [15, 15], [15, 17], [15, 17], [17, -1], [17, -1]
    ]  # fmt: skip
    impossible = torch.zeros(count, 1, dtype=torch.int64)  # u = 0 does not accept it
    outcome = from_probs(*on(device, (*inputs, impossible, 0 * uniforms)))
    assert outcome.accepted.cpu().tolist() == [0] * count


@pytest.mark.usefixtures("small_blocks")
def test_an_empty_residual_gives_a_token_of_the_target(device: str) -> None:
    # the draft is nowhere below the target, and loses by rounding
    target = torch.tensor([[[0.49999, 0.5, 0.0], [1.0, 0, 0]]])
    inputs = (target, torch.tensor([[[0.5, 0.5, 0.0]]]), torch.tensor([[0]]))
    for u, token in ((0.0, 0), (0.7, 1), (LAST, 1)):
        uniforms = torch.tensor([[LAST, u, 0.0]], dtype=torch.float64)
        outcome = from_probs(*on(device, (*inputs, uniforms)))
        assert outcome.tokens.cpu().tolist() == [[token, -1]]


@pytest.mark.usefixtures("small_blocks")
def test_a_chain_sees_neither_the_batch_nor_what_lies_beyond_its_end(
    chains: Callable[..., Any], device: str
) -> None:
    inputs = chains(np.random.default_rng(2), 3, 2, 12)
    inputs.tokens[0], inputs.tokens[1, 1:] = -1, -1
    for verify, laws in (
        (from_probs, inputs),
        (from_logits, inputs.logits()),
    ):
        whole = verify(*on(device, laws))
        laws.target[0, 1:], laws.draft[0], laws.tokens[0, 1] = math.nan, math.nan, 3
        laws.target[1, 2], laws.draft[1, 1] = math.nan, math.inf
        for b in range(3):
            alone = verify(*(x[b : b + 1] for x in on(device, laws)))
            assert alone.tokens.tolist() == whole.tokens[b : b + 1].tolist()
        laws.tokens[0, 1] = -1


@pytest.mark.usefixtures("small_blocks")
def test_strides_and_integer_types_do_not_matter(chains: Callable[..., Any], device: str) -> None:
    inputs = chains(np.random.default_rng(3), 3, 2, 10)
    expected = verify_probs(*inputs)
    pairs = [torch.stack([x, x], -1) for x in inputs]
    views = [x.to(device).transpose(0, 1).contiguous().transpose(0, 1)[..., 1] for x in pairs]
    assert not any(x.is_contiguous() for x in views)
    assert_same(from_probs(*views), expected)
    turned = [x.to(device).transpose(0, 1).contiguous().transpose(0, 1) for x in inputs]
    turned[2] = turned[2].int()
    assert_same(from_probs(*turned), expected)
    one = [x[:1].to(device).expand(4, *x.shape[1:]) for x in inputs]
    outcome = from_probs(*one)
    assert outcome.tokens.tolist() == [expected.tokens[0].tolist()] * 4


def test_no_drafts_and_no_chains(device: str) -> None:
    inputs = [torch.ones(2, 1, 1), torch.ones(2, 0, 1), torch.empty(2, 0).long()]
    inputs = on(device, [*inputs, torch.zeros(2, 2, dtype=torch.float64)])
    for verify in (from_probs, from_logits):
        outcome = verify(*inputs)
        assert outcome.tokens.tolist() == [[0], [0]]
        assert outcome.accepted.tolist() == [0, 0]
        assert tuple(verify(*(x[:0] for x in inputs)).tokens.shape) == (0, 1)


def test_a_draft_beyond_the_draft_model_s_vocabulary_has_probability_zero(device: str) -> None:
    # it is accepted if the target can produce it; the entry beyond the row is the next row's
    target = torch.tensor([[[0.5, 0.0, 0.25, 0.25]] * 3])
    draft = torch.tensor([[[0.5, 0.5], [1.0, 0.0]]])
    for token in range(4):
        tokens = torch.tensor([[token, token]])
        uniforms = torch.full((1, 4), LAST, dtype=torch.float64)
        inputs = (target, draft, tokens, uniforms)
        outcome = from_probs(*on(device, inputs), validate=False)
        assert_same(outcome, verify_probs(*inputs, validate=False))
        assert int(outcome.accepted) == {0: 1, 1: 0, 2: 2, 3: 2}[token]


@pytest.mark.usefixtures("small_blocks")
@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # of the interpreter, about NaN
def test_no_garbage_gives_a_token_outside_the_vocabulary(device: str) -> None:
    rng = np.random.default_rng(4)
    values = np.array([0, 1, -1, math.nan, math.inf, -math.inf, 1e30, -1e30, 0.5, 1e-40])
    for size in (1, 9, 17):
        target = torch.from_numpy(rng.choice(values, (4, 3, size))).float()
        draft = torch.from_numpy(rng.choice(values, (4, 2, size))).float()
        target[0], target[1] = math.nan, -math.inf
        tokens = torch.from_numpy(rng.integers(-2, 2 * size, (4, 2)))
        uniforms = torch.from_numpy(rng.choice(values, (4, 4)))
        for verify, law in (
            (from_probs, draft),
            (from_probs, None),
            (from_logits, draft),
        ):
            outcome = verify(*on(device, (target, law, tokens, uniforms)), validate=False)
            kept = outcome.tokens.cpu()
            assert ((kept >= -1) & (kept < size)).all()
            assert ((kept >= 0).sum(1) == outcome.accepted.cpu() + 1).all()


def test_the_law_of_logits_from_its_breakpoints(device: str) -> None:
    # each decision is a step function of its uniform: the steps are found by bisection, the kernels
    # are run on both sides of each, and the distribution between the steps is the softmax
    rng = torch.Generator().manual_seed(5)
    size, every = 6, torch.arange(6)
    target = 2 * torch.randn(1, 2, size, generator=rng)
    draft = target[:, :1] + torch.randn(1, 1, size, generator=rng)
    target[0, 1] = target[0, 0]
    laws = softmax.probs_from_logits(target, draft, torch.zeros(1, 1).long(), 1.0)
    worst = int((laws[0][0, 0] / laws[1][0, 0]).argmin())

    def decide(verify: Any, rows: Any, token: Any, place: int, uniform: Any) -> Any:
        """Whether the draft is accepted (place 0), or the drawn token (1: residual, 2: bonus)."""
        count = len(uniform)
        uniforms = torch.zeros(count, 3, dtype=torch.float64)
        uniforms[:, 0] = LAST if place == 1 else 0.0
        uniforms[:, place] = uniform
        tokens = torch.as_tensor(token).expand(count)[:, None]
        expanded = [x.expand(count, -1, -1) for x in rows]
        outcome = verify(*on(device, (*expanded, tokens, uniforms)), validate=False)
        if place == 0:
            return outcome.accepted.cpu() == 1
        return outcome.tokens[:, place - 1].cpu()[:, None] <= every

    def steps(token: Any, place: int) -> Any:
        """Count the i for which decision y at uniform i / 2^53 is still the first one."""
        low, high = torch.zeros(size).long(), torch.full((size,), 2**53)
        while (low < high).any():
            middle = (low + high) // 2
            decided = decide(verify_probs, laws, token, place, middle * 2.0**-53)
            passes = decided if place == 0 else decided.diagonal()
            low, high = torch.where(passes, middle + 1, low), torch.where(passes, high, middle)
        sides = torch.cat([low - 1, low]).clamp(0, 2**53 - 1) * 2.0**-53
        known = token if place else torch.cat([every, every])
        kernels = decide(from_logits, (target, draft), known, place, sides)
        expected = decide(verify_probs, laws, known, place, sides)
        assert torch.equal(kernels, expected)
        return low * 2.0**-53

    drawn = draft[0, 0].double().softmax(0)
    exact_target = target[0, 0].double().softmax(0)
    accepted = drawn * steps(every, 0)
    residual = steps(worst, 1).diff(prepend=torch.zeros(1, dtype=torch.float64))
    law = accepted + (1 - accepted.sum()) * residual
    assert abs(law - exact_target).sum() / 2 < 1e-6
    bonus = steps(int(laws[1][0, 0].argmax()), 2).diff(prepend=torch.zeros(1, dtype=torch.float64))
    assert abs(bonus - exact_target).sum() / 2 < 1e-6


def test_a_vocabulary_that_could_overflow_is_refused(device: str) -> None:
    inputs = (torch.empty(1, 1, 2**20 + 1), None, torch.empty(1, 0).long(), torch.zeros(1, 2))
    with pytest.raises(InvalidDistributionError, match="1,048,576"):
        from_logits(*on(device, inputs), validate=False)


def test_what_cannot_run_is_explained(
    chains: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    inputs = chains(np.random.default_rng(6), 2, 1, 3)
    if runtime.triton is not None:
        monkeypatch.setattr(runtime, "interpreted", lambda: False)
        with pytest.raises(InvalidInputError, match="cpu"):
            from_probs(*inputs)
    monkeypatch.setattr(runtime, "triton", None)
    with pytest.raises(MissingDependencyError, match=r"otm\[torch\]"):
        from_probs(*inputs)
