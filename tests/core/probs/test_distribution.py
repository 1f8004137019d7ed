"""Distributions: valid inputs, rejected inputs with their messages, and tensors."""

from __future__ import annotations

from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from otm._core.arithmetic import Probs, is_exact
from otm._core.probs.distribution import (
    as_probs_pair,
    as_probs_rows,
    residual_weights,
    to_exact,
    total_variation,
)
from otm.errors import InvalidDistributionError
from otm.testing.strategies import distributions, pairs

F = Fraction
HALVES = [0.5, 0.5]


def as_probs(values: Any) -> Probs:
    return as_probs_pair(values, values)[0]


def test_whole_numbers_beside_fractions_are_exact() -> None:
    # bug: a one-hot distribution written as [1, 0] turned exact mode off
    half = [Fraction(1, 2), Fraction(1, 2)]
    draft, target = as_probs_pair(half, [1, 0])
    assert draft.tolist() == half
    assert target.tolist() == [Fraction(1), Fraction(0)]
    assert as_probs_pair([1, 0], [0.5, 0.5])[0].dtype == np.float64
    with pytest.raises(InvalidDistributionError, match="sums to 2"):
        as_probs_pair(half, [1, 1])


@pytest.mark.parametrize(
    ("law", "message"),
    [
        ([0.5, 0.6], "draft distribution sums to 1.1;"),
        ([0.5, 0.5 - 1e-5], "sums to 0.99999; .* float64 must sum to one within 1e-06"),
        (np.array([0.5, 0.499], dtype=np.float32), "float32 must sum to one within 0.0001"),
        ([F(1, 2), F(1, 3)], "sums to 0.833333333"),
        ([np.nan, 1.0], "nan at index 0"),
        ([0.5, np.inf], "inf at index 1"),
        ([-np.inf, 1.0], "-inf at index 0"),
        ([0.5, 1.5, -1.0], "-1.0 at index 2; every probability must be a finite number"),
        ([F(3, 2), F(-1, 2)], "-1/2 at index 1"),
        ([0.0, 0.0], "zero everywhere"),
        ([], r"shape \(0,\)"),
        ([HALVES], r"shape \(1, 2\)"),
        (1.0, "of type float;"),
        ([[0.5], [0.25, 0.25]], "not array-like"),
        ([True, False], "bool"),
        (["a", "b"], "allowed are real numbers"),
        ([0.5 + 0j, 0.5], "complex128"),
        ([None, 1], "None of type NoneType at index 0"),
        ([F(1, 2), "x"], "'x' of type str at index 1"),
        ([Decimal("0.5"), Decimal("0.5")], "Decimal at index 0"),
        ([F(1), False], "False of type bool at index 1"),
    ],
)
def test_what_is_not_a_law_is_refused(law: Any, message: str) -> None:
    # Inputs: sums, NaN, infinities, negative entries, all-zero rows, wrong shapes and types
    with pytest.raises(InvalidDistributionError, match=message):
        as_probs(law)


@pytest.mark.parametrize("law", [[np.inf, -np.inf], [1.7e308, 1.7e308]])
def test_entries_that_overflow_are_refused_without_a_warning(law: list[float]) -> None:
    with pytest.raises(InvalidDistributionError):
        as_probs(law)


def test_the_message_names_the_law_that_is_wrong() -> None:
    with pytest.raises(InvalidDistributionError, match="the target distribution sums to 0"):
        as_probs_pair(HALVES, [0.5, 0.4])


def test_laws_of_different_lengths_are_refused() -> None:
    # Inputs: different lengths
    with pytest.raises(InvalidDistributionError, match="2 tokens and the target distribution 3"):
        as_probs_pair(HALVES, [0.5, 0.25, 0.25])


