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
from otm.block_optimum.certificate_builder import prove
from otm.block_optimum.exact import solve_exactly
from otm.block_optimum.hull import PathDrafts, hit_probability
from otm.block_optimum.polygons import solve_by_polygons
from otm.block_optimum.program import (
    Bounds,
    CuttingPlanes,
    Prices,
    levels_of,
    solve_program,
    upper_bound,
    value_of,
)
from otm.block_optimum.solution import BlockSolution
from otm.block_optimum.table import TreeDrafts, drafted_trees, maximum_flow
from otm.block_optimum.tree import NextProbs, Path, Tree, grow, row_of
from otm.errors import InvalidInputError, InvalidParameterError, ProblemTooLargeError
from otm.models import LanguageModel, StatelessModel

NODE_LIMIT = 20_000
"""Most nodes by default."""

EXACT_LIMIT = 500
"""Most nodes in fractions."""

EXACT_BITS = 1_000_000
"""Largest product of nodes and bits of g(U) in fractions; this takes half a minute."""

SMALL_TREE = 200
"""Most nodes in floats for antichains one by one; polygons solve larger trees of i.i.d. paths."""

KNOWN = 1e-8
"""Bounds as close as this are one number."""

Law = Callable[[Path], Any]
"""The distribution of the next token after a path."""


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
    """Find the most drafts that any memoryless lossless rule accepts on average from k paths.

    It is the value of a linear program over the nodes of the tree of paths (Theorem 13.1 of
    docs/theory/block.md).  For one path it is what block verification [sun2024block]_ accepts, for
    paths of one token `otm.alpha`.  A step gives one token more than it accepts.

    Parameters
    ----------
    draft : LanguageModel, callable or mapping
        The distribution of a draft's next token, by the path before it: a model, or a function from
        a tuple of token ids to an array of probabilities, fractions or a `SparseProbs`.  For any
        joint distribution of drafted trees a mapping from collections of paths to probabilities;
        k and length are to be left out then.
    target : LanguageModel or callable
        The target's distribution of the next token, in the same way.
    k : int
        Number of i.i.d. draft paths.
    length : int
        Tokens of each path.
    context : sequence of int, optional
        Token ids before all paths.
    top : int, optional
        Tokens to keep after each path, those of which most can be accepted.  What is left out is
        bounded: the optimum lies in an interval.
    tolerance : float, optional
        Gap between the bounds at which to stop, in floats.
    rounds : int, optional
        Most linear programs, each better than the one before.
    node_limit : int, optional
        Most nodes of the tree; a larger one is refused before it is made.

    Returns
    -------
    BlockSolution
        With `accepted`, `bound`, `nodes`, `certificate`, `plan`, `method` and `why`.  Fractions
        give fractions, with a gap of zero.

    Raises
    ------
    InvalidDistributionError, InvalidDraftCountError, InvalidParameterError
        If a distribution, k or another parameter is not valid.
    InvalidDraftsError
        If a table of drafted trees holds something else.
    InvalidInputError
        If draft or target is nothing of the above, or a model needs a context.
    ProblemTooLargeError
        If the tree has more nodes than the limit, or more than 500 in fractions.
    SolverError
        If HiGHS does not end at an optimum, or no exact one is found in fractions.
    MissingDependencyError
        If highspy, or networkx for a table of drafted trees, is not installed.

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
    >>> solution.certificate.check()  # returns nothing: the proof holds

    Trees of drafts, here one of two tokens or a single path, as likely as each other:

    >>> table = {((0,), (1,)): 0.5, ((1, 1),): 0.5}
    >>> round(solve_block(table, lambda path: [0.5, 0.5]).accepted, 9)
    1.25
    """
    tolerance = as_real(tolerance, "tolerance", least=0)
    rounds = as_positive(rounds, "rounds")
    node_limit = as_positive(node_limit, "node_limit")
    before = _as_context(context)
    of_target = _law(target, "target", before)
    drafts: PathDrafts | TreeDrafts
    with watching(None, "solve_block") as watch:
        if isinstance(draft, Mapping):
            for name, value in (("k", k), ("length", length), ("top", top)):
                if value is not None:
                    raise InvalidParameterError(
                        f"{name} = {shown(value)} beside a table of drafted trees, which says it "
                        "already; leave it out"
                    )
            drafts = drafted_trees(draft, of_target, node_limit)
        else:
            k, length = as_draft_count(k), as_integer(length, "length", 1)
            most = None if top is None else as_positive(top, "top")
            rows = partial(_rows, _law(draft, "draft", before), of_target)
            drafts = PathDrafts(grow(rows, length, k, most, node_limit, watch=watch), k)
        return _solve(drafts, tolerance, rounds, watch)


