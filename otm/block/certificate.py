"""Check a certificate of block verification's optimum; the standard library alone.

Run it on a file that `BlockCertificate.save` wrote, with no package installed::

    python -I -S otm/block/certificate.py FILE

The nodes are those of a tree of paths; D(z|y) and T(z|y) are the probabilities of a draft path and
of the target.  g(U) is the probability that drafts pass through a node of U: 1 − (1 − D(U))^k for k
i.i.d. paths and an antichain U (no node of U is above another), or a sum over drafted trees given
as a table.  The most drafts that a lossless rule accepts on average is the maximum of Σ S(y) over

    S ≥ 0,  S(root) = 1,  S(yz) ≤ S(y) T(z|y),  Σ_{y∈U} S(y) ≤ g(U) for every antichain U.

- ``lower``: S satisfies all of this.  For i.i.d. paths it is enough to look at the corners of the
  upper hull of the points (D(U), S(U)), since g is concave in D(U); a recursion over the tree finds
  them.  For a table a flow from drafted trees to nodes shows it.
- ``upper``: Σ μ_U g(U) + Σ_z ν_z T(z|root) with ν_y = max(0, 1 − Σ_{U∋y} μ_U + Σ_z ν_yz T(z|y)),
  for any μ ≥ 0 on antichains.
- A rest stands for tokens left out after a path.  In ``lower`` it has S = 0, in ``upper`` it is
  worth all the levels that it stands for, in place of 1.

Floats are read as the binary fractions that they are; everything is computed in fractions.
"""

from __future__ import annotations

import json
import math
import sys
from fractions import Fraction
from functools import cmp_to_key
from hashlib import sha256
from pathlib import Path
from typing import Any

SCHEMA = "otm-block-certificate-1"
FIELDS = {
    "schema", "sha256", "k", "nodes", "trees", "accepted", "multipliers", "flow", "lower", "upper",
    "gap", "interval", "status", "method", "versions",
}  # fmt: skip
LARGEST_BITS = 1 << 27
"""Most bits of all the powers that a check takes; beyond, a file is refused."""


class CertificateRefusedError(Exception):
    """The certificate does not prove what it claims."""


def check(document: dict[str, Any]) -> None:
    """Check a certificate; nothing is returned if it proves all that it claims."""
    _require(set(document) == FIELDS, f"not the fields of {SCHEMA}")
    _require(document["schema"] == SCHEMA, f"the schema is not {SCHEMA}")
    _require(document["sha256"] == digest(document), "the digest of the document is wrong")
    _require(isinstance(document["method"], str), "the method is not a string")
    versions = document["versions"]
    _require(isinstance(versions, dict) and all(isinstance(v, str) for v in versions.values()),
             "the versions are not strings")  # fmt: skip
    lower, upper, gap = (number(document[name], name) for name in ("lower", "upper", "gap"))
    _require(gap == upper - lower >= 0, "the gap is not upper − lower ≥ 0")
    low, high = (number(x, "interval") for x in _list(document["interval"], "interval", 2))
    _require(low <= lower and upper <= high, "the interval is too narrow")
    status = "bounded" if gap else "exact"
    _require(document["status"] == status, f"the status should be '{status}'")
    tree = Tree(document)
    _require(lower <= tree.lower(), "S accepts less than lower")
    _require(tree.upper() <= upper, "the multipliers prove no more than a larger upper")