@pytest.mark.parametrize(
    ("dtype", "error"), [(np.float64, 9e-7), (np.float32, 9e-5), (np.float16, 9e-3)]
)
def test_a_sum_within_the_tolerance_of_the_type_is_normalised(dtype: Any, error: float) -> None:
    # Inputs: a sum that is off by no more than rounding in the type that was given
    for off in (-error, error):
        law = as_probs(np.array([0.5, 0.5 + off], dtype=dtype))
        assert law.dtype == np.float64
        assert abs(law.sum() - 1) <= 2e-16
        assert law[0] == 0.5 / (1 + float(dtype(0.5 + off)) - 0.5)


@given(pairs())
def test_float_laws_stay_what_they_are(pair: tuple[Probs, Probs]) -> None:
    for law, given_law in zip(as_probs_pair(*pair), pair, strict=True):
        assert abs(law - given_law).max() <= 1e-15
        assert ((law > 0) == (given_law > 0)).all()


@given(pairs(exact=True))
def test_fractions_stay_fractions(pair: tuple[Probs, Probs]) -> None:
    for law, given_law in zip(as_probs_pair(*pair), pair, strict=True):
        assert is_exact(law)
        assert law.tolist() == given_law.tolist()


def test_fractions_are_divided_by_their_sum() -> None:
    off = F(1, 10**7)
    assert as_probs([F(1, 2), F(1, 2) + off]).tolist() == [
        F(1, 2) / (1 + off),
        (F(1, 2) + off) / (1 + off),
    ]


def test_whole_numbers_may_stand_among_fractions() -> None:
    law = as_probs([F(1), 0])
    assert all(isinstance(value, Fraction) for value in law)


def test_a_law_of_floats_makes_both_laws_floats() -> None:
    draft, target = as_probs_pair([F(1, 4), F(3, 4)], HALVES)
    assert draft.dtype == target.dtype == np.float64


def test_laws_are_copies_and_read_only() -> None:
    given_law = np.array(HALVES)
    law = as_probs(given_law)
    given_law[0] = 0
    assert law.tolist() == HALVES
    with pytest.raises(ValueError, match="read-only"):
        law[0] = 1


def test_laws_that_are_not_kept_are_views_that_change_nothing() -> None:
    """Catches an array of the caller that ends read-only, and a sum that is not divided by."""
    given_law, unsettled = np.array(HALVES), np.array(HALVES) * (1 + 2.0**-40)
    for borrowed in (as_probs_pair, as_probs_rows):
        law, other = borrowed(given_law, unsettled, keep=False)
        kept = as_probs_pair(given_law, unsettled)
        assert np.shares_memory(law, given_law)
        assert [law.tolist(), other.tolist()] == [each.tolist() for each in kept]
        assert given_law.flags.writeable
        assert not law.flags.writeable
        assert not np.shares_memory(other, unsettled)


def test_strided_arrays_are_as_contiguous_ones() -> None:
    # Inputs: strided or expanded
    wide = np.array([0.5, 9, 0.25, 9, 0.25, 9])
    assert as_probs(wide[::2]).tolist() == [0.5, 0.25, 0.25]
    assert as_probs(wide[::2][::-1]).tolist() == [0.25, 0.25, 0.5]
    assert as_probs(np.broadcast_to(0.25, 4)).tolist() == [0.25] * 4


# Rows of distributions


@given(st.lists(distributions(3, 3), min_size=1, max_size=4), distributions(3, 3))
def test_rows_are_normalised_as_single_laws_bit_for_bit(drawn: list[Probs], other: Probs) -> None:
    draft, target = as_probs_rows(drawn, other)
    for row, law in enumerate(drawn):
        single = as_probs_pair(law, other)
        assert draft[row].tolist() == single[0].tolist()
        assert target.tolist() == single[1].tolist()


@pytest.mark.parametrize("change", [np.ascontiguousarray, np.asfortranarray, lambda x: x[:, ::-1]])
@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.float16])
def test_long_rows_are_added_as_single_laws(change: Any, dtype: Any) -> None:
    """Catches sums down the columns of an array in Fortran's order, which round differently."""
    rows = change(np.random.default_rng(0).dirichlet(np.ones(1_000), 5).astype(dtype))
    for found, row in zip(as_probs_rows(rows, rows)[0], rows, strict=True):
        assert found.tolist() == as_probs(row.copy()).tolist()


