"""OTM as a maximum flow in integers: slow, but without rounding.

The network is source → set S of drafts (capacity P(S)) → token y ∈ S → sink (capacity q(y)).  The
method works for any joint distribution of the drafts.  For i.i.d. drafts the method is an
independent check of the closed form and the linear program, with another formula and other
arithmetic.
"""

from __future__ import annotations

import math
from collections import defaultdict
from fractions import Fraction
from typing import Any

import numpy as np

from otm._core.arithmetic import Number, Probs, as_integers
from otm._core.optional import require
from otm._core.probs.distribution import to_exact
from otm.drafts import IID, DraftDistribution
from otm.errors import ProblemTooLargeError
from otm.optimum.cut import Cut
from otm.optimum.multisets import scientific
from otm.problem import Problem

LARGEST_FLOW = 50_000
"""Limit on k times the number of edges from sets (or tuples) to tokens: two seconds of work."""


def alpha_by_max_flow(problem: Problem) -> Fraction:
    """Compute the optimal acceptance probability α_k of the problem in exact arithmetic.

    Parameters
    ----------
    problem : Problem
        The problem.  Floats are converted to the fractions p/Σp and q/Σq.

    Returns
    -------
    Fraction
        α_k.

    Raises
    ------
    ProblemTooLargeError
        If k times the number of pairs of a draft set and a token in it exceeds `LARGEST_FLOW`.
    MissingDependencyError
        If networkx is not installed.

    Examples
    --------
    >>> alpha_by_max_flow(Problem([0.75, 0.25], [0.25, 0.75], k=2))
    Fraction(11, 16)
    """
    return Fraction(minimum_cut_by_max_flow(problem.drafts, problem.target).value)


def minimum_cut_by_max_flow(drafts: DraftDistribution, target: Probs) -> Cut:
    """Compute the optimal acceptance probability for any joint distribution, and a minimum cut.

    Floats are converted to fractions and normalised exactly, so the value is a Fraction.  Problems
    above `LARGEST_FLOW` raise an error.  The size of a problem is measured by the number of draft
    sets for i.i.d. drafts, and by the number of draft tuples for other drafts.
    """
    graph, unit = _graph(drafts, target)
    flow, (reached, _) = require("networkx").minimum_cut(graph, "source", "sink")
    tokens = sorted(node for node in reached if isinstance(node, int))
    return Cut(Fraction(flow, unit), np.array(tokens, dtype=np.int64))


def acceptance_by_max_flow(
    drafts: DraftDistribution, target: Probs
) -> dict[frozenset[int], dict[int, Fraction]]:
    """Compute the probability with which an optimal rule accepts each token of each draft set.

    The keys are the possible draft sets, as sets of positions.  Tokens with probability zero are
    left out.  Floats and the size limit are treated as in `minimum_cut_by_max_flow`.
    """
    graph, _ = _graph(drafts, target)
    _, flow = require("networkx").maximum_flow(graph, "source", "sink")
    return {
        drafted: {
            token: Fraction(mass, edge["capacity"]) for token, mass in flow[drafted].items() if mass
        }
        for drafted, edge in graph["source"].items()
    }


def _graph(drafts: DraftDistribution, target: Probs) -> tuple[Any, int]:
    """Return the network with integer capacities, and the capacity that equals probability 1."""
    _check_size(drafts)
    target_weights, target_unit = as_integers(to_exact(target))
    sets, sets_unit = _probs_of_draft_sets(drafts.to_exact())

    graph = require("networkx").DiGraph()
    graph.add_nodes_from(["source", "sink"])
    for drafted, weight in sets.items():
        graph.add_edge("source", drafted, capacity=weight * target_unit)
        for token in drafted:
            graph.add_edge(drafted, token)  # Edges without a capacity are unbounded.
    for token, weight in enumerate(target_weights):
        graph.add_edge(token, "sink", capacity=weight * sets_unit)
    return graph, sets_unit * target_unit


def fits_max_flow(drafts: DraftDistribution) -> bool:
    """Return whether a joint distribution is small enough for the exact maximum flow."""
    return drafts.k * drafts.tuple_count <= LARGEST_FLOW


def _probs_of_draft_sets(drafts: DraftDistribution) -> tuple[dict[frozenset[int], int], int]:
    """Return the distribution of the set S = {X_1, …, X_k} in integer weights, and their sum."""
    if isinstance(drafts, IID):
        weights, unit = as_integers(drafts.probs)
        return _iid_draft_sets(weights, drafts.k), unit**drafts.k
    distribution: dict[frozenset[int], Number] = defaultdict(Fraction)
    for tokens, probability in drafts.position_tuples():
        distribution[frozenset(tokens)] += probability
    whole, unit = as_integers(np.array(list(distribution.values()), dtype=object))
    return dict(zip(distribution, whole, strict=True)), unit


def _iid_draft_sets(draft: list[int], k: int) -> dict[frozenset[int], int]:
    """Compute the weights of the sets of k i.i.d. drafts by adding one draft at a time."""
    distribution = {frozenset[int](): 1}
    for _ in range(k):
        extended: dict[frozenset[int], int] = defaultdict(int)
        for drafted, weight in distribution.items():
            for token, factor in enumerate(draft):
                if factor:
                    extended[drafted | {token}] += weight * factor
        distribution = extended
    return distribution


def _check_size(drafts: DraftDistribution) -> None:
    if not isinstance(drafts, IID):
        if not fits_max_flow(drafts):
            raise ProblemTooLargeError(
                f"{scientific(drafts.tuple_count)} tuples of k = {drafts.k:,} drafts can be drawn, "
                f"above the limit of the exact maximum flow ({LARGEST_FLOW:,} / k); "
                "`otm.alpha` gives a closed form or an interval at any size"
            )
        return
    m = int(np.count_nonzero(drafts.draftable))
    edges = 0
    for size in range(1, min(m, drafts.k) + 1):
        edges += size * math.comb(m, size)
        if drafts.k * edges > LARGEST_FLOW:
            raise ProblemTooLargeError(
                f"{m:,} tokens with p > 0 and k = {drafts.k:,} drafts have more than "
                f"{LARGEST_FLOW // drafts.k:,} pairs of a draft set and a token in it, the limit "
                f"of the exact maximum flow ({LARGEST_FLOW:,} / k); "
                'method="closed-form" is exact for fractions too, at any size'
            )
