"""Distributions from logits, against exact fractions and against Hugging Face transformers."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from otm.decoding import SamplingParameters
from otm.errors import InvalidDistributionError, InvalidParameterError

INF = float("inf")
EVERYTHING = SamplingParameters(temperature=0.7, top_k=20, top_p=0.9, min_p=0.05)
SOME = [
    SamplingParameters(),
    SamplingParameters(temperature=0),
    SamplingParameters(temperature=0.3),
    SamplingParameters(top_k=7),
    SamplingParameters(top_p=0.8),
    SamplingParameters(min_p=0.1),
    EVERYTHING,
]


def random_logits(*shape: int, seed: int = 0) -> Any:
    return 3 * np.random.default_rng(seed).standard_normal(shape)


# The definition, in fractions: the logits are multiples of T ln 2, the weights powers of two


def law_by_definition(
    weights: list[Fraction], top_k: int | None, top_p: float | None, min_p: float | None
) -> list[Fraction]:
    """Apply the three truncations one after the other, each to a distribution that sums to one."""
    law = [w / sum(weights) for w in weights]
    order = sorted(range(len(law)), key=lambda token: (-law[token], token))
    if top_k is not None:
        law = keep(law, order[:top_k])
    if top_p is not None:
        number, mass = 0, Fraction(0)
        while number < len(order) and mass < Fraction(top_p):
            mass += law[order[number]]
            assume(abs(mass - Fraction(top_p)) > 1e-9)  # decided by rounding
            number += 1
        law = keep(law, order[:number])
    if min_p is not None:
        ratios = [x / max(law) for x in law]
        assume(all(abs(ratio - Fraction(min_p)) > 1e-9 for ratio in ratios))
        law = keep(law, [token for token, ratio in enumerate(ratios) if ratio >= min_p])
    return law


def keep(law: list[Fraction], tokens: list[int]) -> list[Fraction]:
    mass = sum(law[token] for token in tokens)
    return [x / mass if token in tokens else Fraction(0) for token, x in enumerate(law)]


exponents = st.lists(st.none() | st.integers(-6, 6), min_size=1, max_size=9).filter(
    lambda found: any(n is not None for n in found)
)


@given(
    exponents,
    st.floats(1e-8, 1e8),
    st.none() | st.integers(1, 12),
    st.none() | st.floats(0.01, 0.99),
    st.none() | st.floats(0.01, 0.99),
)
def test_laws_are_those_of_the_definition(
    exponents: list[int | None],
    temperature: float,
    top_k: int | None,
    top_p: float | None,
    min_p: float | None,
) -> None:
    """Catches a wrong order, a missing normalisation, an extra token, and a wrong tie."""
    weights = [Fraction(0) if n is None else Fraction(2) ** n for n in exponents]
    logits = [-INF if n is None else temperature * n * np.log(2) for n in exponents]
    law = SamplingParameters(temperature, top_k, top_p, min_p)(logits)
    expected = law_by_definition(weights, top_k, top_p, min_p)
    assert [x > 0 for x in law] == [x > 0 for x in expected]
    assert law == pytest.approx([float(x) for x in expected], rel=1e-13)
    assert law.sum() == pytest.approx(1, abs=1e-15)


def test_the_order_is_that_of_hugging_face() -> None:
    """Catches each pair of parameters swapped, by distributions that differ."""
    logits = np.log([0.4, 0.3, 0.2, 0.1])
    # 0.4 / 0.7 reaches 0.55, 0.4 does not
    assert SamplingParameters(top_k=2, top_p=0.55)(logits).tolist() == [1, 0, 0, 0]
    assert np.count_nonzero(SamplingParameters(top_p=0.55)(logits)) == 2
    # at T = 1/2 the distribution is (16, 9, 4, 1) / 30, and its first token reaches 0.53
    assert SamplingParameters(0.5, top_p=0.53)(logits).tolist() == [1, 0, 0, 0]
    assert SamplingParameters(0.5, min_p=0.3)(logits) == pytest.approx([0.64, 0.36, 0, 0])


# Ties and boundaries


def test_ties_go_to_the_lowest_ids() -> None:
    """Catches more than k tokens at a tie, and one that depends on how a sort breaks it."""
    logits = [1.0, 2.0, 1.0, 2.0, 1.0]
    assert np.flatnonzero(SamplingParameters(temperature=0)(logits)).tolist() == [1]
    for k, kept in enumerate(([1], [1, 3], [0, 1, 3], [0, 1, 2, 3], [0, 1, 2, 3, 4]), start=1):
        assert np.flatnonzero(SamplingParameters(top_k=k)(logits)).tolist() == kept
    many = np.zeros(1_000)
    assert np.flatnonzero(SamplingParameters(top_k=300)(many)).tolist() == list(range(300))
    assert np.flatnonzero(SamplingParameters(top_p=0.25)(many)).tolist() == list(range(250))


def test_logits_are_ranked_although_their_weights_tie() -> None:
    """Catches a ranking by weights or by differences, which are rounded, or lost."""
    above_one = 1 + 2.0**-52
    assert SamplingParameters(1e20, top_k=1)([1.0, above_one]).tolist() == [0, 1]
    near_zero = [0.0, 1e-20, 1e10]
    assert np.flatnonzero(SamplingParameters(1e10, top_k=2)(near_zero)).tolist() == [1, 2]


def test_the_token_that_reaches_p_is_the_last_one() -> None:
    """Catches < for ≤: at p = 1/2 the first token is enough, just above it is not."""
    logits = np.log([0.5, 0.25, 0.25])
    for p, number in ((2.0**-60, 1), (0.5, 1), (0.5 + 2.0**-53, 2), (0.75, 2), (0.76, 3), (1, 3)):
        assert np.count_nonzero(SamplingParameters(top_p=p)(logits)) == number


def test_tokens_on_the_threshold_of_min_p_stay() -> None:
    """Catches > for ≥, which at min_p = 1 leaves no token at all."""
    logits = np.log([0.25, 0.5, 0.125, 0.25])
    assert np.count_nonzero(SamplingParameters(min_p=0.5)(logits)) == 3
    assert SamplingParameters(min_p=1)([2, 1, 2]).tolist() == [0.5, 0, 0.5]


@pytest.mark.parametrize("kind", [np.float16, np.float32, np.float64])
def test_p_next_to_one_keeps_the_law(kind: type) -> None:
    """Catches an index beyond the end, where a running sum stays below p."""
    logits = random_logits(4, 50_000).astype(kind)
    law = SamplingParameters(top_p=0.9999999)(logits)
    lost = np.where(law > 0, 0, SamplingParameters()(logits)).sum(-1)
    assert np.all(lost <= 1e-7)
    assert np.all(lost > 0.9e-7)
    assert np.array_equal(SamplingParameters(top_p=1)(logits), SamplingParameters()(logits))


def test_what_keeps_everything_changes_nothing() -> None:
    logits = random_logits(3, 11)
    plain = SamplingParameters()(logits)
    for rule in ({"top_k": 11}, {"top_k": 12}, {"top_k": 10**30}, {"top_p": 1.0}, {"min_p": 0.0}):
        assert np.array_equal(SamplingParameters(**rule)(logits), plain)


def test_excluded_tokens_stay_out() -> None:
    """Catches a top-k that fills its places with tokens of −∞."""
    law = SamplingParameters(temperature=5, top_k=3, top_p=1, min_p=0)([-INF, 0.0, -INF, 0.0])
    assert law.tolist() == [0, 0.5, 0, 0.5]
    assert SamplingParameters(0)([-INF, -1e38, -INF]).tolist() == [0, 1, 0]


# Numbers that break softmaxes


@pytest.mark.parametrize("temperature", [0, 5e-324, 1e-8, 1, 1e8, 1e300])
@pytest.mark.parametrize("scale", [1e-320, 1e-38, 1, 3e38, 1e308])
def test_extreme_temperatures_and_logits(temperature: float, scale: float) -> None:
    """Catches an overflow, and 0/0 where all weights are lost."""
    law = SamplingParameters(temperature, top_k=4, top_p=0.999, min_p=1e-9)(
        [-scale, scale, 0.0, -INF, scale / 2]
    )
    assert np.isfinite(law).all()
    assert law.sum() == pytest.approx(1)
    assert law[1] == law.max()
    assert not np.signbit(law).any()
    if scale / 2 > 1e3 * temperature:
        assert law.tolist() == [0, 1, 0, 0, 0]


def test_types_below_float64_are_raised_before_the_softmax() -> None:
    """Catches sums in half precision, which are off by 3e-4, and whole numbers as such."""
    for kind in (np.float16, np.float32, np.int64):
        logits = random_logits(2, 5_000).astype(kind)
        law = SamplingParameters()(logits)
        assert law.dtype == np.float64
        assert np.array_equal(law, SamplingParameters()(logits.astype(np.float64)))
        assert law.sum(-1) == pytest.approx(1, abs=1e-14)


@pytest.mark.parametrize("rule", SOME, ids=repr)
def test_rows_do_not_know_of_each_other(rule: SamplingParameters) -> None:
    """Catches a maximum, a threshold or a count taken over all rows."""
    logits = random_logits(2, 3, 40).round(1)
    logits[0, 1] += 500
    laws = rule(logits)
    assert laws.shape == logits.shape
    for index in np.ndindex(2, 3):
        assert np.array_equal(laws[index], rule(logits[index]))
    assert rule(logits[:0]).shape == (0, 3, 40)


def test_the_argument_is_left_alone() -> None:
    logits = random_logits(3, 40)
    before = logits.copy()
    for rule in SOME:
        rule(logits)[...] = 7
    assert np.array_equal(logits, before)


# Tensors


@pytest.mark.parametrize("rule", SOME, ids=repr)
@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_tensors_come_back_as_tensors(device: str, rule: SamplingParameters) -> None:
    torch = pytest.importorskip("torch")
    if device == "cuda" and not torch.cuda.is_available():
        pytest.skip("needs a GPU")
    logits = random_logits(2, 3, 300).round(1)  # with ties
    given = torch.tensor(logits, device=device, requires_grad=True)
    law = rule(given)
    assert (law.dtype, law.device, law.requires_grad) == (torch.float64, given.device, False)
    assert law.cpu().numpy() == pytest.approx(rule(logits), rel=1e-13)
    half = given.to(torch.bfloat16)
    assert rule(half).cpu().numpy() == pytest.approx(
        rule(half.detach().cpu().double().numpy()), rel=1e-13
    )


# Against other code


def weights_of_llama(logits: Any, temperature: float, top_p: float) -> Any:
    """Top-p by the mass before a token, written after the sampling of Llama's published code."""
    scaled = np.exp(logits / temperature - (logits / temperature).max())
    law = scaled / scaled.sum()
    order = np.argsort(-law)
    ranked = law[order]
    ranked[np.cumsum(ranked) - ranked > top_p] = 0
    result = np.zeros_like(law)
    result[order] = ranked / ranked.sum()
    return result


