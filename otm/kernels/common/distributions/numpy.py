"""Conversion of logits to probabilities, and of probabilities to tokens, in NumPy."""

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
"""Number of parts that probability 1 is divided into; masses are whole numbers of parts.

A sum of floats depends on the order of its terms.  On a GPU the order of terms depends on the
device, the number of threads and the other rows of the batch.  A sum of integers does not depend on
the order.  Rounding down to parts moves a distribution by less than V/2^60, and leaves
float32 numbers of at least 2^−38 unchanged.  Rows that sum to less than 4 cannot overflow.
"""

BLOCK = 4096
"""Number of masses in a block; a token is located first by block, then within the block."""

LEAST_TEMPERATURE = 2.0**-126
"""Least positive temperature; the largest is its inverse, and float32 represents both."""


class Memory(threading.local):
    """Named arrays of a thread, which calls reuse because allocation is slow.

    Each array holds the numbers that its current owner in `owners` wrote.
    """

    def __init__(self) -> None:
        self._arrays: dict[tuple[str, Any], npt.NDArray[Any]] = {}
        self.owners: dict[str, object] = {}

    def take(self, name: str, size: int, dtype: Any) -> npt.NDArray[Any]:
        """Return an array of this size with arbitrary contents."""
        array = self._arrays.get((name, dtype))
        if array is None or array.size < size:
            array = self._arrays[name, dtype] = np.empty(size, dtype)
        return array[:size]


memory = Memory()


class Softmax:
    """Lazy softmax rows [R, V] or [K, R, V] of one sequence; a row is computed when it is read.

    The index `[i]` or `[c, i]` selects a row, and one more index selects a token's probability.  At
    temperature 0 a row is one-hot at the first largest logit, or at the draft if `drafts` is set.
    A row stays valid until another row of the same model is read.
    """

    def __init__(
        self, model: str, logits: Any, temperature: float, drafts: npt.NDArray[Any] | None = None
    ) -> None:
        self.shape = tuple(logits.shape)
        self._model, self._logits, self._drafts = model, logits, drafts
        self._temperature = temperature and min(
            max(temperature, LEAST_TEMPERATURE), 1 / LEAST_TEMPERATURE
        )
        self._owner = object()  # an owner `self` would keep the logits alive
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
        """Compute a row's weights and their sum, in float64 for float64 logits, else in float32."""
        logits = self._logits[place]  # [V]
        dtype = np.float64 if logits.dtype == np.float64 else np.float32
        self._weights = weights = memory.take(self._model, logits.size, dtype)
        self._place, memory.owners[self._model] = place, self._owner
        if self._temperature == 0:
            token = logits.argmax() if self._drafts is None else self._drafts[place]
            weights[:], self._total = one_hot(token, weights), weights.dtype.type(1)
            return
        # Subtract the largest logit first, so that no temperature causes an overflow.
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
    """Return lazy softmax rows of both models, one item for each sequence.

    Greedy target rows are one-hot at the first largest logit, and greedy draft rows at the draft.
    """
    temperatures = np.broadcast_to(np.asarray(temperature, np.float64), (len(draft_tokens),))
    target = map(partial(Softmax, "target"), target_logits, temperatures.tolist())
    if draft_logits is None:
        return target, None
    draft = partial(Softmax, "draft")
    return target, map(draft, draft_logits, temperatures.tolist(), draft_tokens)


def at(probs: Any, i: int, x: int) -> Any:
    """Return the probability of token x in row i; 0 if x is outside the vocabulary."""
    value = probs[i, x] if x < probs.shape[1] else 0
    return value.item() if isinstance(value, np.generic) else value


def one_hot(x: int, like: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return the one-hot distribution of a token, or zeros if it is outside the vocabulary: [V]."""
    probs = np.zeros_like(like)
    if 0 <= x < probs.size:
        probs[x] = 1
    return probs


def extend(probs: npt.NDArray[Any], like: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Pad the draft's probabilities with 0 to the target's vocabulary: [V'] → [V]."""
    return np.append(probs, np.zeros(like.size - probs.size, dtype=probs.dtype))


def mass(probs: Any, weight: Any = 1, out: npt.NDArray[Any] | None = None) -> Any:
    """Convert probabilities to integer multiples of 2^−61, so that sums do not depend on order.

    Parameters
    ----------
    probs : array or Tensor [..., V]
        Probabilities of any floating type; fractions stay fractions.
    weight : float or Fraction, optional
        Factor of all probabilities.
    out : int64 array [..., V], optional
        Array for the result; for NumPy only.

    Returns
    -------
    int64 array or Tensor [..., V]
        Masses, rounded down.  The masses of a distribution sum to 2^61 or slightly less.

    Examples
    --------
    >>> import numpy as np
    >>> from otm.kernels import mass
    >>> mass(np.array([0.25, 0.75])) / 2**61
    array([0.25, 0.75])
    """
    if is_tensor(probs):
        # Half precision is converted to float32.  A product of a float32 and a power of two is
        # exact.
        wide = probs if probs.dtype.itemsize >= 4 else probs.float()
        return (wide * (weight * UNIT)).long()
    masses: npt.NDArray[Any] = np.empty(probs.shape, np.int64) if out is None else out
    if probs.dtype == object:
        masses = weight * probs
        return masses
    # The product of a float32 and a power of two is exact.
    wide = np.float32 if weight == 1 and probs.dtype == np.float32 else np.float64
    np.multiply(probs, weight * UNIT, out=masses, dtype=wide, casting="unsafe")
    return masses


def residual_mass(
    target: npt.NDArray[Any], draft: npt.NDArray[Any], weight: Any = 1
) -> npt.NDArray[Any]:
    """Return masses of max(weight · target − draft, 0): [V], [V'] → [V].

    The result is valid until the next call.
    """
    left: npt.NDArray[Any] = mass(target, weight, memory.take("residual", target.size, np.int64))
    left[: draft.size] -= mass(draft, 1, memory.take("subtracted", draft.size, np.int64))
    np.maximum(left, 0, out=left)
    return left


def locate(masses: npt.NDArray[Any], uniform: Any) -> int:
    """Return the first token at which the cumulative mass exceeds uniform · total."""
    side: Literal["left", "right"] = "right"  # a boundary belongs to the token after it
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
    """Multiply a uniform by the total mass; the result stays below the total despite rounding."""
    point, whole = uniform * total, isinstance(total, np.generic)
    if whole:
        point = int(point) if abs(point) < 2**63 else 0  # only unchecked input gives NaN
        # The product can round up to the total.
        point = min(point, total - 1)
    return point


def collect_ends(
    outputs: Sequence[tuple[list[int], int]], gamma: int
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Collect tokens, numbers of accepted drafts, and the last chain or node of each output."""
    ends = np.array([end for _, end in outputs], dtype=np.int64)
    tokens, accepted, _ = collect([tokens for tokens, _ in outputs], gamma)
    return tokens, accepted, ends


def collect(outputs: Sequence[list[int]], gamma: int) -> Verified[npt.NDArray[np.int64]]:
    """Collect the tokens of each sequence; the last token follows the accepted drafts."""
    tokens = np.full((len(outputs), gamma + 1), -1, dtype=np.int64)
    for row, output in zip(tokens, outputs, strict=True):
        row[: len(output)] = output
    return Verified(tokens, np.array([len(output) - 1 for output in outputs], dtype=np.int64))
