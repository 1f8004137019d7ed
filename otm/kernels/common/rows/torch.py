"""Conversion of packed rows, logits and sparse drafts to rows of probabilities, in torch."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import pad

from otm.kernels.common.distributions.torch import probs_from_logits
from otm.kernels.sparse_drafts import SparseDrafts


class Listed:
    """Sparse draft rows [B, γ, V] or [B, K, γ, V]; rows are expanded when read."""

    def __init__(self, drafts: SparseDrafts[Tensor], size: int) -> None:
        self.shape = (*drafts.tokens.shape[:-1], size)
        self._tokens = drafts.tokens.long()
        known = (self._tokens >= 0) & (self._tokens < size)
        self._probs = drafts.probs.where(known, 0)

    def __getitem__(self, place: Any) -> Tensor:
        """Return the dense rows of B sequences: [B, V]."""
        tokens, probs = self._tokens[place].clamp(0, self.shape[-1] - 1), self._probs[place]
        return probs.new_zeros(len(probs), self.shape[-1]).scatter_add(1, tokens, probs)

    def gather(self, _: int, tokens: Tensor) -> Tensor:
        """Return entries of rows, as `Tensor.gather` does: [B, γ, 1] → [B, γ, 1]."""
        return self._probs.where(self._tokens == tokens, 0).sum(-1, keepdim=True)


def unpack(
    target: Tensor, draft: Any, tokens: Tensor, offsets: Tensor, most: int
) -> tuple[Tensor, Any, Tensor]:
    """Gather packed rows to [B, most + 1, V] and [B, most, …], and drafts to [B, most], padded."""
    total, place = len(tokens), torch.arange(most + 1, device=offsets.device)
    start, end = offsets[:-1, None].long(), offsets[1:, None].long()
    index = start + place  # [B, most + 1]
    sequence = torch.arange(len(start), device=offsets.device)[:, None]
    target = target[(index + sequence).clamp(0, max(len(target) - 1, 0))]
    index = index.where(index < end, total)[:, :most]

    def gathered(rows: Tensor) -> Tensor:
        rows = rows if total else rows.new_zeros(1, rows.shape[1])
        return rows[index.clamp(0, max(total - 1, 0))]

    if isinstance(draft, SparseDrafts):
        draft = SparseDrafts(*map(gathered, draft))
    elif draft is not None:
        draft = gathered(draft)
    return target, draft, pad(tokens, (0, 1), value=-1)[index.clamp(0, total)]


def read(
    target: Tensor, draft: Any, tokens: Tensor, size: int, temperature: float | Tensor | None = None
) -> tuple[Tensor, Any]:
    """Return rows of both models; a temperature means that the rows are logits.

    A sparse draft always holds probabilities; at temperature 0 its rows are one-hot at the draft.
    """
    sparse = isinstance(draft, SparseDrafts)
    if temperature is not None:
        target, rows = probs_from_logits(target, None if sparse else draft, tokens, temperature)
        if not sparse:
            return target, rows
        temperatures = temperature
        if not isinstance(temperatures, Tensor):
            temperatures = torch.full((1,), temperatures, device=tokens.device)
        greedy = temperatures.eq(0).expand(len(tokens)).reshape(-1, *(1,) * tokens.ndim)
        first = torch.arange(draft.tokens.shape[-1], device=tokens.device) == 0
        certain = tokens[..., None].long().where(first, -1)
        draft = SparseDrafts(
            certain.where(greedy, draft.tokens), draft.probs.masked_fill(greedy, 1.0)
        )
    return target, Listed(draft, size) if sparse else draft
