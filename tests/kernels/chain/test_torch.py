"""Chain verification in torch: the definition's decisions, on any input and without waiting."""

from __future__ import annotations

import math
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from otm.kernels import verify_logits, verify_probs

torch = pytest.importorskip("torch")

from otm.kernels.common import host  # noqa: E402

LAST = 1 - 2.0**-53  # the largest uniform of 53 bits


@pytest.fixture(autouse=True, params=["batched", "by rows"])
def path(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both ways of torch on a CPU, at any size."""
    least = 0 if request.param == "by rows" else 2**62
    monkeypatch.setattr(host, "LEAST_VOCABULARY", least)


def tensors(*arrays: np.ndarray | None) -> list[Any]:
    return [None if array is None else torch.from_numpy(array) for array in arrays]


def list_of(*arrays: np.ndarray | None) -> list[Any]:
    return list(arrays)


def assert_same(outcome: Any, expected: Any) -> None:
    assert outcome.tokens.dtype == outcome.accepted.dtype == torch.int64
    np.testing.assert_array_equal(outcome.tokens.numpy(), expected.tokens)
    np.testing.assert_array_equal(outcome.accepted.numpy(), expected.accepted)


def random_laws(rng: np.random.Generator, shape: tuple[int, ...], dtype: Any) -> np.ndarray:
    """Draw distributions with zeros, many ties, and values far below float32's resolution."""
    *_, size = shape
    weights = rng.integers(0, 5, shape) * np.exp(-40 * rng.random(shape) * rng.integers(0, 2))
    np.put_along_axis(weights, rng.integers(size, size=(*shape[:-1], 1)), 1.0, axis=-1)
    return (weights / weights.sum(axis=-1, keepdims=True)).astype(dtype)


def random_chains(
    rng: np.random.Generator, dtype: Any = np.float32
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Draw distributions, drafts from them, lengths from 0 to γ, and uniforms, many on edges."""
    batch, gamma = int(rng.integers(1, 40)), int(rng.integers(0, 4))
    size = int(rng.choice([1, 2, 3, 5, 8, 33, 257]))
    target = random_laws(rng, (batch, gamma + 1, size), dtype)
    draft = random_laws(rng, (batch, gamma, int(rng.integers(1, size + 1))), dtype)
    if draft.shape[2] == size:
        equal = rng.random((batch, gamma)) < 0.2
        draft[equal] = target[:, :gamma][equal]
    cumulative = draft.astype(float).cumsum(axis=-1)
    points = rng.random((batch, gamma, 1)) * cumulative[..., -1:]
    tokens = (cumulative <= points).sum(axis=-1)
    tokens[np.arange(gamma) >= rng.integers(0, gamma + 1, (batch, 1))] = -1
    uniforms = rng.random((batch, gamma + 2))
    special = rng.random(uniforms.shape)
    uniforms[special < 0.1] = 0
    uniforms[special > 0.9] = LAST
    eighths = (special > 0.5) & (special < 0.7)
    uniforms[eighths] = rng.integers(0, 8, uniforms.shape)[eighths] / 8
    return target, draft, tokens, uniforms


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
@pytest.mark.parametrize("one_hot", [False, True], ids=["drawn", "one-hot"])
def test_torch_decides_as_the_definition(dtype: Any, one_hot: bool) -> None:
    rng = np.random.default_rng(21)
    chains = rejections = 0
    for _ in range(80):
        target, draft, tokens, uniforms = random_chains(rng, dtype)
        laws = None if one_hot else draft
        expected = verify_probs(target, laws, tokens, uniforms)
        assert_same(verify_probs(*tensors(target, laws, tokens, uniforms)), expected)
        chains += len(tokens)
        rejections += int((expected.accepted < (tokens >= 0).sum(axis=1)).sum())
        drawn = np.take_along_axis(expected.tokens, expected.accepted[:, None], axis=1)
        rows = target[np.arange(len(tokens)), expected.accepted]
        assert (np.take_along_axis(rows, drawn, axis=1) > 0).all()
    assert chains > 1000
    assert rejections > chains / 10


def test_the_comparison_sees_every_mutant(mutant: ModuleType) -> None:
    rng = np.random.default_rng(21)
    for _ in range(200):
        target, draft, tokens, uniforms = random_chains(rng, np.float64)
        right = verify_probs(*tensors(target, draft, tokens, uniforms))
        try:
            wrong = mutant.verify(target, draft, tokens, uniforms)
        except IndexError:
            return
        if (wrong.tokens != right.tokens.numpy()).any():
            return
    pytest.fail("no chain shows the slip")


def test_edges_belong_to_the_next_token_of_positive_weight() -> None:
    # All edges are dyadic, hence floats.  The residual after a rejection is (0, 1, 0, 3, 0)/8.
    target = np.array([[[0, 2, 0, 6, 0], [0, 4, 0, 4, 0]]]) / 8
    draft = np.array([[[2, 1, 0, 3, 2]]]) / 8
    residual = [1, 3, 3]  # of u = 0, 1/4 (an edge: masses 1 and 3) and the largest uniform
    for u, token in zip([0.0, 0.25, LAST], residual, strict=True):
        uniforms = np.array([[0.0, u, 0.5]])  # u = 0 on a draft that the target cannot produce
        arrays = (target, draft, np.array([[0]]), uniforms)
        assert verify_probs(*arrays).tokens.tolist() == [[token, -1]]
        assert_same(verify_probs(*tensors(*arrays)), verify_probs(*arrays))
    for coin, token in [(0.5, 3), (np.nextafter(0.5, 0), 2)]:  # u · draft = target is a rejection
        target, draft = np.array([[[0, 0, 1, 3], [0, 0, 4, 0]]]) / 4, np.array([[[0, 0, 2, 2]]]) / 4
        arrays = (target, draft, np.array([[2]]), np.array([[coin, 0.9, 0.9]]))
        assert verify_probs(*arrays).tokens[0, 0] == token
        assert_same(verify_probs(*tensors(*arrays)), verify_probs(*arrays))


def test_the_law_of_torch_in_floats() -> None:
    # The test integrates the output over the 2^53 uniforms and finds its edges by bisection.
    rng = np.random.default_rng(22)
    size = 40
    target, draft = rng.dirichlet(np.full(size, 0.3), (2, 1, 1))
    rows = np.concatenate([target, target], axis=1)

    def count(test: Any) -> np.ndarray:
        """Count, for each of `size` monotone tests of i, the i / 2^53 that pass."""
        low, high = np.zeros(size, dtype=np.int64), np.full(size, 2**53)
        while (low < high).any():
            middle = (low + high) // 2
            passes = test(middle * 2.0**-53)
            low, high = np.where(passes, middle + 1, low), np.where(passes, high, middle)
        return low * 2.0**-53

    def verify(tokens: np.ndarray, coin: Any, residual: Any) -> Any:
        uniforms = np.zeros((size, 3))
        uniforms[:, 0], uniforms[:, 1] = coin, residual
        arguments = tensors(rows.repeat(size, 0), draft.repeat(size, 0), tokens, uniforms)
        return verify_probs(*arguments, validate=False)

    every = np.arange(size)[:, None]
    accept = count(lambda u: verify(every, u, 0).accepted.numpy() == 1)
    refused = np.full((size, 1), (target / draft).argmin())
    below = count(lambda u: verify(refused, LAST, u).tokens[:, 0].numpy() <= every[:, 0])
    drawn = draft[0, 0] / draft.sum()
    law = drawn * accept + (1 - (drawn * accept).sum()) * np.diff(below, prepend=0)
    assert abs(law - target[0, 0]).sum() / 2 < 1e-14


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_half_precision_is_widened(dtype: str) -> None:
    rng = np.random.default_rng(23)
    for _ in range(20):
        target, draft, tokens, uniforms = tensors(*random_chains(rng))
        target, draft = (x.to(getattr(torch, dtype)) for x in (target, draft))
        kept = [x.numpy() for x in (target.float(), draft.float(), tokens, uniforms)]
        outcome = verify_probs(target, draft, tokens, uniforms, validate=False)
        assert_same(outcome, verify_probs(*kept, validate=False))


def test_a_chain_does_not_see_the_batch() -> None:
    rng = np.random.default_rng(24)
    for _ in range(10):
        target, draft, tokens, uniforms = tensors(*random_chains(rng))
        whole = verify_probs(target, draft, tokens, uniforms)
        for b in range(len(tokens)):
            one = slice(b, b + 1)
            alone = verify_probs(target[one], draft[one], tokens[one], uniforms[one])
            assert torch.equal(alone.tokens, whole.tokens[one])
        temperatures = torch.arange(len(tokens)).double() % 3 / 2
        logits = (target.log(), draft.log())
        whole = verify_logits(*logits, tokens, uniforms, temperature=temperatures)
        for b, temperature in enumerate(temperatures.tolist()):
            one = slice(b, b + 1)
            part = (logits[0][one], logits[1][one], tokens[one], uniforms[one])
            alone = verify_logits(*part, temperature=temperature)
            assert torch.equal(alone.tokens, whole.tokens[one])


def test_what_stands_beyond_the_end_of_a_chain_does_not_matter() -> None:
    rng = np.random.default_rng(25)
    for _ in range(10):
        target, draft, tokens, uniforms = tensors(*random_chains(rng))
        clean = verify_probs(target, draft, tokens, uniforms)
        ended = (tokens < 0).cumsum(1) > 0
        later = ended & (torch.cumsum(ended, 1) > 1)
        target, draft, tokens = target.clone(), draft.clone(), tokens.clone()
        target[:, 1:][ended] = math.nan
        draft[ended] = math.inf
        tokens[later] = 0
        outcome = verify_probs(target, draft, tokens, uniforms)
        assert torch.equal(outcome.tokens, clean.tokens)
        kept = [x.numpy() for x in (target, draft, tokens, uniforms)]
        assert_same(clean, verify_probs(*kept))


def test_strides_and_integer_types_do_not_matter() -> None:
    rng = np.random.default_rng(26)
    target, draft, tokens, uniforms = tensors(*random_chains(rng))
    while tokens.shape[1] < 2 or len(tokens) < 2:
        target, draft, tokens, uniforms = tensors(*random_chains(rng))
    plain = verify_probs(target, draft, tokens, uniforms)

    def strided(x: Any) -> Any:
        return torch.stack([x, x], -1).transpose(0, 1).contiguous().transpose(0, 1)[..., 1]

    views = [strided(x) for x in (target, draft, tokens, uniforms)]
    assert not any(x.is_contiguous() for x in views)
    assert torch.equal(verify_probs(*views).tokens, plain.tokens)
    assert torch.equal(verify_probs(target, draft, tokens.int(), uniforms).tokens, plain.tokens)
    one = (target[:1], draft[:1], tokens[:1], uniforms[:1])
    expanded = [x.expand(5, *x.shape[1:]) for x in one]
    assert torch.equal(verify_probs(*expanded).tokens, plain.tokens[:1].expand(5, -1))


@pytest.mark.parametrize("wrap", [list_of, tensors], ids=["numpy", "torch"])
def test_degenerate_sizes(wrap: Any) -> None:
    ones = np.ones((3, 1, 1), dtype=np.float32)
    no_drafts = wrap(ones, ones[:, :0], np.empty((3, 0), dtype=np.int64), np.zeros((3, 2)))
    result = verify_probs(*no_drafts)
    assert result.tokens.tolist() == [[0]] * 3
    assert result.accepted.tolist() == [0] * 3
    nothing = [x[:0] for x in no_drafts]
    assert tuple(verify_probs(*nothing).tokens.shape) == (0, 1)
    result = verify_logits(no_drafts[0], None, *no_drafts[2:], temperature=0.5)
    assert result.tokens.tolist() == [[0]] * 3


@pytest.mark.parametrize("wrap", [list_of, tensors], ids=["numpy", "torch"])
def test_an_empty_residual_gives_a_token_of_the_target(wrap: Any) -> None:
    # the draft is nowhere below the target, and loses by rounding: of its sum, or of u · draft
    target = np.array([[[0.49999, 0.5, 0.0], [1, 0, 0]]], dtype=np.float32)
    draft = np.array([[[0.5, 0.5, 0.0]]], dtype=np.float32)
    for u, token in [(0.0, 0), (LAST, 1)]:
        arrays = wrap(target, draft, np.array([[0]]), np.array([[LAST, u, 0.0]]))
        assert verify_probs(*arrays).tokens.tolist() == [[token, -1]]
    tiny = np.array([[[5e-324, 1.0], [0.0, 1.0]]])
    arrays = wrap(tiny, tiny[:, :1], np.array([[0]]), np.array([[0.9, 0.5, 0.0]]))
    assert verify_probs(*arrays).tokens.tolist() == [[1, -1]]


def test_a_draft_law_without_mass_takes_nothing_from_the_target() -> None:
    # without validation: a draft of probability 0 passes if the target can produce it
    rng = np.random.default_rng(28)
    for _ in range(20):
        target, draft, tokens, uniforms = random_chains(rng)
        arrays = (target, 0 * draft, tokens, uniforms)
        expected = verify_probs(*arrays, validate=False)
        assert_same(verify_probs(*tensors(*arrays), validate=False), expected)
        drafted = np.take_along_axis(target[:, :-1], np.maximum(tokens, 0)[..., None], axis=2)
        passes = (tokens >= 0) & (drafted[..., 0] > 0)
        assert (expected.accepted == passes.cumprod(axis=1).sum(axis=1)).all()


def test_a_small_draft_vocabulary_is_one_with_zeros() -> None:
    rng = np.random.default_rng(27)
    for _ in range(20):
        target, draft, tokens, uniforms = random_chains(rng)
        wide = np.zeros((*draft.shape[:2], target.shape[2]), dtype=draft.dtype)
        wide[..., : draft.shape[2]] = draft
        small = verify_probs(*tensors(target, draft, tokens, uniforms))
        assert_same(small, verify_probs(target, wide, tokens, uniforms))


# --- Logits ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_torch_decides_as_the_definition_from_logits(dtype: Any) -> None:
    # the exponential functions differ in the last bit, so no uniform is put on an edge here
    rng = np.random.default_rng(31)
    for _ in range(60):
        target, draft, tokens, uniforms = random_chains(rng, np.float64)
        uniforms = rng.random(uniforms.shape)
        with np.errstate(divide="ignore"):
            target, draft = ((np.log(x) + rng.normal()).astype(dtype) for x in (target, draft))
        temperature = rng.choice([0.0, 1e-8, 0.6, 1.0, 2.0], len(tokens))
        for laws in (draft, None):
            arrays = (target, laws, tokens, uniforms)
            expected = verify_logits(*arrays, temperature=temperature, validate=False)
            outcome = verify_logits(
                *tensors(*arrays), temperature=torch.from_numpy(temperature), validate=False
            )
            assert_same(outcome, expected)


def test_logits_and_probabilities_agree() -> None:
    rng = np.random.default_rng(32)
    for _ in range(20):
        *_, tokens, uniforms = random_chains(rng)
        batch, gamma = tokens.shape
        target = torch.from_numpy(rng.normal(size=(batch, gamma + 1, 300)) * 3).bfloat16()
        draft = torch.from_numpy(rng.normal(size=(batch, gamma, 300)) * 3).bfloat16()
        laws = [(x.double() / 0.7).softmax(-1) for x in (target, draft)]
        rest = tensors(tokens, uniforms)
        outcome = verify_logits(target, draft, *rest, temperature=0.7)
        assert torch.equal(outcome.tokens, verify_probs(*laws, *rest).tokens)


@pytest.mark.parametrize("wrap", [list_of, tensors], ids=["numpy", "torch"])
def test_cold_temperatures_and_huge_logits(wrap: Any) -> None:
    target = np.array([[[-1e38, 3e38, 1e38, -np.inf], [0.0, 1.0, 1.5, 1.5]]], dtype=np.float32)
    for temperature, accepted in [(0.0, 1), (1e-300, 1), (1e-8, 1)]:
        arrays = wrap(target, None, np.array([[1]]), np.array([[LAST, 0.5, 0.0]]))
        result = verify_logits(*arrays, temperature=temperature)
        assert result.tokens.tolist() == [[1, 2]]
        assert result.accepted.tolist() == [accepted]
        arrays = wrap(target, None, np.array([[2]]), np.array([[0.0, LAST, 0.0]]))
        assert verify_logits(*arrays, temperature=temperature).tokens.tolist() == [[1, -1]]
    # Greedy takes the first of two equal logits, for any uniforms and draft logits.
    draft = np.full((1, 1, 4), -np.inf, dtype=np.float32)
    arrays = wrap(target, draft, np.array([[1]]), np.array([[LAST, LAST, LAST]]))
    assert verify_logits(*arrays, temperature=0).tokens.tolist() == [[1, 2]]


def test_a_greedy_row_beside_sampled_ones() -> None:
    rng = np.random.default_rng(33)
    logits = torch.from_numpy(rng.normal(size=(1, 3, 50))).expand(64, 3, 50)
    draft, tokens = logits[:, :2] / 2, logits[:, :2].argmax(-1)
    uniforms = torch.from_numpy(rng.random((64, 4)))
    temperature = (torch.arange(64) % 2).double()
    result = verify_logits(logits, draft, tokens, uniforms, temperature=temperature)
    assert (result.tokens[::2] == logits[0].argmax(-1)).all()
    assert (result.tokens[1::2] != logits[0].argmax(-1)).any()


# --- The hot path ---------------------------------------------------------------------------------


def test_nothing_waits_for_the_device() -> None:
    # Tensors of the device "meta" hold no numbers, so reading one raises.
    def on_meta(*shape: int, dtype: Any = torch.float32) -> Any:
        return torch.empty(shape, dtype=dtype, device="meta")

    rest = (on_meta(5, 3, dtype=torch.int32), on_meta(5, 5, dtype=torch.float64))
    for draft in (on_meta(5, 3, 90), None):
        for run in (verify_probs, verify_logits):
            result = run(on_meta(5, 4, 100), draft, *rest, validate=False)
            assert result.tokens.shape == (5, 4)
            assert result.accepted.shape == (5,)
    with pytest.raises((RuntimeError, NotImplementedError)):
        bool(on_meta(5, 4, 100).any())


def test_no_garbage_gives_a_token_outside_the_vocabulary() -> None:
    rng = np.random.default_rng(41)
    values = np.array([0, 1, -1, math.nan, math.inf, -math.inf, 1e30, -1e30, 0.5, 1e-40])
    for _ in range(100):
        size = int(rng.integers(1, 9))
        target = torch.from_numpy(rng.choice(values, (20, 4, size))).float()
        draft = torch.from_numpy(rng.choice(values, (20, 3, size))).float()
        tokens = torch.from_numpy(rng.integers(-2, 2 * size, (20, 3)))
        uniforms = torch.from_numpy(rng.choice(values, (20, 5)))
        for laws in (draft, None):
            for run in (verify_probs, verify_logits):
                result = run(target, laws, tokens, uniforms, validate=False)
                assert ((result.tokens >= -1) & (result.tokens < size)).all()
                assert ((result.tokens >= 0).sum(1) == result.accepted + 1).all()
