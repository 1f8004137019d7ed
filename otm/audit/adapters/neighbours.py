"""Rows beside the audited row of a batch, and models that recognize wrong contexts of a row.

The audited row uses the tokens 0 to V − 1.  Each neighbour has tokens of its own, and only one
token is possible after each of its contexts.  Its text is therefore known.  In a context that
belongs to no row, a special token is certain; this token shows the mistake in the text.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property, lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from otm._core.arithmetic import Probs, read_only
from otm._core.tensors import to_host
from otm.audit.adapters.base import (
    AFTER_END,
    AFTER_STOP,
    TOO_LONG,
    TOO_SHORT,
    Failure,
    Instance,
)
from otm.audit.adapters.huggingface.caches import LOST, POSITIONS
from otm.audit.adapters.processed import first_end, raw
from otm.decoding.reading import Path
from otm.models.base import StatelessModel
from otm.models.table import TableModel

MIXED, STALE, OTHER_ROW = "padding read as text", "rejected drafts kept", "row of a neighbour"
"""Known mistakes: contexts with padding or with rejected drafts, and tokens of another row."""

START = "start token added"
"""Known mistake: one other token before a context; in a shorter row it may be padding."""

STOPPED, DEPENDENT = "rows stopped by another row", "rows that depend on each other"
"""Known mistakes: a row ends where another row ends; a row changes with other rows."""

SHOWN = {
    START: "after a context that begins with another token than the prompt",
    MIXED: "after a context with padding, or with tokens of several rows",
    STALE: "after a context with rejected drafts, or with tokens in a wrong order",
    POSITIONS: "after a context whose positions do not count its tokens",
    LOST: "after a context whose first tokens a rotating cache has lost",
}
"""Faults of a context, in the order of their special tokens."""

NEIGHBOURS, CYCLE = 2, 3
"""Number of neighbours, and of the tokens that the text of a neighbour repeats."""


@dataclass(frozen=True)
class Ends:
    """The ends of texts: after certain tokens, or at a number of tokens."""

    tokens: tuple[Path, ...]
    limit: int

    def complete(self, text: Path) -> bool:
        """Whether a text ends where it must."""
        found = first_end(text, self.tokens)
        return len(text) == (self.limit if found is None else found[0])


@dataclass(frozen=True)
class Neighbour:
    """A row with known text, a cycle of tokens, and with a draft model that is sometimes wrong."""

    # Number in the batch, and the first of its own tokens.
    number: int
    first: int
    # Tokens that end its text after the last token of a cycle; empty if it does not end.
    end: Path = ()

    @property
    def prompt(self) -> Path:
        """Tokens before its text; the prompts of neighbours differ in length."""
        return tuple(self.first + i % CYCLE for i in range(1, 3 + 2 * self.number))

    @property
    def wrong(self) -> int:
        """Token that only the draft model proposes."""
        return self.first + CYCLE

    def follows(self, context: Path) -> int | str:
        """Return the target's token after a context, or the fault of the context."""
        own = range(self.first, self.wrong + 1)
        ending = next((k for k in range(len(self.end), 0, -1) if context[-k:] == self.end[:k]), 0)
        text = context[: len(context) - ending]
        if ending == len(self.end) > 0 or not text:
            return self.first
        if not all(token in own for token in text):
            return MIXED
        steps = itertools.pairwise(text)
        if self.wrong in text or any(b != self._next(a) for a, b in steps):
            return STALE
        if ending:
            return self.end[ending]
        return self.end[0] if self.end and text[-1] == self.wrong - 1 else self._next(text[-1])

    def drafted(self, context: Path) -> int:
        """Return the draft model's token, which is wrong once in each cycle."""
        token = self.follows(context)
        if isinstance(token, str):
            return self.first
        return self.wrong if token == self.first else token

    def text(self, ends: Ends) -> Path:
        """Return its whole text."""
        text: Path = ()
        while not ends.complete(text):
            # No fault occurs in its own text.
            text += (self.follows(self.prompt + text),)  # type: ignore[operator]
        return text

    def _next(self, token: int) -> int:
        return self.first + (token - self.first + 1) % CYCLE