@pytest.mark.parametrize("top_p", [0.013, 0.31, 0.77, 0.955])
def test_top_p_by_the_mass_before_a_token(top_p: float) -> None:
    logits = random_logits(2_000)
    law = SamplingParameters(0.8, top_p=top_p)(logits)
    assert law == pytest.approx(weights_of_llama(logits, 0.8, top_p), rel=1e-12)


def hugging_face(logits: Any, rule: SamplingParameters) -> Any:
    """Distribution after the warpers of transformers, in the order of its `generate`."""
    torch = pytest.importorskip("torch")
    warpers = pytest.importorskip("transformers.generation.logits_process")
    scores = torch.tensor(logits)
    for warper in (
        warpers.TemperatureLogitsWarper(rule.temperature),
        rule.top_k and warpers.TopKLogitsWarper(rule.top_k),
        rule.top_p and warpers.TopPLogitsWarper(rule.top_p),
        rule.min_p and warpers.MinPLogitsWarper(rule.min_p),
    ):
        scores = warper(None, scores) if warper else scores
    return scores.softmax(-1).numpy()


@pytest.mark.parametrize(
    "rule",
    [rule for rule in SOME if rule.temperature]
    + [
        SamplingParameters(1.7, top_k=1),
        SamplingParameters(1e-8),
        SamplingParameters(top_p=0.9999999),
        SamplingParameters(1.3, top_k=50, top_p=0.95),
        SamplingParameters(0.9, top_p=0.3, min_p=0.02),
        SamplingParameters(2.5, top_k=500, min_p=0.001),
    ],
    ids=repr,
)
def test_laws_are_those_of_hugging_face(rule: SamplingParameters) -> None:
    logits = random_logits(6, 1_000, seed=5)
    expected = hugging_face(logits, rule)
    law = rule(logits)
    assert np.array_equal(law > 0, expected > 0)
    assert law == pytest.approx(expected, rel=1e-12)


