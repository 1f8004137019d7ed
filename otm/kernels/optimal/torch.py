"""The optimal rule for bins at one node of each sequence, as in `otm.kernels.optimal.numpy`.

The vocabulary is read twice, for the sums of the bins and for the residual, and never sorted.
"""

from __future__ import annotations

from functools import partial

import torch
from torch import Tensor

from otm.kernels.common.arrays import prepend_zero
from otm.kernels.common.distributions.numpy import mass
from otm.kernels.multi_draft.torch import verify_chains
from otm.kernels.optimal.numpy import (
    FINE,
    LEAST,
    STEPS,
    Places,
    Table,
    choose_slots,
    edge_count,
    find_places,
    make_table,
    winner_probs,
)


def select(
    target: Tensor, draft: Tensor, tokens: Tensor, uniforms: Tensor, steps: int = STEPS
) -> tuple[Tensor, Tensor]:
    """Accept or reject the winning draft: [B, V], [B, V], [B, K], [B, K + 1]."""
    everything = mass(target)
    target, draft = target.double(), draft.double()
    chains, size = tokens.shape[1], target.shape[1]
    count = (tokens >= 0).sum(1, keepdim=True)
    places, table = bin_tokens(target, draft, deterministic_count(count, chains), steps)
    win_probs = winner_probs(draft, places, table)

    column = tokens.clamp(0, size - 1)
    drafted = Places(*(x.gather(1, column) for x in places))
    slot = choose_slots(table, drafted, uniforms[:, :chains])
    slot = slot.where((tokens >= 0) & (tokens < size), -1)
    best = slot.amax(1, keepdim=True)
    place = torch.arange(chains, device=tokens.device)
    # Select the first draft in the highest slot.
    index = torch.where(slot == best, place, chains - 1).amin(1)
    token = column.gather(1, index[:, None])
    of_target, of_draft = target.gather(1, token), draft.gather(1, token)  # [B, 1]
    passes = (
        (uniforms[:, -1:] * win_probs.gather(1, token) < of_target) & (of_draft > 0) & (best >= 0)
    )
    residual = (everything - mass(torch.minimum(target, win_probs))).clamp(min=0)
    use = residual.any(1, keepdim=True) & (count > 0)
    return torch.where(passes[:, 0], index, -1), torch.where(use, residual, everything)


verify = partial(verify_chains, select)
"""Verify K chains by the optimal rule for bins at each position."""


def deterministic_count(count: Tensor, most: int) -> Tensor:
    """Return the distributions of fixed numbers, each at most `most`: [B, 1] → [B, most + 1]."""
    return (torch.arange(most + 1, device=count.device) == count).double()


def bin_tokens(
    target: Tensor, draft: Tensor, numbers: Tensor, steps: int = STEPS
) -> tuple[Places, Table]:
    """Return the tokens' bins, and the tables for m drafts with probability `numbers[:, m]`.

    The shapes are [B, V] and [B, G]; `numbers` has shape [B, K + 1].
    """
    edges = ratio_grid(numbers.shape[1] - 1, steps, target)
    places = find_places(target, draft, edges)
    sums = torch.zeros(len(target), len(edges) - 1, dtype=torch.int64, device=target.device)
    parts = (draft, draft * places.share)
    masses, uppers = (sums.scatter_add(1, places.bin, mass(x)) for x in parts)
    return places, make_table(masses, uppers, edges, numbers)


def ratio_grid(chains: int, steps: int, like: Tensor) -> Tensor:
    """Build the ascending edges of the bins on the device: [G + 1]."""
    coarse = FINE - LEAST
    place = torch.arange(edge_count(chains, steps) - coarse - 1, device=like.device)
    octave = place // steps
    numerator = ((steps + place - octave * steps) << octave).double()
    # torch computes tensor / number as tensor · reciprocal, which is rounded twice.
    fine = numerator / torch.full_like(numerator, steps) * 2.0**FINE
    low = (1 << torch.arange(coarse, device=like.device)).double() * 2.0**LEAST
    return prepend_zero(torch.cat([low, fine]))
