"""The optimum of block verification, against two other programs and in fractions."""

from __future__ import annotations

import itertools
import math
from collections import defaultdict
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import otm
from otm import Interval, SparseProbs, solve_block
from otm.errors import (
    InvalidDistributionError,
    InvalidDraftCountError,
    InvalidDraftsError,
    InvalidInputError,
    InvalidParameterError,
    ProblemTooLargeError,
)
from otm.models import LanguageModel, TableModel, UniformModel
from otm.testing.strategies import Block, blocks
from tests.block_optimum.oracles import (
    Law,
    Path,
    Table,
    block_verification,
    by_antichains,
    by_flow,
    iid_table,
    random_law,
)

F = Fraction
fewer = settings(max_examples=settings.default.max_examples // 2)


def constant(*probs: Any) -> Law:
    """Make a distribution that is the same after every path."""
    return lambda path: list(probs)


def in_floats(law: Law) -> Law:
    return lambda path: [float(x) for x in law(path)]


@pytest.mark.parametrize(
    ("length", "k", "accepted", "bound"),
    [
        (2, 1, 1.2222, 1.3333),
        (2, 2, 1.6173, 1.6543),
        (3, 2, 2.2236, 2.3649),
        (4, 2, 2.7418, 2.9822),
        (2, 3, 1.8532, 1.8532),
        (3, 3, 2.5921, 2.6640),
    ],
)
def test_the_values_of_constant_distributions(
    length: int, k: int, accepted: float, bound: float
) -> None:
    solution = solve_block(constant(F(2, 3), F(1, 3)), constant(F(1, 3), F(2, 3)), k, length)
    assert isinstance(solution.accepted, F)
    assert (round(float(solution.accepted), 4), round(float(solution.bound), 4)) == (
        accepted,
        bound,
    )
    assert solution.certificate.gap == 0
    solution.certificate.check()
    floats = solve_block(constant(2 / 3, 1 / 3), constant(1 / 3, 2 / 3), k, length)
    assert floats.accepted == pytest.approx(float(solution.accepted), abs=1e-9)
    floats.certificate.check()


@settings(max_examples=3 * settings.default.max_examples)
@given(blocks(max_tokens=3, exact=True, max_ways=3**6), st.integers(0, 2))
def test_three_programs_agree(block: Block, checked: int) -> None:
    """Bug: an antichain that no round finds; a set function that is not that of the drafts."""
    draft, target, k, length, _ = block
    solution = solve_block(draft, target, k, length)
    table = iid_table(draft.probs, k, length)
    assert float(solution.accepted) == pytest.approx(by_flow(table, target.probs), abs=1e-9)
    if len(frozenset[Path]().union(*table)) < 15:
        by_rows = by_antichains(table, target.probs)
        assert float(solution.accepted) == pytest.approx(by_rows, abs=1e-9)
    floats = solve_block(in_floats(draft.probs), in_floats(target.probs), k, length)
    assert floats.accepted == pytest.approx(float(solution.accepted), abs=1e-9)
    assert solution.accepted <= solution.bound
    assert solution.certificate.gap == 0
    if not checked:
        solution.certificate.check()
        floats.certificate.check()
    if k == 1:
        assert solution.method == "block verification"
        assert solution.accepted == block_verification(draft.probs, target.probs, length)
    p, q = draft.probs(()), target.probs(())
    if length == 1 and (p * q).any():
        assert solution.accepted == solution.bound == otm.alpha(p, q, k)


@fewer
@given(st.integers(0, 2**32 - 1))
def test_extreme_probabilities(seed: int) -> None:
    """Bug: absolute tolerances where probabilities are small; ties that stop the rounds."""
    rng = np.random.default_rng(seed)

    def skewed(_: Path) -> list[Fraction]:
        kind = rng.integers(3)
        weights = [
            1 if kind == 0 else int(rng.integers(3)) if kind == 1 else 2 ** int(rng.integers(60))
            for _ in range(2)
        ]
        weights[int(rng.integers(2))] += 1
        return [F(weight, sum(weights)) for weight in weights]

    paths = [path for depth in range(3) for path in itertools.product(range(2), repeat=depth)]
    draft, target = ({path: skewed(path) for path in paths}.__getitem__ for _ in range(2))
    k = int(rng.choice([2, 3, 8, 64]))
    solution = solve_block(draft, target, k, 3)
    assert solution.certificate.gap == 0
    solution.certificate.check()
    floats = solve_block(in_floats(draft), in_floats(target), k, 3)
    assert floats.accepted == pytest.approx(float(solution.accepted), abs=1e-8)
    floats.certificate.check()


def random_table(rng: np.random.Generator, vocabulary: int, length: int) -> Table:
    """Draw a few trees of paths of different lengths."""
    table: dict[frozenset[Path], Fraction] = defaultdict(F)
    weights = rng.integers(1, 5, int(rng.integers(1, 5))).tolist()
    for weight in weights:
        paths = [
            tuple(rng.integers(0, vocabulary, int(rng.integers(1, length + 1))).tolist())
            for _ in range(int(rng.integers(0, 4)))
        ]
        tree = frozenset(path[:i] for path in paths for i in range(1, len(path) + 1))
        table[tree] += F(weight, sum(weights))
    return dict(table)


@pytest.mark.parametrize("seed", range(60))
def test_joint_distributions_of_trees(seed: int) -> None:
    """Bug: a flow to nodes that were not drafted; paths of different lengths."""
    rng = np.random.default_rng(seed)
    table = random_table(rng, 3, 3)
    target = random_law(3, 3, rng)
    solution = solve_block(table, target)
    if any(table):
        expected = by_flow(table, target)
        assert float(solution.accepted) == pytest.approx(expected, abs=1e-9)
        floats = solve_block({tree: float(x) for tree, x in table.items()}, in_floats(target))
        assert floats.accepted == pytest.approx(expected, abs=1e-9)
        floats.certificate.check()
    assert solution.certificate.gap == 0
    assert solution.accepted <= solution.bound
    solution.certificate.check()


def test_i_i_d_paths_as_a_table() -> None:
    """Bug: two set functions for the same drafts."""
    draft, target = (random_law(2, 2, np.random.default_rng(seed)) for seed in (1, 2))
    table = iid_table(draft, 2, 2)
    solution, other = solve_block(draft, target, 2, 2), solve_block(table, target)
    assert (solution.accepted, solution.bound) == (other.accepted, other.bound)


def output_distribution(
    solution: otm.BlockSolution, table: Table, target: Law, vocabulary: int, length: int
) -> dict[Path, Fraction]:
    """Enumerate drafts, accepted paths, the next token, and the target to length + 1."""
    plan, accept_probs = solution.plan, solution.nodes
    output: dict[Path, Fraction] = defaultdict(F)
    for tree, chance in table.items():
        reached = [
            path for path in tree if all(target(path[:i])[path[i]] for i in range(len(path)))
        ]
        ends = [y for y in reached if not any(x[: len(y)] == y and x != y for x in reached)]
        for accepted, share in plan[tuple(sorted(ends))].items():
            here = accept_probs.get(accepted, 1 if not accepted else 0)
            weights = [
                here * q - accept_probs.get((*accepted, z), 0)
                for z, q in enumerate(target(accepted) if len(accepted) < length else [1])
            ]
            assert min(weights) >= 0
            for token, weight in enumerate(weights):
                if weight:
                    path = (*accepted, token) if len(accepted) < length else accepted
                    output[path] += F(chance) * share * weight / sum(weights)
    for depth in range(1, length):
        for path in [path for path in output if len(path) == depth]:
            mass = output.pop(path)
            for token in range(vocabulary):
                output[(*path, token)] += mass * target(path)[token]
    return {path: mass for path, mass in output.items() if mass}


@fewer
@given(blocks(max_tokens=3, exact=True, max_ways=3**4), st.none() | st.integers(0, 2**32 - 1))
def test_the_plan_is_lossless_and_attains_the_optimum(block: Block, seed: int | None) -> None:
    """Bug: an S that no rule has."""
    k, length, vocabulary, target = (
        block.k,
        block.length,
        block.draft.vocabulary,
        block.target.probs,
    )
    if seed is None:
        solution = solve_block(block.draft, block.target, k, length)
        table = iid_table(block.draft.probs, k, length)
    else:
        table = random_table(np.random.default_rng(seed), vocabulary, length)
        solution = solve_block(table, block.target)
    expected = {
        path: chance
        for path in itertools.product(range(vocabulary), repeat=length)
        if (chance := math.prod((target(path[:i])[path[i]] for i in range(length)), start=F(1)))
    }
    assert output_distribution(solution, table, target, vocabulary, length) == expected
    value = F(0)
    for tree, accepted in solution.plan.items():
        assert all(not y or any(path[: len(y)] == y for path in tree) for y in accepted)
    for tree, chance in table.items():
        reached = [
            path for path in tree if all(target(path[:i])[path[i]] for i in range(len(path)))
        ]
        ends = [y for y in reached if not any(x[: len(y)] == y and x != y for x in reached)]
        accepted = solution.plan[tuple(sorted(ends))]
        value += chance * sum(len(y) * F(share) for y, share in accepted.items())
    assert value == solution.accepted


@pytest.mark.parametrize("k", [1, 2, 3])
@pytest.mark.parametrize("top", [1, 2, 3])
def test_tokens_left_out_give_an_interval(k: int, top: int) -> None:
    """Bug: an end of the interval on the wrong side of the optimum."""
    for seed in range(8):
        draft, target = (random_law(4, 2, np.random.default_rng(seed + i)) for i in (0, 1_000))
        whole = solve_block(draft, target, k, 2)
        for kind in (lambda law: law, in_floats):
            solution = solve_block(kind(draft), kind(target), k, 2, top=top)
            solution.certificate.check()
            accepted = solution.accepted
            if isinstance(accepted, Interval):
                assert accepted.lower - F(1, 10**9) <= whole.accepted
                assert whole.accepted <= accepted.upper + F(1, 10**9)
            else:
                assert float(accepted) == pytest.approx(float(whole.accepted), abs=1e-9)
            assert solution.bound >= float(whole.accepted) - 1e-9
            assert len(solution.nodes) <= 1 + top + top**2
    with pytest.raises(InvalidInputError, match="omit `top`"):
        _ = solve_block(constant(F(1, 2), F(1, 2)), constant(F(1, 2), F(1, 2)), 2, 1, top=1).plan


def test_more_tokens_narrow_the_interval() -> None:
    """Bug: a rest that is worth too much or too little."""
    rng = np.random.default_rng(3)
    rows = {
        path: rng.dirichlet(np.ones(6), 2)
        for d in range(3)
        for path in itertools.product(range(6), repeat=d)
    }
    ends = []
    for top in (1, 2, 4, 6):
        accepted = solve_block(
            lambda path: rows[path][0], lambda path: rows[path][1], 3, 3, top=top
        ).accepted
        ends.append(
            (accepted.lower, accepted.upper)
            if isinstance(accepted, Interval)
            else (accepted, accepted)
        )
    assert all(
        low[0] <= high[0] + 1e-9 and low[1] >= high[1] - 1e-9
        for low, high in itertools.pairwise(ends)
    )
    assert ends[-1][0] == ends[-1][1]


def test_a_larger_tree_in_floats_meets_its_bound() -> None:
    """Bug: polygons, which only trees beyond 200 nodes take, that never meet the curve."""
    rng = np.random.default_rng(0)
    rows = {}
    for path in (path for depth in range(4) for path in itertools.product(range(4), repeat=depth)):
        draft = rng.dirichlet(np.ones(4))
        target = draft * np.exp(rng.normal(size=4))
        rows[path] = draft, target / target.sum()
    solution = solve_block(lambda path: rows[path][0], lambda path: rows[path][1], 4, 4)
    assert len(solution.nodes) > 200
    assert solution.certificate.gap <= 1e-8
    solution.certificate.check()


def test_models_sparse_distributions_and_contexts() -> None:
    """Bug: a path that is read without its context, or ids that are places."""
    half = F(1, 2)
    draft = TableModel({(): [half, half], (0,): [F(1, 4), F(3, 4)]})
    target = TableModel({(): [half, half], (1,): [1, 0]})
    rows = solve_block(
        lambda path: draft.probs((1, *path)), lambda path: target.probs((1, *path)), 2, 2
    )
    assert solve_block(draft, target, 2, 2, context=(1,)).accepted == rows.accepted
    assert solve_block(draft, target, 2, 2).accepted != rows.accepted
    sparse = solve_block(
        lambda path: SparseProbs([3, 900], draft.probs(tuple(int(t > 3) for t in path))),
        lambda path: SparseProbs([3, 900], target.probs(tuple(int(t > 3) for t in path))),
        2,
        2,
    )
    assert sparse.accepted == solve_block(draft, target, 2, 2).accepted
    assert (900,) in sparse.nodes
    table = {frozenset({(0,)}): half, frozenset({(1,)}): half}
    given_sparse = solve_block(table, lambda path: SparseProbs([0, 7], [half, half]))
    assert given_sparse.accepted == half


class Reading(LanguageModel):
    """A model that gives logits of the tokens that it has read."""

    vocabulary = 3

    def __init__(self, model: TableModel) -> None:
        self.model = model

    def start(self, rows: int) -> Any:
        session = self.model.start(rows)
        append = session.append
        with np.errstate(divide="ignore"):
            session.append = lambda tokens: np.log(append(tokens).astype(float))
        return session


def test_models_that_read_tokens() -> None:
    """Bug: a session that keeps the path before."""
    rng = np.random.default_rng(4)
    draft, target = (TableModel.random(3, 2, rng, max_weight=9) for _ in range(2))
    with np.errstate(divide="ignore"):
        found = solve_block(Reading(draft), Reading(target), 2, 2, context=[2, 1])
    expected = solve_block(draft, target, 2, 2, context=[2, 1])
    assert float(expected.accepted) == pytest.approx(found.accepted, abs=1e-9)
    with pytest.raises(InvalidInputError, match="context of at least one token"):
        solve_block(Reading(draft), target, 2, 2)


def test_disjoint_distributions_accept_nothing() -> None:
    solution = solve_block(constant(1, 0), constant(0, 1), 2, 2)
    assert (solution.accepted, solution.bound, solution.nodes) == (0, 0, {(): 1})
    solution.certificate.check()


@pytest.mark.parametrize(
    ("arguments", "options", "error", "message"),
    [
        ((3, constant(1), 2, 1), {}, InvalidInputError, "give a model"),
        (
            (constant(0.5, 0.5), constant(0.5, 0.6), 2, 1),
            {},
            InvalidDistributionError,
            "after the path ()",
        ),
        ((constant(1), constant(0.5, 0.5), 2, 1), {}, InvalidDistributionError, "1 tokens"),
        ((constant(1), constant(1), 0, 1), {}, InvalidDraftCountError, "at least one"),
        ((constant(1), constant(1), 2), {}, InvalidParameterError, "length"),
        ((constant(1), constant(1), 2, 1), {"top": 0}, InvalidParameterError, "top"),
        ((constant(1), constant(1), 2, 1), {"tolerance": -1}, InvalidParameterError, "tolerance"),
        ((constant(1), constant(1), 2, 1), {"context": "a"}, InvalidParameterError, "context"),
        ((UniformModel(10), UniformModel(10), 2, 9), {}, ProblemTooLargeError, "top=m"),
        (
            (constant(*[F(1, 9)] * 9), constant(*[F(1, 9)] * 9), 2, 3),
            {},
            ProblemTooLargeError,
            "floats",
        ),
        (({((0,),): 1}, constant(1), 2), {}, InvalidParameterError, "omit k"),
        (({(0,): 1}, constant(1)), {}, InvalidDraftsError, "collection of paths"),
        (({((5,),): 1}, constant(1)), {}, InvalidDraftsError, "vocabulary"),
        (({((0,),): 0.5}, constant(1)), {}, InvalidDistributionError, "sums to"),
        (({((0, 0, 0),): 1}, constant(1)), {"node_limit": 2}, ProblemTooLargeError, "node_limit"),
    ],
)
def test_bad_input(
    arguments: tuple[Any, ...], options: dict[str, Any], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message.replace("(", r"\(").replace(")", r"\)")):
        solve_block(*arguments, **options)


def test_nothing_is_read_of_a_tree_that_is_too_large() -> None:
    """Bug: the limit is checked only after the tree has been built."""
    calls = []

    def probs(path: Path) -> list[float]:
        calls.append(path)
        return [0.125] * 8

    with pytest.raises(ProblemTooLargeError):
        solve_block(probs, probs, 2, 8, node_limit=100)
    assert len(calls) <= 2 * (1 + 8 + 12)