def test_hugging_face_keeps_more_than_k_at_ties() -> None:
    """The difference that the docstring states."""
    logits = np.array([[0.0, 1.0, 0.0, 0.0]])
    rule = SamplingParameters(top_k=2)
    assert np.count_nonzero(hugging_face(logits, rule)) == 4
    assert np.flatnonzero(rule(logits)).tolist() == [0, 1]


# Rejected input


@pytest.mark.parametrize(
    ("logits", "message"),
    [
        ([np.nan, 1.0], r"^the logits have NaN"),
        ([[0.0, 1.0], [-INF, -INF]], r"^row 1: the logits have only −∞"),
        ([[[0.0, 1.0], [0.0, INF]]], r"^row \(0, 1\): the logits have \+∞"),
        ([[INF, np.nan]], r"^row 0: the logits have NaN"),
        ([-INF], "only −∞"),
        ([True, False], "type bool"),
        ([1j], "type complex128"),
        (["a"], "real numbers"),
        ([None, 1.0], "type object"),
        ([[1.0], [1.0, 2.0]], "not array-like"),
        (3.0, r"shape \(\)"),
        ([], r"shape \(0,\)"),
        (np.zeros((2, 0)), r"shape \(2, 0\)"),
    ],
)
def test_logits_that_make_no_law(logits: Any, message: str) -> None:
    for rule in (SamplingParameters(), SamplingParameters(0), EVERYTHING):
        with pytest.raises(InvalidDistributionError, match=message):
            rule(logits)


