"""Input that the verifiers reject, in NumPy and in torch."""

from __future__ import annotations

import math
import subprocess
import sys
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from otm.errors import (
    InvalidDistributionError,
    InvalidDraftsError,
    InvalidInputError,
    InvalidParameterError,
    InvalidUniformsError,
)
from otm.kernels import SparseDrafts, verify_logits, verify_probs

torch = pytest.importorskip("torch")

ROOT = Path(__file__).resolve().parents[2]


def tensors(*arrays: np.ndarray) -> list[Any]:
    return [torch.from_numpy(array) for array in arrays]


def arguments() -> dict[str, np.ndarray]:
    laws = np.full((2, 3, 4), 0.25)
    return {
        "target": laws,
        "draft": laws[:, :2].copy(),
        "tokens": np.array([[0, 1], [2, -1]]),
        "uniforms": np.full((2, 4), 0.5),
    }


def with_entry(name: str, index: tuple[int, ...], value: float) -> dict[str, np.ndarray]:
    changed = arguments()
    changed[name] = changed[name].copy()
    changed[name][index] = value
    return changed


WRONG: list[tuple[dict[str, np.ndarray], type[Exception], str]] = [
    ({"tokens": np.zeros(2, dtype=int)}, InvalidDraftsError, "shape"),
    ({"tokens": np.zeros((2, 2))}, InvalidDraftsError, "float64"),
    ({"tokens": np.zeros((2, 2), dtype=bool)}, InvalidDraftsError, "bool"),
    (with_entry("tokens", (0, 0), 4), InvalidDraftsError, r"\[0, 4\)"),
    (with_entry("tokens", (0, 0), -2), InvalidDraftsError, "-2 to 2"),
    ({"target": np.full((2, 2, 4), 0.25)}, InvalidDistributionError, "one for the bonus"),
    ({"target": np.ones((2, 3, 0))}, InvalidDistributionError, "shape"),
    ({"target": np.ones((2, 3, 4), dtype=int)}, InvalidDistributionError, "int64"),
    ({"target": np.ones((2, 3, 4))}, InvalidDistributionError, "sum to one"),
    (with_entry("target", (1, 0, 2), math.nan), InvalidDistributionError, "number 0 of chain 1"),
    (with_entry("target", (0, 2, 2), math.inf), InvalidDistributionError, "number 1 of chain 0"),
    (with_entry("target", (0, 1, 2), -0.1), InvalidDistributionError, "number 0 of chain 0"),
    (with_entry("draft", (0, 1, 3), math.nan), InvalidDistributionError, "of draft, number 1 of"),
    ({"draft": np.full((2, 2, 5), 0.2)}, InvalidDistributionError, "at most the target's 4"),
    ({"draft": np.full((2, 1, 4), 0.25)}, InvalidDistributionError, "shape"),
    ({"draft": np.full((2, 2, 4), [0, 0.5, 0.5, 0])}, InvalidDraftsError, "probability 0"),
    ({"uniforms": np.full((2, 3), 0.5)}, InvalidUniformsError, "recovered"),
    ({"uniforms": np.full((2, 4), 0.5, dtype=np.float32)}, InvalidUniformsError, "24 bits"),
    (with_entry("uniforms", (1, 3), 1.0), InvalidUniformsError, "excludes"),
    (with_entry("uniforms", (1, 3), math.nan), InvalidUniformsError, "excludes"),
]  # fmt: skip


@pytest.mark.parametrize(("changes", "error", "message"), WRONG)
def test_errors_are_the_same_in_numpy_and_torch(
    changes: dict[str, np.ndarray], error: type[Exception], message: str
) -> None:
    inputs = list({**arguments(), **changes}.values())
    with pytest.raises(error, match=message):
        verify_probs(*inputs)
    with pytest.raises(error, match=message):
        verify_probs(*tensors(*inputs))


