"""From logits to probabilities, and from probabilities to tokens, in NumPy."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from otm._core.probs.sampling import exact_cell
from otm._core.tensors import is_tensor
from otm.kernels.results import Verified

UNIT = 2.0**61
"""Probabilities are added as whole numbers of this many parts.

A sum of floats depends on the order of its terms, so on a GPU on the device, the number of threads
and the other rows of the batch; a sum of integers does not.  What is rounded down on the way (of
float32 only what is below 2^−38) moves a distribution by less than V/2^60.  Rows that sum to less
than 4 cannot overflow.
"""

BLOCK = 4096
"""Masses that are added up together before a token is located among them."""

COLDEST = 2.0**-126
"""The lowest temperature above 0, and the inverse of the highest: neither is 0 or ∞ in float32."""


class Memory(threading.local):
    """Arrays of a thread, by name, which calls reuse: new memory takes longer than the work in it.

    They hold what the last `owner` wrote.
    """

    def __init__(self) -> None:
        self._arrays: dict[tuple[str, Any], npt.NDArray[Any]] = {}
        self.owners: dict[str, object] = {}

    def take(self, name: str, size: int, dtype: Any) -> npt.NDArray[Any]:
        """Return an array of so many numbers, with anything in it."""
        array = self._arrays.get((name, dtype))
        if array is None or array.size < size:
            array = self._arrays[name, dtype] = np.empty(size, dtype)
        return array[:size]


memory = Memory()


class Softmax:
    """Probabilities [R, V] or [K, R, V] of one sequence: a row is computed when it is read.

    It is read as an array is: `[i]` or `[c, i]` is a row, and with a token behind it an entry.  At
    temperature 0 a row is one-hot: the first largest logit, or the draft where drafts are given.
    A row stands in the memory of its model until the next one of that model is read.
    """

    def __init__(
        self, model: str, logits: Any, temperature: float, drafts: npt.NDArray[Any] | None = None
    ) -> None:
        self.shape = tuple(logits.shape)
        self._model, self._logits, self._drafts = model, logits, drafts
        self._temperature = temperature and min(max(temperature, COLDEST), 1 / COLDEST)
        self._owner = object()  # not self, which would keep the logits
        self._place: tuple[int, ...] = ()
        self._weights, self._total = np.empty(0), np.float64(1)

    def __getitem__(self, index: Any) -> Any:
        place = index if isinstance(index, tuple) else (index,)
        place, token = place[: len(self.shape) - 1], place[len(self.shape) - 1 :]
        if place != self._place or memory.owners.get(self._model) is not self._owner:
            self._read(place)
        if token:
            return self._weights[token] / self._total
        self._weights /= self._total
        self._total = self._total.dtype.type(1)
        return self._weights

    def _read(self, place: tuple[int, ...]) -> None:
        """Compute the weights of a row, and their sum: in float64 if its logits are, or float32."""
        logits = self._logits[place]  # [V]
        dtype = np.float64 if logits.dtype == np.float64 else np.float32
        self._weights = weights = memory.take(self._model, logits.size, dtype)
        self._place, memory.owners[self._model] = place, self._owner
        if self._temperature == 0:
            token = logits.argmax() if self._drafts is None else self._drafts[place]
            weights[:], self._total = one_hot(token, weights), weights.dtype.type(1)
            return
        # the largest goes first, so that no temperature overflows
        np.subtract(logits, np.maximum.reduce(logits), out=weights, dtype=dtype)
        if self._temperature != 1:
            weights /= self._temperature
        np.exp(weights, out=weights)
        self._total = np.add.reduce(weights)


def probs_from_logits(
    target_logits: Any,
    draft_logits: Any,
    draft_tokens: npt.NDArray[Any],
    temperature: float | npt.NDArray[Any],
) -> tuple[Iterator[Softmax], Iterator[Softmax] | None]:
    """Probabilities of both models by sequence; greedy: the first largest logit, and the draft."""
    temperatures = np.broadcast_to(np.asarray(temperature, np.float64), (len(draft_tokens),))
    target = map(partial(Softmax, "target"), target_logits, temperatures.tolist())
    if draft_logits is None:
        return target, None
    draft = partial(Softmax, "draft")
    return target, map(draft, draft_logits, temperatures.tolist(), draft_tokens)


def at(probs: Any, i: int, x: int) -> Any:
    """Probability of a token at a position, 0 outside the vocabulary: [R, V'] → a number."""
    value = probs[i, x] if x < probs.shape[1] else 0
    return value.item() if isinstance(value, np.generic) else value


def one_hot(x: int, like: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Distribution of a token that was not sampled but chosen: [V], 0 if it is none of them."""
    probs = np.zeros_like(like)
    if 0 <= x < probs.size:
        probs[x] = 1
    return probs


def extend(probs: npt.NDArray[Any], like: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Put the draft's probabilities on the target's vocabulary: [V'] → [V], filled up with 0."""
    return np.append(probs, np.zeros(like.size - probs.size, dtype=probs.dtype))


def mass(probs: Any, weight: Any = 1, out: npt.NDArray[Any] | None = None) -> Any:
    """Convert probabilities to whole numbers of 2^−61, whose sums depend on no order.

    Parameters
    ----------
    probs : array or Tensor [..., V]
        Probabilities of any floating type; fractions stay fractions.
    weight : float or Fraction, optional
        Factor of all probabilities.
    out : int64 array [..., V], optional
        Where to write the result; for NumPy only.

    Returns
    -------
    int64 array or Tensor [..., V]
        Rounded down; the masses of a distribution sum to 2^61 or a little less.

    Examples
    --------
    >>> import numpy as np
    >>> from otm.kernels import mass
    >>> mass(np.array([0.25, 0.75])) / 2**61
    array([0.25, 0.75])
    """
    if is_tensor(probs):
        # Half precision is widened; the product with a power of two rounds no float32.
        wide = probs if probs.dtype.itemsize >= 4 else probs.float()
        return (wide * (weight * UNIT)).long()
    masses: npt.NDArray[Any] = np.empty(probs.shape, np.int64) if out is None else out
    if probs.dtype == object:
        masses = weight * probs
        return masses
    # The product of a float32 with a power of two is not rounded.
    wide = np.float32 if weight == 1 and probs.dtype == np.float32 else np.float64
    np.multiply(probs, weight * UNIT, out=masses, dtype=wide, casting="unsafe")
    return masses


def residual_mass(
    target: npt.NDArray[Any], draft: npt.NDArray[Any], weight: Any = 1
) -> npt.NDArray[Any]:
    """Masses of max(weight · target − draft, 0): [V], [V'] → [V], valid until the next call."""
    left: npt.NDArray[Any] = mass(target, weight, memory.take("residual", target.size, np.int64))
    left[: draft.size] -= mass(draft, 1, memory.take("subtracted", draft.size, np.int64))
    np.maximum(left, 0, out=left)
    return left


def locate(masses: npt.NDArray[Any], uniform: Any) -> int:
    """Locate a token: the first at which the cumulative mass exceeds uniform · total."""
    side: Literal["left", "right"] = "right"  # an edge is of the cell above it
    if masses.dtype == object:
        return min(exact_cell(masses, uniform, side=side), masses.size - 1)
    find: Callable[..., np.intp] = partial(np.searchsorted, side=side)
    if masses.size <= BLOCK:
        inside = np.cumsum(masses)
        return min(int(find(inside, _point(uniform, inside[-1]))), inside.size - 1)
    sums = np.add.reduceat(masses, np.arange(0, masses.size, BLOCK))
    cumulative = np.cumsum(sums)
    point = _point(uniform, cumulative[-1])
    block = min(int(find(cumulative, point)), sums.size - 1)
    inside = np.cumsum(masses[block * BLOCK : (block + 1) * BLOCK]) + (cumulative - sums)[block]
    place = min(int(find(inside, point)), inside.size - 1)
    return int(block * BLOCK + place)


def _point(uniform: Any, total: Any) -> Any:
    """Multiply a uniform by the total mass: below it, whatever rounding does."""
    point, whole = uniform * total, isinstance(total, np.generic)
    if whole:
        point = int(point) if abs(point) < 2**63 else 0  # it is NaN only if nobody checked
        point = min(point, total - 1)  # the product can round up to the total
    return point


def collect_ends(
    outputs: Sequence[tuple[list[int], int]], gamma: int
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Collect tokens, numbers of accepted drafts, and the chain or node where each output ends."""
    ends = np.array([end for _, end in outputs], dtype=np.int64)
    tokens, accepted, _ = collect([tokens for tokens, _ in outputs], gamma)
    return tokens, accepted, ends


def collect(outputs: Sequence[list[int]], gamma: int) -> Verified[npt.NDArray[np.int64]]:
    """Collect the tokens of each sequence, of which the last follows the accepted drafts."""
    tokens = np.full((len(outputs), gamma + 1), -1, dtype=np.int64)
    for row, output in zip(tokens, outputs, strict=True):
        row[: len(output)] = output
    return Verified(tokens, np.array([len(output) - 1 for output in outputs], dtype=np.int64))
