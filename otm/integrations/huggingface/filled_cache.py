"""Caches of transformers that already contain the first tokens of the input, as in a chat."""

from __future__ import annotations

from typing import Any

from otm.errors import InvalidParameterError
from otm.models.base import Session
from otm.models.huggingface.model import HuggingFaceModel
from otm.models.huggingface.session import CachedSession, Past, new_cache


class ContinuedModel(HuggingFaceModel):
    """A model whose sessions begin with the keys and values of `past`."""

    past: Past | None = None

    def start(self, rows: int) -> Session:
        """Open a session whose rows begin with the past."""
        session = super().start(rows)
        if isinstance(session, CachedSession):
            session.past = self.past
        return session


def as_past(model: Any, input_ids: Any, mask: Any, cache: Any) -> Past | None:
    """Return the keys and values that a cache has for rows [B, L]; `mask` is 0 for padding.

    Return None if the cache does not store keys and values of all tokens, or belongs to other rows;
    the session must then read all tokens itself.  The last token is always read again.
    """
    cache = getattr(cache, "self_attention_cache", cache)
    layers = getattr(cache, "layers", [])
    kinds = {type(layer).__name__ for layer in layers}
    if any("Quantized" in kind for kind in kinds):
        raise InvalidParameterError(
            "a quantized cache in past_key_values would change the distribution; do not pass it"
        )
    held = 0 if cache is None else int(cache.get_seq_length())
    if held > input_ids.shape[1]:
        raise InvalidParameterError(
            f"past_key_values contain {held} tokens, but the input has {input_ids.shape[1]}; pass "
            "all tokens from the first one, because the assistant reads them too"
        )
    lengths = mask[:, :held].sum(1).minimum(mask.sum(1) - 1)
    if (
        not lengths.any()
        or kinds != {"DynamicLayer"}
        or getattr(cache, "offloading", False)
        or model.config.is_encoder_decoder
        or len(layers) != len(new_cache(model)[1])
        or len(layers[0].keys) != len(input_ids)
    ):
        return None
    # Move the tokens of each row before its padding.
    order = (mask[:, :held] == 0).sort(dim=1, stable=True).indices
    order = order[:, None, : int(lengths.max()), None]
    pairs = [(layer.keys, layer.values) for layer in layers]
    chosen = [tuple(x.take_along_dim(order.to(x.device), 2) for x in pair) for pair in pairs]
    return Past(lengths.cpu().numpy(), chosen)
