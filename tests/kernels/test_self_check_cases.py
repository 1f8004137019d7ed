"""The cases of self-checks: no decision is close, they are laid out as the call, and see slips."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from decimal import Decimal, localcontext
from fractions import Fraction
from typing import Any
from unittest import mock

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from otm.kernels import chain_cases, clock_cases, tree_cases  # noqa: E402
from otm.kernels.numpy import clocks, grid_optimal, tree  # noqa: E402
from otm.kernels.registry import load, uniforms_per_position  # noqa: E402
from otm.kernels.tree_checks import Trees  # noqa: E402
from otm.rules import names  # noqa: E402

MARGIN = Fraction(1, 10**5)
"""Ten times what logits and their softmax in float32 may change of a probability."""


class Watched:
    """A uniform in exact arithmetic that notes how far it is from all that it is compared with."""

    def __init__(self, value: Fraction, scale: Fraction, distances: list[Fraction]) -> None:
        self.value, self.scale, self.distances = value, scale, distances

    def __mul__(self, factor: Any) -> Any:
        factor = Fraction(factor)
        return Watched(self.value * factor, self.scale * factor, self.distances)

    def __add__(self, term: Any) -> Any:
        return Watched(self.value + Fraction(term), self.scale, self.distances)

    def __sub__(self, term: Any) -> Any:
        return self + -Fraction(term)

    __rmul__, __radd__ = __mul__, __add__

    def __lt__(self, other: Any) -> bool:
        if isinstance(other, Watched):  # searches for several sort them
            return self.value < other.value
        if self.scale:
            self.distances.append(abs(self.value - other) / abs(self.scale))
        return self.value < other

    def __gt__(self, other: Any) -> bool:
        return not self < other


def exact(rows: Any, temperature: Any = None) -> Any:
    """Probabilities in fractions of rows [..., S]: of logits, to 40 digits, if not None."""
    flat = [softmax(row, temperature) for row in rows.reshape(-1, rows.shape[-1])]
    laws = np.array(flat, dtype=object).reshape(rows.shape)
    return laws


def softmax(row: Any, temperature: Any) -> list[Fraction]:
    if np.isnan(row).any():
        return [Fraction(0)] * len(row)
    if temperature is None:
        return [Fraction(x) for x in row.tolist()]
    if temperature == 0:
        return [Fraction(int(i == row.argmax())) for i in range(len(row))]
    with localcontext() as context:
        context.prec = 40
        weights = [(Decimal(x) / Decimal(temperature)).exp() for x in row.tolist()]
        parts = [int(weight / sum(weights) * 10**30) for weight in weights]
    parts[0] += 10**30 - sum(parts)
    return [Fraction(part, 10**30) for part in parts]


def watched(uniforms: Any, distances: list[Fraction]) -> Any:
    made = np.empty(uniforms.shape, dtype=object)
    for place, u in np.ndenumerate(uniforms):
        made[place] = Watched(Fraction(u), Fraction(1), distances)
    return made


@contextmanager
def watched_bins(distances: list[Fraction]) -> Iterator[None]:
    """Note how far the ratios of tokens are from edges between bins, as a part of the ratio."""
    find = grid_optimal.find_places

    def find_places(target: Any, draft: Any, edges: Any) -> Any:
        for ratio in (target / draft)[target > 0]:
            if 2 * edges[1] > ratio and ratio < edges[-1]:
                distances.append(min(abs(edges - ratio)) / ratio)
        return find(target, draft, edges)

    with mock.patch.object(grid_optimal, "find_places", find_places):
        yield


def closest_of_chains(rule: str, shape: chain_cases.Shape) -> tuple[Fraction, Any]:
    """Return the least distance of a uniform from an edge, and the decisions."""
    cases = chain_cases.draw_cases(shape)
    distances: list[Fraction] = []
    outcomes = []
    for b in range(chain_cases.SEQUENCES):
        one = [x[b : b + 1] for x in cases]
        warmth = cases.temperatures[b] if shape.target_logits else None
        draft = exact(one[1], warmth if shape.draft_logits else None)
        if warmth == 0:  # the draft itself
            draft = np.array(np.arange(draft.shape[-1]) == one[2][..., None], dtype=object) * Fraction(1)
        rows = [exact(one[0], warmth), draft, one[2]]
        options = {"counted": one[5]} if shape.counted else {}
        if rule in names("kernel", several=False):
            rows = [x[:, 0] for x in rows]
        outcomes.append(
            load(rule, "numpy").verify(*rows, watched(one[3], distances), **options)
        )
    return min(distances, default=Fraction(1)), outcomes