WRONG_LOGITS: list[tuple[dict[str, np.ndarray], Any, type[Exception], str]] = [
    (with_entry("target", (0, 1, 2), math.nan), 1.0, InvalidDistributionError, "NaN"),
    (with_entry("target", (0, 1, 2), math.inf), 0.0, InvalidDistributionError, "NaN or"),
    ({"target": np.full((2, 3, 4), -math.inf)}, 1.0, InvalidDistributionError, "everywhere"),
    (with_entry("draft", (1, 0, 2), -math.inf), 1.0, InvalidDraftsError, "probability 0"),
    (with_entry("draft", (1, 0, 1), math.nan), 1.0, InvalidDistributionError, "logits of draft"),
    ({}, -1.0, InvalidParameterError, "at least 0"),
    ({}, math.nan, InvalidParameterError, "at least 0"),
    ({}, math.inf, InvalidParameterError, "finite"),
    ({}, np.ones(3), InvalidParameterError, "shape"),
    ({}, np.array([1.0, -1.0]), InvalidParameterError, "at least 0"),
    ({}, 10**400, InvalidParameterError, "finite"),
    ({}, np.array([True, False]), InvalidParameterError, "of type bool"),
]  # fmt: skip


@pytest.mark.parametrize(("changes", "temperature", "error", "message"), WRONG_LOGITS)
def test_errors_of_logits_are_the_same(
    changes: dict[str, np.ndarray], temperature: Any, error: type[Exception], message: str
) -> None:
    inputs = list({**arguments(), **changes}.values())
    with pytest.raises(error, match=message):
        verify_logits(*inputs, temperature=temperature)
    if isinstance(temperature, np.ndarray):
        temperature = torch.from_numpy(temperature)
    with pytest.raises(error, match=message):
        verify_logits(*tensors(*inputs), temperature=temperature)


def test_temperatures_that_are_no_numbers_are_refused() -> None:
    """Catches a comparison of None with 0."""
    with pytest.raises(InvalidParameterError, match="of type object"):
        verify_logits(*arguments().values(), temperature=np.array([None, 1]))


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
@pytest.mark.parametrize("name", arguments())
@pytest.mark.parametrize("verify", [verify_probs, verify_logits])
def test_tensors_that_are_not_dense_or_hold_no_numbers_are_refused(name: str, verify: Any) -> None:
    """Bug: NotImplementedError from inside torch, and "Tensor.item() cannot be called"."""
    inputs = dict(zip(arguments(), tensors(*arguments().values()), strict=True))
    changed = [inputs[name].to_sparse(), torch.nested.nested_tensor(list(inputs[name]))]
    for array in changed:
        with pytest.raises(InvalidInputError, match=rf"{name} is a tensor .*dense"):
            verify(*{**inputs, name: array}.values())
    with pytest.raises(InvalidInputError, match="on device meta; give a dense"):
        verify(*(x.to("meta") for x in inputs.values()))
    temperature = torch.ones(2).to_sparse()
    with pytest.raises(InvalidInputError, match=r"temperature is a tensor .*dense"):
        verify_logits(*inputs.values(), temperature=temperature)


@pytest.mark.parametrize("entry", ["1/4", None, b"0", True])
def test_objects_that_are_no_numbers_are_refused(entry: Any) -> None:
    """Bug: a TypeError of Python, which compares a string with 0."""
    fractions = arguments()
    fractions["target"] = np.full((2, 3, 4), Fraction(1, 4))
    fractions["draft"] = np.full((2, 2, 4), Fraction(1, 4))
    assert verify_probs(*fractions.values()).accepted.tolist() == [2, 1]
    for name in ("target", "draft", "uniforms"):
        wrong = fractions[name].astype(object)
        wrong[0, 0] = entry
        error, words = InvalidDistributionError, ("must contain fractions", "of type")
        if name == "uniforms":
            error, words = InvalidUniformsError, ("must be a number",) * 2
        for array, message in zip((wrong, fractions[name].astype(str)), words, strict=True):
            with pytest.raises(error, match=message):
                verify_probs(*{**fractions, name: array}.values())


