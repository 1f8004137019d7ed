"""Joint distributions as tables: rejected input, and the two ways to build one."""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction

import numpy as np
import pytest

from otm.drafts import IID, Joint
from otm.errors import (
    InvalidDistributionError,
    InvalidDraftsError,
    InvalidInputError,
    InvalidParameterError,
)

F = Fraction


def test_tuples_make_the_same_table() -> None:
    drafts = IID([F(1, 2), F(1, 2), F(0)], 2)
    assert dict(Joint(drafts.tuples(), 3).tuples()) == dict(drafts.tuples())


def test_rows_of_probability_zero_are_not_drafted() -> None:
    drafts = Joint({(0, 1): 1.0, (2, 2): 0.0}, 3)
    assert drafts.tuple_count == 1
    assert drafts.draftable.tolist() == [True, True, False]


def test_sums_within_the_tolerance_are_normalised() -> None:
    assert Joint({(0,): 0.5, (1,): 0.5 + 1e-9}, 2).probabilities.sum() == pytest.approx(
        1, abs=1e-15
    )


@pytest.mark.parametrize(
    ("table", "n", "error", "says"),
    [
        ({(0, 1): 0.5, (1, 0): 0.6}, 2, InvalidDistributionError, "joint draft distribution"),
        ({(0, 1): 1.5, (1, 0): -0.5}, 2, InvalidDistributionError, "index 1"),
        ({(0, 1): float("nan")}, 2, InvalidDistributionError, "nan"),
        ({}, 2, InvalidDistributionError, "shape"),
        ({(0, 1): 0.5, (1,): 0.5}, 2, InvalidDraftsError, "array-like|shape"),
        ({(): 1.0}, 2, InvalidDraftsError, "empty|type"),
        ({(0, 2): 1.0}, 2, InvalidDraftsError, "draft token 2"),
        ({(0, -1): 1.0}, 2, InvalidDraftsError, "draft token -1"),
        ({(0, 0.5): 1.0}, 2, InvalidDraftsError, "type float64"),
        ([((0, 1), 0.5), ((0, 1), 0.5)], 2, InvalidDraftsError, r"\[0, 1\].*2 times"),
        ([(0, 1, 0.5)], 2, InvalidInputError, "pairs"),
        ({0: 1.0}, 2, InvalidInputError, "pairs"),
        (7, 2, InvalidInputError, "pairs"),
        ({(0,): 1.0}, 1.0, InvalidParameterError, "n = 1.0"),
        ({(0,): 1.0}, True, InvalidParameterError, "n = True"),
        ({(0,): 1.0}, 0, InvalidParameterError, "n = 0"),
    ],
)
def test_what_is_no_table_is_refused(
    table: Mapping[tuple[int, ...], float], n: int, error: type[Exception], says: str
) -> None:
    with pytest.raises(error, match=says):
        Joint(table, n)


def test_an_array_is_a_table() -> None:
    array = np.zeros((3, 3, 3))
    array[0, 1, 2], array[2, 0, 0] = 0.25, 0.75
    drafts = Joint.from_array(array)
    assert (drafts.n, drafts.k) == (3, 3)
    assert dict(drafts.tuples()) == {(0, 1, 2): 0.25, (2, 0, 0): 0.75}


def test_an_array_of_fractions_is_exact() -> None:
    assert Joint.from_array([[F(1, 2), F(0)], [F(0), F(1, 2)]]).exact


def test_an_array_of_float32_has_the_tolerance_of_its_type() -> None:
    array = np.full((64, 64), 1 / 4096 * (1 + 3e-6), dtype=np.float32)
    assert Joint.from_array(array).probabilities.sum() == pytest.approx(1, abs=1e-14)


@pytest.mark.parametrize(
    ("array", "says"),
    [
        (np.zeros((2, 3)), "shape"),
        (1.0, "shape"),
        (np.zeros((0, 0)), "shape"),
        (np.full((2, 2), 0.3), "sums to"),
        (np.array([[1.5, -0.5], [0, 0]]), "must be a"),
        (np.zeros((2, 2)), "shape|sums to"),
    ],
)
def test_what_is_no_joint_array_is_refused(array: object, says: str) -> None:
    with pytest.raises(InvalidDistributionError, match=says):
        Joint.from_array(array)  # type: ignore[arg-type]
