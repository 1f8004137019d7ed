"""Walk and keep in plain fractions, without arrays, bins, quadrature or the package's code.

A distribution is a dictionary from tokens to fractions; a polynomial is a list, constant first.
The draft distribution after a path may sum to less than one: the path ends with the missing mass.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from itertools import pairwise
from math import comb

F = Fraction
Law = Mapping[int, Fraction]
Polynomial = list[Fraction]


def generating(numbers: Sequence[Fraction], x: Fraction) -> Fraction:
    """Mean of x^M, where M is m with `numbers[m]`."""
    return sum((number * x**m for m, number in enumerate(numbers)), F(0))


@dataclass
class Slots:
    """Slots of tokens in the order of the ratio, and how drafts take them."""

    order: list[int]
    edges: list[Fraction]
    moves: list[list[tuple[int, Fraction]]]  # of each token: partner and probability, in order
    numbers: Sequence[Fraction]

    def slot(self, token: int, uniform: Fraction) -> int:
        """Take the slots of partners first, then one's own."""
        place = self.order.index(token)
        end = F(0)
        for partner, probability in self.moves[place]:
            end += probability
            if uniform < end:
                return partner
        return place

    def law(self, token: int) -> dict[int, Fraction]:
        """Slots of a token with their probabilities."""
        place = self.order.index(token)
        law = dict.fromkeys(range(len(self.order)), F(0))
        for partner, probability in self.moves[place]:
            law[partner] += probability
        law[place] += 1 - sum(law.values())
        return law

    def joint(self, token: int, draft: Law) -> list[Fraction]:
        """Probability that a token wins and that c of the drafts are it, for each c.

        The integral of Σ_m Pr(m) C(m, c) R^(m − c) d(Z^c), multiplied out.
        """
        law, most = self.law(token), len(self.numbers) - 1
        joint = [F(0)] * (most + 1)
        before = F(0)
        for i, probability in law.items():
            own, width = draft[token] * probability, self.edges[i + 1] - self.edges[i]
            of_token = [before, own]
            others = [self.edges[i] - before, width - own]
            for m in range(1, most + 1):
                for c in range(1, m + 1):
                    density = times(power(others, m - c), power(of_token, c - 1))
                    joint[c] += (
                        self.numbers[m] * comb(m, c) * c * own
                        * sum((a / (j + 1) for j, a in enumerate(density)), F(0))
                    )  # fmt: skip
            before += own
        return joint


def times(a: Polynomial, b: Polynomial) -> Polynomial:
    """Multiply two polynomials."""
    product = [F(0)] * (len(a) + len(b) - 1)
    for i, x in enumerate(a):
        for j, y in enumerate(b):
            product[i + j] += x * y
    return product


def power(a: Polynomial, n: int) -> Polynomial:
    """Multiply a polynomial with itself."""
    product = [F(1)]
    for _ in range(n):
        product = times(product, a)
    return product


def hull_slots(draft: Law, target: Law, numbers: Sequence[Fraction]) -> Slots:
    """Let drafts win by the slopes of the upper concave hull, by moves between slots."""
    order = sorted((x for x in draft if draft[x]), key=lambda x: target.get(x, F(0)) / draft[x])
    edges, points = [F(0)], [(F(0), generating(numbers, F(0)))]
    for x in order:
        edges.append(edges[-1] + draft[x])
        points.append((points[-1][0] + target.get(x, F(0)), generating(numbers, edges[-1])))
    won = [high - low for (_, low), (_, high) in pairwise(points)]
    wanted = list(won)
    for i in range(len(order)):
        of_target = points[i + 1][0] - points[i][0]
        if of_target:
            # the slope of the hull at a place: the steepest chord over it that no other one tops
            slope = min(
                max((points[b][1] - points[a][1]) / (points[b][0] - points[a][0])
                    for b in range(i + 1, len(points)) if points[b][0] > points[a][0])
                for a in range(i + 1)
            )  # fmt: skip
            wanted[i] = slope * of_target
    return Slots(order, edges, swaps(won, wanted, edges), numbers)


