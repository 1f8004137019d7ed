"""Arguments of a call, and the row indices of each draft: padded, packed or shared."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from otm._core.tensors import to_host
from otm.errors import InvalidDraftsError
from otm.kernels.sparse_drafts import SparseDrafts

Indices = npt.NDArray[np.int64]


class Chains(NamedTuple):
    """Arguments of `verify_probs`, `verify_logits` (with temperatures) or `verify_sigmoid`."""

    target: Any
    draft: Any
    tokens: Any
    uniforms: Any
    temperature: Any = None
    offsets: Any = None
    counted: Any = None
    sigmoid: bool = False

    @property
    def gamma(self) -> int:
        """Largest number of drafts of a chain."""
        return int(self.tokens.shape[-1] if self.offsets is None else self.uniforms.shape[1] - 2)

    @property
    def chains(self) -> int:
        """Number K of chains; 0 for a rule for one chain."""
        return int(self.tokens.shape[1]) if self.tokens.ndim == 3 else 0

    @property
    def kind(self) -> str:
        """Contents of the rows, such as "logits"."""
        if self.sigmoid:
            return "logits by sigmoids"
        return "probabilities" if self.temperature is None else "logits"

    @property
    def draft_size(self) -> int:
        """Size of the vocabulary that drafts come from."""
        dense = self.draft is not None and not isinstance(self.draft, SparseDrafts)
        return int((self.draft if dense else self.target).shape[-1])


class Layout(NamedTuple):
    """Drafts of C chains, −1 after their ends, and the indices of their rows among all rows."""

    drafts: Indices  # [C, γ]
    target_rows: Indices  # [C, γ + 1]
    draft_rows: Indices  # [C, γ]


def padded_layout(tokens: Any) -> Layout:
    """Return the layout of draft tokens [..., γ], with each chain as a separate sequence."""
    *leading, gamma = tokens.shape
    count = math.prod(leading)
    places = (np.arange(count * rows).reshape(count, rows) for rows in (gamma + 1, gamma))
    return Layout(to_host(tokens).reshape(count, gamma), *places)


def packed_layout(tokens: Any, offsets: Any, most: int) -> Layout:
    """Return the layout of packed draft tokens [N] with at most `most` drafts per sequence.

    Raise if the offsets are invalid.  Indices of rows that do not exist are clamped to the last
    row.
    """
    drafts, ends = to_host(tokens), to_host(offsets).astype(np.int64)
    lengths = np.diff(ends)
    if ends[0] != 0 or ends[-1] != drafts.size or (lengths < 0).any():
        raise InvalidDraftsError(
            f"offsets {_shown(ends)} of {drafts.size} packed drafts; they must ascend from 0 to "
            f"{drafts.size}"
        )
    if (lengths > most).any():
        raise InvalidDraftsError(
            f"sequence {lengths.argmax()} has {lengths.max()} drafts; the uniforms are for at most "
            f"{most}: draw uniforms [B, γ + 2], where γ is the largest number of drafts"
        )
    sequence, place = np.arange(lengths.size)[:, None], np.arange(most + 1)
    rows = ends[:-1, None] + place
    of_draft = np.minimum(rows[:, :most], max(drafts.size - 1, 0))
    inside = place[:most] < lengths[:, None]
    padded = np.full(inside.shape, -1)
    padded[inside] = drafts
    return Layout(padded, np.minimum(rows + sequence, drafts.size + lengths.size - 1), of_draft)


def check_counted(tokens: Any, counted: Any, several: bool) -> None:
    """Raise if a draft [B, K, γ] that is not counted has no earlier path with the same tokens."""
    if not several:
        raise InvalidDraftsError(
            "this rule takes one chain, in which every draft is a separate draw; counted is for "
            "rules for several chains"
        )
    if tuple(counted.shape) != tuple(tokens.shape):
        raise InvalidDraftsError(
            f"counted has shape {tuple(counted.shape)}; it must have the shape of the draft "
            f"tokens, {tuple(tokens.shape)}"
        )
    is_draw, drafts = to_host(counted), to_host(tokens)
    if is_draw.dtype != bool:
        raise InvalidDraftsError(f"counted is of type {is_draw.dtype}; it must hold booleans")
    live = np.logical_and.accumulate(drafts >= 0, axis=2)
    shared = live & ~is_draw
    shared_before = np.logical_and.accumulate(~is_draw, axis=2)
    alike = np.logical_and.accumulate(drafts[:, :, None] == drafts[:, None], axis=3)
    earlier = np.tri(drafts.shape[1], k=-1, dtype=bool)[:, :, None]
    has_earlier = (alike & earlier & is_draw[:, None]).any(axis=2)  # [B, K, K, γ] → [B, K, γ]
    wrong = np.argwhere(shared & ~(shared_before & has_earlier))
    if wrong.size:
        sequence, chain, step = wrong[0].tolist()
        raise InvalidDraftsError(
            f"draft {step} of chain {chain} of sequence {sequence} is not counted; an earlier "
            "chain must have the same tokens up to this draft and count it, and the drafts before "
            "it must not be counted either"
        )


def _shown(ends: Indices) -> str:
    return f"{ends.tolist()}" if ends.size < 8 else f"[{ends[0]}, …, {ends[-1]}]"
