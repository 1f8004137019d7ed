"""Plans, solutions and distributions in several threads, in other processes, and as copies."""

from __future__ import annotations

import copy
import pickle
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from fractions import Fraction
from threading import Barrier
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

import otm
from otm import SparseProbs
from otm.coupling import PLANS
from otm.drafts import Greedy, HubPairs, Independent, Joint, Top, WithoutReplacement
from otm.errors import InvalidInputError
from otm.problem import Problem
from otm.testing.instances import instance

THREADS = 8
COPIES: dict[str, Callable[[Any], Any]] = {
    "pickle": lambda thing: pickle.loads(pickle.dumps(thing)),
    "copy": copy.copy,
    "deepcopy": copy.deepcopy,
}
P, Q = [0.5, 0.25, 0.25, 0.0], [0.125, 0.25, 0.5, 0.125]
SPARSE = SparseProbs([3, 70, 9], P[:3]), SparseProbs([9, 3, 4], P[:3])

THINGS: dict[str, Callable[[], Any]] = {
    "problem": lambda: instance("three drafts"),
    "solution": lambda: otm.solve(P, Q, 2),
    "exact solution": lambda: otm.solve(*[[Fraction(x) for x in law] for law in (P, Q)], 2),
    "rows": lambda: otm.solve([P, Q], Q, [2, 3]),
    "sparse distribution": lambda: SPARSE[0],
    "sparse solution": lambda: otm.solve(*SPARSE, 2),
    "greedy drafts": lambda: Greedy(P, 2),
    "top drafts": lambda: Top(P, 2),
    "hub pairs": lambda: HubPairs(P),
    "other distributions": lambda: Independent([P, Q]),
    "joint distribution": lambda: Joint({(0, 1): 0.25, (2, 0): 0.75}, 4),
    "different drafts": lambda: WithoutReplacement(P, 2),
    **{
        f"plan: {name}": (lambda rule=rule: rule(instance("three drafts", exact=False)))
        for name, rule in PLANS.items()
    },
}


def parts(thing: Any, seen: set[int]) -> Iterator[npt.NDArray[Any]]:
    """All arrays that an object holds, in its caches too."""
    if id(thing) in seen:
        return
    seen.add(id(thing))
    if isinstance(thing, np.ndarray):
        yield thing
    elif isinstance(thing, dict):
        for value in thing.values():
            yield from parts(value, seen)
    elif isinstance(thing, list | tuple):
        for value in thing:
            yield from parts(value, seen)
    elif type(thing).__module__.startswith("otm."):
        yield from parts(vars(thing), seen)


def use(thing: Any) -> None:
    """Fill the caches of an object."""
    for name in dir(type(thing)):
        if not name.startswith("__") and name not in {"distance_to_target", "_rank"}:
            with suppress(InvalidInputError):  # what is about one row is not about many
                getattr(thing, name)
    for name in ("plan", "problem", "drafts"):
        with suppress(AttributeError, InvalidInputError):
            use(getattr(thing, name))


def in_threads(work: Callable[[int], Any]) -> list[Any]:
    """Call a function in many threads, which start at once and take turns often."""
    barrier = Barrier(THREADS)

    def start(number: int) -> Any:
        barrier.wait()
        return work(number)

    pause = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        with ThreadPoolExecutor(THREADS) as pool:
            return list(pool.map(start, range(THREADS)))
    finally:
        sys.setswitchinterval(pause)


@pytest.mark.parametrize("name", THINGS)
def test_what_cannot_be_changed_cannot_be_changed_in_a_copy(name: str) -> None:
    """Bug: NumPy forgets that an array is read-only, and the tables of a copy may be changed."""
    thing = THINGS[name]()
    use(thing)
    before = list(parts(thing, set()))
    for way, travel in COPIES.items():
        after = list(parts(travel(thing), set()))
        assert len(before) == len(after) > 0, way
        for array, copied in zip(before, after, strict=True):
            assert array.flags.writeable or not copied.flags.writeable, way
            assert array.dtype == copied.dtype
            assert array.tolist() == copied.tolist()


@pytest.mark.parametrize("name", PLANS)
def test_a_plan_decides_alike_in_many_threads(name: str) -> None:
    """Bug: a table that a thread sees half built, or a buffer that all of them share."""
    rng = np.random.default_rng(5)
    p, q = rng.dirichlet(np.ones(40), 2)
    problem = Problem(p, q, 2)
    plan = PLANS[name](problem)
    drafts = plan.drafts.draw(rng.random((200, plan.drafts.uniforms_per_draw)))
    uniforms = rng.random((200, plan.uniforms_per_selection))
    expected = plan.select(drafts, uniforms)
    fresh = PLANS[name](problem)

    def work(number: int) -> Any:
        if number % 2:
            _ = fresh.acceptance
        return fresh.select(drafts, uniforms), fresh.output_distribution()

    for selection, law in in_threads(work):
        assert selection.token.tolist() == expected.token.tolist()
        assert selection.index.tolist() == expected.index.tolist()
        assert law.tolist() == plan.output_distribution().tolist()


def test_many_threads_may_ask_for_the_solutions_of_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    """Bug: two threads that drop the same oldest solution, or one that takes another's row."""
    monkeypatch.setattr("otm.solution.CACHED_TOKENS", 0)  # one is kept at a time
    rows = otm.solve(np.random.default_rng(1).dirichlet(np.ones(4), 100), Q, 2)

    def work(number: int) -> list[float]:
        order = np.random.default_rng(number).permutation(100).tolist()
        found = {row: rows[row].alpha for row in order}
        return [found[row] for row in range(100)]

    for alphas in in_threads(work):
        assert alphas == rows.alpha.tolist()


def test_other_processes_get_the_same_solution() -> None:
    """Bug: a pickle that only the process that wrote it can read."""
    solution = otm.solve(P, Q, 2)
    code = (
        "import pickle, sys; solution = pickle.load(sys.stdin.buffer)\n"
        "solution.certificate.check()\n"
        "print(repr(solution.alpha), solution.plan.problem.draft.flags.writeable)"
    )
    ran = subprocess.run(
        [sys.executable, "-c", code], input=pickle.dumps(solution), capture_output=True, check=True
    )
    assert ran.stdout.decode().split() == [repr(solution.alpha), "False"]
