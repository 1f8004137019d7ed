"""Objects in messages: nothing that is given may make the message itself fail."""

from __future__ import annotations

from typing import Any

import pytest

from otm import Interval, alpha, compare
from otm._core.display.text import LENGTH, shown, text_table
from otm.decoding import SamplingParameters
from otm.decoding.beam import beam_search
from otm.decoding.drafters.base import as_branching
from otm.drafts import Joint
from otm.errors import (
    InvalidInputError,
    InvalidParameterError,
    OTMError,
    ProblemTooLargeError,
    UnknownMethodError,
)
from otm.gain.formulas import expected_tokens
from otm.models import GPTConfig, NGramModel, TableModel, UniformModel
from otm.optimum.top_logprobs import alpha_interval

HUGE = 10**5000


class Broken:
    """An object that cannot be written."""

    def __repr__(self) -> str:
        raise RuntimeError("no")


class Odd:
    """An object whose `repr` is not a string."""

    def __repr__(self) -> Any:
        return 1


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "None"),
        ("x" * 58, repr("x" * 58)),
        ("x" * 59, "'" + "x" * 58 + "…"),
        (HUGE, "<an integer of 16610 bits>"),
        (-HUGE, "<a negative integer of 16610 bits>"),
        ({1: HUGE}, "<a dict that cannot be written>"),
        (Broken(), "<a Broken that cannot be written>"),
        (Odd(), "<a Odd that cannot be written>"),
    ],
    ids=range(8),  # pytest would write the integers itself
)
def test_any_object_is_shown_in_a_few_characters(value: Any, text: str) -> None:
    """Bug: an error while an error is worded, or a message as long as what was given."""
    assert shown(value) == text
    assert len(shown(value)) <= LENGTH


def uniform_beam(**options: Any) -> Any:
    return beam_search(UniformModel(2), [[0]], **options)


@pytest.mark.parametrize(
    ("call", "error"),
    [
        (lambda: uniform_beam(width=-HUGE), InvalidParameterError),
        (lambda: expected_tokens(HUGE, 2), InvalidParameterError),
        (lambda: expected_tokens([HUGE, 0.5], 2), InvalidParameterError),
        (lambda: uniform_beam(max_tokens=-HUGE), InvalidParameterError),
        (lambda: GPTConfig(layers=HUGE, width=4, heads=2), InvalidParameterError),
        (lambda: NGramModel.witten_bell([0, 1], -HUGE, 2), InvalidParameterError),
        (lambda: NGramModel.witten_bell([0, 1], HUGE, 2), InvalidParameterError),
        (lambda: NGramModel.witten_bell([0, 1], HUGE, 1), InvalidParameterError),
        (lambda: NGramModel.witten_bell([0, 1], 2, HUGE), InvalidParameterError),
        (lambda: NGramModel.witten_bell([0, 1], 2, 2, distance=-HUGE), InvalidParameterError),
        (lambda: NGramModel.witten_bell([0, 1], 2, 2, distance=HUGE), InvalidInputError),
        (lambda: UniformModel(HUGE), InvalidParameterError),
        (lambda: TableModel({(HUGE,): [1]}), OTMError),
        (lambda: SamplingParameters(top_k=-HUGE), InvalidParameterError),
        (lambda: Interval(0, -HUGE), InvalidParameterError),
        (lambda: Joint({(0, 0): 1}, n=-HUGE), InvalidInputError),
        (lambda: alpha([0.5, 0.5], [0.5, 0.5], Broken()), InvalidInputError),
        (lambda: alpha_interval({HUGE: 1}, {0: 1}, 2, vocabulary=-HUGE), InvalidInputError),
        (lambda: compare([0.5, 0.5], [0.5, 0.5], 2, rules=[HUGE]), UnknownMethodError),
        (lambda: compare([0.5, 0.5], [0.5, 0.5], 2, rules={HUGE: 1}), InvalidParameterError),
        (lambda: as_branching((2**62,) * 20), ProblemTooLargeError),
    ],
)
def test_huge_integers_are_refused_in_our_words(call: Any, error: type[Exception]) -> None:
    """Bug: Python raises for integers of more than 4300 digits, printed or converted to float."""
    with pytest.raises(error):
        call()


def test_columns_are_as_wide_as_their_widest_cell() -> None:
    """Bug: a heading, or a row, that is left out when widths are taken; blanks at line ends."""
    rows = [["a", "1", ""], ["bcd", "22", "x"]]
    assert text_table(["rule", "α", "y"], rows).splitlines() == [
        "rule  α   y",
        "----  --  -",
        "a     1",
        "bcd   22  x",
    ]
    assert text_table(None, rows) == "a    1\nbcd  22  x"
    assert text_table(["a", "b"], []) == "a  b\n-  -"
    assert not text_table(None, [])