def swaps(
    won: list[Fraction], wanted: list[Fraction], edges: list[Fraction]
) -> list[list[tuple[int, Fraction]]]:
    """Match what lacks with what is too much, in order, and swap slots for it."""
    mass = [high - low for low, high in pairwise(edges)]
    moves: list[list[tuple[int, Fraction]]] = [[] for _ in won]
    lacking = [(i, b - a) for i, (a, b) in enumerate(zip(won, wanted, strict=True)) if b > a]
    rich = [(i, a - b) for i, (a, b) in enumerate(zip(won, wanted, strict=True)) if b < a]
    while lacking and rich:
        (low, missing), (high, spare) = lacking[0], rich[0]
        amount = min(missing, spare)
        moved = amount / (won[high] / mass[high] - won[low] / mass[low])
        moves[low].append((high, moved / mass[low]))
        moves[high].append((low, moved / mass[high]))
        lacking = [(low, missing - amount), *lacking[1:]] if missing > amount else lacking[1:]
        rich = [(high, spare - amount), *rich[1:]] if spare > amount else rich[1:]
    return moves


@dataclass
class Node:
    """A node of a tree of drafts: how its children were drawn, and which they are."""

    path: tuple[int, ...] = ()
    draft: Law = field(default_factory=dict)
    children: list[Node] = field(default_factory=list)


Keep = Callable[[Fraction, Fraction, Fraction, bool], Fraction]


def keep(accepted: Fraction, passed: Fraction, below: Fraction, ended: bool) -> Fraction:
    """Probability of keeping a node if nothing below it was kept."""
    del ended  # a path that ended here may have been one that goes on
    return (accepted - below) / (passed - below) if passed > below else F(0)


def verify(
    root: Node,
    target: Callable[[tuple[int, ...]], Law],
    uniforms: Callable[[int], Sequence[Fraction]],
    keep: Keep = keep,
) -> tuple[int, ...]:
    """Walk to the end of a path, and keep from there upwards: the output."""
    nodes, accepted, passed, counts = [root], F(1), F(1), [F(0), F(1)]
    walk = []
    while True:
        path, drafts = nodes[0].path, [child for node in nodes for child in node.children]
        left, below = {z: accepted * x for z, x in target(path).items()}, {}
        draft = nodes[0].draft
        if draft and accepted:
            children = max(len(node.children) for node in nodes) or 1
            slots = hull_slots(normalised(draft), target(path), going_on(counts, draft, children))
            joints = {z: slots.joint(z, normalised(draft)) for z in draft if draft[z] > 0}
            below = {z: min(left.get(z, F(0)), passed * sum(joints[z])) for z in joints}
            left = {z: left[z] - below.get(z, F(0)) for z in left}
        walk.append((path, accepted, passed, left, sum(below.values(), F(0)), not drafts))
        if not drafts or not accepted:
            break
        taken = [child.path[-1] for child in drafts]
        token = taken[0]
        if len(set(taken)) > 1:
            at = uniforms(len(taken))
            places = [slots.slot(z, u) for z, u in zip(taken, at, strict=True)]
            token = taken[places.index(max(places))]
        nodes = [child for child in drafts if child.path[-1] == token]
        counts = [x / sum(joints[token]) for x in joints[token]]
        passed, accepted = passed * sum(joints[token]), below[token]
    for path, accepted, passed, left, below_it, ended in reversed(walk):
        if not path or uniforms(1)[0] < keep(accepted, passed, below_it, ended):
            law = normalised(left if any(left.values()) else target(path))  # none if broken
            (point,), end = uniforms(1), F(0)
            for z in sorted(law):
                end += law[z]
                if point < end:
                    return (*path, z)
    raise AssertionError("the root is always kept")


def normalised(law: Law) -> Law:
    """Divide by the sum."""
    total = sum(law.values())
    return {z: x / total for z, x in law.items()}


def going_on(counts: Sequence[Fraction], draft: Law, children: int) -> list[Fraction]:
    """Return the distribution of the number of drafts, `children` for each node that goes on."""
    chance = sum(draft.values(), F(0))
    numbers = [F(0)] * ((len(counts) - 1) * children + 1)
    for c, count in enumerate(counts):
        for m in range(c + 1):
            numbers[m * children] += count * comb(c, m) * chance**m * (1 - chance) ** (c - m)
    return numbers