@pytest.mark.parametrize("kind", [np.float32, np.float64, np.int64, Fraction])
def test_temperatures_are_numbers_of_any_type_beside_arrays_and_tensors(kind: Any) -> None:
    """Bug: a NumPy float32 raises in a call with tensors."""
    inputs = list(arguments().values())
    expected = verify_logits(*inputs, temperature=1.0).tokens.tolist()
    for arrays in (inputs, tensors(*inputs)):
        for validate in (True, False):
            outcome = verify_logits(*arrays, temperature=kind(1), validate=validate)
            assert outcome.tokens.tolist() == expected


def test_torch_is_loaded_on_use_and_its_absence_is_explained() -> None:
    code = """
import sys, otm.kernels
assert "torch" not in sys.modules
sys.modules["torch"] = None
for name in ("verify_sigmoid", "sigmoid_distance"):
    try:
        getattr(otm.kernels, name)
    except otm.errors.MissingDependencyError as error:
        assert "otm[torch]" in str(error)
    else:
        raise AssertionError(name)
"""
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True)


def test_arrays_of_another_library_or_device_are_refused() -> None:
    inputs = list(arguments().values())
    with pytest.raises(InvalidInputError, match="like the target, it must be a"):
        verify_probs(inputs[0], *tensors(*inputs[1:]))
    with pytest.raises(InvalidInputError, match="Tensor"):
        verify_probs(torch.from_numpy(inputs[0]), *inputs[1:])
    mixed = tensors(*inputs)
    with pytest.raises(InvalidInputError, match="devices"):
        verify_probs(mixed[0].to("meta"), *mixed[1:])
    fractions = np.full((2, 3, 4), Fraction(1, 4), dtype=object)
    with pytest.raises(InvalidDistributionError, match="fractions"):
        verify_probs(fractions, *inputs[1:])


