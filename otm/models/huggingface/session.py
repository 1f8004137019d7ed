"""Sessions of transformers models, with or without a key–value cache."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from otm._core.tensors import on_device
from otm.errors import InvalidParameterError
from otm.models.base import PaddedTokens, Session, TokenRows, check_length
from otm.models.cached_rows import CachedRows, Indices, LayerStorage, window
from otm.models.huggingface.sources import Sources
from otm.models.huggingface.states import RowStates
from otm.models.huggingface.trees import tree_arguments
from otm.models.tree_attention import ancestors

STORED = "DynamicLayer", "DynamicSlidingWindowLayer"
"""Cache layers of transformers that hold only the keys and values of each token."""

Record = Callable[[Sequence[Any]], None]
"""Function that receives the hidden states [R, L, D] of each layer."""

IDLE = "DummyLayer"
"""A cache layer without data, such as for a layer that uses another layer's keys."""


@dataclass(eq=False)
class HuggingFaceSession(Session):
    """Base class of sessions with and without a cache."""

    _model: Any
    _sources: Sources | None
    # [R]: index of the source of each row.
    _owners: Indices
    # Number of logits to return for a token.
    _vocabulary: int
    # Largest number of tokens of a row.
    _most: int | None

    def __post_init__(self) -> None:
        self._device = self._model.get_input_embeddings().weight.device
        arguments = inspect.signature(self._model.forward).parameters
        self._takes_positions = "position_ids" in arguments and self._sources is None
        self._last = {"logits_to_keep": 1} if "logits_to_keep" in arguments else {}

    def _without_padding(self, tokens: PaddedTokens) -> Any:
        """Return a tensor of tokens, with a valid token in place of padding."""
        return on_device(np.where(tokens < 0, tokens[:, :1], tokens), self._device)

    def _run(self, tokens: Any, *, record: Record | None = None, **arguments: Any) -> Any:
        """Return the model's logits for a tensor of tokens; pass its hidden states to `record`."""
        import torch

        name = "input_ids" if self._sources is None else "decoder_input_ids"
        arguments[name] = tokens
        if record is not None:
            arguments["output_hidden_states"] = True
        # With inference_mode, tensors that a model stores could not be used for training.
        with torch.no_grad():
            output = self._model(**arguments, return_dict=True)
        if record is not None:
            record(output.hidden_states)
        return output.logits[..., : self._vocabulary]


class Past(NamedTuple):
    """Keys and values of the first tokens of each row, computed outside the session."""

    # [R]: number of these tokens of each row.
    lengths: Indices
    # Keys and values [R, heads, N, size] of each layer, padded on the right.
    layers: list[tuple[Any, Any]]