def _solve(
    drafts: PathDrafts | TreeDrafts, tolerance: float, rounds: int, watch: Watch
) -> BlockSolution:
    tree = drafts.tree
    nodes = len(tree.parents) - 1
    if isinstance(drafts, PathDrafts) and drafts.k == 1:
        method = "block verification"
        why = f"one path: the largest S is optimal, node by node, on {nodes:,} nodes."
        bounds = _of_one_path(tree, drafts)
    else:
        if tree.exact and nodes > EXACT_LIMIT:
            raise ProblemTooLargeError(
                f"{nodes:,} nodes in fractions, of which at most {EXACT_LIMIT:,} are solved "
                "exactly; give floats, whose gap is small and proved too"
            )
        if tree.exact and isinstance(drafts, PathDrafts):
            _check_powers(tree, drafts.k)
        large = isinstance(drafts, PathDrafts) and not tree.exact and nodes > SMALL_TREE
        method = "polygons" if large else "cutting planes"
        bounds, cuts = _by_linear_programs(drafts, tolerance, rounds, method, watch)
        kind = "i.i.d. paths" if isinstance(drafts, PathDrafts) else "a table of drafted trees"
        why = f"{kind}: a linear program over {nodes:,} nodes and {cuts:,} antichains."
        if large:
            why = f"{kind}: polygons over {nodes:,} nodes; {cuts:,} antichains bound the optimum."
    certificate, passed = prove(tree, drafts, bounds, method)
    lower, upper = certificate.lower, certificate.upper
    accepted: Number | Interval
    if tree.exact:
        accepted = lower if lower == upper else Interval(lower, upper)
    elif upper - lower <= KNOWN:
        accepted = float(lower)
    else:
        accepted = Interval(rounded(lower, -np.inf), rounded(upper, np.inf))
    found = ShortDict((path, passed[y]) for path, y in tree.places.items() if passed[y])
    return BlockSolution(
        accepted, _sum_of_levels(drafts), found, certificate, method, why, tree, drafts
    )


def _check_powers(tree: Tree, k: int) -> None:
    """Raise for fractions whose powers are too long, before computing one."""
    nodes, unit = len(tree.parents) - 1, 1
    for reach in tree.reach:
        unit = math.lcm(unit, as_fraction(reach).denominator)
        bits = k * (unit.bit_length() - 1)
        if nodes * bits > EXACT_BITS:
            raise ProblemTooLargeError(
                f"the probability that one of k = {k:,} drafts hits a set of paths is a fraction "
                f"of {bits:,} bits or more, too long for {nodes:,} nodes; give floats: their "
                "gap is small, and proved too"
            )


def _by_linear_programs(
    drafts: PathDrafts | TreeDrafts, tolerance: float, rounds: int, method: str, watch: Watch
) -> tuple[Bounds, int]:
    """Bounds, and the number of antichains; both ends of their own where tokens were left out."""
    tree = drafts.tree
    if len(tree.parents) == 1:
        return Bounds([1 + 0 * tree.targets[0]], Fraction(0), {}, Fraction(0)), 0
    worths = [tree.worth(rests=rests) for rests in ((False, True) if tree.truncated else (True,))]
    found = []
    if isinstance(drafts, PathDrafts) and method == "polygons":
        found = [solve_by_polygons(drafts, worth, tolerance, rounds, watch) for worth in worths]
        return _both_ends(found), len(found[-1].prices)
    antichains = [_best_cut(drafts, level)[1] for level in levels_of(tree)]
    for worth in worths:
        program = CuttingPlanes(tree, drafts, worth)
        program.add(antichains)
        if tree.exact:
            found.append(solve_exactly(program, rounds, watch))
        else:
            found.append(solve_program(program, tolerance, rounds, watch))
        antichains = [list(antichain) for antichain in program.antichains]
    return _both_ends(found), len(antichains)


