"""Which node is accepted for which drafts: a maximum flow from drafted trees to nodes.

Source → drafted tree X (its probability) → every node of X → sink (what is to end there).  It is
exact, in integers, and for small instances: for any joint distribution of trees given as a table it
finds the antichains of which S asks too much, and for a solution the plan.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import NamedTuple

import numpy as np

from otm._core.arithmetic import Number, as_fraction, as_integers, total
from otm._core.optional import require
from otm.block.hull import Excess
from otm.block.tree import Tree


class Flow(NamedTuple):
    """A maximum flow: what each drafted tree sends to its nodes, and the nodes behind the cut."""

    shares: list[dict[int, Fraction]]
    short: list[int]


class TreeDrafts:
    """Any joint distribution of drafted trees, given by their nodes and probabilities."""

    def __init__(self, tree: Tree, chances: list[Number], members: list[list[int]]) -> None:
        self.tree, self.chances, self.members = tree, chances, members

    def hit(self, nodes: list[int]) -> Number:
        """g(U): the probability that a drafted tree has one of the nodes."""
        chosen = set(nodes)
        trees = zip(self.chances, self.members, strict=True)
        return total(
            (x for x, members in trees if chosen.intersection(members)), 0 * self.chances[0]
        )

    def excess(self, passed: list[Number]) -> Excess:
        """One antichain with S(U) > g(U), if there is any, and the W that the flow gives."""
        flow = maximum_flow(self.chances, self.members, ending(self.tree, passed))
        sent: list[Number] = [Fraction(0)] * len(passed)
        for shares in flow.shares:
            for y, share in shares.items():
                sent[y] += share
        reachable = self.tree.under(sent)
        if not isinstance(passed[-1], Fraction):
            reachable = [float(x) for x in reachable]
        return Excess([self.tree.topmost(flow.short)] if flow.short else [], reachable)


def ending(tree: Tree, passed: Sequence[Number]) -> list[Fraction]:
    """A(y) = S(y) − Σ_z S(yz) in fractions: the probability that y is accepted, and no more."""
    exact = [as_fraction(x) for x in passed]
    left = list(exact)
    for y in range(len(left) - 1, 0, -1):
        left[tree.parents[y]] -= exact[y]
    return [max(x, Fraction(0)) for x in left]


def maximum_flow(
    chances: Sequence[Number], members: Sequence[Sequence[int]], ends: Sequence[Fraction]
) -> Flow:
    """Send as much as possible of what is to end at the nodes but the root from drafted trees."""
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
