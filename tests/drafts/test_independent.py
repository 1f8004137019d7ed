"""Independent drafts with different distributions."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from otm.drafts import IID, Independent
from otm.errors import InvalidDistributionError, InvalidDraftsError

F = Fraction


def test_equal_laws_are_the_iid_law() -> None:
    p = [F(1, 2), F(1, 3), F(1, 6)]
    assert dict(Independent([p, p]).tuples()) == dict(IID(p, 2).tuples())


def test_the_laws_belong_to_the_drafts_in_order() -> None:
    drafts = Independent([[1.0, 0.0, 0.0], [0.0, 0.5, 0.5]])
    assert dict(drafts.tuples()) == {(0, 1): 0.5, (0, 2): 0.5}
    with pytest.raises(InvalidDraftsError, match="in the order"):
        drafts.check([1, 0])


def test_whole_numbers_beside_fractions_stay_exact() -> None:
    assert Independent([[0, 1], [F(1, 2), F(1, 2)]]).exact
    assert not Independent([[0.0, 1.0], [F(1, 2), F(1, 2)]]).exact
    assert not Independent([[0, 1], [1, 0]]).exact


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ([], "no draft distribution"),
        (3, "not a sequence"),
        ([0.5, 0.5], "of type float"),
        ([[0.5, 0.5], [1.0]], "1 and 2 tokens"),
        ([[0.5, 0.5], [0.5, 0.6]], "sum"),
        ([[0.5, 0.5], [1.5, -0.5]], "index 1"),
    ],
)
def test_what_are_no_laws_is_refused(given: object, says: str) -> None:
    with pytest.raises(InvalidDistributionError, match=says):
        Independent(given)  # type: ignore[arg-type]


def test_an_array_of_laws_is_as_good_as_a_list() -> None:
    array = np.array([[0.5, 0.5], [0.25, 0.75]])
    drafts = Independent(array)
    array[:] = 0  # the distribution has its own copy
    assert drafts.probs.tolist() == [[0.5, 0.5], [0.25, 0.75]]
