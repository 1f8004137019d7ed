"""Attention of many rows to few cached heads, for sampling text on a CPU.

The attention of transformers copies the cached keys and values once for each query head.  With 192
rows this takes longer than all other operations of a small model.
"""

from __future__ import annotations

from typing import Any

from otm.models.hidden_states.layer import attend

NAME = "otm_grouped"


def register() -> str:
    """Make the attention known to transformers, and return its name there."""
    from transformers import AttentionInterface, AttentionMaskInterface
    from transformers.masking_utils import eager_mask

    AttentionInterface.register(NAME, grouped)
    AttentionMaskInterface.register(NAME, eager_mask)
    return NAME


def grouped(
    module: Any, query: Any, key: Any, value: Any, mask: Any, *, scaling: float, **_: Any
) -> tuple[Any, None]:
    """Attend, and return the outputs [B, L, H, size], as transformers expects them."""
    if mask is not None:
        mask = mask[..., : key.shape[2]]
    return attend(query, key, value, mask, scaling).transpose(1, 2).contiguous(), None
