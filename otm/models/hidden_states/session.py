"""Sessions of a draft layer: keys and values of its rows, renewed as the target reads."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from otm._core.tensors import on_device
from otm.models.base import PaddedTokens, Session, check_length
from otm.models.hidden_states.layer import Layer
from otm.models.huggingface.states import StateMemory

Indices = npt.NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class BoundLayer:
    """A layer with the parts of its target that it uses."""

    layer: Layer
    # The target's hidden states, and its function from tokens to embeddings.
    memory: StateMemory
    embed: Any
    # Tokens [v] that the layer scores, their rows [v, D] of the target's output layer.
    tokens: Any
    head: Any
    vocabulary: int
    context_length: int | None

    @property
    def device(self) -> Any:
        """Device of the tensors."""
        return self.head.device

    def empty_storage(self, rows: int, slots: int) -> list[Any]:
        """Return zeros for keys, values and outputs: [rows, heads, slots, size] each."""
        config = self.layer.config
        keys = config.key_heads, config.width // config.heads
        sizes = keys, keys, (1, config.width)
        return [self.head.new_zeros((rows, heads, slots, size)) for heads, size in sizes]

    def scores(self, outputs: Any) -> Any:
        """Return logits [R, L, V] of outputs [R, L, D]; −∞ for tokens outside the head."""
        logits = self.layer.logits(outputs, self.head).float()
        scores = logits.new_full((*logits.shape[:-1], self.vocabulary), -float("inf"))
        scores[..., self.tokens] = logits
        return scores


class HiddenStateSession(Session):
    """Rows of tokens; slot i of a row is computed from token i and the state before it.

    The state before token i is the target's, if the target has read the tokens before i, and the
    layer's own output at slot i − 1 otherwise.  Once the target has read accepted drafts, their
    slots are computed again.
    """

    def __init__(self, model: BoundLayer, rows: int) -> None:
        self._model = model
        self._tokens: list[tuple[int, ...]] = [()] * rows
        # [R]: number of first slots that are computed from the target's states.
        self._sure: Indices = np.zeros(rows, np.int64)
        # For each row, the target's states of a prefix, the row of the target's session that has
        # them, and the memory's version when found.
        self._states: list[Any] = [None] * rows
        self._near = [0] * rows
        self._versions = [-1] * rows
        # Keys and values [R, heads, slots, size] and outputs [R, 1, slots, D].
        self._stored: list[Any] = []

    def append(self, tokens: PaddedTokens) -> Any:
        """Append tokens to each row, and return a tensor of logits [R, L, V]."""
        import torch

        outputs = self._read(tokens)
        with torch.no_grad():
            return self._model.scores(outputs)

    def read(self, tokens: PaddedTokens) -> None:
        """Append tokens to each row without returning logits."""
        self._read(tokens)

    def keep(self, rows: Indices, lengths: Indices) -> None:
        """Replace the rows by prefixes of rows."""
        if not np.array_equal(rows, np.arange(len(self._tokens))):
            order = on_device(rows, self._model.device)
            self._stored = [tensor[order] for tensor in self._stored]
        self._tokens = [self._tokens[r][:n] for r, n in zip(rows, lengths, strict=True)]
        self._sure = np.minimum(self._sure[rows], lengths)
        # States of tokens that are cut off are not those of the tokens that follow.
        found = [self._states[r] for r in rows]
        self._states = [
            None if states is None else states[:n] for states, n in zip(found, lengths, strict=True)
        ]
        self._near = [self._near[r] for r in rows]
        self._versions = [self._versions[r] for r in rows]

    def _read(self, tokens: PaddedTokens) -> Any:
        """Append tokens, and return the outputs [R, L, D] of their slots."""
        import torch

        model = self._model
        before = np.array([len(row) for row in self._tokens])
        for r, new in enumerate(tokens.tolist()):
            self._tokens[r] += tuple(token for token in new if token >= 0)
        ends = np.array([len(row) for row in self._tokens])
        check_length(int(ends.max(initial=0)), model.context_length)
        known = np.array([self._known(r) for r in range(len(ends))])
        # Slots up to `known` have the target's states: slot i needs the state of token i − 1.
        stops = np.minimum(known + 1, ends)
        starts = np.where(stops > self._sure, np.minimum(self._sure, before), before)
        outputs = model.head.new_zeros((*tokens.shape, model.layer.config.width))
        with torch.no_grad():
            # The slots of shorter rows are padded, so that they end later.
            self._grow(int(ends.max(initial=0) + (ends - starts).max(initial=0)))
            while (starts < ends).any():
                # All slots with the target's states at once, others one by one.
                targets = starts < stops
                rows = np.flatnonzero(targets if targets.any() else starts < ends)
                counts = (stops if targets.any() else starts + 1)[rows] - starts[rows]
                found = self._compute(rows, starts[rows], counts, of_target=bool(targets.any()))
                for row, start, count, output in zip(
                    rows, starts[rows], counts, found, strict=True
                ):
                    old = min(max(before[row] - start, 0), count)
                    place = start + old - before[row]
                    outputs[row, place : place + count - old] = output[old:count]
                starts[rows] += counts
                if targets.any():
                    self._sure[rows] = starts[rows]
        return outputs

    def _known(self, row: int) -> int:
        """Return the number of first tokens of a row whose states the target holds."""
        memory = self._model.memory
        if self._versions[row] != memory.version:
            found = memory.of(self._tokens[row], self._near[row])
            self._states[row], self._near[row] = found
            self._versions[row] = memory.version
        states = self._states[row]
        return 0 if states is None else len(states)

    def _compute(self, rows: Indices, starts: Indices, counts: Indices, *, of_target: bool) -> Any:
        """Compute `counts` slots of rows from `starts` on; return their outputs [n, c, D]."""
        import torch

        model, longest = self._model, int(counts.max())
        slots = starts[:, None] + np.arange(longest)
        ids = np.zeros_like(slots)
        for i, (row, start, count) in enumerate(zip(rows, starts, counts, strict=True)):
            ids[i, :count] = self._tokens[row][start : start + count]
        embedded = model.embed(on_device(ids, model.device))
        places = on_device(rows, model.device)
        positions = on_device(slots, model.device)
        if of_target:
            states = embedded.new_zeros((*ids.shape, model.layer.config.states_width))
            for i, (row, start, count) in enumerate(zip(rows, starts, counts, strict=True)):
                # Slot 0 has no state before it.
                skip = int(start == 0)
                if count > skip:
                    states[i, skip:count] = self._states[row][start + skip - 1 : start + count - 1]
            x = model.layer.from_states(states, embedded)
        else:
            own = self._stored[2][places, 0, (positions[:, 0] - 1).clamp(min=0)]
            own = own * (positions[:, :1] > 0)
            x = model.layer.from_own(own[:, None], embedded)
        query, key, value = model.layer.project(x, positions)
        end = int(slots.max()) + 1
        where = places[:, None], slice(None), positions
        self._stored[0][where] = key.transpose(1, 2)
        self._stored[1][where] = value.transpose(1, 2)
        keys, values, _ = self._stored
        if len(rows) < len(self._tokens):
            keys, values = keys[places], values[places]
        mask = torch.arange(end, device=model.device) <= positions[:, None, :, None]
        output = model.layer.finish(x, query, keys[:, :, :end], values[:, :, :end], mask)
        self._stored[2][where] = output[:, :, None]
        return output

    def _grow(self, slots: int) -> None:
        """Make room for a number of slots in each row."""
        held = self._stored[0].shape[2] if self._stored else 0
        if slots > held:
            wider = self._model.empty_storage(len(self._tokens), max(slots, 2 * held))
            for tensor, old in zip(wider, self._stored, strict=False):
                tensor[:, :, :held] = old
            self._stored = wider
