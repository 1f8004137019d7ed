"""The best distribution of a winner, in plain fractions (docs/theory/certain-and-drawn.md).

A set of tokens is a number whose bits are the tokens; `inside[h]` is the probability that all
children of a node are in the set h.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from fractions import Fraction

F = Fraction
Law = list[Fraction]


def mass(law: Sequence[Fraction], h: int) -> Fraction:
    return sum((p for i, p in enumerate(law) if h >> i & 1), F(0))


def check(law: Law, inside: Law, target: Law, weights: Sequence[Fraction]) -> None:
    """Assert that a winner can have this distribution, and accepts what the least cut allows."""
    sets = range(len(inside))
    assert sum(law) == 1 - inside[0]
    for h in sets:
        assert mass(law, h) >= inside[h] - inside[0]
    for s in weights:
        accepted = sum(min(s * t, v) for t, v in zip(target, law, strict=True))
        assert accepted == min(s * mass(target, h) + 1 - inside[h] for h in sets)


def best_winner(inside: Law, target: Law) -> Law:
    """Return the distribution of Theorem 23.1, by its chain of sets from the largest down."""
    n = len(target)
    excluded = sum(1 << i for i in range(n) if not target[i])
    law, here = [F(0)] * n, 2**n - 1
    while here != excluded:
        below = [h for h in range(here) if not h & ~here and h & excluded == excluded]
        slopes = {h: (inside[here] - inside[h]) / mass(target, here & ~h) for h in below}
        least = min(slopes.values())
        # All sets of the least slope minimise, and so does their intersection.
        end = here
        for h in below:
            end &= h if slopes[h] == least else here
        for i in range(n):
            if (here & ~end) >> i & 1:
                law[i] = least * target[i]
        here = end
    for i in range(n):
        if excluded >> i & 1:
            earlier = excluded & ((1 << i) - 1)
            law[i] = inside[earlier | 1 << i] - inside[earlier]
    return law


def certain_and_drawn(certain: Sequence[int], draft: Law, draws: int) -> Law | None:
    """`inside` for certain tokens and independent draws from the others; None without others."""
    n, of_certain = len(draft), sum(1 << i for i in certain)
    others = 1 - mass(draft, of_certain)
    if draws and not others:
        return None
    return [
        F(0) if of_certain & ~h
        else F(1) if not draws
        else ((mass(draft, h) - mass(draft, of_certain)) / others) ** draws
        for h in range(2**n)
    ]  # fmt: skip


def without_replacement(draft: Law, k: int) -> Law:
    """`inside` for k draws without replacement, from all their orders."""
    n = len(draft)
    inside = [F(0)] * 2**n
    for drafts in itertools.permutations([i for i in range(n) if draft[i]], k):
        probability, left = F(1), F(1)
        for x in drafts:
            probability *= draft[x] / left
            left -= draft[x]
        drawn = sum(1 << x for x in drafts)
        for h in range(2**n):
            inside[h] += probability * (not drawn & ~h)
    return inside


def _segments(points: list[tuple[Fraction, Fraction]]) -> list[tuple[int, int, Fraction]]:
    """First and last point, and slope, of each segment of the upper concave hull."""
    found, first = [], 0
    while first < len(points) - 1:
        slopes = [
            ((y - points[first][1]) / (x - points[first][0]) if x > points[first][0] else F(-1), i)
            for i, (x, y) in enumerate(points) if i > first
        ]  # fmt: skip
        slope, last = max(slopes)
        found.append((first, last, slope))
        first = last
    return found


def _order(draft: Law, target: Law, certain: Sequence[int] = ()) -> list[int]:
    """Drafted tokens that are not certain, in the order of target/draft."""
    drafted = [i for i, d in enumerate(draft) if d and i not in certain]
    return sorted(drafted, key=lambda i: target[i] / draft[i])


def hull_of_prefixes(inside: Law, draft: Law, target: Law) -> Law:
    """Return the distribution with the slopes of the hull of (Σ target, inside) over prefixes."""
    order, law = _order(draft, target), [F(0)] * len(draft)
    points = [(F(0), inside[0])]
    prefix, empty = 0, 0
    for i in order:
        before, prefix = inside[prefix], prefix | 1 << i
        if not target[i]:
            law[i], empty = inside[prefix] - before, empty + 1
            points = [(F(0), inside[prefix])]
        else:
            points.append((points[-1][0] + target[i], inside[prefix]))
    for first, last, slope in _segments(points):
        for i in order[empty + first : empty + last]:
            law[i] = slope * target[i]
    return law


def slots_and_swaps(certain: Sequence[int], draft: Law, target: Law, m: int) -> Law:
    """Return the distribution that the construction of Theorem 23.4 gives the winner."""
    order = _order(draft, target, certain)
    whole, of_certain = sum(draft[i] for i in order), sum(target[i] for i in certain)
    p = [draft[i] / whole for i in order]
    edges = list(itertools.accumulate(p, initial=F(0)))
    wins = [high**m - low**m for low, high in itertools.pairwise(edges)]
    points = [(F(0), F(0))]
    points += [
        (of_certain + sum(target[i] for i in order[: j + 1]), edges[j + 1] ** m)
        for j in range(len(order))
    ]
    best, given, swaps = [F(0)] * len(order), [F(0)] * len(order), []
    for first, last, slope in _segments(points):
        slots = range(first, last)
        lacking = {j: slope * target[order[j]] - wins[j] for j in slots}
        best[first:last] = [slope * target[order[j]] for j in slots]
        # The certain drafts come first in the north-west corner rule.
        poor = [(None, slope * of_certain)] if first == 0 else []
        poor += [(j, lacking[j]) for j in slots if lacking[j] > 0]
        rich = [[j, -lacking[j]] for j in slots if lacking[j] < 0]
        for low, amount in poor:
            wanted = amount
            while wanted > 0:
                high, left = rich[0]
                part = min(wanted, left)
                if low is None:
                    given[high] += part
                else:
                    assert low < high
                    swaps.append((low, high, part))
                wanted, rich[0][1] = wanted - part, left - part
                if not rich[0][1]:
                    rich.pop(0)
        assert not rich
    ratio = [(w - g) / q for w, g, q in zip(wins, given, p, strict=True)]
    moved, realised = [F(0)] * len(order), [r * q for r, q in zip(ratio, p, strict=True)]
    for low, high, part in swaps:
        swapped = part / (ratio[high] - ratio[low])
        for j in (low, high):
            moved[j] += swapped
            # A draft moves with a probability of at most one.
            assert swapped >= 0
            assert moved[j] <= p[j]
        realised[low] += part
        realised[high] -= part
    law = [F(0)] * len(draft)
    for j, i in enumerate(order):
        law[i] = realised[j]
    for i in certain:
        law[i] = sum(given) * target[i] / of_certain
    return law
