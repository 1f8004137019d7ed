"""Tables as language models: which row is looked up, and what a session of them returns."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from otm.errors import InvalidDistributionError, InvalidParameterError, ProblemTooLargeError
from otm.models.table import TableModel

HALF = Fraction(1, 2)
LAWS = {
    (): [HALF, HALF],
    (0,): [Fraction(1, 4), Fraction(3, 4)],
    (1, 0): [Fraction(1), Fraction(0)],
    (0, 1, 0): [Fraction(1, 8), Fraction(7, 8)],
}


@pytest.mark.parametrize(
    ("context", "row"),
    [
        ((), ()),
        ((1,), ()),
        ((0,), (0,)),
        ((0, 0), (0,)),
        ((1, 0), (1, 0)),
        ((1, 1, 0), (1, 0)),
        ((0, 1, 0), (0, 1, 0)),
        ((0, 0, 1, 0), (0, 1, 0)),
        ((0, 1, 0, 1), ()),
    ],
)
def test_the_longest_ending_of_the_context_counts(
    context: tuple[int, ...], row: tuple[int, ...]
) -> None:
    """Bug: beginnings instead of endings, the shortest row, or rows that are not adjacent."""
    assert TableModel(LAWS).probs(context).tolist() == LAWS[row]


def test_a_session_returns_the_law_after_each_token() -> None:
    """Bug: distributions one token off, rows swapped by `keep`, or padding taken for a token."""
    model = TableModel(LAWS)
    assert (model.vocabulary, model.context_length, model.returns_probs) == (2, None, True)
    session = model.start(2)
    first = session.append(np.array([[0, 1, 0], [1, -1, -1]]))
    assert first.shape == (2, 3, 2)
    assert first[0].tolist() == [LAWS[0,], LAWS[()], LAWS[0, 1, 0]]
    assert first[1, 0].tolist() == LAWS[()]
    session.keep(np.array([1, 0, 0]), np.array([1, 2, 0]))  # (1), (0, 1), ()
    second = session.append(np.array([[0], [0], [0]]))
    assert second[:, 0].tolist() == [LAWS[1, 0], LAWS[0, 1, 0], LAWS[0,]]
    session.read(np.array([[1, -1], [-1, -1], [1, 0]]))
    assert session.append(np.array([[0], [-1], [-1]]))[0, 0].tolist() == LAWS[0, 1, 0]
    session.keep(np.array([2]), np.array([1]))  # (0)
    assert session.append(np.array([[0]]))[0, 0].tolist() == LAWS[0,]


def test_floats_and_fractions_stay_what_they_are() -> None:
    """Bug: exact distributions are rounded on their way through a session."""
    for half in (HALF, 0.5):
        law = TableModel({(): [half, half]}).start(1).append(np.array([[1]]))[0, 0]
        assert [type(number) for number in law.tolist()] == [type(half)] * 2


@pytest.mark.parametrize(
    ("laws", "match"),
    [
        ({(0,): [1, 0]}, "no row for the empty context"),
        ({}, "no row for the empty context"),
        ({(): [1, 0], (1,): [1, 0, 0]}, r"context \(1,\) has 3 tokens"),
        ({(): [1, 0], (1,): [0.5, 0.25]}, r"context \(1,\)"),
        ({(): [-1, 2]}, r"context \(\)"),
        (None, "the table is a NoneType"),
        ({(): [1.0], 0: [1.0]}, "the key 0; a context must be a tuple"),
        ({(): [1.0], ("a",): [1.0]}, r"the key \('a',\); a context must be a tuple"),
    ],
)
def test_bad_tables_are_refused(laws: Any, match: str) -> None:
    """Bug: a gap in the table or a wrong distribution is met in the middle of decoding."""
    with pytest.raises(InvalidDistributionError, match=match):
        TableModel(laws)


def test_random_tables_are_complete_exact_and_have_zeros() -> None:
    """Bug: contexts missing, all distributions alike or nowhere zero, or a row of zeros alone."""
    model = TableModel.random(3, order=2, rng=np.random.default_rng(1))
    laws = [model.probs(context) for context in np.ndindex(3, 3)]
    assert len({tuple(law) for law in laws}) > 5
    assert all(sum(law) == 1 for law in laws)
    assert any(0 in law for law in laws)
    assert {type(number) for law in laws for number in law} == {Fraction}
    again = TableModel.random(3, order=2, rng=np.random.default_rng(1))
    assert all((law == again.probs(c)).all() for law, c in zip(laws, np.ndindex(3, 3), strict=True))


@pytest.mark.parametrize("other", [[0.25, 0.75], [1, 0], [HALF, HALF]])
def test_all_laws_of_a_table_are_of_one_kind(other: list[Any]) -> None:
    """Bug: fractions beside floats, so that no session returns the distribution of the table."""
    model = TableModel({(): [HALF, HALF], (1,): other})
    kind = float if 0.25 in other else Fraction
    for context, law in (((), [HALF, HALF]), ((1,), other)):
        assert model.probs(context).tolist() == law
        assert {type(number) for number in model.probs(context)} <= {kind, np.float64}
        assert (model.probs(context).dtype == object) == (kind is Fraction)
        assert not model.probs(context).flags.writeable


@pytest.mark.parametrize(
    ("vocabulary", "order", "max_weight", "error"),
    [
        (0, 1, 4, InvalidParameterError),
        (2, -1, 4, InvalidParameterError),
        (2, 1, -1, InvalidParameterError),
        (2, 10**12, 4, ProblemTooLargeError),
        (1, 10**4000, 4, ProblemTooLargeError),
    ],
)
def test_tables_that_cannot_be_drawn_are_refused(
    vocabulary: int, order: int, max_weight: int, error: type[Exception]
) -> None:
    """Bug: errors of NumPy's, or a loop without end."""
    with pytest.raises(error):
        TableModel.random(vocabulary, order, np.random.default_rng(0), max_weight=max_weight)
