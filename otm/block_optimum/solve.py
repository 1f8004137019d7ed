"""`otm.solve_block`: the exact optimum for several drafts of several tokens."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from functools import partial
from typing import Any

import numpy as np

from otm._core.arithmetic import Number, as_fraction, rounded, total
from otm._core.checks import as_draft_count
from otm._core.display.progress import Watch, watching
from otm._core.display.reprs import ShortDict
from otm._core.display.text import shown
from otm._core.interval import Interval
from otm._core.numbers import as_integer, as_positive, as_real, whole
from otm._core.tensors import to_host
from otm.block_optimum.certificate_builder import build_certificate
from otm.block_optimum.exact import solve_exactly
from otm.block_optimum.hull import PathDrafts, hit_probability
from otm.block_optimum.polygons import solve_by_polygons
from otm.block_optimum.program import (
    Bounds,
    CuttingPlanes,
    Prices,
    nodes_by_depth,
    solve_program,
    upper_bound,
    value_of,
)
from otm.block_optimum.solution import BlockSolution
from otm.block_optimum.table import TreeDrafts, drafted_trees, maximum_flow
from otm.block_optimum.tree import NextProbs, Path, Tree, as_next_probs, build_tree
from otm.errors import InvalidInputError, InvalidParameterError, ProblemTooLargeError
from otm.models import LanguageModel, StatelessModel

NODE_LIMIT = 20_000
"""Default limit on the number of nodes."""

EXACT_LIMIT = 500
"""Largest number of nodes that are solved in fractions."""

EXACT_BITS = 1_000_000
"""Limit for problems in fractions: the number of nodes times the bits of g(U).

