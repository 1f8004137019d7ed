"""What an optimal plan in floats really does, in fractions, by code that it shares nothing with.

A selection is followed step by step through the numbers that the plan stores, with uniforms that
are real numbers in [0, 1): the bin of a draft, its moves, the highest slot, the coin, the residual.
"""

from __future__ import annotations

from decimal import Decimal, localcontext
from fractions import Fraction
from itertools import accumulate

import numpy as np

from otm.coupling.optimal.plan import OptimalPlan

F = Fraction
LARGEST_EXACT_POWER = 64
DIGITS = 70
"""Of powers beyond that, after the point."""


def realised_output(plan: OptimalPlan) -> tuple[list[Fraction], Fraction]:
    """Return the output distribution, and the probability that the winner is accepted."""
    problem, slots, wanted = plan.problem, plan.slots, plan._target_win_ratio
    p, q = problem.draft, problem.target
    total = sum(map(F, p.tolist()))
    drafted = np.flatnonzero(p)
    ratio = q[drafted] / p[drafted]
    places = np.searchsorted(slots.bins.least, ratio, side="right") - 1

    moves: list[list[tuple[int, Fraction]]] = [[] for _ in slots.bins.least]
    keys, partners = slots.keys.tolist(), slots.swaps.moves.partner.tolist()
    before, bits, m = {}, slots._grid_bits, len(moves)
    for key, partner in zip(keys, partners, strict=True):
        row, end = key >> bits, key % 2**bits
        moves[row].append((partner, F(end - before.get(row, 0), 2**bits)))
        before[row] = end

    # how much more or less often than its bin a token moves, as the selection computes it
    moved = np.array([float(sum(chance for _, chance in each)) for each in moves])
    slope, gap = wanted.slope[places], wanted.mean[places] - wanted.slope[places]
    with np.errstate(divide="ignore", invalid="ignore"):
        share = np.where(wanted.follows[places] & (gap != 0), (ratio - slope) / gap, 1)
        share = np.clip(share, 2.0**-1000, 1 / moved[places])
    share = np.where(wanted.follows.any(), share, 1)

    # mass of each slot: what stays, and what comes from others
    own, stretched = [F(0)] * m, [F(0)] * m
    shares = [F(x) for x in share.tolist()]
    mass = [F(x) / total for x in p[drafted].tolist()]
    for place, x, times in zip(places.tolist(), mass, shares, strict=True):
        own[place] += x
        stretched[place] += x * times
    in_slot = list(own)
    for place, each in enumerate(moves):
        for partner, chance in each:
            in_slot[place] -= stretched[place] * chance
            in_slot[partner] += stretched[place] * chance
    assert sum(in_slot) == 1
    powers = [_power(x, problem.k) for x in accumulate(in_slot, initial=F(0))]
    win = [
        (high - low) / x if x else F(0)
        for low, high, x in zip(powers[:-1], powers[1:], in_slot, strict=True)
    ]
    added = [sum(c * (win[to] - win[i]) for to, c in each) for i, each in enumerate(moves)]

    # the coin, as the selection computes it
    of_slope, of_moves = slots.win_ratio
    won = p[drafted] * (of_slope[places] + of_moves[places] * share)
    ratio = np.minimum(q[drafted], won) / np.where(won > 0, won, 1)
    coin = np.where(won > 0, ratio, q[drafted] > 0)
    output = [F(0)] * problem.n
    for token, place, x, times, accept in zip(
        drafted.tolist(), places.tolist(), mass, shares, coin.tolist(), strict=True
    ):
        output[token] = x * (win[place] + times * added[place]) * F(accept)
    accepted = sum(output)

    # the residual: a block, and within it a token
    residual = plan.residual
    size = -(-residual.tokens.size // residual.ends.size) if residual.ends.size == 1 else 512
    start, everything = F(0), F(residual.ends.tolist()[-1])
    for block, end in enumerate(map(F, residual.ends.tolist())):
        inside = slice(block * size, (block + 1) * size)
        tokens = residual.tokens[inside].tolist()
        edges = [min(F(x), end - start) for x in residual.cumulative[inside].tolist()]
        edges[-1] = end - start
        for token, low, high in zip(tokens, [F(0), *edges], edges, strict=False):
            output[token] += (1 - accepted) * (high - low) / everything
        start = end
    assert sum(output) == 1
    return output, accepted


def distance_to_target(output: list[Fraction], plan: OptimalPlan) -> float:
    """Total variation from the target q/Σq."""
    target = [F(x) for x in plan.problem.target.tolist()]
    total = sum(target)
    return float(sum(abs(x - y / total) for x, y in zip(output, target, strict=True)) / 2)


def _power(x: Fraction, k: int) -> Fraction:
    if k <= LARGEST_EXACT_POWER:
        return x**k
    with localcontext(prec=DIGITS):
        power = (Decimal(x.numerator) / Decimal(x.denominator)) ** k
    return F(int(power.scaleb(DIGITS)), 10**DIGITS)
