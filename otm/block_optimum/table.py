"""Joint distributions of draft trees in a table, and the maximum flow to their nodes.

The flow runs from the source to each draft tree X, with capacity equal to its probability.  From X
the flow runs to every node of X, and from each node to the sink, with capacity equal to the
probability that the accepted path ends at this node.  The flow is computed exactly, in integers, so
it suits small instances.  The flow determines the antichains whose constraint S violates, and the
plan of a solution.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from typing import Any, NamedTuple

import numpy as np

from otm._core.arithmetic import Number, as_fraction, as_integers, total
from otm._core.display.text import shown
from otm._core.numbers import whole
from otm._core.optional import require
from otm._core.probs.distribution import as_probs
from otm._core.probs.sparse import SparseProbs
from otm.block_optimum.hull import Excess
from otm.block_optimum.tree import Path, Tree, in_floats
from otm.errors import InvalidDistributionError, InvalidDraftsError, ProblemTooLargeError


class Flow(NamedTuple):
    """A maximum flow: the mass from each draft tree to its nodes, and the unserved nodes."""

    shares: list[dict[int, Fraction]]
    short: list[int]


class TreeDrafts:
    """A joint distribution of draft trees: their nodes and probabilities."""

    def __init__(self, tree: Tree, chances: list[Number], members: list[list[int]]) -> None:
        self.tree, self.chances, self.members = tree, chances, members

    def hit(self, nodes: list[int]) -> Number:
        """Return g(U), the probability that a draft tree contains a node of U."""
        chosen = set(nodes)
        trees = zip(self.chances, self.members, strict=True)
        return total(
            (x for x, members in trees if chosen.intersection(members)), 0 * self.chances[0]
        )

    def excess(self, accept_probs: list[Number]) -> Excess:
        """Return an antichain with S(U) > g(U), if one exists, and W from the maximum flow."""
        flow = maximum_flow(self.chances, self.members, ending_probs(self.tree, accept_probs))
        sent: list[Number] = [Fraction(0)] * len(accept_probs)
        for shares in flow.shares:
            for y, share in shares.items():
                sent[y] += share
        reachable = self.tree.subtree_sums(sent)
        if not isinstance(accept_probs[-1], Fraction):
            reachable = [float(x) for x in reachable]
        return Excess([self.tree.topmost(flow.short)] if flow.short else [], reachable)


def ending_probs(tree: Tree, accept_probs: Sequence[Number]) -> list[Fraction]:
    """Return A(y) = S(y) − Σ_z S(yz), the probability that the accepted path ends at y."""
    exact = [as_fraction(x) for x in accept_probs]
    left = list(exact)
    for y in range(len(left) - 1, 0, -1):
        left[tree.parents[y]] -= exact[y]
    return [max(x, Fraction(0)) for x in left]


def maximum_flow(
    chances: Sequence[Number], members: Sequence[Sequence[int]], ends: Sequence[Fraction]
) -> Flow:
    """Compute a maximum flow from draft trees to all nodes except the root.

    `ends` holds the probability that the accepted path ends at each node.
    """
    networkx = require("networkx")
    supply, supply_unit = as_integers(np.array([as_fraction(x) for x in chances], dtype=object))
    demand, demand_unit = as_integers(np.array(ends, dtype=object))
    graph = networkx.DiGraph()
    graph.add_nodes_from(["source", "sink"])
    for i, nodes in enumerate(members):
        graph.add_edge("source", ("drafts", i), capacity=supply[i] * demand_unit)
        graph.add_edges_from((("drafts", i), y) for y in nodes if demand[y])
    for y, amount in enumerate(demand[1:], 1):
        graph.add_edge(y, "sink", capacity=amount * supply_unit)
    value, flow = networkx.maximum_flow(graph, "source", "sink")
    unit = supply_unit * demand_unit
    shares = [
        {y: Fraction(mass, unit) for y, mass in flow[("drafts", i)].items() if mass}
        for i in range(len(members))
    ]
    if value == sum(demand[1:]) * supply_unit:
        return Flow(shares, [])
    _, (_, beyond) = networkx.minimum_cut(graph, "source", "sink")
    return Flow(shares, [y for y in beyond if isinstance(y, int) and demand[y]])


def drafted_trees(
    table: Mapping[Any, Any], target: Callable[[Path], Any], node_limit: int
) -> TreeDrafts:
    """Convert a mapping from collections of paths to probabilities; omit nodes with T(y) = 0."""
    trees = [_as_paths(key) for key in table]
    chances = as_probs(list(table.values()), "joint draft").tolist()
    prefixes = {path[:i] for paths in trees for path in paths for i in range(1, len(path) + 1)}
    if len(prefixes) > node_limit:
        raise ProblemTooLargeError(
            f"the draft trees have {len(prefixes):,} nodes, above the limit of {node_limit:,}; "
            "give fewer paths, or a larger node_limit"
        )
    rows: dict[Path, dict[int, Number]] = {}
    paths: list[Path] = [()]
    parents, targets = [-1], [Fraction(1)]
    places: dict[Path, int] = {(): 0}
    for path in sorted(prefixes, key=lambda path: (len(path), path)):
        before = path[:-1]
        if before not in places:
            continue
        if before not in rows:
            rows[before] = _row(target(before), before)
        if path[-1] not in rows[before]:
            raise InvalidDraftsError(
                f"the last token of the draft path {shown(path)} is not in the target's vocabulary"
            )
        if rows[before][path[-1]] > 0:
            places[path] = len(paths)
            paths.append(path)
            parents.append(places[before])
            targets.append(rows[before][path[-1]])  # type: ignore[arg-type]
    numbers: list[Number] = list(targets)
    exact = all(isinstance(x, Fraction) or x in (0, 1) for x in (*numbers, *chances))
    if exact:
        numbers, chances = [Fraction(x) for x in numbers], [Fraction(x) for x in chances]
    else:
        numbers = in_floats(numbers, parents)
        chances = in_floats([1.0, *chances], [-1, *([0] * len(chances))])[1:]
    tree = Tree(paths, parents, [0 * x + 1 for x in numbers], numbers, [0] * len(paths))
    members = [
        sorted({places[path[:i]] for path in tree_paths for i in range(1, len(path) + 1)
                if path[:i] in places})
        for tree_paths in trees
    ]  # fmt: skip
    return TreeDrafts(tree, chances, members)


def _as_paths(value: Any) -> list[Path]:
    """Check and return the paths of one draft tree."""
    try:
        paths = [tuple(whole(token) for token in path) for path in value]
    except TypeError:
        paths = [(None,)]
    if not all(token is not None and token >= 0 for path in paths for token in path):
        raise InvalidDraftsError(
            f"the draft tree {shown(value)} is invalid; give a collection of paths, which are "
            "tuples of token ids, such as ((0, 1), (2,))"
        )
    return [tuple(token for token in path if token is not None) for path in paths]


def _row(probs: Any, path: Path) -> dict[int, Number]:
    """Return the target probability of each token after a path."""
    if isinstance(probs, SparseProbs):
        return _Sparse(zip(probs.tokens.tolist(), probs.probabilities.tolist(), strict=True))
    try:
        return dict(enumerate(as_probs(probs, "target").tolist()))
    except InvalidDistributionError as error:
        raise InvalidDistributionError(f"after the path {shown(path)}: {error}") from None


class _Sparse(dict[int, Number]):
    """Probabilities by token; a missing token has probability zero."""

    def __contains__(self, token: object) -> bool:
        return True

    def __missing__(self, token: int) -> Number:
        return Fraction(0)
