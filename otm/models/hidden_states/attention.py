"""Attention of many rows to few cached heads, for sampling text on a CPU.

The attention of transformers copies the cached keys and values once for each query head.  With 192
rows this takes longer than all other operations of a small model.
"""

from __future__ import annotations

from typing import Any

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
    """Attend with queries [B, H, L, size] to keys and values [B, G, T, size], where G divides H."""
    b, heads, length, size = query.shape
    groups = key.shape[1]
    scores = (query * scaling).reshape(b, groups, -1, size) @ key.transpose(2, 3)
    scores = scores.view(b, groups, heads // groups, length, -1)
    if mask is not None:
        scores = scores + mask[:, :, None, :, : key.shape[2]]
    shares = scores.softmax(-1).view(b, groups, -1, key.shape[2])
    return (shares @ value).view(b, heads, length, size).transpose(1, 2).contiguous(), None