class CachedSession(HuggingFaceSession):
    """A session with a cache, which reads each token once.

    If `past` is set, the first `read` takes the keys and values of the first tokens from `past`,
    unless the session records hidden states in `states`, which `past` does not have.
    """

    past: Past | None = None
    states: RowStates | None = None
    # Rows, tokens and hidden states of the last tree.
    _tree: tuple[Indices, Any] = np.zeros(0, np.int64), None
    _hidden: Sequence[Any] = ()

    def __post_init__(self) -> None:
        super().__post_init__()
        self._rows = CachedRows(len(self._owners), self._most, self._owners)
        self._cache, self._layers = new_cache(self._model)
        self._cross: tuple[Indices, Any] = self._owners[:0], None

    def append(self, tokens: PaddedTokens) -> Any:
        """Append tokens to each row, and return a tensor of logits [R, L, V]."""
        lengths = self._rows.lengths
        self._rows.append(tokens)
        return self._scores(self._without_padding(tokens), (tokens >= 0).sum(1), lengths)

    def append_tensor(self, tokens: Any, counts: Indices) -> Any:
        """Append `counts` [R] tokens of a device tensor [R, L]; return logits [R, L, V]."""
        lengths = self._rows.lengths
        self._rows.append_unknown(counts)
        return self._scores(tokens.to(self._device, non_blocking=True), counts, lengths)

    def append_tree(self, tokens: Any, parents: Any, counts: Indices) -> Any:
        """Append `counts` [R] tokens and score a tree after them; return logits [R, M, V]."""
        places, lengths = self._rows.places, self._rows.lengths
        self._rows.append_tree(counts)
        # Rows are run in the order of their places.
        order = np.argsort(places)
        everything = np.full(len(order), tokens.shape[1])
        visible = window(
            self._rows.capacity, places[order], lengths[order], everything, self._device
        )
        for layer in self._layers:
            layer.open(visible)
        ids, known = tokens.to(self._device, non_blocking=True), ancestors(parents)
        in_order = bool((places == np.arange(len(places))).all())
        if not in_order:
            place = on_device(order, self._device)
            ids, known = ids[place], known[place]
        starts = on_device(lengths[order], self._device)
        like = self._model.get_input_embeddings().weight
        arguments = tree_arguments(known.to(self._device), visible, starts, self._most, like)
        record = None
        if self.states is not None:
            self._tree = order, ids
            record = partial(self._record_tree, counts[order])
        arguments |= self._cache_arguments(self._owners[order])
        logits = self._run(ids, record=record, use_cache=True, **arguments)
        return logits if in_order else logits[on_device(places, self._device)]

    def _record_tree(self, counts: Indices, hidden: Sequence[Any]) -> None:
        """Record the states of the appended tokens, and hold those of the tree."""
        rows, ids = self._tree
        self._hidden = hidden
        if self.states is not None:
            self.states.append(rows, ids, counts, hidden)

    def keep_paths(self, paths: Indices) -> None:
        """Append to each row a path of its last tree: entries [R, D], padded with −1."""
        moves = self._rows.keep_paths(paths)
        for layer in self._layers:
            layer.move(moves)
        if self.states is not None:
            rows, ids = self._tree
            entries = on_device(paths[rows].clip(min=0), self._device)
            chosen = [of_layer.take_along_dim(entries[..., None], 1) for of_layer in self._hidden]
            self.states.append(rows, ids.gather(1, entries), (paths[rows] >= 0).sum(1), chosen)

    def _scores(self, tokens: Any, counts: Indices, lengths: Indices) -> Any:
        scores: Any = np.broadcast_to(0.0, (*tokens.shape, self._vocabulary))
        for rows, logits in self._forward(tokens, counts, lengths):
            # If one run had all rows in order, its logits are the result.
            if logits.shape == scores.shape and (rows == np.arange(len(rows))).all():
                return logits
            if isinstance(scores, np.ndarray):
                scores = logits.new_zeros(scores.shape)
            scores[on_device(rows, scores.device), : logits.shape[1]] = logits
        return scores

    def read(self, tokens: PaddedTokens) -> None:
        """Append tokens to each row without returning logits."""
        if self.past is not None and self.states is None:
            tokens = self._store_past(self.past, tokens)
        if not tokens.size:
            return
        lengths = self._rows.lengths
        self._rows.append(tokens)
        counts = (tokens >= 0).sum(1)
        for _ in self._forward(self._without_padding(tokens), counts, lengths, **self._last):
            pass

    def _store_past(self, past: Past, tokens: PaddedTokens) -> PaddedTokens:
        """Store the keys and values of `past`, and return the tokens after it."""
        self.past = None
        lengths, columns = past.lengths, np.arange(tokens.shape[1])
        self._rows.append(np.where(columns < lengths[:, None], tokens, -1)[:, : lengths.max()])
        visible = window(len(tokens), self._rows.places, 0 * lengths, lengths, self._device)
        for layer, (keys, values) in zip(self._layers, past.layers, strict=True):
            layer.open(visible)
            layer.update(keys, values)
        behind = lengths[:, None] + columns
        filled = np.pad(tokens, ((0, 0), (0, 1)), constant_values=-1)
        later = np.take_along_axis(filled, behind.clip(max=len(columns)), 1)
        return later[:, : (later >= 0).sum(1).max()]

    def _forward(
        self, tokens: Any, counts: Indices, lengths: Indices, **arguments: Any
    ) -> Iterator[tuple[Indices, Any]]:
        """Append tokens to rows with these lengths; yield each group of rows and its logits."""
        places = self._rows.places
        # Rows are run in the order of their places.
        reading = np.argsort(places)
        reading = reading[counts[reading] > 0]
        groups = [reading] if reading.size else []
        if not self._takes_positions:
            groups = [reading[lengths[reading] == n] for n in np.unique(lengths[reading])]
        for rows in groups:
            capacity, new = self._rows.capacity, counts[rows]
            visible = window(capacity, places[rows], lengths[rows], new, self._device)
            for layer in self._layers:
                layer.open(visible)
            all_arguments = (
                arguments | visible.arguments | self._cache_arguments(self._owners[rows])
            )
            ids = tokens[:, : new.max()]
            if not np.array_equal(rows, np.arange(len(tokens))):
                ids = ids[on_device(rows, self._device)]
            record = None if self.states is None else partial(self.states.append, rows, ids, new)
            yield rows, self._run(ids, record=record, use_cache=True, **all_arguments)

    def _cache_arguments(self, owners: Indices) -> dict[str, Any]:
        """Return arguments that pass the cache and the sources of the rows."""
        if self._sources is None:
            return {"past_key_values": self._cache}
        from transformers import EncoderDecoderCache

        if not np.array_equal(owners, self._cross[0]):
            self._cross = owners, self._sources.cross_attention(owners)
        cache = EncoderDecoderCache(self._cache, self._cross[1])
        return {"past_key_values": cache, **self._sources.of(owners)}

    def keep(self, rows: Indices, lengths: Indices) -> None:
        """Replace the rows by prefixes; copy only slots that a place does not already hold."""
        copies = self._rows.keep(rows, lengths)
        self._owners = self._owners[rows]
        for layer in self._layers:
            layer.copy(self._rows.capacity, copies)
        if self.states is not None:
            self.states.keep(rows, lengths)


