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


def probs_from_logits(
    target_logits: npt.NDArray[Any],
    draft_logits: npt.NDArray[Any] | None,
    draft_tokens: npt.NDArray[Any],
    temperature: float | npt.NDArray[Any],
) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64] | None]:
    """Softmax of both models in float64; greedy: the first largest logit, and the draft itself."""
    batch, vocabulary = target_logits.shape[0], np.arange(target_logits.shape[-1])
    temperatures = np.broadcast_to(np.asarray(temperature, dtype=np.float64), (batch,))
    temperatures = temperatures.reshape(batch, *(1,) * (target_logits.ndim - 1))  # [B, 1, …, 1]
    largest = vocabulary == target_logits.argmax(axis=-1)[..., None]
    target = np.where(temperatures == 0, largest, _softmax(target_logits, temperatures))
    draft = None
    if draft_logits is not None:
        drafted = vocabulary[: draft_logits.shape[-1]] == draft_tokens[..., None]
        draft = np.where(temperatures == 0, drafted, _softmax(draft_logits, temperatures))
    return target, draft


def one_hot(x: int, like: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Distribution of a draft that was not sampled but chosen: [V]."""
    probs = np.zeros_like(like)
    probs[x] = 1
    return probs


def extend(probs: npt.NDArray[Any], like: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Put the draft's probabilities on the target's vocabulary: [V'] → [V], filled up with 0."""
    return np.append(probs, np.zeros(like.size - probs.size, dtype=probs.dtype))


def mass(probs: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Whole numbers of parts; fractions stay as they are."""
    return probs if probs.dtype == object else (probs.astype(np.float64) * UNIT).astype(np.int64)


def locate(masses: npt.NDArray[Any], uniform: Any) -> int:
    """Locate a token: the first at which the cumulative mass exceeds uniform · total."""
    cumulative = np.cumsum(masses)
    point = uniform * cumulative[-1]
    if masses.dtype != object:
        point = min(int(point), cumulative[-1] - 1)  # the product can round up to the total
    return int(np.searchsorted(cumulative, point, side="right"))


def collect(outputs: Sequence[list[int]], gamma: int) -> Verified[npt.NDArray[np.int64]]:
    """Collect the tokens of each sequence, of which the last follows the accepted drafts."""
    tokens = np.full((len(outputs), gamma + 1), -1, dtype=np.int64)
    for row, output in zip(tokens, outputs, strict=True):
        row[: len(output)] = output
    return Verified(tokens, np.array([len(output) - 1 for output in outputs], dtype=np.int64))


def _softmax(logits: npt.NDArray[Any], temperature: npt.NDArray[Any]) -> npt.NDArray[np.float64]:
    """Softmax in float64; the largest logit goes first, so that no temperature overflows."""
    with np.errstate(invalid="ignore", over="ignore"):  # in rows beyond a chain's end
        shifted = logits.astype(np.float64) - logits.max(axis=-1, keepdims=True)
        weights = np.exp(shifted / np.where(temperature == 0, 1, temperature))
    probs: npt.NDArray[np.float64] = weights / weights.sum(axis=-1, keepdims=True)
    return probs