def test_tensors_that_make_no_law() -> None:
    torch = pytest.importorskip("torch")
    for logits, message in (
        (torch.tensor([[0.0, 1.0], [0.0, np.nan]]), "^row 1: the logits have NaN"),
        (torch.tensor([True]), r"type torch\.bool and shape \(1,\)"),
        (torch.tensor(1.0), r"shape \(\)"),
    ):
        with pytest.raises(InvalidDistributionError, match=message):
            SamplingParameters(0.5)(logits)


@pytest.mark.parametrize(
    "wrong",
    [
        *({"temperature": value} for value in (-1e-300, np.nan, INF, "1", None, True, 10**400, 1j)),
        *({"top_k": value} for value in (0, -1, 1.0, True, np.True_, "3", np.nan)),
        *({"top_p": value} for value in (0, -0.1, 1.0000001, np.nan, "0.5", True, INF)),
        *({"min_p": value} for value in (-0.1, 1.0000001, np.nan, "0.5", True)),
    ],
    ids=repr,
)
def test_parameters_outside_their_range(wrong: dict[str, Any]) -> None:
    (name,) = wrong
    with pytest.raises(InvalidParameterError, match=f"^{name} = .*must be"):
        SamplingParameters(**wrong)


def test_equal_parameters_are_equal_and_frozen() -> None:
    """Catches NumPy's numbers kept as they came, with which equality is no longer one word."""
    rule = SamplingParameters(np.float32(1), np.int64(3), Fraction(1, 2), np.float64(0.25))
    assert rule == SamplingParameters(1, 3, 0.5, 0.25)
    assert hash(rule) == hash(SamplingParameters(1, 3, 0.5, 0.25))
    assert repr(rule) == "SamplingParameters(temperature=1.0, top_k=3, top_p=0.5, min_p=0.25)"
    with pytest.raises(AttributeError):
        rule.top_k = 4  # type: ignore[misc]
