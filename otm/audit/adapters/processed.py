"""Target models whose rows a logits processor changes: the expected output of a loop."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from dataclasses import replace
from fractions import Fraction
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from otm._core.arithmetic import Probs, read_only
from otm._core.display.text import shown
from otm._core.numbers import as_integer
from otm._core.tensors import to_host
from otm.audit.adapters.base import Adapter, Instance, max_tokens
from otm.decoding.reading import Path
from otm.errors import InvalidParameterError
from otm.models.table import TableModel

BITS = 50
"""Rows without simple fractions are rounded to multiples of 2^−`BITS`, to keep them short."""

SIMPLE, EQUAL = 10_000, 1e-14
"""Simple fractions have denominators up to `SIMPLE`, and change a probability by ≤ `EQUAL`."""

MOST_PROCESSED = 1_000
"""Number of tokens of the largest model that a processor's own tokens may need."""

MOST_CONTEXTS = 600
"""Largest number of contexts of a pair of models in which rows are checked for possible tokens."""


class Processing:
    """A user's logits processor: tokens [n] and logits [V] → logits [V]."""

    def __init__(self, function: Callable[..., Any]) -> None:
        if not callable(function):
            raise InvalidParameterError(
                f"processor = {shown(function)}; give a function of the tokens so far and the "
                "logits [V] that returns logits [V], such as one of otm.audit.processors"
            )
        self._function = function
        try:
            signature = inspect.signature(function)
        except (TypeError, ValueError):
            self._takes_length = False
        else:
            self._takes_length = "prompt_length" in signature.parameters
            try:
                signature.bind((), (), **({"prompt_length": 0} if self._takes_length else {}))
            except TypeError as error:
                raise InvalidParameterError(
                    f"the processor cannot be called with tokens and logits: {error}; give a "
                    "function of the tokens so far and the logits [V]"
                ) from None
        # Tokens with a special role, if the processor states them.
        stated = getattr(function, "tokens", ())
        if not isinstance(stated, Sequence) or isinstance(stated, str):
            raise InvalidParameterError(
                f"the processor's attribute `tokens` is {shown(stated)}; give a tuple of tokens"
            )
        self.tokens: tuple[int, ...] = tuple(
            as_integer(
                token, "a token of the processor", 0, MOST_PROCESSED - 1,
                advice="as the audit's models are small; give a processor of small tokens",
            )
            for token in stated
        )  # fmt: skip

    def __call__(self, tokens: Path, logits: npt.NDArray[Any], start: int) -> npt.NDArray[Any]:
        """Return processed logits; raise unless they are V numbers below +∞."""
        more = {"prompt_length": start} if self._takes_length else {}
        result = np.asarray(to_host(self._function(tokens, logits.copy(), **more)))
        if result.shape != logits.shape or result.dtype.kind not in "fiu":
            raise InvalidParameterError(
                f"the processor returned {result.dtype} of shape {result.shape} for logits of "
                f"shape {logits.shape}; it must return one number for each token"
            )
        if np.isnan(result).any() or (result == np.inf).any():
            raise InvalidParameterError(
                f"the processor returned NaN or +∞ after the tokens {shown(tokens)}; it must "
                "return finite numbers, or −∞ to exclude a token"
            )
        return result.astype(np.float64)