class RowsModel(StatelessModel):
    """A model of all rows of a batch: an instance's table, and the certain tokens of neighbours."""

    def __init__(
        self, table: Any, neighbours: Sequence[Neighbour], *, exact: bool, draft: bool
    ) -> None:
        self._table, self._neighbours, self._draft = table, neighbours, draft
        self._exact = exact
        self.own = table.vocabulary
        self.special = self.own + len(neighbours) * (CYCLE + 1)
        # The last token is for padding; models without neighbours have no token to spare.
        more = len(SHOWN) + 1 if neighbours else 0
        self.vocabulary = self.special + more
        self.pad = self.vocabulary - 1 if neighbours else None
        self.longest_context = table.order
        self._rows: dict[Path, Probs] = {}

    def probs(self, context: Any) -> npt.NDArray[Any]:
        """Return the distribution after one context [V], or after each of several [B, V]."""
        if len(context) and np.ndim(context[0]):
            return np.array([self.probs(each) for each in context])
        path = tuple(map(int, to_host(context)))
        row = self._rows.get(path)
        if row is None:
            row = self._rows[path] = read_only(self._row(path))
        return row

    @cached_property
    def in_fractions(self) -> RowsModel:
        """The same model in fractions."""
        exact = {"exact": True, "draft": self._draft}
        return self if self._exact else RowsModel(self._table, self._neighbours, **exact)

    def wrong_row(self, fault: str) -> Probs:
        """Return the distribution after a context with a fault: a special token is certain."""
        return self._certain(self.special + [*SHOWN].index(fault) if self._neighbours else -1)

    def _row(self, context: Path) -> Probs:
        if all(token < self.own for token in context):
            row = self._table.probs(context)
            row = row if self._exact else row.astype(np.float64)
            more = [Fraction(0) if self._exact else 0.0] * (self.vocabulary - self.own)
            return np.concatenate([row, np.array(more, dtype=row.dtype)])
        for each in self._neighbours:
            if each.first <= context[0] <= each.wrong:
                token = each.drafted(context) if self._draft else each.follows(context)
                return self.wrong_row(token) if isinstance(token, str) else self._certain(token)
        # Each row has a range of tokens; only the first token may be of no row.
        rows = [range(self.own), *(range(n.first, n.wrong + 1) for n in self._neighbours)]
        one = any(all(token in own for token in context[1:]) for own in rows)
        return self.wrong_row(START if one else MIXED)

    def _certain(self, token: int) -> Probs:
        place = range(self.vocabulary)[token]
        row = [Fraction(x == place) for x in range(self.vocabulary)]
        return np.array(row, dtype=object if self._exact else np.float64)


class TwinRows(TableModel):
    """Target of two texts after the same prompt, one after the other: they are independent."""

    def __init__(self, single: TableModel, prompt: Path, each: int) -> None:
        self.single, self.vocabulary = single, single.vocabulary
        self._start, self._each = len(prompt), each

    def probs(self, context: Path) -> npt.NDArray[Any]:
        """Return the distribution after a context: array [V] of fractions."""
        context = tuple(context)
        first, text = context[: self._start], context[self._start :]
        return self.single.probs(first + (text if len(text) < self._each else text[self._each :]))


def twins(instance: Instance, length: int) -> tuple[Instance, ...]:
    """Make the instance of two texts with `length` tokens in total; none if `length` is odd."""
    both = TwinRows(instance.target, instance.prompt, length // 2)
    return () if length % 2 else (replace(instance, target=both, length=length),)


@lru_cache(maxsize=256)
def models_of_rows(
    instance: Instance, neighbours: tuple[Neighbour, ...], exact: bool
) -> tuple[RowsModel, RowsModel]:
    """Return the target and draft model of a batch; always the same, because loops cache them."""
    target, draft = raw(instance.target), instance.draft
    return (
        RowsModel(target, neighbours, exact=exact, draft=False),
        RowsModel(draft, neighbours, exact=exact, draft=True),
    )


def neighbours_of(instance: Instance, ends: tuple[Path, ...]) -> tuple[Neighbour, ...]:
    """Make the neighbours of an instance's row; the last text ends early if there are ends."""
    own = instance.vocabulary
    return tuple(
        Neighbour(j, own + j * (CYCLE + 1), ends[0] if ends and j == NEIGHBOURS - 1 else ())
        for j in range(NEIGHBOURS)
    )


def fault_of(
    text: Path,
    row: Neighbour | None,
    model: RowsModel,
    ends: Ends,
    some_complete: bool,
    *,
    is_longest: bool,
) -> Failure | None:
    """Describe the fault in the text of a row; return None if there is none.

    `row` is None for the audited row, whose text is not known.  `some_complete` is whether another
    row is complete, and may have stopped this row.  `is_longest` is whether no prompt of the batch
    is longer, so that this row needs no padding.
    """
    if row is None:
        wrong = next((token for token in text if token >= model.own), None)
        if wrong is None:
            return None
        return _fault_shown_by(wrong, "a row", range(model.own), model, is_longest)
    expected, place = row.text(ends), "another row of the batch"
    what = f"{place} has the text {text}, but only {expected} is possible"
    # Only the first wrong token shows a mistake, because later ones follow a wrong text.
    for token, right in zip(text, expected, strict=False):
        if token != right:
            own = range(row.first, row.wrong + 1)
            return _fault_shown_by(token, place, own, model, is_longest) or Failure(what)
    if len(text) < len(expected):
        return Failure(what, mistake=STOPPED if some_complete else TOO_SHORT)
    if len(text) > len(expected):
        end = first_end(expected, ends.tokens)
        after = TOO_LONG if end is None else AFTER_END if len(end[1]) == 1 else AFTER_STOP
        return Failure(what, mistake=after)
    return None


def _fault_shown_by(
    token: int, place: str, own: range, model: RowsModel, is_longest: bool
) -> Failure | None:
    """Return the fault that a wrong token shows: a special token, or one of another row."""
    if token >= model.special + len(SHOWN) or token in own or token < model.own:
        return None
    if token < model.special:
        return Failure(f"{place} has a token of its neighbour", mistake=OTHER_ROW)
    fault = [*SHOWN][token - model.special]
    fault = MIXED if fault == START and not is_longest else fault
    return Failure(f"{place} has a token {SHOWN[fault]}", mistake=fault)


def most_telling(faults: Sequence[Failure]) -> Failure | None:
    """Return the fault that explains others: tokens of another row, then faults of contexts."""
    order = [OTHER_ROW, *SHOWN]
    return min(
        faults,
        key=lambda fault: order.index(fault.mistake) if fault.mistake in order else len(order),
        default=None,
    )
