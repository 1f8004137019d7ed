"""Trees of tokens in models of transformers: attention masks, and a test of their effect."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

import numpy as np

from otm.models.base import Session
from otm.models.cached_rows import Window
from otm.models.tree_attention import visible_slots

MASKED = "sdpa", "eager"
"""Implementations of attention in transformers that take a mask for each pair of tokens."""

_TESTED: weakref.WeakKeyDictionary[Any, bool] = weakref.WeakKeyDictionary()
"""Result of the test of each model; a test reads eleven tokens."""


def tree_arguments(known: Any, visible: Window, starts: Any, most: int | None, like: Any) -> Any:
    """Return the model's arguments for a tree; `known` [R, M, M] marks the path to each entry.

    `starts` [R] are the lengths of the rows, `most` limits the positions, and `like` is a tensor of
    the model's type.
    """
    import torch

    past = torch.full_like(starts[:1], visible.past)
    seen = visible_slots(known, past, visible.end)
    padding = visible.arguments.get("attention_mask")
    if padding is not None:
        seen = seen & (padding > 0)[:, None, None]
    mask = torch.zeros(seen.shape, dtype=like.dtype, device=known.device)
    mask = mask.masked_fill(~seen, torch.finfo(like.dtype).min)
    positions = starts[:, None] + known.sum(-1) - 1
    if most is not None:
        positions = positions.clamp(max=most - 1)
    return {"attention_mask": mask, "position_ids": positions}


def reads_trees(model: Any, start: Callable[[], Session]) -> bool:
    """Return whether a model reads trees; `start` opens a session with one row."""
    if model not in _TESTED:
        config = model.config.get_text_config(decoder=True)
        suits = getattr(config, "_attn_implementation", None) in MASKED
        # A mask for all layers cannot hide the slots outside a sliding window.
        suits = suits and getattr(config, "sliding_window", None) is None
        _TESTED[model] = suits and _obeys_masks(start, config.vocab_size)
    return _TESTED[model]


def _obeys_masks(start: Callable[[], Session], vocabulary: int) -> bool:
    """Return whether a tree gets the scores of its two paths, not those of its tokens in a row."""
    import torch

    root, a, b, c = (min(place, vocabulary - 1) for place in range(1, 5))

    def read(text: list[int]) -> Any:
        return start().append(np.array([text]))[0].double()

    try:
        session = start()
        session.append(np.array([[root]]))
        tokens, parents = torch.tensor([[a, b, c]]), torch.tensor([[-1, -1, 0]])
        found = session.append_tree(tokens, parents, np.array([0]))[0].double()
        paths = torch.stack([*read([root, a, c])[1:], read([root, b])[1]])[[0, 2, 1]]
        text = read([root, a, b, c])[1:]
    except (TypeError, ValueError, RuntimeError, NotImplementedError):
        return False
    return bool((found - paths).norm() < 0.25 * (found - text).norm())