class Tree:
    """The nodes of a certificate, and what it proves about them."""

    def __init__(self, document: dict[str, Any]) -> None:
        self.document = document
        nodes = [_list(node, "node", 5) for node in _list(document["nodes"], "nodes")]
        self.parents = [-1]
        self.levels = [0]
        self.targets = [Fraction(1)]
        self.drafts = [Fraction(1)]
        self.trees: list[tuple[list[int], Fraction]] | None = None
        self.k = 1
        table = document["trees"] is not None
        labels = set()
        for y, (parent, token, draft, target, levels) in enumerate(nodes, 1):
            _require(type(parent) is int and 0 <= parent < y, "a parent is no node before its own")
            _require(type(token) is int and (parent, token) not in labels, "a path stands twice")
            _require(type(levels) is int and levels >= 0, "levels are no integer")
            _require(not self.levels[parent], "there is a node below tokens that were left out")
            labels.add((parent, token))
            self.parents.append(parent)
            self.levels.append(levels)
            self.targets.append(number(target, "target"))
            self.drafts.append(Fraction(0) if table else number(draft, "draft"))
        for name, probs in (("draft", self.drafts), ("target", self.targets)):
            total = [Fraction(0)] * len(probs)
            for y in range(1, len(probs)):
                _require(probs[y] >= 0, f"a {name} probability is negative")
                total[self.parents[y]] += probs[y]
            _require(max(total) <= 1, f"the {name} probabilities after a path sum to more than 1")
        if table:
            _require(not any(self.levels), "drafts in a table leave no tokens out")
            self._read_trees()
        else:
            k = document["k"]
            _require(type(k) is int and k >= 1, "k is not an integer of at least one")
            self.k = k
            self._read_reach()

    def _read_reach(self) -> None:
        """D(y) as integers over one unit."""
        reach = [Fraction(1)]
        for y in range(1, len(self.parents)):
            reach.append(reach[self.parents[y]] * self.drafts[y])
        self.unit = 1
        for value in reach:
            self.unit = math.lcm(self.unit, value.denominator)
            _require(self.unit.bit_length() * self.k < LARGEST_BITS, "its numbers are too long")
        self.reach = [value.numerator * (self.unit // value.denominator) for value in reach]

    def _read_trees(self) -> None:
        self.trees = []
        for given in _list(self.document["trees"], "trees"):
            nodes, chance = _list(given, "drafted tree", 2)
            members = self._nodes(nodes, "drafted tree")
            _require(not any(self.levels[y] for y in members), "a drafted tree has a rest")
            whole = set(members)
            for y in members:
                above = self.parents[y]
                _require(not above or above in whole, "a drafted tree lacks a node above another")
            self.trees.append((members, number(chance, "drafted tree")))
        chances = [chance for _, chance in self.trees]
        _require(bool(chances) and min(chances) >= 0 and sum(chances) <= 1,
                 "the chances of drafted trees are no distribution")  # fmt: skip

    def _nodes(self, given: Any, name: str) -> list[int]:
        nodes = _list(given, name)
        inside = all(type(y) is int and 1 <= y < len(self.parents) for y in nodes)
        _require(inside and len(set(nodes)) == len(nodes), f"{name}: no set of nodes")
        return nodes

    def hit(self, nodes: list[int]) -> Fraction:
        """g(U) of an antichain."""
        if self.trees is not None:
            chosen = set(nodes)
            chances = (chance for tree, chance in self.trees if chosen.intersection(tree))
            return sum(chances, Fraction(0))
        return 1 - (1 - Fraction(sum(self.reach[y] for y in nodes), self.unit)) ** self.k

    def upper(self) -> Fraction:
        """Return what the multipliers prove."""
        left = [Fraction(levels or 1) for levels in self.levels]
        left[0] = bound = Fraction(0)
        for given in _list(self.document["multipliers"], "multipliers"):
            nodes, multiplier = _list(given, "multiplier", 2)
            antichain, price = self._nodes(nodes, "antichain"), number(multiplier, "multiplier")
            _require(price >= 0, "a multiplier is negative")
            self._check_antichain(antichain)
            bound += price * self.hit(antichain)
            for y in antichain:
                left[y] -= price
        for y in range(len(left) - 1, 0, -1):
            if left[y] > 0:
                left[self.parents[y]] += left[y] * self.targets[y]
        return bound + left[0]

    def _check_antichain(self, nodes: list[int]) -> None:
        chosen = set(nodes)
        for y in nodes:
            above = self.parents[y]
            while above > 0:
                _require(above not in chosen, "a node of an antichain is above another")
                above = self.parents[above]

    def lower(self) -> Fraction:
        """Σ S(y), after checking that S satisfies the constraints."""
        given = _list(self.document["accepted"], "accepted", len(self.parents) - 1)
        passed = [Fraction(1), *(number(x, "accepted") for x in given)]
        for y in range(1, len(passed)):
            allowed = passed[self.parents[y]] * self.targets[y]
            _require(0 <= passed[y] <= allowed, "S is not between 0 and S(y) T(z|y)")
            _require(not (self.levels[y] and passed[y]), "S accepts tokens that were left out")
        if self.trees is None:
            self._check_hull(passed)
        else:
            self._check_flow(passed)
        return sum(passed[1:], Fraction(0))

    def _check_flow(self, passed: list[Fraction]) -> None:
        """Whether drafted trees can send to each node what ends there."""
        trees = self.trees or []
        ending = list(passed)
        for y in range(1, len(passed)):
            ending[self.parents[y]] -= passed[y]
        sent = [Fraction(0)] * len(passed)
        left = [chance for _, chance in trees]
        for given in _list(self.document["flow"], "flow"):
            tree, y, mass = _list(given, "flow", 3)
            _require(type(tree) is int and 0 <= tree < len(trees), "the flow is from no drafts")
            _require(y in trees[tree][0], "the flow is to a node that was not drafted")
            share = number(mass, "flow")
            _require(share >= 0, "the flow is negative")
            sent[y] += share
            left[tree] -= share
        _require(min(left) >= 0, "drafts send more than their probability")
        _require(sent[1:] == ending[1:], "the flow does not send to each node what ends there")

    def _check_hull(self, passed: list[Fraction]) -> None:
        """Whether the corners of the upper hull of all (D(U), S(U)) are below g."""
        unit = 1
        for value in passed:
            unit = math.lcm(unit, value.denominator)
            _require(unit.bit_length() < LARGEST_BITS, "its numbers are too long")
        asked = [value.numerator * (unit // value.denominator) for value in passed]
        below: list[list[tuple[int, int]]] = [[] for _ in passed]
        for y in range(len(passed) - 1, 0, -1):
            # an antichain at or below y is y, or antichains below its children
            segments = sorted(below[y], key=cmp_to_key(_steeper))
            below[y] = []
            width = self.reach[y] - sum(d for d, _ in segments)
            height = asked[y] - sum(s for _, s in segments)  # neither is negative: sums are ≤ 1
            while segments and segments[-1][1] * width <= height * segments[-1][0]:
                width += segments[-1][0]
                height += segments[-1][1]
                segments.pop()
            _require(width > 0 or height == 0, "S accepts a path that is never drafted")
            if width:
                segments.append((width, height))
            below[self.parents[y]] += segments
        corners = sorted(below[0], key=cmp_to_key(_steeper))
        bits = self.k * self.unit.bit_length() * (len(corners) + 1)
        _require(bits < 64 * LARGEST_BITS, "its numbers are too long")
        power = self.unit**self.k
        reach = mass = 0
        for width, height in corners:
            reach += width
            mass += height
            missed = (self.unit - reach) ** self.k
            _require(mass * power <= unit * (power - missed),
                     "S accepts more on an antichain than is drafted")  # fmt: skip


def _steeper(one: tuple[int, int], other: tuple[int, int]) -> int:
    return other[1] * one[0] - one[1] * other[0]


def number(value: Any, name: str) -> Fraction:
    """Read an integer, a ratio "a/b" (with hexadecimal parts too) or a hexadecimal float."""
    try:
        if type(value) is int:
            return Fraction(value)
        if isinstance(value, str) and "/" in value:
            numerator, denominator = (int(x, 0) for x in value.split("/"))
            _require(denominator > 0, f"{name}: a denominator is not positive")
            return Fraction(numerator, denominator)
        if isinstance(value, str):
            return Fraction(float.fromhex(value))
    except (ValueError, OverflowError):
        pass
    raise CertificateRefusedError(f"{name}: {value!r:.60} is no number")


def digest(document: dict[str, Any]) -> str:
    """SHA-256 of all fields but the digest itself."""
    fields = {name: value for name, value in document.items() if name != "sha256"}
    text = json.dumps(fields, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return sha256(text.encode()).hexdigest()


def _list(value: Any, name: str, length: int | None = None) -> list[Any]:
    _require(isinstance(value, list) and length in (None, len(value)), f"{name}: no such list")
    return list(value)


def _require(condition: bool, message: str) -> None:
    if not condition:
        raise CertificateRefusedError(message)


def load(text: str) -> dict[str, Any]:
    """Decode a certificate's JSON strictly: no duplicate keys, no NaN."""

    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        _require(len(dict(pairs)) == len(pairs), "a key stands twice")
        return dict(pairs)

    def refuse(constant: str) -> None:
        raise CertificateRefusedError(f"{constant} is not a number of JSON")

    try:
        document: Any = json.loads(text, object_pairs_hook=unique, parse_constant=refuse)
    except (ValueError, RecursionError) as error:
        raise CertificateRefusedError(f"not JSON: {error}") from None
    _require(isinstance(document, dict), "not a JSON object")
    return dict(document)


def main(arguments: list[str]) -> int:
    """Check the one file named on the command line; 0 if it proves its claims, otherwise 1 or 2."""
    if len(arguments) != 1:
        print("usage: python -I -S otm/block/certificate.py FILE", file=sys.stderr)
        return 2
    try:
        document = load(Path(arguments[0]).read_text(encoding="utf-8"))
        check(document)
    except (CertificateRefusedError, OSError, UnicodeDecodeError) as error:
        print(f"refused: {error}", file=sys.stderr)
        return 1
    low, high = map(float.fromhex, document["interval"])
    print(f"proved ({document['status']}): {low!r} <= accepted drafts <= {high!r}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