@given(st.lists(distributions(2, 2, exact=True), min_size=1, max_size=3))
def test_rows_of_fractions_stay_fractions(drawn: list[Probs]) -> None:
    draft, target = as_probs_rows([drawn, drawn], [[1, 0]])  # whole numbers beside fractions
    assert draft.tolist() == [[law.tolist() for law in drawn]] * 2
    assert target.tolist() == [[F(1), F(0)]]
    assert is_exact(target)
    assert as_probs_rows(drawn, [0.5, 0.5])[0].dtype == np.float64


@pytest.mark.parametrize(
    ("draft", "target"), [((0, 2), (2,)), ((2,), (0, 2)), ((3, 0, 2), (1, 2)), ((0, 2), (0, 2))]
)
@pytest.mark.parametrize("dtype", [float, object])
def test_no_rows_are_no_error(draft: Any, target: Any, dtype: Any) -> None:
    found = as_probs_rows(*(np.full(shape, F(1, 2)).astype(dtype) for shape in (draft, target)))
    assert [law.shape for law in found] == [draft, target]


def test_rows_are_copies_and_read_only() -> None:
    given_rows = np.array([HALVES, HALVES])
    rows, _ = as_probs_rows(given_rows, HALVES)
    given_rows[:] = 0
    assert rows.tolist() == [HALVES, HALVES]
    with pytest.raises(ValueError, match="read-only"):
        rows[0, 0] = 1


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([HALVES, [0.5, 0.7]], "the draft distribution of row 1 sums to 1.2;"),
        (
            [[HALVES], [HALVES], [HALVES], [[0.5, 0.75]]],
            r"distribution of row \(3, 0\) sums to 1.25",
        ),
        ([[0.5, 0.7], [np.nan, 1]], "distribution of row 0 sums to 1.2"),  # the first that is wrong
        ([HALVES] * 9_000 + [[0.5, 0.7]], "distribution of row 9000 sums to 1.2"),
        ([HALVES, [0.5, np.nan]], "distribution of row 1 has nan at index 1; every probability"),
        ([HALVES, [np.inf, -np.inf]], "distribution of row 1 has inf at index 0"),
        ([HALVES, [1.5, -0.5]], "distribution of row 1 has -0.5 at index 1"),
        ([HALVES, [0.0, 0.0]], "distribution of row 1 is zero everywhere"),
        ([HALVES, [1.7e308, 1.7e308]], "distribution of row 1 sums to inf"),
        ([[F(1), F(0)], [F(1, 2), F(1, 3)]], "distribution of row 1 sums to 0.833333333"),
        ([[F(1), F(0)], [F(3, 2), F(-1, 2)]], "distribution of row 1 has -0.5 at index 1"),
        ([[F(1), F(0)], [F(1), "x"]], "distribution of row 1 has 'x' of type str at index 1"),
        (
            [[F(1), F(0)], [0, 10**400]],
            "distribution of row 1 has a number beyond ±1e[+]200 at index 1",
        ),
        ([0.5, 0.25], "the draft distribution sums to 0.75;"),
        (np.array([HALVES, [0.5, 0.499]], dtype=np.float32), "of row 1 sums .* within 0.0001"),
        ([[], []], r"the draft distributions have shape \(2, 0\)"),
        (0.5, "of type float;"),
        ([HALVES, [1.0]], "not array-like"),
    ],
)
def test_rows_that_are_no_laws_are_named(rows: Any, message: str) -> None:
    target = HALVES
    with pytest.raises(InvalidDistributionError, match=message):
        as_probs_rows(rows, target)
    with pytest.raises(InvalidDistributionError, match=message.replace("draft", "target")):
        as_probs_rows(target, rows)


@pytest.mark.parametrize(
    ("draft", "target", "message"),
    [
        ((2, 3), (3, 3), "must broadcast"),
        ((2, 3), (2, 4), "3 tokens and the target distribution 4"),
        (
            (3,),
            (2, 1),
            "3 tokens and the target distribution 1",
        ),  # the last axis does not broadcast
    ],
)
def test_rows_that_do_not_fit_are_refused(draft: Any, target: Any, message: str) -> None:
    with pytest.raises(InvalidDistributionError, match=message):
        as_probs_rows(*(np.full(shape, 1 / shape[-1]) for shape in (draft, target)))


