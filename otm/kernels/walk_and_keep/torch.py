"""Walk and keep by bins, batched: the decisions of `otm.kernels.walk_and_keep.numpy`."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from otm._core.quadrature import quadrature
from otm.kernels.common.distributions.numpy import UNIT
from otm.kernels.common.distributions.torch import extend, join_output, locate, mass
from otm.kernels.optimal.numpy import STEPS, Places, Table
from otm.kernels.optimal.torch import certain, choose_slots, from_zero, matched, of_numbers, winner
from otm.kernels.verified import Verified
from otm.kernels.walk_and_keep.numpy import WEIGHT_UNIT


class State(NamedTuple):
    """Where the walks of B sequences are, of which some have ended."""

    walking: Tensor  # bool [B]
    agree: Tensor  # bool [B, K]
    share: Tensor  # [B]
    numbers: Tensor  # [B, K + 1]


class Kept(NamedTuple):
    """The deepest nodes that were kept so far."""

    accepted: Tensor  # [B]
    chain: Tensor  # [B]
    drafted: Tensor  # bool [B]
    masses: Tensor  # [B, V], of the token that follows


def verify(
    target_probs: Tensor,
    draft_probs: Tensor,
    draft_tokens: Tensor,
    uniforms: Tensor,
    *,
    counted: Tensor | None = None,
    steps: int = STEPS,
) -> Verified[Tensor]:
    """Walk along the drafts that win, and keep a part of the walk."""
    batch, chains, gamma = draft_tokens.shape
    drafts = draft_tokens.long()
    own = drafts >= 0 if counted is None else (drafts >= 0) & counted
    revealed = reveals(drafts, own)
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
        # a chain that has ended has no draft row here
        read = torch.where((running >= 0).any(1), first(running >= 0), first(state.agree))
        target = target_probs[sequences, read, i]  # [B, V]
        everything = mass(target)
        if i == gamma:
            coin = coins[:, -1, -1] if gamma else ones * 0
            kept = keep(kept, state, i, coin, drafted=ones < 0, left=everything, row=everything)
            break
        mine = own[:, :, i] & (running >= 0)
        count = mine.sum(1, keepdim=True)
        numbers = torch.where(revealed[:, i, None], certain(count, chains), state.numbers)
        draft = extend(draft_probs[sequences, read, i], target.shape[1]).double()
        weighted = state.share[:, None] * target.double()
        places, table = of_numbers(weighted, draft, numbers, steps)
        won = winner(draft, places, table)
        left = (mass(weighted) - mass(won)).clamp(min=0)
        drafted = count[:, 0] > 0
        kept = keep(kept, state, i, coins[:, i - 1, -1], drafted=drafted, left=left, row=everything)

        column = running.clamp(0, target.shape[1] - 1)
        known = mine & (running == column) & (draft.gather(1, column) > 0)
        at_drafts = Places(*(x.gather(1, column) for x in places))
        slots = choose_slots(table, at_drafts, coins[:, i, :-1]).where(known, -1)
        slot = slots.amax(1, keepdim=True)
        token = column.gather(1, first(slots == slot)[:, None])  # [B, 1]
        place = Places(*(x.gather(1, token) for x in places))
        numbers = agreeing(numbers, table, place, slot.clamp(min=0), draft.gather(1, token))
        of_target, of_winner = (x.gather(1, token)[:, 0] for x in (weighted, won))
        divided = of_target / of_winner
        share = torch.where(of_target < of_winner, divided, (of_target > 0).double())
        walking = state.walking & known.any(1)
        state = State(walking, (running == token) & walking[:, None], share, numbers)
    token = locate(kept.masses, torch.where(kept.drafted, uniforms[:, -2], uniforms[:, -1]))
    tokens = join_output(drafts[sequences, kept.chain], kept.accepted, token)
    return Verified(tokens, kept.accepted, kept.chain)


def first(chosen: Tensor) -> Tensor:
    """Return the first chosen chain; the last of all if there is none: [B, K] → [B]."""
    places = torch.arange(chosen.shape[1], device=chosen.device)
    return torch.where(chosen, places, chosen.shape[1] - 1).amin(1)


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
    """Keep the nodes at a depth where they pass their tests, which the root always does."""
    excess = left.sum(1).double() / UNIT
    chance = torch.where(drafted, excess, state.share)
    divisor = torch.where(drafted, excess + (1 - state.share), 1.0)
    passes = state.walking & (coin * divisor < chance) if depth else state.walking
    # an empty residual can only be a matter of rounding
    masses = torch.where((drafted & left.any(1))[:, None], left, row)
    return Kept(
        torch.where(passes, depth, kept.accepted),
        torch.where(passes, first(state.agree), kept.chain),
        torch.where(passes, drafted, kept.drafted),
        torch.where(passes[:, None], masses, kept.masses),
    )


def reveals(drafts: Tensor, own: Tensor) -> Tensor:
    """Positions at which the number of draws is looked at: [B, K, γ], [B, K, γ] → [B, γ]."""
    live = (drafts >= 0).long().cumprod(2)
    ended = torch.nn.functional.pad(live, (1, 0), value=1)[:, :, :-1] > live
    shared = ((live > 0) & ~own).any(1)
    before = torch.nn.functional.pad(shared, (1, 0))[:, :-1]
    place = torch.arange(drafts.shape[2], device=drafts.device)
    return ended.any(1) | shared | before | (place == 0)


def agreeing(numbers: Tensor, table: Table, place: Places, slot: Tensor, draft: Tensor) -> Tensor:
    """Law of the number of drafts that are a token, given that it wins in a slot: [B, K + 1]."""
    below = from_zero(table.below)
    total = below[:, -1:].clamp(min=1).double()
    before, within = part_of_slot(table, place, slot)
    start, step = draft * before.double() / total, draft * within.double() / total
    lower, upper = below.gather(1, slot), below.gather(1, slot + 1)  # [B, 1]
    others = (lower.double() / total - start).clamp(min=0)
    wide = ((upper - lower).double() / total - step).clamp(min=0)
    weights = torch.zeros_like(numbers)
    for point, weight in zip(*quadrature(numbers.shape[1] - 1, exact=False), strict=True):
        chances = ways(numbers, start + step * float(point), others + wide * float(point))
        weights = weights + float(weight) * chances
    most = weights.amax(1, keepdim=True)
    parts = (weights / most * WEIGHT_UNIT).long()
    return torch.where(most > 0, parts.double() / parts.sum(1, keepdim=True).double(), numbers)


def part_of_slot(table: Table, place: Places, slot: Tensor) -> tuple[Tensor, Tensor]:
    """Masses of a draft's token in the slots below a slot and in the slot: [B, 1]."""
    poor, start, amount = matched(table.lack, table.excess, place.bin)
    others = torch.where(poor, table.excess, table.lack)
    starts = from_zero(others)[:, :-1]
    overlap = (torch.minimum(others, start + amount) - torch.maximum(starts, start)).clamp(min=0)
    slope = table.slopes.gather(1, place.bin)
    win, rise = table.win.gather(1, place.bin), table.rise.gather(1, place.bin)
    gain, change = (table.slopes - slope).abs(), (win + place.share * rise - slope).abs()
    moves = torch.where(gain <= change, 1.0, change / gain)
    moved = mass(overlap.double() / amount.clamp(min=1).double() * moves)
    bins = torch.arange(moved.shape[1], device=moved.device)
    stay = int(UNIT) - moved.sum(1, keepdim=True)
    before = moved.where(bins < slot, 0).sum(1, keepdim=True) + stay * (place.bin < slot)
    return before, moved.gather(1, slot) + stay * (place.bin == slot)


def ways(numbers: Tensor, own: Tensor, others: Tensor) -> Tensor:
    """Sum of Pr(m) C(m, c) c Z^(c − 1) R^(m − c) over m for each c: [B, K + 1]."""
    c = torch.arange(numbers.shape[1], device=numbers.device).double()
    total = term = torch.zeros_like(numbers)
    power = torch.ones_like(own)
    for m in range(1, numbers.shape[1]):
        # torch takes number / tensor as number · reciprocal, which is rounded twice
        ratio = torch.full_like(c, m) / torch.where(c < m, m - c, 1)
        ends = torch.where(c == m, m * power, 0.0)
        term = torch.where(c < m, term * others * ratio, ends)
        total = total + numbers[:, m, None] * term
        power = power * own
    return total
