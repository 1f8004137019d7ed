"""The tree of the linear program: all paths to which draft and target give positive probability.

All other paths have S(y) = 0, because S(y) ≤ g({y}) and S(y) ≤ T(y).  A truncated tree keeps the m
best tokens after each path; one remainder node replaces the omitted tokens.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Any

import numpy as np

from otm._core.arithmetic import Number, Probs
from otm._core.display.progress import SILENT, Watch
from otm._core.display.text import shown
from otm._core.probs.distribution import as_probs_pair
from otm._core.probs.sparse import SparseProbs, Tokens, align
from otm.errors import InvalidDistributionError, ProblemTooLargeError

Path = tuple[int, ...]
NextProbs = tuple[Tokens, Probs, Probs]
"""Tokens, their draft probabilities and their target probabilities: three arrays [n]."""

RAREST = 2.0**-900
"""Smallest D(y) in floats; it replaces smaller values, whose products would underflow.

Nodes with a replaced D(y) accept no drafts; each of these nodes loses at most k · 2^-900 drafts.
"""

REST = -1
"""Last token of the path of a remainder node."""


@dataclass(frozen=True, eq=False)
class Tree:
    """A tree of paths with numbered nodes: node 0 is the root, and parents precede children.

    Attributes
    ----------
    paths : list of tuple of int
        The path of each node; the path of a remainder node ends with −1.
    parents : list of int
        The parent of each node, and −1 for the root.
    drafts, targets : list of float or Fraction
        D(z|y) and T(z|y), the conditional probabilities of the last token of each path; 1 for the
        root.
    levels : list of int
        Number of levels that a remainder node replaces, and 0 for ordinary nodes.
    """

    paths: list[Path]
    parents: list[int]
    drafts: list[Number]
    targets: list[Number]
    levels: list[int]

    @property
    def exact(self) -> bool:
        """Whether all probabilities are fractions."""
        return all(isinstance(x, Fraction) for x in (*self.drafts[1:], *self.targets[1:]))

    @property
    def truncated(self) -> bool:
        """Whether the tree has a remainder node."""
        return any(self.levels)

    @cached_property
    def reach(self) -> list[Number]:
        """D(y), the probability that one path passes through y; floats are at least RAREST."""
        reach = self._products(self.drafts)
        return [max(x, RAREST) if isinstance(x, float) else x for x in reach]

    @cached_property
    def target_reach(self) -> list[Number]:
        """T(y), the target probability of the path y."""
        return self._products(self.targets)

    @cached_property
    def depths(self) -> list[int]:
        """Number of tokens of each path; a remainder node counts as one token."""
        return [len(path) for path in self.paths]

    @cached_property
    def places(self) -> dict[Path, int]:
        """The node number of each path; remainder nodes are not included."""
        return {path: y for y, path in enumerate(self.paths) if not self.levels[y]}

    def worth(self, *, rests: bool) -> list[int]:
        """Return the weight of each S(y) in the objective: 1 for ordinary nodes, 0 for the root.

        A remainder node weighs 0, or with `rests` the number of levels that it replaces.
        """
        nodes = zip(self.parents, self.levels, strict=True)
        return [(levels if rests else 0) if levels else int(p >= 0) for p, levels in nodes]

    def topmost(self, nodes: Iterable[int]) -> list[int]:
        """Return the nodes that have no ancestor in the same set."""
        chosen = set(nodes)
        top = []
        for y in sorted(chosen):
            above = self.parents[y]
            while above > 0 and above not in chosen:
                above = self.parents[above]
            if above <= 0:
                top.append(y)
        return top

    def subtree_sums(self, shares: Sequence[Number]) -> list[Number]:
        """Return, for each node, the sum of the shares at the node and below it."""
        sums = list(shares)
        for y in range(len(sums) - 1, 0, -1):
            sums[self.parents[y]] = sums[self.parents[y]] + sums[y]
        return sums

    def largest_below(self, most: Sequence[Number]) -> list[Number]:
        """Return the pointwise largest S with S(yz) ≤ S(y) T(z|y) and S(y) ≤ most(y)."""
        accept_probs: list[Number] = [1 + 0 * self.targets[-1]]
        for y in range(1, len(self.parents)):
            accept_probs.append(min(accept_probs[self.parents[y]] * self.targets[y], most[y]))
        return accept_probs

    def _products(self, factors: list[Number]) -> list[Number]:
        products = [factors[0]]
        for y in range(1, len(factors)):
            products.append(products[self.parents[y]] * factors[y])
        return products


def build_tree(
    rows: Callable[[Path], NextProbs],
    length: int,
    k: int,
    top: int | None,
    node_limit: int,
    *,
    watch: Watch = SILENT,
) -> Tree:
    """Build the tree level by level; raise before a level would exceed the node limit."""
    paths: list[Path] = [()]
    parents, levels = [-1], [0]
    drafts: list[Number] = [Fraction(1)]
    targets: list[Number] = [Fraction(1)]
    # Pairs D(y) and T(y) in floats.
    chances = [(1.0, 1.0)]
    level = [0]
    for depth in range(1, length + 1):
        count = len(paths)
        children = []
        for y in watch.over(level, f"depth {depth} of {length}, path", len(level)):
            tokens, p, q = rows(paths[y])
            kept, left = _split_best(p, q, chances[y], k, top)
            count += kept.size + bool(left.size)
            _check_size(count, depth, length, node_limit)
            kept_ones = zip(tokens[kept].tolist(), p[kept].tolist(), q[kept].tolist(), strict=True)
            rest = (p[left].sum(), q[left].sum()) if left.size else None
            children.append((y, list(kept_ones), rest))
        level = []
        for y, kept_children, of_rest in children:
            for token, p_z, q_z in kept_children:
                level.append(len(paths))
                chances.append((chances[y][0] * float(p_z), chances[y][1] * float(q_z)))
                paths.append((*paths[y], token))
                levels.append(0)
                parents.append(y)
                drafts.append(p_z)
                targets.append(q_z)
            if of_rest is not None:
                chances.append((0.0, 0.0))
                paths.append((*paths[y], REST))
                levels.append(length + 1 - depth)
                parents.append(y)
                drafts.append(of_rest[0])
                targets.append(of_rest[1])
    exact = all(isinstance(x, Fraction) or x in (0, 1) for x in (*drafts, *targets))
    if exact:
        drafts, targets = [Fraction(x) for x in drafts], [Fraction(x) for x in targets]
    else:
        drafts, targets = in_floats(drafts, parents), in_floats(targets, parents)
    return Tree(paths, parents, drafts, targets, levels)


def as_next_probs(draft: Any, target: Any, path: Path) -> NextProbs:
    """Check the draft and target distributions after a path, and return them as `NextProbs`."""
    try:
        if isinstance(draft, SparseProbs) or isinstance(target, SparseProbs):
            tokens, p, q = align(draft, target)
            return tokens, p, q
        p, q = as_probs_pair(draft, target)
    except InvalidDistributionError as error:
        raise InvalidDistributionError(f"after the path {shown(path)}: {error}") from None
    return np.arange(p.size), p, q


def _split_best(
    p: Probs, q: Probs, chance: tuple[float, float], k: int, top: int | None
) -> tuple[Tokens, Tokens]:
    """Split the shared tokens into `top` tokens with the largest bound, and all others.

    The bound on the acceptance of a token is min(k D(yz), T(yz)).
    """
    shared = np.flatnonzero((p > 0) & (q > 0))
    if top is None or shared.size <= top:
        return shared, shared[:0]
    draft, target = (x[shared].astype(np.float64) for x in (p, q))
    most = np.minimum(k * chance[0] * draft, chance[1] * target)
    ranked = shared[np.argsort(-most, kind="stable")]
    return np.sort(ranked[:top]), ranked[top:]


def _check_size(count: int, depth: int, length: int, node_limit: int) -> None:
    if count > node_limit:
        raise ProblemTooLargeError(
            f"the tree has more than {node_limit:,} nodes at depth {depth} of {length}; give "
            "top=m to keep the m best tokens after each path (the optimum then lies in an "
            "interval), a smaller length, or a larger node_limit"
        )


def in_floats(numbers: list[Number], parents: list[int]) -> list[Number]:
    """Round to floats; lower the largest float after a path if the sum exceeds one."""
    floats = [float(x) for x in numbers]
    rows: dict[int, list[int]] = {}
    for y, parent in enumerate(parents[1:], 1):
        rows.setdefault(parent, []).append(y)
    for row in rows.values():
        largest = max(row, key=floats.__getitem__)
        # The excess is at most a few units of 2^-53.
        while sum(Fraction(floats[y]) for y in row) > 1:
            floats[largest] = math.nextafter(floats[largest], 0)
    return list(floats)
