"""Sessions of a transformer: the key–value cache of all rows, and attention to it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from otm._core.optional import require
from otm._core.tensors import on_device
from otm.errors import InvalidInputError
from otm.models.base import PaddedTokens, Session
from otm.models.cached_rows import CachedRows, Indices, LayerStorage, Window
from otm.models.gpt.transformer import Transformer
from otm.models.tree_attention import ancestors, visible_slots

if TYPE_CHECKING:
    from torch import Tensor


class GPTSession(Session):
    """A session of a GPT, with the keys and values of all tokens of its rows."""

    def __init__(self, network: Transformer, rows: int) -> None:
        self._network = network
        self._rows = CachedRows(rows, network.config.context_length)
        self._layers = [LayerStorage() for _ in range(network.config.layers)]

    def append(self, tokens: PaddedTokens) -> Tensor:
        """Append tokens, padded on the right with −1, and return logits: [R, L] → [R, L, V]."""
        with require("torch").inference_mode():
            return self._network.output(self._read_known(tokens))

    def append_tensor(self, tokens: Tensor, counts: npt.NDArray[np.int64]) -> Tensor:
        """Append `counts` [R] tokens of a device tensor [R, L]; return logits [R, L, V]."""
        order, starts = self._rows.order, self._rows.lengths
        self._rows.append_unknown(counts)
        with require("torch").inference_mode():
            return self._network.output(self._read(tokens, order, starts))

    def append_tree(self, tokens: Tensor, parents: Tensor, counts: Indices) -> Tensor:
        """Append `counts` [R] tokens and score a tree after them; return logits [R, M, V]."""
        order, starts = self._rows.order, self._rows.lengths
        self._rows.append_tree(counts)
        with require("torch").inference_mode():
            known = ancestors(parents.to(self._network.turns.device, non_blocking=True))
            return self._network.output(self._read(tokens, order, starts, known))

    def keep_paths(self, paths: Indices) -> None:
        """Append to each row a path of its last tree: entries [R, D], padded with −1."""
        moves = self._rows.keep_paths(paths)
        with require("torch").inference_mode():
            for layer in self._layers:
                layer.move(moves)

    def read(self, tokens: PaddedTokens) -> None:
        """Append tokens without computing logits."""
        with require("torch").inference_mode():
            self._read_known(tokens)

    def keep(self, rows: npt.NDArray[np.int64], lengths: npt.NDArray[np.int64]) -> None:
        """Replace the rows by R' prefixes: new row r is the first `lengths[r]` tokens of `rows[r]`.

        Only slots that a place does not already hold are copied.
        """
        copies = self._rows.keep(rows, lengths)
        with require("torch").inference_mode():
            for layer in self._layers:
                layer.copy(self._rows.capacity, copies)

    def _read_known(self, tokens: PaddedTokens) -> Any:
        """Check and append tokens of the host, and return the output of the last block."""
        largest, vocabulary = int(tokens.max(initial=-1)), self._network.config.vocabulary
        if largest >= vocabulary:
            raise InvalidInputError(
                f"token {largest} is not in the vocabulary; this model has the tokens 0 to "
                f"{vocabulary - 1}"
            )
        order, starts = self._rows.order, self._rows.lengths
        self._rows.append(tokens)
        ids = require("torch").from_numpy(np.maximum(tokens, 0))
        return self._read(ids, order, starts)

    def _read(
        self, ids: Tensor, order: Indices | None, starts: Indices, known: Tensor | None = None
    ) -> Any:
        """Run the network on ids [R, L]; each row already has `starts` [R] tokens.

        `known` is the result of `ancestors` for a tree.  Return the output of the last block,
        [R, L, width].
        """
        torch, network = require("torch"), self._network
        (R, L), device = ids.shape, network.turns.device
        if ids.numel() == 0:
            return network.weights["embedding"].new_empty((R, L, network.config.width))
        ids = ids.to(device, non_blocking=True)
        # Rows are computed in the order of their places.
        if order is not None:
            place = on_device(order, device)
            ids, starts = ids[place], starts[order]
            known = None if known is None else known[place]
        start, end = int(starts[0]), int(starts.max()) + L
        # If all rows have equal lengths, slices are read and written, and one mask is enough.
        alike = bool((starts == start).all())
        positions = torch.from_numpy((starts[:1] if alike else starts)[:, None] + np.arange(L))
        # Shape [1 or R, L]; slots of padding are written, but never visible.
        positions = positions.to(device, non_blocking=True)
        write: tuple[Any, Any] = slice(R), slice(start, end)
        if not alike:
            write = torch.arange(R, device=device)[:, None], positions
        visible = Window(self._rows.capacity, start, end, write, (slice(R), slice(end)), {})
        for layer in self._layers:
            layer.open(visible)
        causal = end == L > 1 and known is None
        mask = None
        if known is not None:
            mask = visible_slots(known, positions[:, 0], end)
            positions = positions[:, :1] + known.sum(-1) - 1
        elif not (causal or (alike and L == 1)):
            mask = torch.arange(end, device=device) <= positions[:, None, :, None]
        attention = torch.nn.functional.scaled_dot_product_attention

        def attend(layer: int, q: Tensor, kv: Tensor) -> Any:
            keys, values = self._layers[layer].update(*kv)
            return attention(q, keys, values, mask, is_causal=causal)

        turns = network.turns[positions.clamp(max=network.config.context_length - 1)]
        hidden = network.hidden(ids, turns, attend)
        return hidden if order is None else hidden[on_device(self._rows.places, device)]
