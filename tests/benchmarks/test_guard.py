"""The guard against slowness: how it compares; nothing is timed here."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from benchmarks import guard
from benchmarks.guard import Group, best_of, slower

THEN = {"a": 2.0, "b": 4.0}


def measuring(*measured: dict[str, float]) -> tuple[Callable[[], dict[str, float]], list[int]]:
    """Return one measurement after another, and count them."""
    calls: list[int] = []
    answers: Iterator[dict[str, float]] = iter(measured)

    def measure() -> dict[str, float]:
        calls.append(1)
        return next(answers)

    return measure, calls


def test_a_ratio_is_slower_above_the_tolerance_only() -> None:
    """Catches a comparison of the wrong way round: what has become faster is welcome."""
    assert slower({"a": 2.0}, {"a": 3.0}, 1.5) == {}
    assert slower({"a": 2.0}, {"a": 3.1}, 1.5) == {"a": 1.55}
    assert slower({"a": 2.0}, {"a": 0.1}, 1.5) == {}


@pytest.mark.parametrize("lost", [{}, {"a": np.nan}])
def test_a_measurement_of_one_version_only_is_slower(lost: dict[str, float]) -> None:
    """Catches a guard that goes on guarding nothing after a name has changed."""
    assert set(slower({"a": 2.0}, lost)) == {"a"}
    assert set(slower(lost, {"a": 2.0})) == {"a"}


def test_noise_is_measured_again_and_slowness_stays() -> None:
    once, calls = measuring({"a": 9.0, "b": 4.0}, {"a": 2.0, "b": 9.0})
    then, now = best_of(lambda: THEN, once, 3, 1.5)
    assert (then, now) == (THEN, THEN), "each was fast in one of two tries"
    assert len(calls) == 2
    always, calls = measuring(*[{"a": 9.0, "b": 4.0}] * 3)
    assert slower(*best_of(lambda: THEN, always, 3, 1.5), 1.5) == {"a": 4.5}
    assert len(calls) == 3


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
    """Both versions are measured with their own folder, and the output names the revision."""
    trees: list[Path] = []

    def measured_in(tree: Path, group: str) -> dict[str, float]:
        trees.append(tree)
        return THEN if tree != guard.ROOT or group == "fast" else {"a": 9.0, "b": 4.0}

    unit = Group("a unit", dict)
    monkeypatch.setattr(guard, "GROUPS", {"fast": unit, "slow": unit})
    monkeypatch.setattr(guard, "measured_in", measured_in)
    monkeypatch.setattr(guard, "copy_revision", lambda revision, tree: None)
    monkeypatch.setattr("sys.argv", ["guard", "fast", "--against", "HEAD"])
    assert guard.main() == 0
    assert trees[0] != guard.ROOT
    assert trees[1:] == [guard.ROOT]
    monkeypatch.setattr("sys.argv", ["guard", "slow", "--against", "HEAD"])
    assert guard.main() == 1


def test_the_code_of_a_revision_is_measured(tmp_path: Path) -> None:
    """Catches two measurements of this checkout: the folder's own `otm` must be imported."""
    (tmp_path / "otm").mkdir()
    (tmp_path / "otm" / "__init__.py").write_text("raise SystemExit('the other one')")
    (tmp_path / "benchmarks").symlink_to(guard.ROOT / "benchmarks")
    with pytest.raises(subprocess.CalledProcessError) as failure:
        guard.measured_in(tmp_path, "memory")
    assert failure.value.returncode == 1
