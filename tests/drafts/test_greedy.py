"""Greedy drafts: which tokens are sure, and in which order."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from otm.drafts import Greedy
from otm.errors import InvalidDraftsError

F = Fraction


def test_ties_go_to_the_lowest_token() -> None:
    assert Greedy([0.25, 0.125, 0.25, 0.25, 0.125], 3).sure.tolist() == [0, 2]


def test_the_last_draft_has_the_law_of_the_rest() -> None:
    drafts = Greedy([F(1, 8), F(1, 2), F(1, 4), F(1, 8)], 2)
    assert drafts.last.tolist() == [F(1, 4), 0, F(1, 2), F(1, 4)]


def test_one_draft_has_the_law() -> None:
    drafts = Greedy([0.25, 0.75], 1)
    assert drafts.sure.size == 0
    assert drafts.last.tolist() == [0.25, 0.75]


@pytest.mark.parametrize("k", [2, 3, 9])
def test_a_small_support_is_drafted_whole(k: int) -> None:
    drafts = Greedy([0.25, 0.0, 0.75], k)
    assert drafts.k == 2
    assert list(drafts.tuples()) == [((2, 0), 1.0)]
    assert drafts.miss_probability(np.array([0, 1, 2])).tolist() == [1, 1, 1, 0]


def test_a_token_of_probability_zero_is_never_sure() -> None:
    assert Greedy([0.0, 1.0, 0.0], 3).k == 1


def test_the_sure_tokens_must_come_in_order() -> None:
    drafts = Greedy([0.5, 0.25, 0.125, 0.125], 3)
    assert drafts.check([0, 1, 3]).tolist() == [0, 1, 3]
    for wrong in ([1, 0, 3], [0, 1, 1], [0, 2, 1]):
        with pytest.raises(InvalidDraftsError, match="in the order in which they were drawn"):
            drafts.check(wrong)


def test_what_a_heavy_token_leaves_keeps_its_digits() -> None:
    """Catches a normalisation by 1 − p(A), which is 0 here."""
    assert Greedy([1.0, 1e-30, 3e-30], 2).last.tolist() == pytest.approx([0, 0.25, 0.75])
