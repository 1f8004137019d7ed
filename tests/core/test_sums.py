"""Results do not depend on how Python's own `sum` rounds, which changed in version 3.12."""

from __future__ import annotations

import builtins
import math
import operator
from collections.abc import Callable, Iterable
from functools import reduce
from typing import Any

import numpy as np
import pytest

from otm import Problem, solve_block
from otm._core.arithmetic import total
from otm.audit.intercept.races import place_of
from otm.audit.observe.observation import distance
from otm.coupling import KSeq
from otm.drafts import WithoutReplacement
from otm.optimum.bounds import lemma_3_by_definition

SEEDS = range(12)


def one_by_one(terms: Iterable[Any], /, start: Any = 0) -> Any:
    """Sum as Python up to 3.11 does."""
    return reduce(operator.add, terms, start)


def compensated(terms: Iterable[Any], /, start: Any = 0) -> Any:
    """Sum as Python since 3.12 does: no digits of floats are lost."""
    numbers = list(terms)
    if numbers and {float} <= {type(x) for x in (start, *numbers)} <= {float, int}:
        return math.fsum([start, *numbers])
    return reduce(operator.add, numbers, start)


def law(rng: np.random.Generator, size: int = 4) -> list[float]:
    return rng.dirichlet(np.ones(size)).tolist()


def bound(rng: np.random.Generator) -> Any:
    return lemma_3_by_definition(Problem(law(rng), law(rng), 2))


def extensions(rng: np.random.Generator) -> Any:
    return list(WithoutReplacement(law(rng, 6), 3).position_tuples())


def block_of_paths(rng: np.random.Generator) -> Any:
    laws: dict[Any, list[float]] = {}
    draft, target = (
        lambda path, side=side: laws.setdefault((side, path), law(rng, 5)) for side in "dt"
    )
    solution = solve_block(draft, target, 2, 2)
    return solution.accepted, solution.nodes


def distance_of_sequences(rng: np.random.Generator) -> Any:
    a, b = ({(i,): x for i, x in enumerate(law(rng, 9))} for _ in range(2))
    return distance(a, b)


def places(rng: np.random.Generator) -> Any:
    weights = law(rng, 10)
    whole = one_by_one(weights)
    ends = np.cumsum(weights) / whole  # where a last digit decides
    return [place_of(weights, end) for end in ends]


def k_seq(rng: np.random.Generator) -> Any:
    plan = KSeq(Problem(law(rng, 7), law(rng, 7), 3))
    return plan.rho, plan.acceptance, plan.accept_probability.tolist()


CASES: list[Callable[[np.random.Generator], Any]] = [
    bound,
    extensions,
    block_of_paths,
    distance_of_sequences,
    places,
    k_seq,
]


@pytest.mark.parametrize("case", CASES)
def test_results_are_the_same_with_every_python(
    case: Callable[[np.random.Generator], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Bug: a plan, a bound or a decision that rests on the last digits of a built-in `sum`."""
    found = []
    for kind in (one_by_one, compensated):
        monkeypatch.setattr(builtins, "sum", kind)
        found.append([case(np.random.default_rng(seed)) for seed in SEEDS])
        monkeypatch.undo()
    assert found[0] == found[1]


def test_a_total_is_added_up_one_by_one() -> None:
    """And the negative control: the two kinds of sums differ."""
    tenths = [0.1] * 10
    assert total(tenths) == one_by_one(tenths) == 0.9999999999999999
    assert compensated(tenths) == 1
    assert total([]) == 0
    assert total([1, 2], 0.5) == 3.5
