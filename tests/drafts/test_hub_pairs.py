"""SpecHub's pairs: the hub is in each, and the distribution of the pair is the paper's."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given

from otm._core.arithmetic import Probs
from otm.drafts import Greedy, HubPairs
from otm.testing.strategies import distributions

F = Fraction


def test_the_paper_s_pairs() -> None:
    p = [F(1, 6), F(1, 2), F(1, 3)]
    assert dict(HubPairs(p).tuples()) == {
        (0, 1): F(1, 6),
        (2, 1): F(1, 3),
        (1, 0): F(1, 2) * F(1, 6) / F(1, 2),
        (1, 2): F(1, 2) * F(1, 3) / F(1, 2),
    }


@given(distributions(exact=True))
def test_as_sets_they_are_greedy(law: Probs) -> None:
    sets: dict[frozenset[int], Fraction] = {}
    for tokens, probability in HubPairs(law).tuples():
        sets[frozenset(tokens)] = sets.get(frozenset(tokens), F(0)) + F(probability)
    assert sets == {frozenset(tokens): w for tokens, w in Greedy(law, 2).tuples()}


def test_a_hub_with_all_mass_is_the_only_draft() -> None:
    drafts = HubPairs([0.0, 1.0])
    assert drafts.k == 1
    assert list(drafts.tuples()) == [((1,), 1.0)]
    assert drafts.draw([0.7]).tolist() == [1]


def test_a_hub_that_rounds_to_all_mass_still_has_partners() -> None:
    """Catches 1 − p(a) = 0: a division by zero, or one draft where there are two."""
    drafts = HubPairs([1.0, 1e-30, 3e-30])
    assert drafts.k == 2
    weights = dict(drafts.tuples())
    assert weights[0, 2] == pytest.approx(0.75)
    assert drafts.miss_probability(np.array([0, 2, 1])).tolist() == pytest.approx([1, 1, 0.25, 0])


def test_ties_go_to_the_lowest_token() -> None:
    assert all(0 in tokens for tokens, _ in HubPairs([0.4, 0.4, 0.2]).tuples())