def test_rows_of_tensors_are_taken_as_their_values() -> None:
    torch = pytest.importorskip("torch")
    rows = torch.softmax(torch.arange(12.0).reshape(3, 4), dim=1)
    for kind in (torch.bfloat16, torch.float32):
        expected = as_probs(rows[2].to(kind)).tolist()
        assert as_probs_rows(rows.to(kind), rows[0])[0][2].tolist() == expected
    with pytest.raises(
        InvalidDistributionError, match=r"distribution of row 1 sums to 2; .* bfloat16"
    ):
        as_probs_rows(torch.tensor([[1.0], [2.0]], dtype=torch.bfloat16), [1.0])


@given(distributions())
def test_to_exact_is_the_float_law_over_its_exact_sum(law: Probs) -> None:
    exact = to_exact(law)
    total = sum(map(F, law.tolist()))
    assert [value * total for value in exact] == [F(value) for value in law.tolist()]
    assert exact.sum() == 1
    assert to_exact(exact) is exact


@given(pairs(exact=True))
def test_total_variation_is_a_distance(pair: tuple[Probs, Probs]) -> None:
    a, b = pair
    distance = total_variation(a, b)
    assert distance == 1 - np.minimum(a, b).sum() == total_variation(b, a)
    assert total_variation(a, a) == 0


def test_the_residual_is_what_is_left_of_the_target() -> None:
    target = np.array([F(1, 2), F(1, 2), F(0)], dtype=object)
    accepted = np.array([F(1, 4), F(1, 2), F(1, 8)], dtype=object)
    assert residual_weights(target, accepted).tolist() == [F(1, 4), 0, 0]


def test_an_empty_residual_is_the_target() -> None:
    # Degenerate distributions: draft and target equal bit for bit, nothing to divide
    law = np.array([0.25, 0.75])
    assert (residual_weights(law, law) == law).all()
    assert (residual_weights(law, law * (1 + 2.0**-50)) == law).all()


torch = pytest.importorskip("torch")


@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "float32", "float64"])
def test_softmax_rows_of_every_type_are_laws(dtype: str) -> None:
    # Floats: sums of bf16 and f16 rows are off by up to 10^-3; upcast first, then normalise
    logits = torch.linspace(-6, 6, 32_000, dtype=torch.float64)
    row = torch.softmax(logits, dim=0).to(getattr(torch, dtype))
    law = as_probs(row)
    assert law.dtype == np.float64
    assert abs(law.sum() - 1) < 1e-13
    expected = row.double()
    assert abs(law - (expected / expected.sum()).numpy()).max() < 1e-18


def test_a_half_precision_row_keeps_its_zeros() -> None:
    # Floats: f16 makes a good part of a large vocabulary zero; nothing fills it up again
    logits = torch.linspace(-18, 0, 32_000, dtype=torch.float64)
    row = torch.softmax(logits, dim=0).half()
    assert 0.1 < (row == 0).double().mean() < 0.9
    assert ((as_probs(row) == 0) == (row == 0).numpy()).all()


@pytest.mark.parametrize(
    "logits", [[1e38, -1e38, 0.0], [-1e38, -1e38, -1e38], [3.0, 3.0 + 1e-7, -5.0]]
)
def test_rows_of_extreme_logits_are_laws(logits: list[float]) -> None:
    # Floats: temperature 1e-8, logits of ±1e38
    row = torch.softmax(torch.tensor(logits) / 1e-8, dim=0)
    if torch.isfinite(row).all():
        assert np.isfinite(as_probs(row)).all()
    else:  # the division overflowed: both ends infinite, so that softmax has no answer
        with pytest.raises(InvalidDistributionError, match="nan at index"):
            as_probs(row)
    assert as_probs(torch.softmax(torch.tensor(logits), dim=0)).sum() == pytest.approx(1)


