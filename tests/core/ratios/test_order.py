"""The order by q/p, against its definition."""

from __future__ import annotations

import numpy as np
from hypothesis import given

from otm._core.arithmetic import Probs
from otm._core.ratios.order import RatioOrder
from otm.testing.strategies import pairs

exact_pairs = pairs(exact=True)
Pair = tuple[Probs, Probs]


@given(exact_pairs)
def test_tokens_that_can_be_drafted_ascend_by_ratio(pair: Pair) -> None:
    draft, target = pair
    order = RatioOrder(draft, target)
    assert sorted(order.tokens) == np.flatnonzero(draft > 0).tolist()
    ratios = [target[token] / draft[token] for token in order.tokens]
    assert ratios == sorted(ratios) == order.ratio.tolist()
    assert order.draft.tolist() == draft[order.tokens].tolist()
    assert order.target.tolist() == target[order.tokens].tolist()


def test_a_ratio_beyond_the_floats_is_last_and_silent() -> None:
    order = RatioOrder(np.array([5e-324, 1.0]), np.array([0.5, 0.5]))
    assert order.ratio.tolist() == [0.5, np.inf]
    assert order.tokens.tolist() == [1, 0]
