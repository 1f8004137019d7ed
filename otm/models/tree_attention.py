"""Attention in a tree of tokens that follow a row: each token sees the row and its own path.

A tree of M tokens is read at once, as engines do; without this, each of its paths is a row of its
own, which repeats the tokens that paths share.
"""

from __future__ import annotations

from typing import Any

from otm._core.optional import require


def ancestors(parents: Any) -> Any:
    """Return which entries are on the path to each entry, itself included: [R, M] → bool [R, M, M].

    `parents` are indices of earlier entries, or −1 after the row.
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
    """Return the slots that each entry sees, of slots 0 to `end`: bool [R, 1, M, end].

    The entries of a row are in slots starts, starts + 1, …; `starts` has shape [R] or [1].
    """
    torch = require("torch")
    count = known.shape[1]
    behind = (torch.arange(end, device=known.device) - starts[:, None])[:, None]  # [R, 1, end]
    places = behind.clamp(0, count - 1).expand(len(known), count, end)
    inside = (behind >= 0) & (behind < count)
    return torch.where(inside, known.gather(2, places), behind < 0)[:, None]
