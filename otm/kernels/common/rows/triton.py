"""Lookup of sparse draft rows inside Triton kernels, without dense copies.

After a sparse draft, the residual differs from the target only at the listed tokens.
"""

# ruff: noqa: PLR0917 - a kernel's arguments are pointers, strides and sizes, in order

from __future__ import annotations

from torch import Tensor

from otm.kernels.common.distributions.triton import Rows
from otm.kernels.common.runtime import constant, jit, padded, tl
from otm.kernels.sparse_drafts import SparseDrafts
from otm.kernels.workspace import Workspace

MOST_LISTED = 1024
"""Number of listed tokens that a program reads at once from one list."""

_TOGETHER = constant(32)
"""Number of listed tokens that a program reads at once from each of several lists."""


def lay_out_lists(work: Workspace, drafts: SparseDrafts[Tensor]) -> tuple[Tensor, Tensor, int]:
    """Return contiguous tokens and probabilities, and the number of tokens to read at once."""
    tokens, probs = (
        x if x.is_contiguous() else work.take(name, tuple(x.shape), x.dtype, x.device).copy_(x)
        for name, x in zip(("listed", "listed probabilities"), drafts, strict=True)
    )
    return tokens, probs, min(padded(tokens.shape[-1]), MOST_LISTED)


@jit
def listed(
    rows: Rows, position: tl.tensor, place: tl.tensor, used: tl.tensor, kind: tl.constexpr
) -> tl.tensor:
    """Return tokens and probabilities from the lists at positions; −1 and 0 after a list's end.

    `position` is a scalar, or [n, 1] for places [1, m] in a list.  At temperature 0 the list
    contains only the draft.
    """
    start = position.to(tl.int64) * rows.draft_row
    inside = place < tl.where(used, rows.draft_size, 0)
    token = tl.load(rows.of.listed + start + place, mask=inside, other=-1).to(tl.int64)  # [m]
    prob = tl.load(rows.draft + start + place, mask=inside, other=0.0)  # [m]
    prob = tl.where(token >= 0, prob if prob.dtype == tl.float64 else prob.to(tl.float32), 0.0)
    if kind == "logits":
        certain = tl.load(rows.softmaxes + position * 4 + 3, mask=used, other=-1.0)  # as position
        draft = tl.load(rows.of.tokens + position, mask=used, other=-1).to(tl.int64)  # as position
        token = tl.where(certain >= 0, tl.where(place == 0, draft, -1), token)
        prob = tl.where(certain >= 0, 1.0, prob)
    return token, prob


@jit
def listed_at(
    rows: Rows, position: tl.tensor, token: tl.tensor, used: tl.tensor, kind: tl.constexpr
) -> tl.tensor:
    """Look up float64 probabilities of tokens [n] in the lists at positions; 0 where not used.

    `position` and `used` have shape [n, 1], or [1, 1] if all tokens share one list.
    """
    found = tl.zeros(token.shape, tl.float64)
    for chunk in range((rows.draft_size + _TOGETHER - 1) // _TOGETHER):
        place = chunk * _TOGETHER + tl.arange(0, _TOGETHER)
        other, prob = listed(rows, position, place[None, :], used, kind)
        here = (other == token[:, None]) & (token[:, None] >= 0) & used
        found += tl.sum(tl.where(here, prob, 0.0), 1).to(tl.float64)
    return found


@jit
def spread(
    memory: tl.tensor,
    rows: Rows,
    position: tl.tensor,
    token: tl.tensor,
    used: tl.tensor,
    kind: tl.constexpr,
    width: tl.constexpr,
) -> tl.tensor:
    """Expand the list at a position to the probabilities of a block of tokens: [block size].

    The array `memory` has the size of a block; the result is 0 if not used.
    """
    start = tl.min(token, 0)
    stop = tl.minimum(tl.max(token, 0) + 1, rows.size)
    tl.store(memory + token - start, 0.0)
    tl.debug_barrier()
    for chunk in range((tl.where(used, rows.draft_size, 0) + width - 1) // width):
        place = chunk * width + tl.arange(0, width)
        other, prob = listed(rows, position, place, used, kind)
        tl.store(memory + other - start, prob, mask=(other >= start) & (other < stop))
    tl.debug_barrier()
    probs = tl.load(memory + token - start)  # [block size]
    return probs if probs.dtype == tl.float64 else probs.to(tl.float32)