class ProcessedModel(TableModel):
    """A table whose rows a processor changes; after the end of a text, one token is certain."""

    def __init__(self, raw: TableModel, like: Processing, start: int, ends: Sequence[Path]) -> None:
        self.raw, self.vocabulary = raw, raw.vocabulary
        self._processing, self._start, self._ends = like, start, tuple(ends)
        self._rows: dict[Path, Probs] = {}
        self._others: dict[TableModel, ProcessedModel] = {}
        self._found: dict[tuple[Path, Path], Probs | None] = {}

    def probs(self, context: Path) -> npt.NDArray[Any]:
        """Return the distribution after a context: array [V] of fractions."""
        return self.after(tuple(context), tuple(context))

    def after(self, context: Path, history: Path) -> Probs:
        """Return the row after a context, processed as if the tokens so far were `history`."""
        row = self._row(context, history)
        return self.raw.probs(context) if row is None else row

    def excludes_all(self, context: Path) -> bool:
        """Whether no token is possible after a context."""
        return self._row(context, context) is None

    def has_ended(self, context: Path) -> bool:
        """Whether the output in a context contains the end of a text."""
        return first_end(context[self._start :], self._ends) is not None

    def of(self, model: TableModel) -> ProcessedModel:
        """Apply the same processor to another model; the result is kept, with its rows."""
        if model not in self._others:
            self._others[model] = ProcessedModel(model, self._processing, self._start, self._ends)
        return self._others[model]

    def _row(self, context: Path, history: Path) -> Probs | None:
        key = context, history
        if key not in self._found:
            self._found[key] = self._compute(context, history)
        return self._found[key]

    def _compute(self, context: Path, history: Path) -> Probs | None:
        if self.has_ended(context):
            certain = [Fraction(token == context[-1]) for token in range(self.vocabulary)]
            return read_only(np.array(certain, dtype=object))
        with np.errstate(divide="ignore"):
            logits = np.log(self.raw.probs(context).astype(np.float64))
        found, again = (self._processing(history, logits, self._start) for _ in range(2))
        if not np.array_equal(found, again):
            raise InvalidParameterError(
                f"the processor returned different logits for the same tokens {shown(history)}; "
                "give one without randomness and without a state"
            )
        return _as_row(found)


def _as_row(logits: npt.NDArray[np.float64]) -> Probs | None:
    """Convert logits to fractions that sum to 1; None if all tokens are excluded."""
    if logits.max() == -np.inf:
        return None
    weights = np.exp(logits - logits.max())
    probs: list[float] = (weights / weights.sum()).tolist()
    row = [Fraction(p).limit_denominator(SIMPLE) for p in probs]
    if sum(row) != 1 or any(
        abs(float(a) - p) > EQUAL or bool(a) != bool(p) for a, p in zip(row, probs, strict=True)
    ):
        row = [Fraction(max(round(p * 2**BITS), p > 0), 2**BITS) for p in probs]
        row[int(np.argmax(probs))] += 1 - sum(row)
    return read_only(np.array(row, dtype=object))


def first_end(tokens: Sequence[int], ends: Sequence[Path]) -> tuple[int, Path] | None:
    """Return the length of a text up to its first end, and the tokens that end it; or None."""
    for length in range(1, len(tokens) + 1):
        for end in ends:
            if length >= len(end) and tuple(tokens[length - len(end) : length]) == end:
                return length, end
    return None


def prepared(adapter: Adapter, instance: Instance) -> Instance:
    """Return an instance whose target has the distribution that a lossless loop must output."""
    if adapter.processor is None or isinstance(instance.target, ProcessedModel):
        return instance
    return _prepared(adapter.processor, adapter.ends, instance)


@lru_cache(maxsize=4096)
def _prepared(processor: Processing, ends: tuple[Path, ...], instance: Instance) -> Instance:
    target = ProcessedModel(instance.target, processor, len(instance.prompt), ends)
    return replace(instance, target=target)


def supports(adapter: Adapter, instance: Instance) -> bool:
    """Whether an adapter supports an instance, and its processor leaves a token in each row.

    A processor that raises IndexError, in a small vocabulary, does not support the instance.
    """
    if not adapter.supports(instance):
        return False
    ready = prepared(adapter, instance)
    if not isinstance(ready.target, ProcessedModel):
        return True
    try:
        longest = max_tokens(adapter, instance) + instance.gamma + adapter.longer_prompts
        return _leaves_tokens(ready, longest)
    except IndexError:
        return False


@lru_cache(maxsize=4096)
def _leaves_tokens(instance: Instance, length: int) -> bool:
    """Whether each row that a loop may read leaves a token possible; drafts may be processed."""
    target: Any = instance.target
    draft, reached, count = target.of(instance.draft), [instance.prompt], 0
    for _ in range(length):
        longer: list[Path] = []
        for context in reached:
            count += 1
            if count > MOST_CONTEXTS:
                return True
            if target.excludes_all(context) or draft.excludes_all(context):
                return False
            follow = (target.probs(context) > 0) | (instance.draft.probs(context) > 0)
            longer += [(*context, token) for token in np.flatnonzero(follow).tolist()]
        reached = longer
    return True


def raw(model: TableModel) -> TableModel:
    """Return a model without its processor."""
    return model.raw if isinstance(model, ProcessedModel) else model
