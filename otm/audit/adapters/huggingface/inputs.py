"""Checks of the arguments of `otm.audit.adapters.huggingface.table_model`."""

from __future__ import annotations

from typing import Any

from otm._core.display.text import shown
from otm.errors import InvalidParameterError

LARGEST_TOKEN = 2**24
"""Upper limit of tokens, because the cache stores them as float32."""


def as_keys(numbers: Any) -> Any:
    """Reshape numbers [B, T] to the shape of a cache's keys [B, heads, T, size]."""
    return numbers[:, None, :, None].float()


def error(text: str) -> InvalidParameterError:
    """Build the error for an unsupported call."""
    return InvalidParameterError(f"causal_lm: {text}")


def reject_unsupported(arguments: dict[str, Any]) -> None:
    """Raise for arguments that the model would ignore, unless they are None or False."""
    for name, value in arguments.items():
        if value is not None and value is not False:
            raise error(
                f"models of the audit do not support {name}; leave it out, or write your own "
                "adapter"
            )


def check_tokens(input_ids: Any) -> None:
    """Raise unless the tokens are integers [B, T]."""
    import torch

    if not isinstance(input_ids, torch.Tensor) or input_ids.dim() != 2 or not input_ids.numel():
        description = tuple(input_ids.shape) if hasattr(input_ids, "shape") else shown(input_ids)
        raise error(
            f"input_ids is {description}; it must be a tensor [B, T] of tokens, with B, T ≥ 1"
        )
    if input_ids.is_floating_point() or max(map(max, input_ids.tolist())) >= LARGEST_TOKEN:
        raise error(f"input_ids must contain integers below {LARGEST_TOKEN:,}")


def length_of(held: Any, batch: int) -> int:
    """Count the tokens of a cache, which must be a `DynamicCache` with `batch` rows."""
    from transformers import DynamicCache

    if held is None:
        return 0
    if not isinstance(held, DynamicCache):
        raise error(
            f"past_key_values is a {type(held).__name__}; give a DynamicCache, or None at first"
        )
    length = int(held.get_seq_length())
    keys = held.layers[0].keys if length else None
    if keys is not None and keys.shape[0] != batch:
        raise error(
            f"input_ids has {batch} rows, but past_key_values has {keys.shape[0]}; they must agree"
        )
    return length


def read_positions(position_ids: Any, batch: int, past: int, new: int) -> Any:
    """Return the positions [B, T] of the new tokens: the argument, or those after the cache."""
    import torch

    if position_ids is None:
        return torch.arange(past, past + new).expand(batch, new)
    if tuple(position_ids.shape) not in {(new,), (1, new), (batch, new)}:
        raise error(
            f"position_ids has shape {tuple(position_ids.shape)}; it must have the shape of "
            f"input_ids, [{batch}, {new}]"
        )
    return position_ids.expand(batch, new)


def read_mask(attention_mask: Any, batch: int, length: int) -> Any:
    """Convert a mask [B, past + T] to booleans; return None if it masks no token."""
    if attention_mask is None:
        return None
    shape = tuple(attention_mask.shape) if hasattr(attention_mask, "shape") else None
    if shape != (batch, length):
        what = f"has shape {shape}" if shape is not None else f"is {shown(attention_mask)}"
        raise error(
            f"attention_mask {what}; it must have shape [{batch}, {length}], for the tokens of the "
            "cache and of input_ids"
        )
    if ((attention_mask != 0) & (attention_mask != 1)).any():
        raise error("attention_mask must be 1 for tokens that are read, and 0 for others")
    mask = attention_mask.bool()
    return None if bool(mask.all()) else mask


def check_vocabulary(input_ids: Any, mask: Any, vocabulary: int) -> None:
    """Raise if a new token that is not masked is not in the vocabulary."""
    wrong = (input_ids < 0) | (input_ids >= vocabulary)
    if mask is not None:
        wrong &= mask[:, -input_ids.shape[1] :]
    if wrong.any():
        raise error(
            f"input_ids has the unmasked token {int(input_ids[wrong][0])}; tokens must be 0 to "
            f"{vocabulary - 1}"
        )