A problem at this limit takes half a minute.
"""

SMALL_TREE = 200
"""Largest number of nodes for cutting planes; polygons solve larger trees of i.i.d. paths."""

KNOWN = 1e-8
"""Largest gap between two bounds that are reported as one number."""

PathProbs = Callable[[Path], Any]
"""A function from a path to the distribution of the next token."""


def solve_block(
    draft: Any,
    target: Any,
    k: Any = None,
    length: Any = None,
    *,
    context: Any = (),
    top: Any = None,
    tolerance: Any = 1e-9,
    rounds: Any = 100,
    node_limit: Any = NODE_LIMIT,
) -> BlockSolution:
    """Compute how many drafts the best memoryless lossless rule accepts on average from k paths.

    This optimum is the value of a linear program over the nodes of the draft tree (Theorem 13.1 of
    docs/theory/block.md).  For one path, block verification [sun2024block]_ attains the optimum.
    For paths of one token, the optimum equals `otm.alpha`.  Each step outputs the accepted drafts
    and one more token.

    Parameters
    ----------
    draft : LanguageModel, callable or mapping
        The draft's distribution of the next token after each path.  Give a model, or a function
        from a tuple of token ids to an array of floats or fractions or to a `SparseProbs`.  For
        any other joint distribution of draft trees, give a mapping from collections of paths to
        probabilities, and omit k, length and top.
    target : LanguageModel or callable
        The target's distribution of the next token after each path, as a model or a function.
    k : int
        Number of i.i.d. draft paths.
    length : int
        Number of tokens of each path.
    context : sequence of int, optional
        Token ids that precede every path.
    top : int, optional
        Number of tokens to keep after each path: those with the largest bound on their acceptance.
        The effect of the omitted tokens is bounded, so the optimum lies in an interval.
    tolerance : float, optional
        Gap between the bounds at which to stop; for floats only.
    rounds : int, optional
        Largest number of linear programs to solve; each program refines the one before.
    node_limit : int, optional
        Largest number of nodes of the tree.  A larger tree raises an error before it is built.

    Returns
    -------
    BlockSolution
        The optimum, its certificate and an optimal rule.  If all probabilities are fractions, the
        optimum is a fraction, and the gap is zero unless tokens were omitted.

    Raises
    ------
    InvalidDistributionError, InvalidDraftCountError, InvalidParameterError
        If a distribution, k or another parameter is invalid.
    InvalidDraftsError
        If a key of the mapping is not a collection of paths.
    InvalidInputError
        If draft or target has another type, or a model needs a context.
    ProblemTooLargeError
        If the tree has more than `node_limit` nodes, or more than 500 nodes in fractions.
    SolverError
        If HiGHS finds no optimum, or no exact optimum is found in fractions.
    MissingDependencyError
        If highspy is not installed, or if networkx is not installed for a mapping of draft trees.

    References
    ----------
    .. [sun2024block] Sun et al., "Block Verification Accelerates Speculative Decoding", ICLR 2025.

    Examples
    --------
    >>> from fractions import Fraction as F
    >>> draft, target = lambda path: [F(2, 3), F(1, 3)], lambda path: [F(1, 3), F(2, 3)]
    >>> solution = solve_block(draft, target, k=2, length=2)
    >>> solution.accepted, solution.bound
    (Fraction(131, 81), Fraction(134, 81))
    >>> solution.certificate.check()  # The proof is valid: no error is raised.

    Two draft trees with probability 1/2 each, one with two children and one with a single path:

    >>> table = {((0,), (1,)): 0.5, ((1, 1),): 0.5}
    >>> round(solve_block(table, lambda path: [0.5, 0.5]).accepted, 9)
    1.25
    """
    tolerance = as_real(tolerance, "tolerance", least=0)
    rounds = as_positive(rounds, "rounds")
    node_limit = as_positive(node_limit, "node_limit")
    before = _as_context(context)
    target_probs = _path_probs(target, "target", before)
    drafts: PathDrafts | TreeDrafts
    with watching(None, "solve_block") as watch:
        if isinstance(draft, Mapping):
            for name, value in (("k", k), ("length", length), ("top", top)):
                if value is not None:
                    raise InvalidParameterError(
                        f"{name} = {shown(value)}, but a mapping of draft trees already "
                        f"determines {name}; omit {name}"
                    )
            drafts = drafted_trees(draft, target_probs, node_limit)
        else:
            k, length = as_draft_count(k), as_integer(length, "length", 1)
            most = None if top is None else as_positive(top, "top")
            rows = partial(_next_probs, _path_probs(draft, "draft", before), target_probs)
            drafts = PathDrafts(build_tree(rows, length, k, most, node_limit, watch=watch), k)
        return _solve(drafts, tolerance, rounds, watch)


def _solve(
    drafts: PathDrafts | TreeDrafts, tolerance: float, rounds: int, watch: Watch
) -> BlockSolution:
    tree = drafts.tree
    nodes = len(tree.parents) - 1
    if isinstance(drafts, PathDrafts) and drafts.k == 1:
        method = "block verification"
        why = f"one path: a recursion over {nodes:,} nodes gives the optimum."
        bounds = _solve_one_path(tree, drafts)
    else:
        if tree.exact and nodes > EXACT_LIMIT:
            raise ProblemTooLargeError(
                f"the tree has {nodes:,} nodes; at most {EXACT_LIMIT:,} can be solved in "
                "fractions.  Give floats: their gap is small, and also proved"
            )
        if tree.exact and isinstance(drafts, PathDrafts):
            _check_powers(tree, drafts.k)
        large = isinstance(drafts, PathDrafts) and not tree.exact and nodes > SMALL_TREE
        method = "polygons" if large else "cutting planes"
        bounds, cuts = _by_linear_programs(drafts, tolerance, rounds, method, watch)
        kind = "i.i.d. paths" if isinstance(drafts, PathDrafts) else "a table of draft trees"
        why = f"{kind}: a linear program over {nodes:,} nodes and {cuts:,} antichains."
        if large:
            why = f"{kind}: polygons over {nodes:,} nodes; {cuts:,} antichains bound the optimum."
    certificate, accept_probs = build_certificate(tree, drafts, bounds, method)
    lower, upper = certificate.lower, certificate.upper
    accepted: Number | Interval
    if tree.exact:
        accepted = lower if lower == upper else Interval(lower, upper)
    elif upper - lower <= KNOWN:
        accepted = float(lower)
    else:
        accepted = Interval(rounded(lower, -np.inf), rounded(upper, np.inf))
    nodes_by_path = ShortDict(
        (path, accept_probs[y]) for path, y in tree.places.items() if accept_probs[y]
    )
    return BlockSolution(
        accepted, _depth_bound(drafts), nodes_by_path, certificate, method, why, tree, drafts
    )


def _check_powers(tree: Tree, k: int) -> None:
    """Raise if the powers of the fractions have too many bits; compute no power."""
    nodes, unit = len(tree.parents) - 1, 1
    for reach in tree.reach:
        unit = math.lcm(unit, as_fraction(reach).denominator)
        bits = k * (unit.bit_length() - 1)
        if nodes * bits > EXACT_BITS:
            raise ProblemTooLargeError(
                f"the probability that one of k = {k:,} drafts hits a set of paths is a fraction "
                f"with at least {bits:,} bits, too many for {nodes:,} nodes.  Give floats: their "
                "gap is small, and also proved"
            )


def _by_linear_programs(
    drafts: PathDrafts | TreeDrafts, tolerance: float, rounds: int, method: str, watch: Watch
) -> tuple[Bounds, int]:
    """Return the bounds and the number of antichains.

    For a truncated tree, each bound comes from its own linear program.
    """
    tree = drafts.tree
    if len(tree.parents) == 1:
        return Bounds([1 + 0 * tree.targets[0]], Fraction(0), {}, Fraction(0)), 0
    worths = [tree.worth(rests=rests) for rests in ((False, True) if tree.truncated else (True,))]
    bounds = []
    if isinstance(drafts, PathDrafts) and method == "polygons":
        bounds = [solve_by_polygons(drafts, worth, tolerance, rounds, watch) for worth in worths]
        return _combine_bounds(bounds), len(bounds[-1].prices)
    antichains = [_best_cut(drafts, level)[1] for level in nodes_by_depth(tree)]
    for worth in worths:
        program = CuttingPlanes(tree, drafts, worth)
        program.add(antichains)
        if tree.exact:
            bounds.append(solve_exactly(program, rounds, watch))
        else:
            bounds.append(solve_program(program, tolerance, rounds, watch))
        antichains = [list(antichain) for antichain in program.antichains]
    return _combine_bounds(bounds), len(antichains)


def _combine_bounds(bounds: Sequence[Bounds]) -> Bounds:
    """Combine the lower bound of the first program with the upper bound of the last."""
    low, high = bounds[0], bounds[-1]
    return Bounds(low.accept_probs, low.lower, high.prices, high.upper)


def _solve_one_path(tree: Tree, drafts: PathDrafts) -> Bounds:
    """Return S(yz) = min(S(y) T(z|y), D(yz)) and the multipliers that prove it optimal."""
    accept_probs = tree.largest_below(tree.reach)
    worth = tree.worth(rests=True)
    left = [w + 0 * tree.targets[-1] for w in worth]
    prices: Prices = {}
    for y in range(len(accept_probs) - 1, 0, -1):
        parent = tree.parents[y]
        if accept_probs[y] < accept_probs[parent] * tree.targets[y]:
            prices[(y,)] = left[y]
        else:
            left[parent] += left[y] * tree.targets[y]
    lower = value_of(tree.worth(rests=False), accept_probs)
    return Bounds(accept_probs, lower, prices, upper_bound(tree, drafts, worth, prices))


def _depth_bound(drafts: PathDrafts | TreeDrafts) -> Number:
    """Return Σ_i α_K(D_i, T_i), the sum of an upper bound for each depth."""
    zero = 0 * drafts.tree.targets[-1]
    return total((_best_cut(drafts, level)[0] for level in nodes_by_depth(drafts.tree)), zero)


def _best_cut(drafts: PathDrafts | TreeDrafts, level: Sequence[int]) -> tuple[Number, list[int]]:
    """Return the minimum of T(H) + g(H^c) over sets H of nodes of a level, and the best H^c."""
    tree = drafts.tree
    target = tree.target_reach
    if isinstance(drafts, TreeDrafts):
        ends = [Fraction(target[y]) if y in set(level) else Fraction(0) for y in range(len(target))]
        short = maximum_flow(drafts.chances, drafts.members, ends).short
    else:
        # It is enough to sort by T/D and to try each prefix as H^c (Theorem 3.1).
        order = sorted(level, key=lambda y: target[y] / tree.reach[y], reverse=True)
        inside = np.cumsum(np.array([tree.reach[y] for y in order]))
        outside = np.array([target[y] for y in order][::-1]).cumsum()[::-1]
        most = hit_probability(np.minimum(inside, 1 + 0 * inside), drafts.k)
        most[:-1] += outside[1:]
        short = order[: int(most.argmin()) + 1]
    others = set(level).difference(short)
    cut = drafts.hit(short) if short else 0 * target[-1]
    value = total((target[y] for y in others), cut)
    everything = total((target[y] for y in level), 0 * target[-1])
    return min(value, everything), short


def _next_probs(draft: PathProbs, target: PathProbs, path: Path) -> NextProbs:
    return as_next_probs(draft(path), target(path), path)


def _path_probs(model: Any, name: str, context: Path) -> PathProbs:
    """Convert a model or a function to a function from paths to distributions."""
    if isinstance(model, StatelessModel):
        return lambda path: model.probs(context + path)
    if isinstance(model, LanguageModel):
        return _session_probs(model, name, context)
    if callable(model):
        return lambda path: model(context + path)
    raise InvalidInputError(
        f"the {name} has type {type(model).__name__}; give a model, or a function from a tuple of "
        "token ids to the probabilities of the next token"
    )


def _session_probs(model: LanguageModel, name: str, context: Path) -> PathProbs:
    """Return the distributions of a model with sessions; raise if the context is empty."""
    if not context:
        raise InvalidInputError(
            f"the {name} model predicts only after it has read a token; give a context of at "
            "least one token"
        )
    session = model.start(1)
    if len(context) > 1:
        session.read(np.array([context[:-1]]))

    def probs_after(path: Path) -> Any:
        session.keep(np.array([0]), np.array([len(context) - 1]))
        scores = np.asarray(to_host(session.append(np.array([[context[-1], *path]]))))[0, -1]
        if model.returns_probs:
            return scores
        weights = np.exp(scores.astype(np.float64) - scores.max())
        return weights / weights.sum()

    return probs_after


def _as_context(context: Any) -> Path:
    try:
        tokens = [whole(token) for token in context]
    except TypeError:
        tokens = [None]
    if any(token is None or token < 0 for token in tokens):
        raise InvalidParameterError(
            f"context = {shown(context)}; it must be a sequence of token ids, which are integers "
            "of at least 0"
        )
    return tuple(token for token in tokens if token is not None)