class RereadingSession(HuggingFaceSession, TokenRows):
    """A session without a cache: it stores tokens, and reads all of them again in each step."""

    def __post_init__(self) -> None:
        super().__post_init__()
        TokenRows.__init__(self, len(self._owners))

    def append(self, tokens: PaddedTokens) -> Any:
        """Read all tokens again, and return a tensor of logits [R, L, V] for the new tokens."""
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
        """Append tokens to each row."""
        TokenRows.read(self, tokens)
        check_length(max(map(len, self.rows), default=0), self._most)

    def keep(self, rows: Indices, lengths: Indices) -> None:
        """Replace the rows by prefixes of rows."""
        TokenRows.keep(self, rows, lengths)
        self._owners = self._owners[rows]


def new_cache(model: Any) -> tuple[Any, list[LayerStorage]]:
    """Return a cache and its layers with data; raise if a layer cannot be rewound."""
    from transformers import DynamicCache
    from transformers.cache_utils import DynamicLayer

    name = type(model).__name__
    if "past_key_values" not in inspect.signature(model.forward).parameters:
        raise InvalidParameterError(
            f"{name} accepts no key–value cache; give cache=False, which reads all tokens again "
            "in each step"
        )
    cache: Any = DynamicCache(config=model.config)
    kinds = [type(layer).__name__ for layer in cache.layers]
    odd = sorted({kind for kind in kinds if kind not in (*STORED, IDLE)})
    if getattr(model, "_is_stateful", False) or odd or not kinds:
        raise InvalidParameterError(
            f"the cache of {name} has {' and '.join(odd) or 'another state'}, which cannot be "
            "rewound; give cache=False, which reads all tokens again in each step"
        )
    layer = type("StoredLayer", (LayerStorage, DynamicLayer), {})
    cache.layers = [
        old if kind == IDLE else layer() for kind, old in zip(kinds, cache.layers, strict=True)
    ]
    return cache, [layer for layer in cache.layers if isinstance(layer, LayerStorage)]
