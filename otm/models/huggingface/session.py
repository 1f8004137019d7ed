"""Sessions of models of transformers: with their cache, and without."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from otm.errors import InvalidInputError
from otm.models.base import Rows, Session
from otm.models.cached_rows import CachedRows
from otm.models.huggingface.cache import new_cache, window
from otm.models.huggingface.source import Sources

Indices = npt.NDArray[np.int64]


class HuggingFaceSession(Session):
    """What sessions with and without a cache share; `owners` [R] are the sources of the rows.

    `vocabulary` is how many logits are returned, `room` the largest number of tokens of a row.
    """

    def __init__(
        self,
        model: Any,
        sources: Sources | None,
        owners: Indices,
        vocabulary: int,
        room: int | None,
    ) -> None:
        self._model = model
        self._sources = sources
        self._owners = owners
        self._vocabulary = vocabulary
        self._room = room
        self._device = self._model.get_input_embeddings().weight.device
        arguments = inspect.signature(self._model.forward).parameters
        self._takes_positions = "position_ids" in arguments and sources is None
        self._last = {"logits_to_keep": 1} if "logits_to_keep" in arguments else {}

    def _check_room(self, lengths: Indices) -> None:
        if self._room is not None and lengths.max(initial=0) > self._room:
            raise InvalidInputError(
                f"a row of {lengths.max()} tokens; {type(self._model).__name__} takes {self._room}"
            )

    def _run(self, tokens: Rows, **arguments: Any) -> Any:
        """Run the model; what it reads at the padding is of no account."""
        import torch

        name = "input_ids" if self._sources is None else "decoder_input_ids"
        filled = np.where(tokens < 0, tokens[:, :1], tokens)
        arguments[name] = torch.as_tensor(filled, device=self._device)
        with torch.no_grad():  # not inference_mode: what a model keeps would be spoilt for training
            return self._model(**arguments, return_dict=True).logits[..., : self._vocabulary]


class CachedSession(HuggingFaceSession):
    """A session that reads each token once."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._rows = CachedRows(len(self._owners))
        self._cache, self._layers = new_cache(self._model)
        self._cross: tuple[Indices, Any] = self._owners[:0], None

    def append(self, tokens: Rows) -> Any:
        """Read further tokens in each row, and return a tensor of logits [R, L, V]."""
        scores: Any = np.broadcast_to(0.0, (*tokens.shape, self._vocabulary))
        for rows, logits in self._forward(tokens):
            if logits.shape == scores.shape and (rows == np.arange(len(rows))).all():
                return logits  # as they are: all rows in order
            if isinstance(scores, np.ndarray):
                scores = logits.new_zeros(scores.shape)
            scores[rows, : logits.shape[1]] = logits
        return scores

    def read(self, tokens: Rows) -> None:
        """Read further tokens in each row."""
        for _ in self._forward(tokens, **self._last):
            pass

    def _forward(self, tokens: Rows, **arguments: Any) -> Iterator[tuple[Indices, Any]]:
        """Read tokens, and yield the rows that were run together with their logits."""
        lengths, places = self._rows.lengths, self._rows.places
        counts = (tokens >= 0).sum(1)
        self._check_room(lengths + counts)
        self._rows.append(tokens)
        reading = np.argsort(places)  # in the order of the places
        reading = reading[counts[reading] > 0]
        groups = [reading] if reading.size else []
        if not self._takes_positions:
            groups = [reading[lengths[reading] == n] for n in np.unique(lengths[reading])]
        for rows in groups:
            more = tokens[rows, : counts[rows].max()]
            seen = window(
                self._rows.capacity, places[rows], lengths[rows], more.shape[1], self._device
            )
            for layer in self._layers:
                layer.open(seen)
            padded = self._padded(lengths[rows], counts[rows])
            behind = self._behind(self._owners[rows])
            yield rows, self._run(more, use_cache=True, **arguments, **padded, **behind)

    def _padded(self, lengths: Indices, counts: Indices) -> dict[str, Any]:
        """Return arguments that tell of padding on the left, if there is any."""
        if (lengths == lengths[0]).all():
            return {}
        import torch

        new = np.arange(counts.max())
        slots = np.arange(lengths.max() + len(new))
        mask = slots >= (lengths.max() - lengths)[:, None]
        positions = np.minimum(lengths[:, None] + new, (lengths + counts).max() - 1)
        return {
            "attention_mask": torch.as_tensor(mask.astype(np.int64), device=self._device),
            "position_ids": torch.as_tensor(positions, device=self._device),
        }

    def _behind(self, owners: Indices) -> dict[str, Any]:
        """Return arguments that give the cache, and the sources of the rows."""
        if self._sources is None:
            return {"past_key_values": self._cache}
        from transformers import EncoderDecoderCache

        if not np.array_equal(owners, self._cross[0]):
            self._cross = owners, self._sources.cross_attention(owners)
        cache = EncoderDecoderCache(self._cache, self._cross[1])
        return {"past_key_values": cache, **self._sources.of(owners)}

    def keep(self, rows: Indices, lengths: Indices) -> None:
        """Rewind, and copy what continued rows do not share with those in their places."""
        copies = self._rows.keep(rows, lengths)
        self._owners = self._owners[rows]
        for layer in self._layers:
            layer.copy(self._rows.capacity, copies)


class RereadingSession(HuggingFaceSession):
    """A session without a cache: it keeps tokens, and reads them all again."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._rows: list[list[int]] = [[] for _ in self._owners]

    def append(self, tokens: Rows) -> Any:
        """Read all tokens again, and return a tensor of logits [R, L, V] for the further ones."""
        before = [len(row) for row in self._rows]
        self.read(tokens)
        longest = max(map(len, self._rows), default=0)
        rows = np.full((len(self._rows), longest), -1, dtype=np.int64)
        for padded, row in zip(rows, self._rows, strict=True):
            padded[: len(row)] = row
        found = np.zeros((*tokens.shape, self._vocabulary))
        arguments = {} if self._sources is None else self._sources.of(self._owners)
        if rows.size:
            logits = self._run(np.maximum(rows, 0), use_cache=False, **arguments)
            found = logits.new_zeros(found.shape)
            for r, (start, row) in enumerate(zip(before, self._rows, strict=True)):
                found[r, : len(row) - start] = logits[r, start : len(row)]
        return found

    def read(self, tokens: Rows) -> None:
        """Keep further tokens of each row."""
        pairs = zip(self._rows, tokens.tolist(), strict=True)
        self._rows = [row + [t for t in more if t >= 0] for row, more in pairs]
        self._check_room(np.array([len(row) for row in self._rows]))

    def keep(self, rows: Indices, lengths: Indices) -> None:
        """Rewind."""
        self._rows = [self._rows[r][:n] for r, n in zip(rows, lengths, strict=True)]
        self._owners = self._owners[rows]
