"""Telling pairs of models, small ones first: each shows some mistake that others hide."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction

from otm.audit.adapter import Instance
from otm.models.table import TableModel

Rows = Sequence[int] | Mapping[tuple[int, ...], Sequence[int]]


def _model(rows: Rows) -> TableModel:
    """Table of whole weights, as fractions of their sums; one row is the law after everything."""
    table = rows if isinstance(rows, Mapping) else {(): rows}
    return TableModel(
        {
            context: [Fraction(weight, sum(weights)) for weight in weights]
            for context, weights in table.items()
        }
    )


def _pair(target: Rows, draft: Rows, gamma: int = 1, k: int = 1) -> Instance:
    return Instance(_model(target), _model(draft), gamma, k)


TWO: tuple[Rows, Rows] = (
    {(): [1, 3], (1,): [2, 1], (0, 0): [3, 2]},
    {(): [3, 1], (1,): [1, 4], (0, 0): [1, 1]},
)
THREE: tuple[Rows, Rows] = (
    {(): [1, 4, 5], (1,): [6, 1, 1], (2,): [0, 2, 3], (0, 0): [2, 5, 1]},
    {(): [5, 2, 3], (1,): [1, 2, 1], (2,): [2, 0, 1], (0, 0): [2, 1, 4]},
)
FOUR: tuple[Rows, Rows] = (
    {(): [4, 3, 1, 2], (3,): [1, 0, 2, 5], (0, 0): [0, 1, 1, 0]},
    {(): [1, 2, 3, 4], (2,): [3, 3, 1, 0], (0, 0): [2, 1, 1, 4]},
)

INSTANCES: dict[str, Instance] = {
    "two tokens": _pair([1, 3], [3, 1]),
    "rows differ": _pair(*TWO),
    "equal": _pair([1, 2, 3], [1, 2, 3]),
    "disjoint": _pair([0, 0, 1, 2], [2, 1, 0, 0]),
    "one token wanted": _pair([0, 1, 0], [1, 2, 3]),
    "one token drafted": _pair([1, 2, 3], [0, 1, 0]),
    "zeros": _pair([0, 1, 3], [2, 2, 0]),
    "ties": _pair([1, 1, 2], [1, 1, 1]),
    "three tokens": _pair(*THREE),
    "four tokens": _pair(*FOUR),
    "two drafts, two tokens": _pair(*TWO, gamma=2),
    "two drafts": _pair(*THREE, gamma=2),
    "equal at first": _pair({(): [1, 2, 3], (1,): [3, 2, 1]}, [1, 2, 3], gamma=2),
    "behind a block": _pair({(): [1, 1, 2], (2,): [1, 0, 3]}, {(): [1, 0, 4], (2,): [0, 2, 3]}, 2),
    "three drafts": _pair(*TWO, gamma=3),
    "pairs": _pair([1, 3], [3, 1], k=2),
    "pairs of three tokens": _pair(*THREE, k=2),
    "pairs with zeros": _pair([0, 1, 3, 4], [2, 2, 0, 4], k=2),
    "pairs, both rejected": _pair([2, 9, 5], [6, 8, 2], k=2),  # the second neither surely nor never
    "equal pairs": _pair([1, 2, 3], [1, 2, 3], k=2),
    "disjoint pairs": _pair([0, 0, 1, 2], [2, 1, 0, 0], k=2),
    "pairs, one token wanted": _pair([0, 1, 0], [1, 2, 3], k=2),
    "pairs of two drafts": _pair(*TWO, gamma=2, k=2),
    "three of two tokens": _pair(*TWO, k=3),
    "rare tokens": _pair([1, 10**7, 5 * 10**6], [5 * 10**6, 10**7, 1]),
    "three of three tokens": _pair([1, 4, 5], [5, 2, 3], k=3),
}
"""By name.  The prompt of all is (0,); the row (0, 0) makes the law after a first 0 another one."""

FOR_SAMPLING = (
    "zeros",
    "three tokens",
    "equal at first",
    "two drafts, two tokens",
    "two drafts",
    "behind a block",
    "pairs of three tokens",
    "pairs, both rejected",
    "equal pairs",
    "three of two tokens",
)
"""Names of those that Monte Carlo uses: each of its instances costs many runs."""
