"""Adapters of functions that verify a batch: the rows beside a row must not matter to it.

The row of the instance stands alone and in every place of a batch of three, whose other rows have
other contents, other uniforms and, if the function is told lengths, other lengths.  At the same
uniforms of its own its output must be the same.
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
"""Rows of a batch in which a row changes its place."""

COINS = (Fraction(1, 16), Fraction(15, 16))
"""Uniforms of rows beside or before: drafts are accepted with the first, not with the second."""


@dataclass(frozen=True, eq=False)
class Row:
    """The probabilities, drafts and uniforms of one sequence."""

    target: Probs  # [n + 1, V]
    draft: Probs  # [n, V]
    tokens: npt.NDArray[np.int64]  # [n]
    uniforms: npt.NDArray[Any]  # [m]

    def beside(self, coin: Fraction, shift: int, drafts: int) -> Row:
        """Make a row with other tokens and probabilities, and this number of drafts."""
        coins = np.full(len(self.uniforms), coin if self.target.dtype == object else float(coin))
        size = self.target.shape[1]
        target, draft = (np.roll(probs, shift, axis=1) for probs in (self.target, self.draft))
        row = Row(target, draft, (self.tokens + shift) % size, coins).padded(drafts)
        return Row(row.target[: drafts + 1], row.draft[:drafts], row.tokens[:drafts], coins)

    def padded(self, drafts: int) -> Row:
        """Pad the row to this number of drafts, with other tokens and probabilities."""
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

    Each row is audited as `chain` does; its output must also be the same, at the same uniforms,
    alone and in each place of a batch of three, whatever the other rows hold.

    Parameters
    ----------
    function : callable
        Takes the target's probabilities [B, γ + 1, V], the draft's [B, γ, V], the drafts [B, γ] and
        uniforms [B, γ + 2]; returns for each row what `chain` takes, or tokens [B, n] and numbers
        accepted [B]; its randomness as there, one generator or seed for the batch.  If it has a
        parameter `lengths`, it is told the number of drafts of each row, [B], and rows are padded
        behind them by other drafts and probabilities.
    **options
        As for `chain`.

    Raises
    ------
    InvalidParameterError
        If the parameters of the function are not these, or cannot be read.
    MissingDependencyError
        If the function takes a `generator`, and torch is not installed.

    Examples
    --------
    >>> from otm.audit import lossless
    >>> def verify(target_probs, draft_probs, draft_tokens, uniforms):
    ...     return [[draft_tokens[0][0]] for _ in draft_tokens]  # of row 0
    >>> print(lossless(batch(verify), examples=0).counterexample.output.text)
    its output changes with the rows beside it: (0,) alone, (1,) as row 2 of 3
    """

    beyond = 2

    def __init__(self, function: Callable[..., Any], **options: Any) -> None:
        self.ragged = "lengths" in parameters_of(function)
        self.before = 3 + self.ragged
        super().__init__(function, **options)
        self._mixed = False  # whether rows have been seen to depend on others

    def drafted(self, instance: Instance, source: Randomness) -> Path:
        """Draw the drafts as `output` does."""
        return draw_chain(instance, source)

    def output(self, instance: Instance, source: Randomness) -> Path:
        """Draft, then verify alone and among others."""
        row = self._row(instance, source)
        if not self.repeatable:  # then a run is one batch, whose size and place are drawn too
            choice = source(1)[0]
            place = sum(bool(choice >= Fraction(i, PLACES)) for i in range(1, PLACES)) - 1
            batch = [row] if place < 0 else self._among(row, place, 2, ragged=self.ragged)
            return self._verify(batch, source)[max(place, 0)]
        alone = self._verify([row], source)[0]
        others = (
            (
                self._verify(self._among(row, place, PLACES, ragged=bool(ragged)), source)[place],
                f"as row {place + 1} of {PLACES}{', of other lengths' * ragged}",
            )
            for ragged, place in product(range(1 + self.ragged), range(PLACES))
        )
        text = "its output changes with the rows beside it: {} alone, {} {}"
        output = require_same(alone, others, text)
        self._mixed |= not same(alone, output)
        return output

    def outputs(self, instance: Instance, uniforms: npt.NDArray[np.float64]) -> Sequence[Path]:
        """Verify all runs as one batch, then again in reverse order between other rows."""
        sources = [Source(row) for row in uniforms]
        if len(sources) == 1 or self._mixed:
            return [self.output(instance, source) for source in sources]
        rows = [self._row(instance, source) for source in sources]
        if not self.repeatable:  # small batches, and all that is left
            ends = [0, 1, 3, 6, len(rows)]
            parts = [rows[a:b] for a, b in pairwise(ends) if rows[a:b]]
            return [output for part in parts for output in self._verify(part, sources[0])]
        results = self._verify(rows, sources[0])
        among = self._among(rows[0], 0, PLACES, ragged=self.ragged)
        others = self._verify([among[1], *rows[::-1], among[2]], sources[0])[-2:0:-1]
        if not all(map(same, results, others)):  # what a run gives then depends on all others
            self._mixed = True
            return [self.output(instance, Source(row)) for row in uniforms]
        return results

    def _row(self, instance: Instance, source: Randomness) -> Row:
        drafts = draw_chain(instance, source)
        rows = chain_probs(instance, drafts, is_exact(source))
        count = self._uniforms(instance.gamma) if self.repeatable else 0
        return Row(*rows, np.array(drafts), source(count))

    def _among(self, row: Row, place: int, size: int, *, ragged: bool) -> list[Row]:
        """Put a row among others; if `ragged`, one of them has no draft and one has more drafts."""
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
    """Whether two outputs are the same tokens."""
    return isinstance(a, tuple) and isinstance(b, tuple) and a == b


def require_same(output: Any, others: Iterable[tuple[Any, str]], text: str) -> Path:
    """Return an output, or a failure if one of the others differs from it.

    The text has places for both outputs, and for how the other one was obtained.
    """
    for again, how in others:
        if not same(output, again):
            wrong = (each for each in (output, again) if not isinstance(each, tuple))
            return next(wrong, as_failure(text.format(output, again, how)))
    return output  # type: ignore[no-any-return]


def _outputs(result: Any, size: int) -> list[Path]:
    """Read the tokens of each row of [B, n], or of tokens [B, n] and numbers accepted [B]."""
    pair = isinstance(result, tuple) and len(result) == 2 and np.ndim(to_host(result[0][0])) == 1
    parts = [to_host(part) for part in (result if pair else (result,))]
    if any(len(part) != size for part in parts):
        return [as_failure(f"returned {len(parts[0])} rows for a batch of {size}")] * size
    return [as_tokens(tuple(row) if pair else row[0]) for row in zip(*parts, strict=True)]
