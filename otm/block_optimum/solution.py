"""What `otm.solve_block` returns."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from itertools import combinations_with_replacement

from otm._core.arithmetic import Number, as_fraction
from otm._core.display.reprs import FactsRepr, ShortDict, number_text
from otm._core.interval import Interval
from otm.block_optimum.certificate_builder import BlockCertificate
from otm.block_optimum.hull import PathDrafts
from otm.block_optimum.table import TreeDrafts, ending, maximum_flow
from otm.block_optimum.tree import Path, Tree
from otm.errors import InvalidInputError, ProblemTooLargeError

LARGEST_PLAN = 5_000
"""Most drafted trees of a plan."""

Drafted = tuple[Path, ...]
"""Different drafted paths, sorted, without those that go on in another one."""


@dataclass(frozen=True, eq=False)
class BlockSolution(FactsRepr):
    """The most drafts that any memoryless lossless rule accepts on average, with its proof.

    Attributes
    ----------
    accepted : float, Fraction or Interval
        Expected accepted drafts of the best rule; a step gives one token more.  An `Interval` if
        tokens were left out, or the rounds ended before the bounds met.
    bound : float or Fraction
        Σ_i α_K(D_i, T_i) over the depths i: an upper bound that needs no program (Theorem 13.2 of
        docs/theory/block.md).
    nodes : mapping from tuple of int to float or Fraction
        S(y), the probability that the accepted path passes through y, by path; paths that are not
        there have probability 0.
    certificate : BlockCertificate
        The proof of `accepted`.
    method : str
        "block verification" for one path, "polygons" for more than 200 nodes of i.i.d. paths in
        floats, "cutting planes" otherwise.
    why : str
        One sentence on the choice of the method, and what it took.

    Examples
    --------
    >>> from fractions import Fraction as F
    >>> from otm import solve_block
    >>> draft, target = lambda path: [F(2, 3), F(1, 3)], lambda path: [F(1, 3), F(2, 3)]
    >>> solution = solve_block(draft, target, k=2, length=1)
    >>> solution.accepted, solution.nodes[(1,)]
    (Fraction(8, 9), Fraction(5, 9))
    >>> for drafts, accepted in solution.plan.items():
    ...     print(drafts, {path: str(chance) for path, chance in accepted.items()})
    ((0,),) {(0,): '3/4', (): '1/4'}
    ((0,), (1,)) {(1,): '1'}
    ((1,),) {(1,): '1'}
    """

    accepted: Number | Interval
    bound: Number
    nodes: Mapping[Path, Number] = field(repr=False)
    certificate: BlockCertificate = field(repr=False)
    method: str
    why: str
    _tree: Tree = field(repr=False)
    _drafts: PathDrafts | TreeDrafts = field(repr=False)

    @property
    def _title(self) -> str:
        return "Optimum of block verification"

    def _lines(self) -> list[tuple[str, str]]:
        drafts = self._drafts
        paths = f"K = {drafts.k} paths" if isinstance(drafts, PathDrafts) else "trees of drafts"
        return [
            ("problem", f"{len(self._tree.paths):,} nodes, {paths}"),
            ("accepted", number_text(self.accepted)),
            ("bound", f"{number_text(self.bound)} (a bound from each depth)"),
            ("gap", f"{float(self.certificate.gap):.0g} (certificate)"),
            ("method", f"{self.method}: {self.why}"),
        ]

    @cached_property
    def plan(self) -> dict[Drafted, dict[Path, Number]]:
        """A rule that attains the optimum, on small instances.

        For each set of drafted paths the probability of accepting each of their prefixes, () for
        none.  The token that follows an accepted y is drawn in proportion to S(y) T(z|y) − S(yz).
        Tokens that target or draft never take after a path are left out of the paths.

        Raises
        ------
        InvalidInputError
            If tokens were left out of the tree.
        ProblemTooLargeError
            If more than 5,000 sets of paths can be drafted.
        MissingDependencyError
            If networkx, which finds the maximum flow, is not installed.
        """
        tree = self._tree
        if tree.truncated:
            raise InvalidInputError(
                "there is no plan for a tree from which tokens were left out; leave `top` out"
            )
        drafts = self._drafts
        if isinstance(drafts, PathDrafts):
            members, chances = _drafted_trees(tree, drafts)
        else:
            members, chances = drafts.members, drafts.chances
        passed = [self.nodes.get(path, 0 * tree.targets[-1]) for path in tree.paths]
        flow = maximum_flow(chances, members, ending(tree, passed))
        plan: dict[Drafted, dict[Path, Number]] = ShortDict()
        for nodes, chance, shares in zip(members, chances, flow.shares, strict=True):
            whole = as_fraction(chance)
            of_path: dict[Path, Number] = {
                tree.paths[y]: share / whole for y, share in sorted(shares.items())
            }
            left = whole - sum(shares.values())
            if left:
                of_path[()] = left / whole
            if not tree.exact:
                of_path = {path: float(x) for path, x in of_path.items()}
            plan[_longest(tree, nodes)] = of_path
        return plan


def _drafted_trees(tree: Tree, drafts: PathDrafts) -> tuple[list[list[int]], list[Number]]:
    """All sets of nodes that k paths pass through, with their probabilities."""
    ends = [(y, x) for y, x in enumerate(drafts.ends) if x > 0]
    count = math.comb(len(ends) + drafts.k - 1, drafts.k)
    if count > LARGEST_PLAN:
        raise ProblemTooLargeError(
            f"{count:,} multisets of paths can be drafted; a plan has at most {LARGEST_PLAN:,}"
        )
    above: list[frozenset[int]] = [frozenset()]
    for y, parent in enumerate(tree.parents[1:], 1):
        above.append(above[parent] | {y})
    chances: dict[frozenset[int], Number] = defaultdict(lambda: 0 * tree.reach[-1])
    for chosen in combinations_with_replacement(ends, drafts.k):
        ways = math.factorial(drafts.k)
        for y in {y for y, _ in chosen}:
            ways //= math.factorial(sum(y == x for x, _ in chosen))
        nodes = frozenset[int]().union(*(above[y] for y, _ in chosen))
        chances[nodes] += ways * math.prod(x for _, x in chosen)
    return [sorted(nodes) for nodes in chances], list(chances.values())


def _longest(tree: Tree, nodes: list[int]) -> Drafted:
    inner = {tree.parents[y] for y in nodes}
    return tuple(sorted(tree.paths[y] for y in nodes if y not in inner))
