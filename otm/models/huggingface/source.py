"""What an encoder–decoder model translates: the encoder runs once, and rows share what it found."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from otm.errors import InvalidInputError

Indices = npt.NDArray[np.int64]


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
        self._cross: Any = None

    def of(self, owners: Indices) -> dict[str, Any]:
        """Return arguments of the model for rows with these sources, without a cache."""
        from transformers.modeling_outputs import BaseModelOutput

        chosen = self._select(self._hidden, owners)
        mask = None if self._mask is None else self._select(self._mask, owners)
        return {"encoder_outputs": BaseModelOutput(chosen), "attention_mask": mask}

    def cross_attention(self, owners: Indices) -> Any:
        """Return a cache of the keys and values of sources, for rows with these."""
        if self._cross is None:
            self._cross = self._attend()
        cross = copy.copy(self._cross)
        cross.layers = [copy.copy(layer) for layer in self._cross.layers]
        for layer in cross.layers:
            layer.keys = self._select(layer.keys, owners)
            layer.values = self._select(layer.values, owners)
        return cross

    def _attend(self) -> Any:
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
