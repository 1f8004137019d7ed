"""A cache of transformers that holds the first tokens of the input already, as of a chat."""

from __future__ import annotations

from typing import Any

from otm.errors import InvalidParameterError
from otm.models.base import Session
from otm.models.huggingface.model import HuggingFaceModel
from otm.models.huggingface.session import CachedSession, Past, new_cache


class ContinuedModel(HuggingFaceModel):
    """A model whose sessions begin with rows of which a past is known."""

    past: Past | None = None

    def start(self, rows: int) -> Session:
        """Open a session for the rows of the past."""
        session = super().start(rows)
        if isinstance(session, CachedSession):
            session.past = self.past
        return session


def as_past(model: Any, input_ids: Any, mask: Any, cache: Any) -> Past | None:
    """Return what a cache holds of rows [B, L] of which `mask` shows the tokens, if anything.

    None if all tokens are to be read anew: the cache is of a kind that holds other things than keys
    and values of all tokens, or was not made for these rows.  The last token is read in any case.
    """
    cache = getattr(cache, "self_attention_cache", cache)
    layers = getattr(cache, "layers", [])
    kinds = {type(layer).__name__ for layer in layers}
    if any("Quantized" in kind for kind in kinds):
        raise InvalidParameterError(
            "a quantized cache in past_key_values would change the distribution; give none"
        )
    held = 0 if cache is None else int(cache.get_seq_length())
    if held > input_ids.shape[1]:
        raise InvalidParameterError(
            f"past_key_values hold {held} tokens and the input has {input_ids.shape[1]}; give all "
            "tokens from the first on, since the assistant reads them too"
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
    order = (mask[:, :held] == 0).sort(dim=1, stable=True).indices  # tokens before padding
    order = order[:, None, : int(lengths.max()), None]
    pairs = [(layer.keys, layer.values) for layer in layers]
    chosen = [tuple(x.take_along_dim(order.to(x.device), 2) for x in pair) for pair in pairs]
    return Past(lengths.cpu().numpy(), chosen)
