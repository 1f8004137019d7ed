"""Small cases that can be followed by hand, on NumPy and on torch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from otm.kernels import Verified, verify_logits, verify_probs
from otm.rules import named

Convert = Callable[[Any], Any]


@pytest.fixture(params=["numpy", "torch"])
def convert(request: pytest.FixtureRequest) -> Convert:
    """Make an array of a list: of NumPy, or a tensor."""
    if request.param == "numpy":
        return np.array
    torch = pytest.importorskip("torch")
    return lambda values: torch.from_numpy(np.array(values))


def as_lists(outcome: Verified[Any]) -> list[Any]:
    return [None if x is None else x.tolist() for x in outcome]


@pytest.mark.parametrize(
    ("coin", "expected"), [(0.6, [[[0, 1]], [1], None]), (0.7, [[[1, -1]], [0], None])]
)
def test_a_chain_of_one_draft(coin: float, expected: Any, convert: Convert) -> None:
    """The ratio is 0.5 / 0.8 = 0.625."""
    target, draft = [[[0.5, 0.5], [0.1, 0.9]]], [[[0.8, 0.2]]]
    arguments = map(convert, (target, draft, [[0]], [[coin, 0.3, 0.5]]))
    assert as_lists(verify_probs(*arguments)) == expected


def test_a_block_of_which_the_first_draft_alone_would_be_rejected(convert: Convert) -> None:
    """Both together pass."""
    target = [[[0.25, 0.75], [1.0, 0.0], [0.5, 0.5]]]
    draft = [[[0.5, 0.5], [0.25, 0.75]]]
    arguments = [convert(x) for x in (target, draft, [[0, 0]], [[0.6, 0.9, 0.5, 0.1]])]
    assert as_lists(verify_probs(*arguments, rule="block")) == [[[0, 0, 0]], [2], None]
    assert verify_probs(*arguments, rule="chain").accepted.tolist() == [0]


def test_two_chains_of_which_the_second_is_accepted(convert: Convert) -> None:
    target, draft = [[[[0.5, 0.5], [0.125, 0.875]]] * 2], [[[[0.875, 0.125]]] * 2]
    arguments = map(convert, (target, draft, [[[0], [1]]], [[0.6, 0.3, 0.5, 0.5]]))
    assert as_lists(verify_probs(*arguments, rule="grid k-Seq")) == [[[1, 1]], [1], [1]]


def test_greedy_drafts_follow_the_largest_logit(convert: Convert) -> None:
    rows = [[0.0, 2.0], [1.0, 0.0]]
    tokens, uniforms = convert([[1]]), convert([[0.0] * 3])
    outcome = verify_logits(convert([rows]), None, tokens, uniforms, temperature=0)
    assert as_lists(outcome) == [[[1, 0]], [1], None]
    several = map(convert, ([[rows] * 2], [[rows[:1]] * 2], [[[1], [1]]], [[0.0] * 4]))
    outcome = verify_logits(*several, temperature=0, rule="grid k-Seq")
    assert as_lists(outcome) == [[[1, 0]], [1], [0]]


@pytest.mark.parametrize(
    ("rule", "uniforms"), [("grid k-Seq", [0.0, 0.7]), ("grid optimal", [0.5, 0.5, 0.1])]
)
def test_one_node_of_two_drafts(rule: str, uniforms: list[float]) -> None:
    """The target has token 0 alone, which is the second draft."""
    arguments = [[1.0, 0.0], [0.5, 0.5], [1, 0], uniforms]
    assert named(rule, "kernel").load_kernel("numpy").select(*map(np.array, arguments))[0] == 1
    torch = pytest.importorskip("torch")
    tensors = (torch.from_numpy(np.array([x])) for x in arguments)
    assert named(rule, "kernel").load_kernel("torch").select(*tensors)[0].tolist() == [1]