@pytest.mark.parametrize("entry", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("place", [0, 1, 3])
def test_nan_and_infinity_are_refused_among_fractions_too(entry: float, place: int) -> None:
    """Bug: a smallest number that skips NaN, whose sum is then near nothing and passes."""
    fractions = arguments()
    for name in ("target", "draft"):
        fractions[name] = np.full(fractions[name].shape, Fraction(1, 4))
    fractions["target"][1, 0, place] = entry
    with pytest.raises(InvalidDistributionError, match="first row, number 0 of chain 1"):
        verify_probs(*fractions.values())


def test_rows_beyond_the_end_are_not_checked_of_several_chains_either() -> None:
    """Bug: a row that is named by, or looked at for, another chain than its own."""
    target = np.full((2, 2, 3, 4), 0.25)
    draft, tokens = target[:, :, :2].copy(), np.zeros((2, 2, 2), dtype=np.int64)
    tokens[1, 0] = [1, -1]
    target[1, 0, 2] = draft[1, 0, 1] = math.nan
    arrays = [target, draft, tokens, np.full((2, 6), 0.5)]
    for wrap in (list, lambda x: tensors(*x)):
        verify_probs(*wrap(arrays), rule="grid k-Seq")
    target[1, 1, 2, 3] = math.nan
    for wrap in (list, lambda x: tensors(*x)):
        with pytest.raises(InvalidDistributionError, match="after draft, number 1 of chain 3"):
            verify_probs(*wrap(arrays), rule="grid k-Seq")


def packed() -> dict[str, Any]:
    """Sequences of two drafts, none and one, with lists of three tokens."""
    return {
        "target": np.full((6, 4), 0.25),
        "draft": SparseDrafts(
            np.array([[0, 1, -1], [3, -1, 2], [1, 0, 2]]),
            np.array([[0.5, 0.5, math.nan], [0.5, 7.0, 0.5], [0.2, 0.3, 0.5]]),
        ),
        "tokens": np.array([0, 2, 1]),
        "uniforms": np.full((3, 4), 0.5),
        "offsets": np.array([0, 2, 2, 3], dtype=np.int32),
    }


def with_list(tokens: Any = None, probs: Any = None) -> dict[str, Any]:
    before = packed()["draft"]
    given = (tokens, probs)
    return {
        "draft": SparseDrafts(*(b if g is None else g for g, b in zip(given, before, strict=True)))
    }


LISTED, PROBS = packed()["draft"]

WRONG_FORMS: list[tuple[dict[str, Any], type[Exception], str]] = [
    ({"offsets": np.array([0, 2, 3])}, InvalidDistributionError, r"must be \(5,\)"),
    ({"offsets": np.array([1, 2, 2, 3])}, InvalidDraftsError, "ascend from 0 to 3"),
    ({"offsets": np.array([0, 3, 2, 3])}, InvalidDraftsError, "ascend"),
    ({"offsets": np.array([0, 2, 2, 2])}, InvalidDraftsError, "ascend"),
    ({"offsets": np.array([[0, 2, 2, 3]])}, InvalidDraftsError, r"\[B \+ 1\]"),
    ({"offsets": np.array([0.0, 2, 2, 3])}, InvalidDraftsError, "offsets are of type float64"),
    ({"offsets": [0, 2, 2, 3]}, InvalidInputError, "offsets is a list"),
    ({"offsets": None}, InvalidDraftsError, "with offsets"),
    ({"uniforms": np.full((3, 3), 0.5)}, InvalidDraftsError, "sequence 0 has 2 drafts"),
    ({"uniforms": np.full((2, 4), 0.5)}, InvalidUniformsError, r"needs \(3, 4\)"),
    ({"uniforms": np.full(4, 0.5)}, InvalidUniformsError, r"needs \(3, 2\)"),
    ({"tokens": np.array([[0, 2, 1]])}, InvalidDraftsError, "with offsets"),
    ({"tokens": np.array([0, 2, 4])}, InvalidDraftsError, r"\[0, 4\)"),
    ({"target": np.full((5, 4), 0.25)}, InvalidDistributionError, r"must be \(6,\)"),
    ({"target": np.full((6, 4), 0.3)}, InvalidDistributionError, "number 0 of chain 0.*sum"),
    (with_list(LISTED[:2], PROBS[:2]), InvalidDistributionError, "sparse drafts have"),
    (with_list(LISTED[:, :2]), InvalidDistributionError, "sparse drafts have"),
    (with_list(LISTED[:, :0], PROBS[:, :0]), InvalidDistributionError, "at least 1"),
    (with_list(LISTED.astype(float)), InvalidDraftsError, "float64"),
    (with_list(probs=LISTED), InvalidDistributionError, "int64"),
    (with_list(probs=PROBS.tolist()), InvalidInputError, "draft is a list"),
    (with_list(tokens=LISTED.tolist()), InvalidInputError, "list of draft tokens is a list"),
    (with_list(np.where(LISTED == 0, 4, LISTED)), InvalidDistributionError, "outside"),
    (with_list(np.where(LISTED == 0, -2, LISTED)), InvalidDistributionError, "outside"),
    (with_list(np.where(LISTED == 0, 1, LISTED)), InvalidDistributionError, "twice"),
    (with_list(probs=PROBS / 2), InvalidDistributionError, "of draft, number 0 of chain 0.*sum"),
    (with_list(probs=np.where(PROBS == 0.2, -0.2, PROBS)), InvalidDistributionError, "chain 2"),
    ({"tokens": np.array([0, 0, 1])}, InvalidDraftsError, "draft 1 of chain 0 is token 0.*prob"),
    ({"tokens": np.array([0, 2, 3])}, InvalidDraftsError, "draft 0 of chain 2 is token 3"),
    ({"counted": np.ones((3, 2), dtype=bool)}, InvalidDraftsError, "several chains"),
]  # fmt: skip


def as_tensors(given: Any) -> Any:
    if isinstance(given, SparseDrafts):
        return SparseDrafts(*map(as_tensors, given))
    return torch.from_numpy(given) if isinstance(given, np.ndarray) else given


@pytest.mark.parametrize(("changes", "error", "message"), WRONG_FORMS)
def test_packed_and_sparse_drafts_that_cannot_be_are_refused(
    changes: dict[str, Any], error: type[Exception], message: str
) -> None:
    right = packed()
    for made in (dict, lambda given: {name: as_tensors(x) for name, x in given.items()}):
        *arguments, offsets = made(right).values()
        outcome = verify_probs(*arguments, offsets=offsets)
        assert outcome.tokens.shape == (3, 3)
        wrong = made({**right, **changes})
        options = {name: wrong.pop(name) for name in ("offsets", "counted") if name in wrong}
        with pytest.raises(error, match=message):
            verify_probs(*wrong.values(), **options)


def test_of_packed_drafts_only_what_is_used_is_looked_at() -> None:
    """Bug: a row beyond the drafts of one sequence is taken for its own."""
    right = packed()
    *arguments, offsets = right.values()
    arguments[0] = np.where(np.arange(6)[:, None] == 2, math.nan, arguments[0])
    with pytest.raises(InvalidDistributionError, match="after draft, number 1 of chain 0"):
        verify_probs(*arguments, offsets=offsets)
    arguments[2] = np.array([0, -1, 1])  # ends the first sequence: its last row is not read
    assert verify_probs(*arguments, offsets=offsets).accepted.tolist() == [0, 0, 1]
    none = np.zeros(4, dtype=int)  # no drafts at all
    arguments = [np.full((3, 4), 0.25), SparseDrafts(*(x[:0] for x in (LISTED, PROBS)))]
    uniforms = np.full((3, 4), 0.5)
    for form in (arguments[1], None, np.zeros((0, 4))):
        tokens = np.zeros(0, dtype=int)
        for backend in (lambda x: x, as_tensors):
            given = map(backend, (arguments[0], form, tokens, uniforms))
            outcome = verify_probs(*given, offsets=backend(none))
            assert outcome.tokens.tolist() == [[2, -1, -1]] * 3


def test_lists_beside_logits_are_checked_as_probabilities() -> None:
    right = packed()
    *arguments, offsets = right.values()
    arguments[0] = np.log(arguments[0])
    verify_logits(*arguments, offsets=offsets)
    arguments[1] = SparseDrafts(LISTED, np.log(PROBS))
    with pytest.raises(InvalidDistributionError, match="the distribution of draft, number 0"):
        verify_logits(*arguments, offsets=offsets, temperature=np.array([1.0, 1.0, 0.0]))
    verify_logits(*arguments, offsets=offsets, temperature=0)  # greedy: they are not looked at


SHARED = np.array([[[1, 2], [1, 0], [1, 2]]])


@pytest.mark.parametrize(
    ("counted", "message"),
    [
        ([[[1, 1], [1, 0], [1, 1]]], "draft 1 of chain 1 of sequence 0"),  # of its own tokens
        ([[[1, 1], [0, 1], [1, 0]]], "draft 1 of chain 2 .* drafts before it must not"),
        ([[[0, 1], [1, 1], [1, 1]]], "draft 0 of chain 0"),  # the first has no earlier one
        ([[[1, 1], [0, 1]]], r"shape \(1, 2, 2\)"),
        (np.ones((1, 3, 2), dtype=int), "booleans"),
    ],
)
def test_draws_that_no_earlier_chain_has_are_refused(counted: Any, message: str) -> None:
    target, draft = np.full((1, 3, 3, 3), 1 / 3), np.full((1, 3, 2, 3), 1 / 3)
    uniforms = np.full((1, 2 * 3 + 2), 0.5)
    right = np.array([[[1, 1], [0, 1], [0, 0]]], dtype=bool)
    wrong = counted if isinstance(counted, np.ndarray) else np.array(counted, dtype=bool)
    for made in (lambda x: x, as_tensors):
        arguments = [made(x) for x in (target, draft, SHARED, uniforms)]
        verify_probs(*arguments, rule="grid k-Seq", counted=made(right))
        with pytest.raises(InvalidDraftsError, match=message):
            verify_probs(*arguments, rule="grid k-Seq", counted=made(wrong))


def test_several_chains_are_not_packed() -> None:
    arguments = [np.full((1, 3, 3, 3), 1 / 3), np.full((1, 3, 2, 3), 1 / 3), SHARED]
    with pytest.raises(InvalidDraftsError, match="no offsets to a rule for several"):
        verify_probs(*arguments, np.full((1, 8), 0.5), rule="grid k-Seq", offsets=np.array([0, 2]))
