"""The guard against slowness: how it compares; nothing is timed here."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from benchmarks import guard
from benchmarks.guard import GROUPS, Group, best_of, slower


def group_of(*measured: dict[str, float]) -> tuple[Group, list[int]]:
    """Make a group that was recorded as {"a": 2, "b": 4}, and count how often it is measured."""
    calls: list[int] = []
    answers: Iterator[dict[str, float]] = iter(measured)

    def measure() -> dict[str, float]:
        calls.append(1)
        return next(answers)

    return Group(lambda: {"a": 2.0, "b": 4.0}, measure), calls


def test_a_ratio_is_slower_above_the_tolerance_only() -> None:
    """Catches a comparison of the wrong way round: what has become faster is welcome."""
    assert slower({"a": 2.0}, {"a": 3.0}, 1.5) == {}
    assert slower({"a": 2.0}, {"a": 3.1}, 1.5) == {"a": 1.55}
    assert slower({"a": 2.0}, {"a": 0.1}, 1.5) == {}


@pytest.mark.parametrize("lost", [{}, {"a": np.nan}])
def test_a_measurement_that_is_lost_is_slower(lost: dict[str, float]) -> None:
    """Catches a guard that goes on guarding nothing after a name has changed."""
    assert set(slower({"a": 2.0}, lost)) == {"a"}


def test_noise_is_measured_again_and_slowness_stays() -> None:
    once, calls = group_of({"a": 9.0, "b": 4.0}, {"a": 2.0, "b": 9.0})
    assert best_of(once, 3, 1.5) == {"a": 2.0, "b": 4.0}, "each was fast in one of two tries"
    assert len(calls) == 2
    always, calls = group_of(*[{"a": 9.0, "b": 4.0}] * 3)
    assert slower({"a": 2.0, "b": 4.0}, best_of(always, 3, 1.5), 1.5) == {"a": 4.5}
    assert len(calls) == 3


@pytest.mark.parametrize("name", GROUPS)
def test_the_records_have_what_is_guarded(name: str) -> None:
    """Catches a record whose form has changed under the guard."""
    recorded = GROUPS[name].recorded()
    assert recorded
    assert all(0 < ratio < np.inf for ratio in recorded.values())


def test_names_of_what_is_measured_are_those_of_the_records() -> None:
    cost = {"optimal": {"build ms": 4.0, "one select µs": 2.0}, "k-Seq": {"build ms": 2.0}}
    assert guard.of_rules(cost) == {"k-Seq: build": 0.5}
    row = {"laws": "random", "k": 2, "argsort ms": 2.0, "alpha": 2, "plan": 10, "certificate": 15}
    assert guard.solved([row, {**row, "argsort ms": 4.0}], {"one select, ms": 1.0, "s": 3.0}) == {
        "alpha, random, k = 2": 2.0,
        "plan, random, k = 2": 10.0,
        "certificate, random, k = 2": 15.0,
        "one select": 0.5,
    }


def test_the_exit_code_says_whether_anything_is_slower(monkeypatch: pytest.MonkeyPatch) -> None:
    fast, _ = group_of({"a": 2.0, "b": 4.0})
    slow, _ = group_of(*[{"a": 9.0, "b": 4.0}] * guard.TRIES)
    monkeypatch.setattr(guard, "GROUPS", {"fast": fast, "slow": slow})
    monkeypatch.setattr("sys.argv", ["guard", "fast"])
    assert guard.main() == 0
    monkeypatch.setattr("sys.argv", ["guard", "slow"])
    assert guard.main() == 1
