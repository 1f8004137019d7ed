"""Drafts without replacement: supports smaller than k, heavy tokens, sizes."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from otm.drafts import WithoutReplacement
from otm.errors import (
    InvalidDistributionError,
    InvalidDraftCountError,
    InvalidDraftsError,
    ProblemTooLargeError,
)

F = Fraction


def test_the_probability_of_a_tuple() -> None:
    drafts = WithoutReplacement([F(1, 2), F(1, 3), F(1, 6)], 2)
    table = dict(drafts.tuples())
    assert table[0, 1] == F(1, 2) * F(2, 3)
    assert table[2, 0] == F(1, 6) * F(3, 5)


@pytest.mark.parametrize("k", [2, 3, 2**63 - 1])
def test_k_is_cut_to_the_support(k: int) -> None:
    drafts = WithoutReplacement([0.5, 0.0, 0.5], k)
    assert drafts.k == drafts.uniforms_per_draw == 2
    assert [tokens for tokens, _ in drafts.tuples()] == [(0, 2), (2, 0)]
    assert drafts.miss_probability(np.array([1, 2, 0])).tolist() == [1, 1, 1, 0]


@pytest.mark.parametrize("k", [0, -1, True, 1.5])
def test_k_is_checked_before_it_is_cut(k: object) -> None:
    with pytest.raises(InvalidDraftCountError):
        WithoutReplacement([1.0], k)  # type: ignore[arg-type]


def test_the_law_is_checked() -> None:
    with pytest.raises(InvalidDistributionError, match="draft distribution"):
        WithoutReplacement([0.5, 0.6], 2)


def test_a_token_cannot_be_drafted_twice() -> None:
    with pytest.raises(InvalidDraftsError, match=r"\[1, 1\].*WithoutReplacement"):
        WithoutReplacement([0.5, 0.5], 2).check([[0, 1], [1, 1]])


def test_what_a_heavy_token_leaves_keeps_its_proportions() -> None:
    """Catches masses taken from one running sum in token order: past the 1 they are all 0."""
    law = [1.0, 3e-30, 1e-30]
    drafts = WithoutReplacement(law, 2)
    second = drafts.draw([[0.5, u] for u in (0.0, 0.2, 0.3, 0.9)])[:, 1]
    assert second.tolist() == [2, 2, 1, 1]  # tokens stand in ascending order of p


def test_many_drafts_of_a_skewed_law_are_different() -> None:
    law = 2.0 ** -np.arange(1_000.0)
    drafts = WithoutReplacement(law / law.sum(), 50)
    drawn = drafts.draw(np.random.default_rng(1).random((200, 50)))
    drafts.check(drawn)


def test_fractions_have_a_limit_that_says_what_to_do() -> None:
    drafts = WithoutReplacement([F(1, 40)] * 40, 5)
    with pytest.raises(ProblemTooLargeError, match="in floats"):
        drafts.miss_probability(np.arange(40))
