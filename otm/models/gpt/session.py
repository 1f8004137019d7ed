"""Sessions of a transformer: keys and values of all that was read, and attention to them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from otm._core.optional import require
from otm.errors import InvalidInputError
from otm.models.base import Rows, Session
from otm.models.cached_rows import CachedRows
from otm.models.gpt.transformer import Transformer

if TYPE_CHECKING:
    from torch import Tensor

LEAST_SLOTS = 64


class GPTSession(Session):
    """Rows of a GPT with the keys and values of their tokens.

    These are one tensor [layers, 2, places, heads, slots, d]; the slot of a token is its
    position.  It grows to the most rows and twice the most tokens that were ever needed.
    """

    def __init__(self, network: Transformer, rows: int) -> None:
        self._network = network
        self._rows = CachedRows(rows, network.config.context_length)
        self._cache = self._new_cache(0, 0)

    def append(self, tokens: Rows) -> Tensor:
        """Read further tokens, −1 behind those of a row, and return logits: [R, L] → [R, L, V]."""
        with require("torch").inference_mode():
            hidden = self._read(tokens)
            if self._rows.order is not None:
                hidden = hidden[self._rows.places]
            return self._network.output(hidden)

    def read(self, tokens: Rows) -> None:
        """`append` without the logits, which are not computed."""
        with require("torch").inference_mode():
            self._read(tokens)

    def keep(self, rows: npt.NDArray[np.int64], lengths: npt.NDArray[np.int64]) -> None:
        """Rewind to R' rows: row r becomes the first `lengths[r]` tokens of what was row `rows[r]`.

        Only what a place does not hold already is copied.
        """
        torch = require("torch")
        with torch.inference_mode():
            copies = self._rows.keep(rows, lengths)
            self._grow(slots=0)
            if len(copies.slots):
                device = self._cache.device
                sources, destinations, slots = torch.from_numpy(np.stack(copies)).to(device)
                moved = self._cache[:, :, sources, :, slots]
                self._cache[:, :, destinations, :, slots] = moved

    def _read(self, tokens: Rows) -> Any:
        """Read tokens; returns what the last block makes of them [R, L, width], by place."""
        torch = require("torch")
        largest, vocabulary = int(tokens.max(initial=-1)), self._network.config.vocabulary
        if largest >= vocabulary:
            raise InvalidInputError(
                f"token {largest}; this model has the tokens 0 to {vocabulary - 1}"
            )
        order, starts = self._rows.order, self._rows.lengths
        self._rows.append(tokens)
        ends = self._rows.lengths
        if order is not None:
            tokens, starts, ends = tokens[order], starts[order], ends[order]
        R, L = tokens.shape
        if tokens.size == 0:
            return self._cache.new_empty((R, L, self._network.config.width))
        network, start, end = self._network, int(starts.min()), int(ends.max())
        self._grow(slots=end)
        device = self._cache.device
        caches = self._cache[:, :, :R, :, :end].unbind()
        mask = None
        # rows that all read L tokens from one slot on: slices, and at most one mask
        alike = bool((starts == start).all() and (ends == start + L).all())
        if alike:
            turns = network.turns[start:end]
            if start > 0 and L > 1:
                mask = torch.ones((L, end), dtype=torch.bool, device=device).tril_(start)
        else:  # tokens are written one by one, padding is not written
            positions = starts[:, None] + np.arange(L)
            within = np.minimum(positions, network.config.context_length - 1)
            turns = network.turns[torch.from_numpy(within).to(device)]
            row, column = np.nonzero(positions < ends[:, None])
            where = np.stack((row, column, positions[row, column]))
            rows, columns, slots = torch.from_numpy(where).to(device)
            seen = torch.from_numpy(positions).to(device)[:, None, :, None]
            mask = torch.arange(end, device=device) <= seen
        attention = torch.nn.functional.scaled_dot_product_attention

        def attend(layer: int, q: Tensor, kv: Tensor) -> Any:
            if alike:
                caches[layer][..., start:, :].copy_(kv)
            else:
                caches[layer][:, rows, :, slots] = kv[:, rows, :, columns]
            keys, values = caches[layer].unbind()
            return attention(q, keys, values, mask, is_causal=alike and start == 0 and L > 1)

        ids = torch.from_numpy(np.maximum(tokens, 0)).to(device)
        return network.hidden(ids, turns, attend)

    def _grow(self, slots: int) -> None:
        """Grow the cache to all places and so many slots."""
        _, _, places, _, held, _ = self._cache.shape
        if self._rows.capacity > places or slots > held:
            if slots > held:
                held = min(max(slots, 2 * held, LEAST_SLOTS), self._network.config.context_length)
            old = self._cache
            self._cache = self._new_cache(max(self._rows.capacity, places), held)
            self._cache[:, :, : old.shape[2], :, : old.shape[4]] = old

    def _new_cache(self, places: int, slots: int) -> Any:
        config, embedding = self._network.config, self._network.weights["embedding"]
        d = config.width // config.heads
        return embedding.new_zeros((config.layers, 2, places, config.heads, slots, d))
