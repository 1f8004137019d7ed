"""Padding in files of scores: cut, filled up or rejected, and never counted."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.special import log_softmax

from otm.errors import InvalidInputError, InvalidParameterError
from otm.gain import Settings, from_files, report
from otm.gain.reports.blocks import measure_all
from otm.gain.reports.pairs import Measured

SETTINGS = Settings(ks=(1, 3), lossy_settings=())
KINDS = {
    "logits": lambda scores: scores,
    "log-probabilities": lambda scores: log_softmax(scores, axis=1),
    "probabilities": lambda scores: np.exp(log_softmax(scores, axis=1)),
}


def logits(folder: Path) -> dict[str, Any]:
    """Return the logits, the prompts and the tokens of the folder; a vocabulary of 40 tokens."""
    arrays = dict(np.load(folder / "pair.npz"))
    return arrays | {name: arrays[name].astype(np.float64) for name in ("draft", "target")}


def widened(scores: Any, columns: int, value: float) -> Any:
    return np.pad(scores, ((0, 0), (0, columns)), constant_values=value)


def measured(folder: Path, arrays: dict[str, Any], name: str, **options: Any) -> Measured:
    save = options.pop("save", np.savez)
    save(folder / f"{name}.npz", **arrays)
    return measure_all(from_files(folder / f"{name}.npz", **options), SETTINGS, folder / name)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("value", [-np.inf, np.nan, -90.0, 0.0])
def test_a_padded_file_gives_the_numbers_of_the_tokens(
    folder: Path, kind: str, value: float
) -> None:
    """Catches a cut of the wrong columns, and rows that are filled up with likely tokens.

    Bug: zeros raised an error even with the number of tokens that the message recommends.
    """
    arrays = logits(folder)
    plain = measured(folder, arrays, "plain")
    for name in ("draft", "target"):
        arrays[name] = KINDS[kind](arrays[name])
    beyond = float(value)
    if kind == "probabilities" and value:
        beyond = np.exp(beyond)
    arrays["target"] = widened(arrays["target"], 271, beyond)
    for vocabulary in (40, 45):  # cut, and 5 tokens that no model gives
        if vocabulary == 45 and (np.isnan(value) or value == 0):
            continue
        found = measured(folder, arrays, f"cut{vocabulary}", kind=kind, vocabulary=vocabulary)
        for name, numbers in plain.items():
            np.testing.assert_allclose(found[name], numbers, atol=1e-11, err_msg=name)


def test_the_report_says_what_it_was_cut_to(folder: Path) -> None:
    """Catches results of a whole file that are taken for those of its cut."""
    arrays = logits(folder)
    arrays["draft"] = widened(arrays["draft"], 3, -np.inf)
    np.savez(folder / "x.npz", **arrays)
    summary = report(from_files(folder / "x.npz", vocabulary=40), folder / "out", SETTINGS)
    assert summary.source.endswith("file 'x.npz', 40 tokens of each")
    with pytest.raises(InvalidInputError, match="differs in its source"):
        report(from_files(folder / "x.npz", vocabulary=43), folder / "out", SETTINGS)


def test_two_vocabularies_are_refused_with_both_numbers(folder: Path) -> None:
    """Bug: "both alike" for 151,936 logits of a model beside 151,665 tokens of its tokenizer."""
    arrays = logits(folder)
    arrays["target"] = widened(arrays["target"], 1200, -9.0)
    message = r"'draft' of .* has 40 tokens and .* 1,240; .* --vocabulary N \(vocabulary=N\)"
    with pytest.raises(InvalidInputError, match=message):
        measured(folder, arrays, "x")
    for wrong in (0, True, 2**24 + 1, 40.0):
        with pytest.raises(InvalidParameterError, match="vocabulary = "):
            from_files(folder / "pair.npz", vocabulary=wrong)  # type: ignore[arg-type]


@pytest.mark.parametrize("kind", KINDS)
def test_columns_with_mass_are_not_cut(folder: Path, kind: str) -> None:
    """Catches a vocabulary that was mistyped, and takes tokens away."""
    arrays = logits(folder)
    for name in ("draft", "target"):
        arrays[name] = KINDS[kind](arrays[name])
    message = r"^row 0 of .*the columns from 39 on have .* of the mass, more than 0\.0001"
    with pytest.raises(InvalidInputError, match=message):
        measured(folder, arrays, "x", kind=kind, vocabulary=39)


def test_infinite_logits_are_not_cut(folder: Path) -> None:
    """Bug: a column of +∞ behind the vocabulary had no mass, since that is not a number."""
    arrays = logits(folder)
    arrays["draft"] = widened(arrays["draft"], 3, np.inf)
    with pytest.raises(InvalidInputError, match="from 40 on have 1 of the mass"):
        measured(folder, arrays, "x", vocabulary=40)


@pytest.mark.parametrize("kind", KINDS)
def test_columns_of_nan_are_named(folder: Path, kind: str) -> None:
    """Bug: "the logits have NaN" for padding that is NaN in every row."""
    arrays = logits(folder)
    for name in ("draft", "target"):
        arrays[name] = widened(KINDS[kind](arrays[name]), 5, np.nan)
    message = r"^rows 0 to \d+ of .* are NaN in columns 40 to 44; .* --vocabulary 40 \("
    with pytest.raises(InvalidInputError, match=message):
        measured(folder, arrays, "x", kind=kind)
    arrays = logits(folder)
    arrays["draft"][:, [3, 7, 8, 11, 20, 30, 39]] = np.nan
    with pytest.raises(
        InvalidInputError, match=r"columns 3, 7, 8, 11, 20 and 2 more; write −inf there"
    ):
        measured(folder, arrays, "y")
    arrays["draft"] = logits(folder)["draft"]
    arrays["draft"][5, 3] = np.nan  # a single NaN is not padding
    with pytest.raises(InvalidInputError, match=r"^row 5 of .* the logits have NaN"):
        measured(folder, arrays, "z")


@pytest.mark.parametrize("kind", ["logits", "log-probabilities"])
def test_last_columns_of_zeros_are_no_tokens(folder: Path, kind: str) -> None:
    """Bug: a draft vocabulary that was filled up by zeros, whose tokens count as likely ones."""
    arrays = logits(folder)
    for name in ("draft", "target"):
        arrays[name] = KINDS[kind](arrays[name])
    arrays["draft"][:, 37:] = 0
    message = r"^rows 0 to \d+ of array 'draft' .* zero in columns 37 to 39, .* --vocabulary 37 \("
    with pytest.raises(InvalidInputError, match=message):
        measured(folder, arrays, "x", kind=kind)
    if kind == "logits":
        assert measured(folder, arrays, "tokens", vocabulary=40)["optimum"].size


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
@pytest.mark.parametrize("begin", [20, 24])  # within a block of 8 positions, and at its first
def test_rows_of_zeros_are_no_positions(folder: Path, save: Any, begin: int) -> None:
    """Bug: α rises from .67 to .83 where an array is filled up with as many rows of zeros."""
    arrays = logits(folder)
    del arrays["tokens"]
    for name in ("draft", "target"):
        arrays[name][begin:] = 0
    message = rf"^row {begin} of array 'draft' .* zero everywhere, .* leave such rows out"
    with pytest.raises(InvalidInputError, match=message):
        measured(folder, arrays, "x", save=save)


def test_zeros_as_probabilities_change_nothing(folder: Path) -> None:
    """Catches padding that changes a number."""
    arrays = logits(folder)
    for name in ("draft", "target"):
        arrays[name] = KINDS["probabilities"](arrays[name])
    plain = measured(folder, arrays, "plain", kind="probabilities")
    for name in ("draft", "target"):
        arrays[name] = widened(arrays[name], 271, 0.0)
    found = measured(folder, arrays, "padded", kind="probabilities")
    for name, numbers in plain.items():
        np.testing.assert_allclose(found[name], numbers, atol=1e-12, err_msg=name)
    arrays["target"][7] = 0
    with pytest.raises(InvalidInputError, match=r"^row 7 of .* the sum 0; probabilities"):
        measured(folder, arrays, "rows", kind="probabilities")


def test_rows_of_certain_tokens_are_no_logits(folder: Path) -> None:
    """Catches one-hot probabilities that go through a softmax, padded ones too."""
    arrays = {"draft": np.eye(60, 70), "target": np.eye(60, 70)}
    with pytest.raises(InvalidInputError, match=r"as probabilities do; set `kind` or --kind"):
        measured(folder, arrays, "x")


@pytest.mark.parametrize("kind", ["log-probabilities", "probabilities"])
@pytest.mark.parametrize("narrow", ["float16", "bfloat16", "float32"])
def test_narrow_numbers_in_a_wide_file_are_taken(tmp_path: Path, kind: str, narrow: str) -> None:
    """Bug: a float32 softmax, saved as float64, raises at a large vocabulary."""
    torch = pytest.importorskip("torch")
    scores = torch.tensor(np.random.default_rng(0).normal(size=(2, 150_000)))
    softmax = torch.softmax if kind == "probabilities" else torch.log_softmax
    rows = softmax(scores.to(getattr(torch, narrow)), -1).double().numpy()
    assert abs((rows if kind == "probabilities" else np.exp(rows)).sum(axis=1) - 1).max() > 1e-7
    arrays = {"draft": rows, "target": rows[::-1]}
    assert measured(tmp_path, arrays, "x", kind=kind)["optimum"].max() < 1
