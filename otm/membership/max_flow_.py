"""OTM-k as a maximum flow in integers: the slow answer that rounds nothing.

Source → set S of drafts (capacity P(S)) → token y ∈ S → sink (capacity q(y)).  It shares neither
formula nor arithmetic with the closed form and the linear program, and serves to check them.
"""

from __future__ import annotations

import math
from collections import defaultdict
from fractions import Fraction

import numpy as np

from otm.arithmetic import as_integers
from otm.errors import MissingDependencyError, ProblemTooLargeError
from otm.problem import MembershipProblem

__all__ = ["LARGEST_FLOW", "alpha_by_max_flow"]

LARGEST_FLOW = 50_000
"""Most edges from sets to tokens, times the number of drafts: a second or two of work."""


def alpha_by_max_flow(problem: MembershipProblem) -> Fraction:
    """Optimal acceptance probability α_k of the problem in exact arithmetic.

    Parameters
    ----------
    problem : MembershipProblem
        Floats are taken as the fractions p/Σp and q/Σq.

    Returns
    -------
    Fraction
        α_k.

    Raises
    ------
    ProblemTooLargeError
        If k times the pairs of a draft set and a token in it are more than `LARGEST_FLOW`.
    MissingDependencyError
        If networkx is not installed.

    Examples
    --------
    >>> alpha_by_max_flow(MembershipProblem([0.75, 0.25], [0.25, 0.75], k=2))
    Fraction(11, 16)
    """
    try:
        import networkx
    except ImportError as error:
        raise MissingDependencyError(
            'networkx computes the maximum flow and is not installed: pip install "otm[flow]"'
        ) from error
    _check_size(problem)
    exact = problem.to_exact()
    draft, draft_unit = as_integers(exact.draft)
    target, target_unit = as_integers(exact.target)
    sets_unit = draft_unit**problem.k

    graph = networkx.DiGraph()
    graph.add_nodes_from(["source", "sink"])
    for drafted, weight in _law_of_draft_sets(draft, problem.k).items():
        graph.add_edge("source", drafted, capacity=weight * target_unit)
        for token in drafted:
            graph.add_edge(drafted, token)  # without a capacity: not bounded
    for token, weight in enumerate(target):
        graph.add_edge(token, "sink", capacity=weight * sets_unit)
    flow = networkx.maximum_flow_value(graph, "source", "sink")
    return Fraction(flow, sets_unit * target_unit)


def _law_of_draft_sets(draft: list[int], k: int) -> dict[frozenset[int], int]:
    """Weights of the set S = {X_1, …, X_k}, one draft after the other."""
    law = {frozenset[int](): 1}
    for _ in range(k):
        extended: dict[frozenset[int], int] = defaultdict(int)
        for drafted, weight in law.items():
            for token, factor in enumerate(draft):
                if factor:
                    extended[drafted | {token}] += weight * factor
        law = extended
    return law


def _check_size(problem: MembershipProblem) -> None:
    m = int(np.count_nonzero(problem.draft))
    edges = 0
    for size in range(1, min(m, problem.k) + 1):
        edges += size * math.comb(m, size)
        if problem.k * edges > LARGEST_FLOW:
            raise ProblemTooLargeError(
                f"{m:,} tokens with p > 0 and k = {problem.k:,} drafts have more than "
                f"{LARGEST_FLOW // problem.k:,} pairs of a draft set and a token in it, the limit "
                f"of the exact maximum flow ({LARGEST_FLOW:,} / k); "
                'method="closed-form" is exact for fractions too, at any size'
            )
