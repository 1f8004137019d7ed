"""From logits to probabilities, and from probabilities to tokens, in NumPy."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from otm.kernels.verified import Verified

UNIT = 2.0**61
"""Probabilities are added as whole numbers of this many parts.

A sum of floats depends on the order of its terms, so on a GPU on the device, the number of threads
and the other rows of the batch; a sum of integers does not.  What is rounded down on the way (of
float32 only what is below 2^−38) moves a distribution by less than V/2^60.  Rows that sum to less
than 4 cannot overflow.
"""


class Softmax:
    """Probabilities [R, V] or [K, R, V] of one sequence: a row is computed when it is read.

    It is read as an array is: `[i]` or `[c, i]` is a row, and with a token behind it an entry.  At
    temperature 0 a row is one-hot: the first largest logit, or the draft where drafts are given.
    """

    def __init__(
        self, logits: Any, temperature: float, drafts: npt.NDArray[Any] | None = None
    ) -> None:
        self.shape = tuple(logits.shape)
        self._logits, self._temperature, self._drafts = logits, temperature, drafts
        self._place: tuple[int, ...] | None = None
        self._weights: npt.NDArray[Any] = np.empty(0)
        self._total: Any = 1.0

    def __getitem__(self, index: Any) -> Any:
        place = index if isinstance(index, tuple) else (index,)
        place, token = place[: len(self.shape) - 1], place[len(self.shape) - 1 :]
        if place != self._place:  # of a row an entry is read first, and then often all of them
            self._read(place)
        return self._weights[token or ...] / self._total

    def _read(self, place: tuple[int, ...]) -> None:
        """Compute the weights of a row in float64, and their sum."""
        logits = self._logits[place]  # [V]
        self._place = place
        if self._temperature == 0:
            token = logits.argmax() if self._drafts is None else self._drafts[place]
            self._weights, self._total = np.arange(logits.size) == token, 1.0
            return
        with np.errstate(invalid="ignore", over="ignore"):  # in what was not checked
            # the largest goes first, so that no temperature overflows
            weights = np.subtract(logits, logits.max(), dtype=np.float64)
            if self._temperature != 1:
                weights /= self._temperature
            np.exp(weights, out=weights)
            self._weights, self._total = weights, weights.sum()


def probs_from_logits(
    target_logits: Any,
    draft_logits: Any,
    draft_tokens: npt.NDArray[Any],
    temperature: float | npt.NDArray[Any],
) -> tuple[list[Softmax], list[Softmax] | None]:
    """Probabilities of both models by sequence; greedy: the first largest logit, and the draft."""
    temperatures = np.broadcast_to(np.asarray(temperature, np.float64), (len(draft_tokens),))
    target = list(map(Softmax, target_logits, temperatures.tolist()))
    if draft_logits is None:
        return target, None
    return target, list(map(Softmax, draft_logits, temperatures.tolist(), draft_tokens))


def at(probs: Any, i: int, x: int) -> Any:
    """Probability of a token at a position, 0 outside the vocabulary: [R, V'] → a number."""
    value = probs[i, x] if x < probs.shape[1] else 0
    return value.item() if isinstance(value, np.generic) else value


def one_hot(x: int, like: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Distribution of a draft that was not sampled but chosen: [V]."""
    probs = np.zeros_like(like)
    probs[x : x + 1] = 1
    return probs


def extend(probs: npt.NDArray[Any], like: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Put the draft's probabilities on the target's vocabulary: [V'] → [V], filled up with 0."""
    return np.append(probs, np.zeros(like.size - probs.size, dtype=probs.dtype))


def mass(probs: npt.NDArray[Any], weight: Any = 1) -> npt.NDArray[Any]:
    """Whole numbers of parts of weight · probs; fractions stay fractions."""
    if probs.dtype == object:
        return weight * probs
    return np.multiply(probs, weight * UNIT, dtype=np.float64).astype(np.int64)


def residual_mass(
    target: npt.NDArray[Any], draft: npt.NDArray[Any], weight: Any = 1
) -> npt.NDArray[Any]:
    """Masses of max(weight · target − draft, 0): [V], [V'] → [V]."""
    left = mass(target, weight)
    left[: draft.size] -= mass(draft)
    return np.maximum(left, 0, out=left)


def locate(masses: npt.NDArray[Any], uniform: Any) -> int:
    """Locate a token: the first at which the cumulative mass exceeds uniform · total."""
    cumulative = np.cumsum(masses)
    point = uniform * cumulative[-1]
    if masses.dtype != object:
        point = int(point) if abs(point) < 2**63 else 0  # it is NaN only if nobody checked
        point = min(point, cumulative[-1] - 1)  # the product can round up to the total
    return min(int(np.searchsorted(cumulative, point, side="right")), masses.size - 1)


def collect(outputs: Sequence[list[int]], gamma: int) -> Verified[npt.NDArray[np.int64]]:
    """Collect the tokens of each sequence, of which the last follows the accepted drafts."""
    tokens = np.full((len(outputs), gamma + 1), -1, dtype=np.int64)
    for row, output in zip(tokens, outputs, strict=True):
        row[: len(output)] = output
    return Verified(tokens, np.array([len(output) - 1 for output in outputs], dtype=np.int64))
