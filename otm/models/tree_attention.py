"""Attention in a tree of tokens that follow a row: each token sees the row and its own path.

The model reads a tree of M tokens at once, as in serving engines.  Otherwise each path of the tree
would be a separate row, and the model would read shared tokens once for each path.
"""

from __future__ import annotations

from typing import Any

from otm._core.optional import require


def ancestors(parents: Any) -> Any:
    """Mark the entries on the path to each entry, including the entry: [R, M] → bool [R, M, M].

    `parents` has the index of the entry before each entry; −1 if the entry follows the row.
    """
    torch = require("torch")
    count = parents.shape[1]
    place = torch.arange(count, device=parents.device)
    known = (parents[..., None] == place) | (place[:, None] == place)
    # Each product doubles the length of the known part of a path.
    for _ in range(max(count - 2, 0).bit_length()):
        wide = known.float()
        known = wide @ wide > 0
    return known


def visible_slots(known: Any, starts: Any, end: int) -> Any:
    """Mark the cache slots below `end` that each entry sees: bool [R, 1, M, end].

    The row is in the slots below `starts`, and its M entries are in slots starts, starts + 1, ….
    `known` is the result of `ancestors`, and `starts` has shape [R] or [1].
    """
    torch = require("torch")
    count = known.shape[1]
    behind = (torch.arange(end, device=known.device) - starts[:, None])[:, None]  # [R, 1, end]
    places = behind.clamp(0, count - 1).expand(len(known), count, end)
    inside = (behind >= 0) & (behind < count)
    return torch.where(inside, known.gather(2, places), behind < 0)[:, None]
