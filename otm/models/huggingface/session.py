"""Sessions of models of transformers, with their cache and without, and what they translate."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from otm._core.tensors import on_device
from otm.errors import InvalidInputError, InvalidParameterError
from otm.models.base import PaddedTokens, Session, TokenRows, check_length
from otm.models.cached_rows import CachedRows, Indices, LayerStorage, window

STORED = "DynamicLayer", "DynamicSlidingWindowLayer"
"""Layers of transformers that hold keys and values of each token, and nothing else."""

IDLE = "DummyLayer"
"""Layers that hold nothing, such as those that use the keys of others."""


class Sources:
    """Encoded sources, and the keys and values that the decoder's layers find in them.

    Tokens [S] or [B, S], or the encoder's arguments: what a tokenizer or feature extractor returns,
    perhaps with an `attention_mask`, or `encoder_outputs`.
    """

    def __init__(self, model: Any, source: Any) -> None:
        import torch

        given = dict(source) if isinstance(source, Mapping) else {model.main_input_name: source}
        device = model.get_input_embeddings().weight.device
        self._model = model
        mask = given.pop("attention_mask", None)
        self._mask = None if mask is None else torch.as_tensor(mask, device=device)
        outputs = given.pop("encoder_outputs", None)
        if outputs is None:
            inputs = {name: torch.as_tensor(value, device=device) for name, value in given.items()}
            if model.main_input_name == "input_ids" and "input_ids" in inputs:
                inputs["input_ids"] = torch.atleast_2d(inputs["input_ids"])
            if self._mask is not None:
                self._mask = torch.atleast_2d(self._mask)
                inputs["attention_mask"] = self._mask
            with torch.no_grad():
                outputs = model.get_encoder()(**inputs, return_dict=True)
        elif given:
            raise InvalidInputError(
                f"the source has encoder_outputs and beside them {', '.join(given)}; give what "
                "goes into the encoder, or what comes out of it"
            )
        self._hidden = outputs[0]
        self.count = len(self._hidden)

    def of(self, owners: Indices) -> dict[str, Any]:
        """Return arguments of the model for rows with these sources, without a cache."""
        from transformers.modeling_outputs import BaseModelOutput

        chosen = self._select(self._hidden, owners)
        mask = None if self._mask is None else self._select(self._mask, owners)
        return {"encoder_outputs": BaseModelOutput(chosen), "attention_mask": mask}

    def cross_attention(self, owners: Indices) -> Any:
        """Return a cache of the keys and values of sources, for rows with these."""
        cross = copy.copy(self._cross)
        cross.layers = [copy.copy(layer) for layer in self._cross.layers]
        for layer in cross.layers:
            layer.keys = self._select(layer.keys, owners)
            layer.values = self._select(layer.values, owners)
        return cross

    @cached_property
    def _cross(self) -> Any:
        """Let the decoder read one token, whichever, so that its layers look at the sources."""
        import torch
        from transformers import DynamicCache, EncoderDecoderCache

        cache = EncoderDecoderCache(DynamicCache(), DynamicCache())
        tokens = torch.zeros((self.count, 1), dtype=torch.int64, device=self._hidden.device)
        arguments = self.of(np.arange(self.count))
        self._model(decoder_input_ids=tokens, past_key_values=cache, use_cache=True, **arguments)
        return cache.cross_attention_cache

    def _select(self, tensor: Any, owners: Indices) -> Any:
        if self.count == 1:  # a view, however many the rows
            return tensor.expand(len(owners), *tensor.shape[1:])
        import torch

        return tensor[torch.as_tensor(owners, device=tensor.device)]


@dataclass(eq=False)
class HuggingFaceSession(Session):
    """What sessions with and without a cache share."""

    _model: Any
    _sources: Sources | None
    _owners: Indices  # [R]: the sources of the rows
    _vocabulary: int  # how many logits are returned
    _most: int | None  # tokens of a row

    def __post_init__(self) -> None:
        self._device = self._model.get_input_embeddings().weight.device
        arguments = inspect.signature(self._model.forward).parameters
        self._takes_positions = "position_ids" in arguments and self._sources is None
        self._last = {"logits_to_keep": 1} if "logits_to_keep" in arguments else {}

    def _filled(self, tokens: PaddedTokens) -> Any:
        """Return a tensor of tokens, with some token at the padding."""
        return on_device(np.where(tokens < 0, tokens[:, :1], tokens), self._device)

    def _run(self, tokens: Any, **arguments: Any) -> Any:
        """Run the model on a tensor of tokens; what it reads at the padding does not matter."""
        import torch

        name = "input_ids" if self._sources is None else "decoder_input_ids"
        arguments[name] = tokens
        with torch.no_grad():  # not inference_mode: what a model keeps would be spoilt for training
            return self._model(**arguments, return_dict=True).logits[..., : self._vocabulary]


class Past(NamedTuple):
    """Keys and values of the first tokens of each row, which were read elsewhere."""

    lengths: Indices  # [R]
    layers: list[tuple[Any, Any]]  # [R, heads, N, size], those of a row first


class CachedSession(HuggingFaceSession):
    """A session that reads each token once; none of a past, of which the first `read` tells."""

    past: Past | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        self._rows = CachedRows(len(self._owners), self._most, self._owners)
        self._cache, self._layers = new_cache(self._model)
        self._cross: tuple[Indices, Any] = self._owners[:0], None

    def append(self, tokens: PaddedTokens) -> Any:
        """Read further tokens in each row, and return a tensor of logits [R, L, V]."""
        lengths = self._rows.lengths
        self._rows.append(tokens)
        return self._scores(self._filled(tokens), (tokens >= 0).sum(1), lengths)

    def append_tensor(self, tokens: Any, counts: Indices) -> Any:
        """Read tokens that are on the device, so many of each row: [R, L], [R] → [R, L, V]."""
        lengths = self._rows.lengths
        self._rows.append_unknown(counts)
        return self._scores(tokens.to(self._device, non_blocking=True), counts, lengths)

    def _scores(self, tokens: Any, counts: Indices, lengths: Indices) -> Any:
        scores: Any = np.broadcast_to(0.0, (*tokens.shape, self._vocabulary))
        for rows, logits in self._forward(tokens, counts, lengths):
            if logits.shape == scores.shape and (rows == np.arange(len(rows))).all():
                return logits  # as they are: all rows in order
            if isinstance(scores, np.ndarray):
                scores = logits.new_zeros(scores.shape)
            scores[on_device(rows, scores.device), : logits.shape[1]] = logits
        return scores

    def read(self, tokens: PaddedTokens) -> None:
        """Read further tokens in each row."""
        if self.past is not None:
            tokens = self._behind_past(self.past, tokens)
        if not tokens.size:
            return
        lengths = self._rows.lengths
        self._rows.append(tokens)
        counts = (tokens >= 0).sum(1)
        for _ in self._forward(self._filled(tokens), counts, lengths, **self._last):
            pass

    def _behind_past(self, past: Past, tokens: PaddedTokens) -> PaddedTokens:
        """Store the keys and values of the past, and return the tokens behind it."""
        self.past = None
        lengths, columns = past.lengths, np.arange(tokens.shape[1])
        self._rows.append(np.where(columns < lengths[:, None], tokens, -1)[:, : lengths.max()])
        seen = window(len(tokens), self._rows.places, 0 * lengths, lengths, self._device)
        for layer, (keys, values) in zip(self._layers, past.layers, strict=True):
            layer.open(seen)
            layer.update(keys, values)
        behind = lengths[:, None] + columns
        filled = np.pad(tokens, ((0, 0), (0, 1)), constant_values=-1)
        rest = np.take_along_axis(filled, behind.clip(max=len(columns)), 1)
        return rest[:, : (rest >= 0).sum(1).max()]

    def _forward(
        self, tokens: Any, counts: Indices, lengths: Indices, **arguments: Any
    ) -> Iterator[tuple[Indices, Any]]:
        """Read tokens behind rows of these lengths; yield rows run together, and their logits."""
        places = self._rows.places
        reading = np.argsort(places)  # in the order of the places
        reading = reading[counts[reading] > 0]
        groups = [reading] if reading.size else []
        if not self._takes_positions:
            groups = [reading[lengths[reading] == n] for n in np.unique(lengths[reading])]
        for rows in groups:
            capacity, new = self._rows.capacity, counts[rows]
            seen = window(capacity, places[rows], lengths[rows], new, self._device)
            for layer in self._layers:
                layer.open(seen)
            given = arguments | seen.arguments | self._behind(self._owners[rows])
            ids = tokens[:, : new.max()]
            if not np.array_equal(rows, np.arange(len(tokens))):
                ids = ids[on_device(rows, self._device)]
            yield rows, self._run(ids, use_cache=True, **given)

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


class RereadingSession(HuggingFaceSession, TokenRows):
    """A session without a cache: it keeps tokens, and reads them all again."""

    def __post_init__(self) -> None:
        super().__post_init__()
        TokenRows.__init__(self, len(self._owners))

    def append(self, tokens: PaddedTokens) -> Any:
        """Read all tokens again, and return a tensor of logits [R, L, V] for the further ones."""
        before = self.rows
        self.read(tokens)
        longest = max(map(len, self.rows), default=0)
        rows = np.array([row + (0,) * (longest - len(row)) for row in self.rows], dtype=np.int64)
        scores: Any = np.zeros((*tokens.shape, self._vocabulary))
        arguments = {} if self._sources is None else self._sources.of(self._owners)
        if rows.size:
            logits = self._run(on_device(rows, self._device), use_cache=False, **arguments)
            scores = logits.new_zeros(scores.shape)
            for r, (old, new) in enumerate(zip(before, self.rows, strict=True)):
                scores[r, : len(new) - len(old)] = logits[r, len(old) : len(new)]
        return scores

    def read(self, tokens: PaddedTokens) -> None:
        """Keep further tokens of each row."""
        TokenRows.read(self, tokens)
        check_length(max(map(len, self.rows), default=0), self._most)

    def keep(self, rows: Indices, lengths: Indices) -> None:
        """Rewind."""
        TokenRows.keep(self, rows, lengths)
        self._owners = self._owners[rows]


def new_cache(model: Any) -> tuple[Any, list[LayerStorage]]:
    """Return a cache and its layers that store something; refuse layers that cannot be rewound."""
    from transformers import DynamicCache
    from transformers.cache_utils import DynamicLayer

    name = type(model).__name__
    if "past_key_values" not in inspect.signature(model.forward).parameters:
        raise InvalidParameterError(
            f"{name} takes no cache of keys and values; give cache=False, which reads all tokens "
            "again in each step"
        )
    cache: Any = DynamicCache(config=model.config)
    kinds = [type(layer).__name__ for layer in cache.layers]
    odd = sorted({kind for kind in kinds if kind not in (*STORED, IDLE)})
    if getattr(model, "_is_stateful", False) or odd or not kinds:
        raise InvalidParameterError(
            f"{name} keeps {' and '.join(odd) or 'a state of its own'}, which cannot be rewound to "
            "fewer tokens; give cache=False, which reads all tokens again in each step"
        )
    layer = type("StoredLayer", (LayerStorage, DynamicLayer), {})
    cache.layers = [
        held if kind == IDLE else layer() for kind, held in zip(kinds, cache.layers, strict=True)
    ]
    return cache, [held for held in cache.layers if isinstance(held, LayerStorage)]
