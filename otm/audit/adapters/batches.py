"""Adapters of functions that verify a batch: a row's output must not depend on other rows.

The adapter verifies the row of the instance alone and at each index of a batch of three rows.  The
other rows have other contents, other uniforms and, if the function has a parameter `lengths`, other
lengths.  With the same uniforms, the row's output must be the same in all batches.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise, product
from typing import Any

import numpy as np
import numpy.typing as npt

from otm._core.arithmetic import Probs
from otm._core.tensors import to_host
from otm.audit.adapters.base import Instance, Source, as_failure
from otm.audit.adapters.drafts import as_tokens, chain_probs, draw_chain, is_exact
from otm.audit.adapters.functions import FunctionAdapter, parameters_of
from otm.decoding.draft_tree import Randomness
from otm.decoding.reading import Path

PLACES = 3
"""Number of rows of a batch; the audit puts the audited row at each index of the batch."""

COINS = (Fraction(1, 16), Fraction(15, 16))
"""Uniforms of the other rows: the first leads to acceptance of drafts, the second to rejection."""


@dataclass(frozen=True, eq=False)
class Row:
    """Probabilities, drafts and uniforms of one sequence."""

    target: Probs  # [n + 1, V]
    draft: Probs  # [n, V]
    tokens: npt.NDArray[np.int64]  # [n]
    uniforms: npt.NDArray[Any]  # [m]

    def beside(self, coin: Fraction, shift: int, drafts: int) -> Row:
        """Return a row of `drafts` drafts, with shifted tokens and with `coin` as every uniform."""
        coins = np.full(len(self.uniforms), coin if self.target.dtype == object else float(coin))
        size = self.target.shape[1]
        target, draft = (np.roll(probs, shift, axis=1) for probs in (self.target, self.draft))
        row = Row(target, draft, (self.tokens + shift) % size, coins).padded(drafts)
        return Row(row.target[: drafts + 1], row.draft[:drafts], row.tokens[:drafts], coins)

    def padded(self, drafts: int) -> Row:
        """Pad the row to a number of drafts with other tokens and probabilities."""
        more = max(drafts - len(self.tokens), 0)
        rows = np.roll(self.target[-1:].repeat(more, axis=0), 1, axis=1)
        return Row(
            np.concatenate([self.target, rows]),
            np.concatenate([self.draft, rows]),
            np.append(self.tokens, rows.argmax(axis=1)),
            self.uniforms,
        )


class batch(FunctionAdapter):
    """Audit a verifier f(target_probs, draft_probs, draft_tokens, uniforms) of a batch of chains.

    The audit treats each row as `chain` does.  With the same uniforms, a row's output must also be
    the same alone and at each index of a batch of three, for any contents of the other rows.

    Parameters
    ----------
    function : callable
        Function of the target probabilities [B, γ + 1, V], the draft probabilities [B, γ, V], the
        draft tokens [B, γ] and uniforms [B, γ + 2].  The function returns, for each row, a result
        as for `chain`; or tokens [B, n] and numbers of accepted tokens [B].  The function's
        randomness may be another parameter as for `chain`, with one generator or seed for the
        batch.  A parameter `lengths`, if the function has it, is the number of drafts of each row
        [B]; other drafts and probabilities then pad each row after its end.
    **options
        As for `chain`.

    Raises
    ------
    InvalidParameterError
        If the function has other parameters, or they cannot be read.
    MissingDependencyError
        If the function has a parameter `generator`, and torch is not installed.

    Examples
    --------
    >>> from otm.audit import lossless
    >>> def verify(target_probs, draft_probs, draft_tokens, uniforms):
    ...     return [[draft_tokens[0][0]] for _ in draft_tokens]  # the draft of row 0
    >>> print(lossless(batch(verify), examples=0).counterexample.output.text)
    its output changes with the other rows of the batch: (0,) alone, (1,) as row 2 of 3
    """

    beyond = 2

    def __init__(self, function: Callable[..., Any], **options: Any) -> None:
        self.ragged = "lengths" in parameters_of(function)
        self.before = 3 + self.ragged
        super().__init__(function, **options)
        # Whether the output of a row has depended on other rows.
        self._mixed = False

    def drafted(self, instance: Instance, source: Randomness) -> Path:
        """Draw the same drafts as `output`."""
        return draw_chain(instance, source)

    def output(self, instance: Instance, source: Randomness) -> Path:
        """Draw drafts, then verify them alone and in batches."""
        row = self._row(instance, source)
        if not self.repeatable:
            # A run is then one batch, and the source determines its size and the row's index.
            choice = source(1)[0]
            place = sum(bool(choice >= Fraction(i, PLACES)) for i in range(1, PLACES)) - 1
            batch = [row] if place < 0 else self._among(row, place, 2, ragged=self.ragged)
            return self._verify(batch, source)[max(place, 0)]
        alone = self._verify([row], source)[0]
        others = (
            (
                self._verify(self._among(row, place, PLACES, ragged=bool(ragged)), source)[place],
                f"as row {place + 1} of {PLACES}{' with other lengths' * ragged}",
            )
            for ragged, place in product(range(1 + self.ragged), range(PLACES))
        )
        text = "its output changes with the other rows of the batch: {} alone, {} {}"
        output = require_same(alone, others, text)
        self._mixed |= not same(alone, output)
        return output

    def outputs(self, instance: Instance, uniforms: npt.NDArray[np.float64]) -> Sequence[Path]:
        """Verify all runs as one batch, then again in reverse order between other rows."""
        sources = [Source(row) for row in uniforms]
        if len(sources) == 1 or self._mixed:
            return [self.output(instance, source) for source in sources]
        rows = [self._row(instance, source) for source in sources]
        if not self.repeatable:
            # Three small batches, then one batch with all remaining rows.
            ends = [0, 1, 3, 6, len(rows)]
            parts = [rows[a:b] for a, b in pairwise(ends) if rows[a:b]]
            return [output for part in parts for output in self._verify(part, sources[0])]
        results = self._verify(rows, sources[0])
        among = self._among(rows[0], 0, PLACES, ragged=self.ragged)
        others = self._verify([among[1], *rows[::-1], among[2]], sources[0])[-2:0:-1]
        if not all(map(same, results, others)):
            # The output of a run then depends on the other runs.
            self._mixed = True
            return [self.output(instance, Source(row)) for row in uniforms]
        return results

    def _row(self, instance: Instance, source: Randomness) -> Row:
        drafts = draw_chain(instance, source)
        rows = chain_probs(instance, drafts, is_exact(source))
        count = self._uniforms(instance.gamma) if self.repeatable else 0
        return Row(*rows, np.array(drafts), source(count))

    def _among(self, row: Row, place: int, size: int, *, ragged: bool) -> list[Row]:
        """Insert a row into a batch; if `ragged`, other rows have one more draft, or no drafts."""
        n = len(row.tokens)
        lengths = (n + 1, 0) if ragged else (n, n)
        others = [
            row.beside(coin, shift, length)
            for shift, coin, length in zip((1, -1), COINS, lengths, strict=True)
        ][: size - 1]
        return [*others[:place], row, *others[place:]]

    def _verify(self, rows: Sequence[Row], source: Randomness) -> list[Path]:
        """Verify a batch, padded to its longest row."""
        lengths = [len(row.tokens) for row in rows]
        padded = [row.padded(max(lengths)) for row in rows]
        arrays: list[Any] = [
            np.array([getattr(row, name) for row in padded])
            for name in ("target", "draft", "tokens")
        ]
        options: dict[str, Any] = {"lengths": np.array(lengths)} if self.ragged else {}
        if self.repeatable:
            options["uniforms"] = np.array([row.uniforms for row in rows])
        options = {name: self.convert(array) for name, array in options.items()}
        if not self.repeatable:
            options |= self._random(source, 0)
        return _outputs(self.function(*map(self.convert, arrays), **options), len(rows))


def same(a: Any, b: Any) -> bool:
    """Return whether two outputs are the same tokens."""
    return isinstance(a, tuple) and isinstance(b, tuple) and a == b


def require_same(output: Any, others: Iterable[tuple[Any, str]], text: str) -> Path:
    """Return an output, or a failure if another output differs from it.

    The message `text` has placeholders for `output`, the output that differs, and its origin.
    """
    for other, origin in others:
        if not same(output, other):
            wrong = (each for each in (output, other) if not isinstance(each, tuple))
            return next(wrong, as_failure(text.format(output, other, origin)))
    return output  # type: ignore[no-any-return]


def _outputs(result: Any, size: int) -> list[Path]:
    """Read each row's tokens from an array [B, n], or a pair: tokens [B, n], accepted [B]."""
    pair = isinstance(result, tuple) and len(result) == 2 and np.ndim(to_host(result[0][0])) == 1
    parts = [to_host(part) for part in (result if pair else (result,))]
    if any(len(part) != size for part in parts):
        return [as_failure(f"returned {len(parts[0])} rows for a batch of {size}")] * size
    return [as_tokens(tuple(row) if pair else row[0]) for row in zip(*parts, strict=True)]
