"""Walk and keep in a batch, with the same decisions as `otm.kernels.walk_and_keep.numpy`."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from otm.kernels.block.torch import capped_ratio
from otm.kernels.common.distributions.numpy import UNIT, mass
from otm.kernels.common.distributions.torch import extend, join_output, locate
from otm.kernels.multi_draft.torch import first_chosen
from otm.kernels.optimal.numpy import STEPS, Places, choose_slots, winner_probs
from otm.kernels.optimal.torch import bin_tokens, deterministic_count
from otm.kernels.results import Verified
from otm.kernels.walk_and_keep.numpy import conditioning_positions, count_given_winner


class State(NamedTuple):
    """State of the walks of B sequences; some walks may have ended."""

    walking: Tensor  # bool [B]
    agree: Tensor  # bool [B, K]
    share: Tensor  # [B]
    numbers: Tensor  # [B, K + 1]


class Kept(NamedTuple):
    """The deepest nodes that were kept so far."""

    accepted: Tensor  # [B]
    chain: Tensor  # [B]
    drafted: Tensor  # bool [B]
    masses: Tensor  # masses of the next token, [B, V]


def verify(
    target_probs: Tensor,
    draft_probs: Tensor,
    draft_tokens: Tensor,
    uniforms: Tensor,
    *,
    counted: Tensor | None = None,
    steps: int = STEPS,
) -> Verified[Tensor]:
    """Walk along the winning drafts, and keep a part of the walk."""
    batch, chains, gamma = draft_tokens.shape
    drafts = draft_tokens.long()
    own = drafts >= 0 if counted is None else (drafts >= 0) & counted
    conditions = conditioning_positions(drafts, own)
    sequences = torch.arange(batch, device=drafts.device)
    coins = uniforms[:, :-2].unflatten(1, (gamma, chains + 1))
    ones = torch.ones_like(uniforms[:, 0])
    agree = torch.ones(batch, chains, dtype=torch.bool, device=drafts.device)
    state = State(ones > 0, agree, ones, uniforms.new_zeros(batch, chains + 1))
    kept = Kept(sequences * 0, sequences * 0, ones < 0, mass(target_probs[:, 0, 0]))
    for i in range(gamma + 1):
        running = torch.full_like(agree, -1, dtype=torch.int64)
        if i < gamma:
            running = drafts[:, :, i].where(state.agree, -1)
        # A chain that has ended has no draft row here.
        here = running >= 0
        read = first_chosen(torch.where(here.any(1, keepdim=True), here, state.agree))
        target = target_probs[sequences, read, i]  # [B, V]
        everything = mass(target)
        if i == gamma:
            coin = coins[:, -1, -1] if gamma else ones * 0
            kept = keep(kept, state, i, coin, drafted=ones < 0, left=everything, row=everything)
            break
        mine = own[:, :, i] & here
        count = mine.sum(1, keepdim=True)
        drawn = deterministic_count(count, chains)
        numbers = torch.where(conditions[:, i, None], drawn, state.numbers)
        draft = extend(draft_probs[sequences, read, i], target.shape[1]).double()
        weighted = state.share[:, None] * target.double()
        places, table = bin_tokens(weighted, draft, numbers, steps)
        win_probs = winner_probs(draft, places, table)
        left = (mass(weighted) - mass(win_probs)).clamp(min=0)
        drafted = count[:, 0] > 0
        kept = keep(kept, state, i, coins[:, i - 1, -1], drafted=drafted, left=left, row=everything)

        column = running.clamp(0, target.shape[1] - 1)
        known = mine & (running == column) & (draft.gather(1, column) > 0)
        at_drafts = Places(*(x.gather(1, column) for x in places))
        slots = choose_slots(table, at_drafts, coins[:, i, :-1]).where(known, -1)
        slot = slots.amax(1, keepdim=True)
        token = column.gather(1, first_chosen(slots == slot)[:, None])  # [B, 1]
        place = Places(*(x.gather(1, token) for x in places))
        slot, of_draft = slot.clamp(min=0), draft.gather(1, token)
        numbers = count_given_winner(numbers, table, place, slot, of_draft)
        share = capped_ratio(*(x.gather(1, token)[:, 0] for x in (weighted, win_probs)))
        walking = state.walking & known.any(1)
        state = State(walking, (running == token) & walking[:, None], share, numbers)
    token = locate(kept.masses, torch.where(kept.drafted, uniforms[:, -2], uniforms[:, -1]))
    tokens = join_output(drafts[sequences, kept.chain], kept.accepted, token)
    return Verified(tokens, kept.accepted, kept.chain)


def keep(
    kept: Kept,
    state: State,
    depth: int,
    coin: Tensor,
    *,
    drafted: Tensor,
    left: Tensor,
    row: Tensor,
) -> Kept:
    """Keep the nodes at a depth that pass their tests; the root always passes."""
    excess = left.sum(1).double() / UNIT
    chance = torch.where(drafted, excess, state.share)
    divisor = torch.where(drafted, excess + (1 - state.share), 1.0)
    passes = state.walking & (coin * divisor < chance) if depth else state.walking
    # Only rounding can make the residual empty.
    masses = torch.where((drafted & left.any(1))[:, None], left, row)
    return Kept(
        torch.where(passes, depth, kept.accepted),
        torch.where(passes, first_chosen(state.agree), kept.chain),
        torch.where(passes, drafted, kept.drafted),
        torch.where(passes[:, None], masses, kept.masses),
    )
