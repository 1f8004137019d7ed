"""Conversion of packed rows, logits and sparse drafts to rows of probabilities, in NumPy.

The NumPy rules read the rows of one sequence after another, by index.
"""

from __future__ import annotations

from collections.abc import Iterable
from fractions import Fraction
from itertools import pairwise, repeat
from typing import Any

import numpy as np
import numpy.typing as npt

from otm.kernels.common.distributions.numpy import probs_from_logits
from otm.kernels.sparse_drafts import SparseDrafts


class Listed:
    """Sparse draft rows [γ, V] or [K, γ, V] of one sequence, expanded to dense rows when read."""

    def __init__(self, tokens: npt.NDArray[Any], probs: npt.NDArray[Any], size: int) -> None:
        self.shape = (*tokens.shape[:-1], size)
        self._tokens, self._probs = tokens, probs

    def __getitem__(self, index: Any) -> Any:
        place = index if isinstance(index, tuple) else (index,)
        place, token = place[: len(self.shape) - 1], place[len(self.shape) - 1 :]
        tokens, probs = self._tokens[place], self._probs[place]  # [m]
        if token:
            matches = probs[tokens == token[0]]
            return matches[0] if matches.size else probs.dtype.type(0)
        row = np.zeros(self.shape[-1], probs.dtype)
        if row.dtype == object:
            row += Fraction(0)
        known = (tokens >= 0) & (tokens < row.size)
        row[tokens[known]] = probs[known]
        return row


def unpack(
    target: Any, draft: Any, tokens: npt.NDArray[Any], offsets: npt.NDArray[Any], most: int
) -> tuple[Any, Any, npt.NDArray[np.int64]]:
    """Split packed rows by sequence, and pad their drafts with −1: [B, most]."""
    ends = list(enumerate(pairwise(offsets.tolist())))

    def cut(rows: Any) -> list[Any]:
        return [rows[start:end] for _, (start, end) in ends]

    padded = np.full((len(ends), most), -1, dtype=np.int64)
    for row, drafts in zip(padded, cut(tokens), strict=True):
        row[: drafts.size] = drafts
    if isinstance(draft, SparseDrafts):
        draft = SparseDrafts(*map(cut, draft))
    elif draft is not None:
        draft = cut(draft)
    return [target[start + b : end + b + 1] for b, (start, end) in ends], draft, padded


def read(
    target: Any, draft: Any, tokens: npt.NDArray[Any], size: int, temperature: Any = None
) -> tuple[Iterable[Any], Iterable[Any] | None]:
    """Return rows of both models by sequence; a temperature means that the rows are logits.

    A sparse draft always holds probabilities; at temperature 0 its rows are one-hot at the draft.
    """
    sparse = isinstance(draft, SparseDrafts)
    temperatures = repeat(1.0, len(tokens))
    if temperature is not None:
        temperatures = np.broadcast_to(temperature, (len(tokens),)).tolist()
        target, rows = probs_from_logits(target, None if sparse else draft, tokens, temperature)
        draft = draft if sparse else rows
    if sparse:
        lists = zip(draft.tokens, draft.probs, strict=True)
        certain = (drafts[..., None] for drafts in tokens)
        draft = (
            Listed(one, np.ones(one.shape), size) if one_temperature == 0 else Listed(*listed, size)
            for listed, one, one_temperature in zip(lists, certain, temperatures, strict=True)
        )
    return target, draft
