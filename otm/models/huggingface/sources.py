"""Encoded sources of encoder–decoder models, for the rows of a session."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from functools import cached_property
from typing import Any

import numpy as np

from otm.errors import InvalidInputError
from otm.models.cached_rows import Indices


class Sources:
    """Encoded sources, with the decoder's cross-attention keys and values.

    A source is an array of tokens [S] or [B, S], or a mapping with arguments of the encoder.  The
    mapping is the output of a tokenizer or feature extractor, or contains `encoder_outputs`; it can
    contain an `attention_mask`.
    """

    def __init__(self, model: Any, source: Any) -> None:
        import torch

        fields = dict(source) if isinstance(source, Mapping) else {model.main_input_name: source}
        device = model.get_input_embeddings().weight.device
        self._model = model
        mask = fields.pop("attention_mask", None)
        self._mask = None if mask is None else torch.as_tensor(mask, device=device)
        outputs = fields.pop("encoder_outputs", None)
        if outputs is None:
            inputs = {name: torch.as_tensor(value, device=device) for name, value in fields.items()}
            if model.main_input_name == "input_ids" and "input_ids" in inputs:
                inputs["input_ids"] = torch.atleast_2d(inputs["input_ids"])
            if self._mask is not None:
                self._mask = torch.atleast_2d(self._mask)
                inputs["attention_mask"] = self._mask
            with torch.no_grad():
                outputs = model.get_encoder()(**inputs, return_dict=True)
        elif fields:
            raise InvalidInputError(
                f"the source has encoder_outputs and also {', '.join(fields)}; give either the "
                "inputs or the outputs of the encoder"
            )
        self._hidden = outputs[0]
        self.count = len(self._hidden)

    def of(self, owners: Indices) -> dict[str, Any]:
        """Return arguments of the model that pass the sources `owners` of its rows."""
        from transformers.modeling_outputs import BaseModelOutput

        chosen = self._select(self._hidden, owners)
        mask = None if self._mask is None else self._select(self._mask, owners)
        return {"encoder_outputs": BaseModelOutput(chosen), "attention_mask": mask}

    def cross_attention(self, owners: Indices) -> Any:
        """Return a cross-attention cache for rows with the sources `owners`."""
        cross = copy.copy(self._cross)
        cross.layers = [copy.copy(layer) for layer in self._cross.layers]
        for layer in cross.layers:
            layer.keys = self._select(layer.keys, owners)
            layer.values = self._select(layer.values, owners)
        return cross

    @cached_property
    def _cross(self) -> Any:
        """Cross-attention cache of all sources, from a decoder call on an arbitrary token."""
        import torch
        from transformers import DynamicCache, EncoderDecoderCache

        cache = EncoderDecoderCache(DynamicCache(), DynamicCache())
        tokens = torch.zeros((self.count, 1), dtype=torch.int64, device=self._hidden.device)
        arguments = self.of(np.arange(self.count))
        self._model(decoder_input_ids=tokens, past_key_values=cache, use_cache=True, **arguments)
        return cache.cross_attention_cache

    def _select(self, tensor: Any, owners: Indices) -> Any:
        # A view needs no memory, for any number of rows.
        if self.count == 1:
            return tensor.expand(len(owners), *tensor.shape[1:])
        import torch

        return tensor[torch.as_tensor(owners, device=tensor.device)]