def _both_ends(found: Sequence[Bounds]) -> Bounds:
    """Lower end of the first program, upper end of the last."""
    low, high = found[0], found[-1]
    return Bounds(low.passed, low.lower, high.prices, high.upper)


def _of_one_path(tree: Tree, drafts: PathDrafts) -> Bounds:
    """S(yz) = min(S(y) T(z|y), D(yz)), and the multipliers that prove it."""
    passed = tree.largest(tree.reach)
    worth = tree.worth(rests=True)
    left = [w + 0 * tree.targets[-1] for w in worth]
    prices: Prices = {}
    for y in range(len(passed) - 1, 0, -1):
        parent = tree.parents[y]
        if passed[y] < passed[parent] * tree.targets[y]:
            prices[(y,)] = left[y]
        else:
            left[parent] += left[y] * tree.targets[y]
    lower = value_of(tree.worth(rests=False), passed)
    return Bounds(passed, lower, prices, upper_bound(tree, drafts, worth, prices))


def _sum_of_levels(drafts: PathDrafts | TreeDrafts) -> Number:
    """Σ_i α_K(D_i, T_i): the most that can be accepted at each depth by itself."""
    zero = 0 * drafts.tree.targets[-1]
    return total((_best_cut(drafts, level)[0] for level in levels_of(drafts.tree)), zero)


def _best_cut(drafts: PathDrafts | TreeDrafts, level: Sequence[int]) -> tuple[Number, list[int]]:
    """Least T(H) + g(H^c) over sets H of nodes of a level, and H^c."""
    tree = drafts.tree
    target = tree.reach_of_target
    if isinstance(drafts, TreeDrafts):
        ends = [Fraction(target[y]) if y in set(level) else Fraction(0) for y in range(len(target))]
        short = maximum_flow(drafts.chances, drafts.members, ends).short
    else:
        # prefixes in T/D are enough (Theorem 3.1); here from the other end
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


def _rows(draft: Law, target: Law, path: Path) -> NextProbs:
    return row_of(draft(path), target(path), path)


def _law(model: Any, name: str, context: Path) -> Law:
    """Make a function from paths to distributions, of a model or a function."""
    if isinstance(model, StatelessModel):
        return lambda path: model.probs(context + path)
    if isinstance(model, LanguageModel):
        return _of_session(model, name, context)
    if callable(model):
        return lambda path: model(context + path)
    raise InvalidInputError(
        f"the {name} has type {type(model).__name__}; give a model, or a function from a tuple of "
        "token ids to the probabilities of the next token"
    )


def _of_session(model: LanguageModel, name: str, context: Path) -> Law:
    """Distributions of a model that reads tokens, which needs one to begin with."""
    if not context:
        raise InvalidInputError(
            f"the {name} model reads tokens before it says what follows; give a context of at "
            "least one token"
        )
    session = model.start(1)
    if len(context) > 1:
        session.read(np.array([context[:-1]]))

    def law(path: Path) -> Any:
        session.keep(np.array([0]), np.array([len(context) - 1]))
        scores = np.asarray(to_host(session.append(np.array([[context[-1], *path]]))))[0, -1]
        if model.returns_probs:
            return scores
        weights = np.exp(scores.astype(np.float64) - scores.max())
        return weights / weights.sum()

    return law


def _as_context(context: Any) -> Path:
    try:
        tokens = [whole(token) for token in context]
    except TypeError:
        tokens = [None]
    if any(token is None or token < 0 for token in tokens):
        raise InvalidParameterError(
            f"context = {shown(context)}; it must be a sequence of token ids, whole numbers from 0 "
            "on"
        )
    return tuple(token for token in tokens if token is not None)
