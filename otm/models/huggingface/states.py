"""Hidden states of the tokens that a model's open sessions have read, for drafts that need them."""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from otm.models.base import common_length

Indices = npt.NDArray[np.int64]


class RowStates:
    """Tokens and hidden states of the rows of one session; both are cut by a rewind.

    `memory` is the `StateMemory` of the model.
    """

    def __init__(self, rows: int, memory: StateMemory) -> None:
        self._memory = memory
        self.tokens: list[tuple[int, ...]] = [()] * rows
        # Parts [n_i, S · D] of the states of each row, in order.
        self._parts: list[list[Any]] = [[] for _ in range(rows)]

    def append(self, rows: Indices, tokens: Any, counts: Indices, hidden: Sequence[Any]) -> None:
        """Append `counts` [R] of the tokens [R, L] with their states, a tensor per layer."""
        import torch

        self._memory.version += 1
        states = torch.cat([hidden[layer] for layer in self._memory.layers], -1)
        for i, (row, ids, count) in enumerate(zip(rows, tokens.tolist(), counts, strict=True)):
            self.tokens[row] += tuple(ids[:count])
            self._parts[row].append(states[i, :count])

    def keep(self, rows: Indices, lengths: Indices) -> None:
        """Replace the rows by prefixes of rows."""
        self._memory.version += 1
        kept = [(self.tokens[r][:n], self.of(r)[:n]) for r, n in zip(rows, lengths, strict=True)]
        self.tokens = [tokens for tokens, _ in kept]
        self._parts = [[states] for _, states in kept]

    def of(self, row: int) -> Any:
        """Return the states [n, S · D] of a row."""
        import torch

        parts = self._parts[row]
        if len(parts) != 1:
            parts[:] = [torch.cat(parts) if parts else torch.zeros(0, 0)]
        return parts[0]


class StateMemory:
    """The hidden states that all open sessions of a model hold, found by their tokens.

    A hidden state is a function of the tokens up to it, so it does not matter which session has
    read them.  `layers` are indices into `hidden_states` of the model's output.
    """

    def __init__(self, layers: tuple[int, ...]) -> None:
        self.layers = layers
        # Number of changes so far: a search need not be repeated before the next change.
        self.version = 0
        self._open: weakref.WeakSet[RowStates] = weakref.WeakSet()

    def open(self, rows: int) -> RowStates:
        """Return the record of a new session."""
        record = RowStates(rows, self)
        self._open.add(record)
        return record

    def of(self, tokens: Sequence[int], near: int = 0) -> tuple[Any, int]:
        """Return the states [n, S · D] of the longest prefix that a row has read, and this row.

        The search begins at row `near`, and ends at a row that has read all but the last token.
        Without a prefix, the states are None.
        """
        text, longest, found = tuple(tokens), 0, None
        for record in self._open:
            count = len(record.tokens)
            for row in (*range(min(near, count), count), *range(min(near, count))):
                if (length := common_length(text, record.tokens[row])) > longest:
                    longest, found = length, (record, row)
                    if longest >= len(text) - 1:
                        return record.of(row)[:longest], row
        return (None, 0) if found is None else (found[0].of(found[1])[:longest], found[1])