@pytest.mark.parametrize("logits", [[-np.inf, -np.inf], [np.nan, 0.0]])
def test_a_row_without_a_softmax_is_refused(logits: list[float]) -> None:
    # Floats: a row all −inf, or with NaN
    with pytest.raises(InvalidDistributionError, match="nan at index 0"):
        as_probs(torch.softmax(torch.tensor(logits), dim=0))


def test_tensors_with_a_graph_or_a_stride_are_taken_as_their_values() -> None:
    # Inputs: strided or expanded tensors; and tensors that carry gradients
    table = torch.softmax(torch.arange(12.0).reshape(3, 4), dim=1)
    row = table[1].tolist()
    assert as_probs(table.clone().requires_grad_()[1]) == pytest.approx(row)
    assert as_probs(torch.nn.Parameter(table)[1]) == pytest.approx(row)
    assert as_probs(table.T.contiguous().T[1]) == pytest.approx(row)
    assert as_probs(torch.stack([table, table], dim=2)[1, :, 0]) == pytest.approx(row)
    assert as_probs(torch.tensor(0.25).expand(4)).tolist() == [0.25] * 4


def test_a_law_does_not_share_memory_with_its_tensor() -> None:
    row = torch.tensor(HALVES, dtype=torch.float64)
    law = as_probs(row)
    row[0] = 0
    assert law.tolist() == HALVES


def test_a_tensor_and_an_array_make_a_pair() -> None:
    draft, target = as_probs_pair(torch.tensor(HALVES), np.array([0.25, 0.75]))
    assert draft.tolist() == HALVES
    assert target.tolist() == [0.25, 0.75]


def test_a_tensor_of_rows_is_refused() -> None:
    with pytest.raises(InvalidDistributionError, match=r"shape \(1, 2\)"):
        as_probs(torch.tensor([HALVES]))


@pytest.mark.parametrize(
    ("tensor", "message"),
    [
        (torch.tensor([True, False]), "bool"),
        (torch.tensor([0.5j, 0.5]), "complex64"),
        (torch.tensor(HALVES).to_sparse(), "not array-like"),
        (torch.tensor([0.75, -0.25]), "-0.25 at index 1"),
        (torch.tensor([0.5, 0.25]), "sums to 0.75"),
    ],
)
def test_tensors_that_are_no_laws_are_refused(tensor: Any, message: str) -> None:
    with pytest.raises(InvalidDistributionError, match=message):
        as_probs(tensor)


SIZES = [2, 10, 65, 1000, 32_000, 128_256, 151_936, 1_000_000]


def softmaxes(n: int) -> dict[str, Any]:
    """Softmaxes of some shapes in narrow types, added up by libraries and one after the other."""
    torch = pytest.importorskip("torch")
    rng = np.random.default_rng(n)
    made: dict[str, Any] = {}
    for shape, scores in {
        "normal": rng.normal(size=n),
        "wide": 4 * rng.normal(size=n),
        "nearly flat": 0.05 * (np.arange(n) % 2),
    }.items():
        logits = torch.tensor(scores)
        for kind in ("float16", "bfloat16", "float32"):
            made[f"{shape}, {kind}"] = torch.softmax(logits.to(getattr(torch, kind)), -1)
        weights = np.exp(scores - scores.max(), dtype=np.float32)
        made[f"{shape}, in turn"] = torch.tensor(weights / np.cumsum(weights)[-1])
    return made


@pytest.mark.parametrize("n", SIZES)
def test_softmaxes_of_all_sizes_are_taken_in_wider_types_too(n: int) -> None:
    # Bug: a float32 softmax over 128,256 tokens summed to 1.0000035; float64 rejected it.
    for name, probs in softmaxes(n).items():
        given = {"as it is": probs}
        if "16" not in name or n > 64:
            given |= {"in float64": probs.double().numpy(), "in float32": probs.float().numpy()}
        if "16" not in name and n < 10**5:
            given["as a list"] = probs.tolist()
        for form, values in given.items():
            taken = as_probs(values)
            assert abs(taken.sum() - 1) < 2.0**-48, (name, form)
            at_once = as_probs_rows([values], values)[0] if form == "as a list" else taken
            assert np.array_equal(at_once.ravel(), taken), (name, form)


