"""Check a certificate of the optimum of block verification with the standard library only.

This command checks a file that `BlockCertificate.save` wrote, and needs no installed package::

    python -I -S otm/block_optimum/certificate.py FILE

`otm/certificate.py` reads the numbers and limits the work of the check.

The nodes form a tree of paths.  D(z|y) and T(z|y) are the draft and target probabilities of the
token z after the path y.  g(U) is the probability that the drafts pass through a node of U.  For k
i.i.d. paths g(U) is 1 − (1 − D(U))^k if U is an antichain (no node of U is above another).  For a
table of draft trees g(U) is a sum over the trees.  The optimum is the largest expected number of
drafts that a memoryless lossless rule accepts.  This optimum is the maximum of Σ S(y) over

    S ≥ 0,  S(root) = 1,  S(yz) ≤ S(y) T(z|y),  Σ_{y∈U} S(y) ≤ g(U) for every antichain U.

- ``lower`` is proved by an S that satisfies all constraints.  For i.i.d. paths, g is concave in
  D(U), so it is enough to check the corners of the upper hull of the points (D(U), S(U)).  A
  recursion over the tree finds these corners.  For a table, the certificate contains a flow from
  draft trees to nodes that proves the constraints.
- ``upper`` is proved by multipliers μ ≥ 0 of antichains.  The bound is Σ μ_U g(U) +
  Σ_z ν_z T(z|root) with ν_y = max(0, 1 − Σ_{U∋y} μ_U + Σ_z ν_yz T(z|y)).
- A remainder node replaces the tokens omitted after a path.  A remainder node has S = 0 in
  ``lower``; in the sum of ``upper`` its weight is the number of levels that it replaces, not 1.

Floats are read as exact binary fractions, and all arithmetic is in integers.  Powers are first
computed in fixed point, and rounded in the direction that makes the claim harder to prove.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from functools import cmp_to_key
from itertools import pairwise
from pathlib import Path
from types import ModuleType
from typing import Any

if __name__ == "__main__":
    # An empty package replaces otm/__init__.py, which would need NumPy.
    package = ModuleType("otm")
    package.__path__ = [str(Path(__file__).resolve().parents[1])]
    sys.modules.setdefault("otm", package)

from otm.certificate import (
    GUARD_BITS,
    Ratio,
    Work,
    as_float,
    as_list,
    at_least_once,
    at_most,
    check_ends,
    check_hit,
    main,
    open_document,
    ratio,
    require,
)

SCHEMA = "otm-block-certificate-1"
FIELDS = {
    "schema", "sha256", "k", "nodes", "trees", "accepted", "multipliers", "flow", "lower", "upper",
    "gap", "interval", "status", "method", "versions",
}  # fmt: skip

# Larger integers can have equal hashes.
LARGEST_TOKEN = 1 << 60
LARGEST_K = (1 << 63) - 1
# Work of a step without long integers.
STEP = 70


def check(document: dict[str, Any]) -> None:
    """Check a certificate; raise unless it proves both bounds."""
    work = open_document(document, SCHEMA, FIELDS)
    require(isinstance(document["method"], str), "the method is not a string")
    lower, upper = check_ends(document, work)
    tree = CheckedTree(document, work)
    require(at_most(lower, tree.lower(), work), "S accepts less than lower")
    # Only exact powers can prove an upper bound that equals the lower bound.
    exactness = (False, True) if document["status"] == "bounded" else (True,)
    proved = any(at_most(tree.upper(exact=exact), upper, work) for exact in exactness)
    require(proved, "the multipliers do not prove upper")


class CheckedTree:
    """The tree of a certificate, and the two bounds that the certificate proves."""

    def __init__(self, document: dict[str, Any], work: Work) -> None:
        self.document, self.work = document, work
        nodes = [as_list(node, "node", 5) for node in as_list(document["nodes"], "nodes")]
        work.spend(20 * STEP * (len(nodes) + 1))
        self.parents, self.levels, self.depths = [-1], [0], [0]
        drafts, targets = [(1, 1)], [(1, 1)]
        table = document["trees"] is not None
        for y, (parent, token, draft, target, levels) in enumerate(nodes, 1):
            require(
                type(parent) is int and 0 <= parent < y,
                "the parent of a node is not an earlier node",
            )
            require(type(token) is int and abs(token) < LARGEST_TOKEN, "a token is not a token id")
            require(type(levels) is int and levels >= 0, "levels are not a nonnegative integer")
            require(not self.levels[parent], "a remainder node has a child")
            self.parents.append(parent)
            self.levels.append(levels)
            self.depths.append(self.depths[parent] + 1)
            targets.append(number(target, "target"))
            require(
                not table or draft is None,
                "a node has a draft probability in addition to the table of draft trees",
            )
            drafts.append((0, 1) if table else number(draft, "draft"))
        labels = sorted((parent, token) for parent, token, *_ in nodes)
        different = all(one != other for one, other in pairwise(labels))
        require(different, "a path occurs twice")
        self.targets, self.units = self._read_rows(targets, "target")
        drafts_of_rows, units = self._read_rows(drafts, "draft")
        self.chances: list[int] = []
        if table:
            require(not any(self.levels), "a table of draft trees allows no remainder nodes")
            require(document["k"] is None, "k must be null for a table of draft trees")
            self._read_trees()
        else:
            require(document["flow"] is None, "the flow must be null for i.i.d. paths")
            self.k = document["k"]
            require(type(self.k) is int and 1 <= self.k <= LARGEST_K, "k is not a number of paths")
            self.reach = self._products(drafts_of_rows, units)

    def _read_rows(self, probs: list[Ratio], name: str) -> tuple[list[int], list[int]]:
        """Return probabilities as integers over one common denominator for each parent.

        The probabilities after a path must sum to at most 1.
        """
        rows: dict[int, list[int]] = {}
        for y in range(1, len(probs)):
            require(probs[y][0] >= 0, f"a {name} probability is negative")
            rows.setdefault(self.parents[y], []).append(y)
        weights, units = [1] * len(probs), [1] * len(probs)
        for parent, row in rows.items():
            whole, units[parent] = over_one_unit([probs[y] for y in row], self.work)
            require(sum(whole) <= units[parent],
                    f"the {name} probabilities after a path sum to more than 1")  # fmt: skip
            for y, weight in zip(row, whole, strict=True):
                weights[y] = weight
        return weights, units

    def _products(self, weights: list[int], units: list[int]) -> list[Ratio]:
        """Return D(y) of each node as a ratio that is not reduced."""
        reach = [(1, 1)]
        for y in range(1, len(weights)):
            above, unit = reach[self.parents[y]], units[self.parents[y]]
            bits = unit.bit_length()
            self.work.multiply(above[1].bit_length(), bits, times=2)
            self.work.keep(2 * (above[1].bit_length() + bits))
            reach.append((above[0] * weights[y], above[1] * unit))
        return reach

    def _read_trees(self) -> None:
        """Read the nodes of the draft trees, and their probabilities over one denominator."""
        self.members: list[set[int]] = []
        chances = []
        for entry in as_list(self.document["trees"], "trees"):
            nodes, chance = as_list(entry, "draft tree", 2)
            members = self._nodes(nodes, "draft tree")
            require(not any(self.levels[y] for y in members), "a draft tree has a remainder node")
            for y in members:
                above = self.parents[y]
                require(not above or above in members, "a draft tree lacks the parent of a node")
            self.members.append(members)
            chances.append(number(chance, "draft tree"))
        self.chances, self.unit = over_one_unit(chances, self.work)
        require(bool(chances) and min(self.chances) >= 0 and sum(self.chances) <= self.unit,
                "the probabilities of draft trees are not a distribution")  # fmt: skip

    def _nodes(self, value: Any, name: str) -> set[int]:
        nodes = as_list(value, name)
        self.work.spend(4 * STEP * len(nodes))
        inside = all(type(y) is int and 1 <= y < len(self.parents) for y in nodes)
        chosen = set(nodes) if inside else set[int]()
        require(inside and len(chosen) == len(nodes), f"{name}: not a set of nodes")
        return chosen

    def upper(self, *, exact: bool) -> Ratio:
        """Return the upper bound of the multipliers, with powers exact or rounded up."""
        antichains, multipliers = [], []
        for pair in as_list(self.document["multipliers"], "multipliers"):
            nodes, multiplier = as_list(pair, "multiplier", 2)
            antichains.append(self._nodes(nodes, "antichain"))
            multipliers.append(number(multiplier, "multiplier"))
            require(multipliers[-1][0] >= 0, "a multiplier is negative")
            self._check_antichain(antichains[-1])
        prices, unit = over_one_unit(multipliers, self.work)
        hits, of_hits = self._hits(antichains, exact=exact)
        longest = max([unit, *prices]).bit_length()
        self.work.multiply(longest, of_hits.bit_length(), times=len(prices) + 2)
        bound = sum(price * hit for price, hit in zip(prices, hits, strict=True))
        left, of_left = self._remaining_worth(antichains, prices, unit)
        self.work.multiply(bound.bit_length() + of_hits.bit_length(), of_left.bit_length(), times=3)
        return bound * of_left + left * of_hits, unit * of_hits * of_left

    def _check_antichain(self, nodes: set[int]) -> None:
        for y in nodes:
            above = self.parents[y]
            self.work.spend(STEP * self.depths[y])
            while above > 0:
                require(above not in nodes, "a node of an antichain is above another")
                above = self.parents[above]

    def _remaining_worth(self, antichains: list[set[int]], prices: list[int], unit: int) -> Ratio:
        """Return the numerator and denominator of `unit` times Σ_z ν_z T(z|root)."""
        work = self.work
        long = max([unit, *prices]).bit_length() + max(self.levels).bit_length()
        work.keep(long, times=len(self.levels) + sum(map(len, antichains)))
        own = [(levels or 1) * unit for levels in self.levels]
        own[0] = 0
        for antichain, price in zip(antichains, prices, strict=True):
            for y in antichain:
                own[y] -= price
        # Σ_z ν_yz T(z|y), not yet divided by the unit of the row.
        below = [(0, 1)] * len(own)
        for y in range(len(own) - 1, -1, -1):
            value, scale = below[y]
            below[y] = (0, 1)
            bits = scale.bit_length() + self.units[y].bit_length()
            work.multiply(own[y].bit_length() + value.bit_length(), bits, times=2)
            scale *= self.units[y]
            value += own[y] * scale
            if y == 0:
                return value, scale
            if value > 0:
                parent, weight = self.parents[y], self.targets[y]
                work.multiply(value.bit_length(), weight.bit_length())
                work.keep(value.bit_length() + weight.bit_length())
                below[parent] = plus(below[parent], (value * weight, scale), work)
        # The loop returns at the root.
        raise AssertionError

    def _hits(self, antichains: list[set[int]], *, exact: bool) -> tuple[list[int], int]:
        """Return g(U) of antichains as integers, and their common denominator."""
        work = self.work
        if self.chances:
            members = sum(map(len, self.members))
            work.spend(STEP * len(antichains) * (len(self.members) + members))
            work.multiply(self.unit.bit_length(), 1, times=len(antichains) * len(self.members))
            trees = list(zip(self.chances, self.members, strict=True))
            hits = [sum(c for c, tree in trees if tree & chosen) for chosen in antichains]
            return hits, self.unit
        reach, total = self._reach_of(sorted(set().union(*antichains)))
        work.multiply(total.bit_length(), 1, times=sum(map(len, antichains)))
        sums = [sum(reach[y] for y in antichain) for antichain in antichains]
        if exact:
            power = work.power(total, self.k)
            work.keep(power.bit_length(), times=len(sums))
            return [power - work.power(total - part, self.k) for part in sums], power
        bits = GUARD_BITS + total.bit_length() - max([0, *sums]).bit_length()
        hits = [at_least_once(part, total, self.k, bits, up=True, work=work) for part in sums]
        return hits, 1 << bits

    def _reach_of(self, nodes: Sequence[int]) -> tuple[dict[int, int], int]:
        """Return D(y) of nodes as integers, and their least common denominator."""
        whole, unit = over_one_unit([self.reach[y] for y in nodes], self.work)
        shared = unit
        for value in whole:
            self.work.divide(shared.bit_length(), value.bit_length())
            shared = math.gcd(shared, value)
        self.work.divide(unit.bit_length(), shared.bit_length(), times=len(whole) + 1)
        return {y: value // shared for y, value in zip(nodes, whole, strict=True)}, unit // shared

    def lower(self) -> Ratio:
        """Check that S satisfies the constraints, and return Σ S(y)."""
        entries = as_list(self.document["accepted"], "accepted", len(self.parents) - 1)
        accept_probs, unit = over_one_unit(
            [(1, 1), *(number(x, "accepted") for x in entries)], self.work
        )
        for y in range(1, len(accept_probs)):
            parent, value = self.parents[y], accept_probs[y]
            longest = max(unit, value).bit_length()
            self.work.multiply(longest, self.units[parent].bit_length(), times=2)
            allowed = accept_probs[parent] * self.targets[y]
            possible = 0 <= value and value * self.units[parent] <= allowed
            require(possible, "S is not between 0 and S(y) T(z|y)")
            require(not (self.levels[y] and value), "S accepts a remainder node")
        if self.chances:
            self._check_flow(accept_probs, unit)
        else:
            self._check_hull(accept_probs, unit)
        return sum(accept_probs[1:]), unit

    def _check_flow(self, accept_probs: list[int], unit: int) -> None:
        """Check that the flow ends at each node with the probability S(y) − Σ_z S(yz)."""
        ending = list(accept_probs)
        for y in range(1, len(accept_probs)):
            ending[self.parents[y]] -= accept_probs[y]
        places, masses = [], []
        for entry in as_list(self.document["flow"], "flow"):
            tree, y, mass = as_list(entry, "flow", 3)
            is_tree = type(tree) is int and 0 <= tree < len(self.members)
            require(is_tree, "the flow does not start at a draft tree")
            is_member = type(y) is int and y in self.members[tree]
            require(is_member, "the flow ends at a node that is not in its draft tree")
            places.append((tree, y))
            masses.append(number(mass, "flow"))
            require(masses[-1][0] >= 0, "the flow is negative")
        shares, of_shares = over_one_unit(masses, self.work)
        sent, used = [0] * len(accept_probs), [0] * len(self.members)
        for (tree, y), share in zip(places, shares, strict=True):
            sent[y] += share
            used[tree] += share
        longest = max(unit, self.unit).bit_length()
        of_flow = max([of_shares, *used]).bit_length()
        self.work.multiply(of_flow, longest, times=2 * (len(sent) + len(used)))
        possible = all(x * self.unit <= chance * of_shares
                       for x, chance in zip(used, self.chances, strict=True))  # fmt: skip
        require(possible, "the flow from a draft tree exceeds the probability of the tree")
        equal = all(
            x * unit == end * of_shares for x, end in zip(sent[1:], ending[1:], strict=True)
        )
        require(equal, "the flow to a node is not S(y) minus the sum of its S(yz)")

    def _check_hull(self, accept_probs: list[int], unit: int) -> None:
        """Check that all corners of the upper hull of the points (D(U), S(U)) are below g."""
        # Nodes with S(y) = 0 do not change S(U).
        accepting = [y for y in range(1, len(accept_probs)) if accept_probs[y]]
        reach, total = self._reach_of(accepting)
        # Measure the work of one comparison.
        once = Work(0)
        before = once.left
        once.multiply(total.bit_length(), unit.bit_length(), times=2)
        each = before - once.left

        def steeper(one: Ratio, other: Ratio) -> int:
            self.work.spend(each)
            return other[1] * one[0] - one[1] * other[0]

        below: list[list[Ratio]] = [[] for _ in accept_probs]
        for y in reversed(accepting):
            # An antichain at or below y is either {y} or a union of antichains below its children.
            segments = sorted(below[y], key=cmp_to_key(steeper))
            self.work.multiply(total.bit_length() + unit.bit_length(), 1, times=2 * len(segments))
            below[y] = []
            width = reach[y] - sum(d for d, _ in segments)
            # Neither is negative, because the probabilities after a path sum to at most 1.
            height = accept_probs[y] - sum(s for _, s in segments)
            while segments and segments[-1][1] * width <= height * segments[-1][0]:
                self.work.spend(each)
                width += segments[-1][0]
                height += segments[-1][1]
                segments.pop()
            require(width > 0 or height == 0, "S accepts a path with draft probability zero")
            if width:
                segments.append((width, height))
            below[self.parents[y]] += segments
        corners = sorted(below[0], key=cmp_to_key(steeper))
        across = mass = 0
        excess = "S accepts more on an antichain than the probability that drafts hit it"
        for width, height in corners:
            across += width
            mass += height
            check_hit((mass, unit), (across, total), self.k, excess, work=self.work)


def over_one_unit(ratios: Sequence[Ratio], work: Work) -> tuple[list[int], int]:
    """Return ratios as integers over a common denominator; it is the least for reduced ratios."""
    unit = 1
    for _, denominator in ratios:
        if unit != denominator:
            work.divide(unit.bit_length(), denominator.bit_length(), times=2)
            unit = math.lcm(unit, denominator)
    bits, whole = unit.bit_length(), []
    for numerator, denominator in ratios:
        work.divide(bits, max(numerator.bit_length(), denominator.bit_length()))
        work.keep(bits + numerator.bit_length() - denominator.bit_length())
        whole.append(numerator * (unit // denominator))
    return whole, unit


def plus(one: Ratio, other: Ratio, work: Work) -> Ratio:
    """Add two ratios."""
    if one[1] == other[1]:
        return one[0] + other[0], one[1]
    (a, b), unit = over_one_unit([one, other], work)
    return a + b, unit


def number(value: Any, name: str) -> Ratio:
    """Read an integer, a ratio "a/b" in decimal or hexadecimal, or a hexadecimal float."""
    if type(value) is int:
        return value, 1
    if isinstance(value, str) and "/" in value:
        return ratio(value)
    return as_float(value, name).as_integer_ratio()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:], check, "accepted drafts"))