@pytest.mark.parametrize("n", [2, 1000, 151_936])
def test_exponentials_of_narrow_log_probabilities_are_taken(n: int) -> None:
    # Bug: their numbers fit no narrow type, and large vocabularies raised because of the sum.
    torch = pytest.importorskip("torch")
    logits = torch.tensor(np.random.default_rng(n).normal(size=n), dtype=torch.float32)
    as_probs(torch.log_softmax(logits, -1).double().exp())


@pytest.mark.parametrize("n", [2, 100, 151_936])
@pytest.mark.parametrize("kind", ["float16", "float32", "float64", "a float32 in float64"])
def test_a_sum_beyond_the_tolerance_is_stated(kind: str, n: int) -> None:
    # bug: a tolerance that takes what is not normalised, such as what top-p leaves
    narrow = np.float32 if kind == "a float32 in float64" else np.dtype(kind).type
    probs = np.zeros(n, dtype=narrow)
    probs[:2] = 0.5, 0.484375  # 63/64 in all types
    given = probs.astype(np.float64) if kind == "a float32 in float64" else probs
    with pytest.raises(InvalidDistributionError, match=r"sums to 0\.984375; .* within"):
        as_probs(given)


def test_numbers_typed_by_hand_have_no_wider_tolerance() -> None:
    # bug: 1/2 and 127/256 are numbers of float16, whose tolerance is 0.01
    with pytest.raises(InvalidDistributionError, match=r"float64 must sum to one within 0\.0001"):
        as_probs([0.5, 0.49609375])
    with pytest.raises(InvalidDistributionError, match=r"row 1 sums to 0\.9999"):
        as_probs_rows([[0.5, 0.5], [0.3, 0.6999]], [0.5, 0.5])


@pytest.mark.parametrize("given", [np.float32, np.float64])
def test_few_numbers_beside_zeros_have_no_wider_tolerance(given: Any) -> None:
    # bug: 1 and 1/128 among 100 tokens, or 1/2 and 65/128, were taken as a softmax in float16
    for first, second in ((1, 2**-7), (0.5, 0.5078125), (1, 2**-10 + 2**-11)):
        probs = np.zeros(100, dtype=given)
        probs[:2] = first, second
        with pytest.raises(InvalidDistributionError, match=r"sums to 1\.00.* within 0\.00"):
            as_probs(probs)


@pytest.mark.parametrize("kind", ["float16", "bfloat16"])
def test_sharp_softmaxes_in_16_bits_are_taken_in_wider_types(kind: str) -> None:
    # bug: few of their numbers are above zero, and these are as far from one as they are rounded
    torch = pytest.importorskip("torch")
    rng = np.random.default_rng(0)
    few = 0
    for spread in (4, 12, 12, 12, 20, 20, 40):
        logits = torch.tensor(spread * rng.normal(size=32_000))
        probs = torch.softmax(logits, -1).to(getattr(torch, kind)).double().numpy()
        few += np.count_nonzero(probs) <= 64
        assert abs(as_probs(probs).sum() - 1) < 1e-12
    assert few >= 2 or kind == "bfloat16"


def test_every_row_has_the_tolerance_of_its_own_numbers() -> None:
    # bug: one row in float32 gave the others its tolerance, or hid which row is wrong
    narrow = np.full(3, np.float32(1 / 3) + np.float32(3e-6)).astype(np.float64)
    rows = as_probs_rows([narrow, [0.2, 0.3, 0.5]], [1, 0, 0])[0]
    assert abs(rows.sum(axis=1) - 1).max() < 1e-15
    with pytest.raises(InvalidDistributionError, match=r"row 1 sums to 1\.00001; .* within 1e-06"):
        as_probs_rows([narrow, [0.2, 0.3, 0.50001]], [1, 0, 0])
