"""`otm.compare` leaves out rules that are too large, and names the slow ones early."""

from __future__ import annotations

import io
import sys
import time
from typing import Any

import numpy as np
import pytest

import otm
from otm._core.display import progress as progress_line
from otm.coupling import KSeq, TransportPlan
from otm.coupling.compare import left_out
from otm.errors import (
    InvalidInputError,
    InvalidParameterError,
    ProblemTooLargeError,
    UnknownMethodError,
)
from otm.gain import PairedMeans, Setup
from otm.problem import Problem

PAIR = [0.75, 0.25], [0.25, 0.75]
ROWS = [[0.75, 0.25], [0.5, 0.5], [0.3, 0.7]], [[0.25, 0.75], [0.4, 0.6], [0.9, 0.1]]


class Clock:
    """A clock that only a slow rule moves: by 0.9 s for each plan."""

    def __init__(self) -> None:
        self.now = 0.0
        self.plans = 0

    def slow(self, problem: Problem) -> TransportPlan:
        self.now += 0.9
        self.plans += 1
        return KSeq(problem)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """Let the times of rules be read from a clock of the test."""
    clock = Clock()
    monkeypatch.setattr(time, "perf_counter", lambda: clock.now)
    return clock


def too_large(problem: Problem) -> TransportPlan:
    raise ProblemTooLargeError(f"k = {problem.k} needs 10^9 bytes")


def out_of_memory_from_two(problem: Problem) -> TransportPlan:
    if problem.k > 1:
        raise MemoryError("Unable to allocate 80 GiB")
    return KSeq(problem)


def means_of(*arguments: Any, **options: Any) -> PairedMeans:
    means = otm.compare(*arguments, **options)
    assert isinstance(means, PairedMeans)
    return means


def test_a_rule_that_is_too_large_does_not_end_the_comparison() -> None:
    """Bug: one rule that needs too much memory hides the numbers of all others."""
    comparison = otm.compare(*PAIR, 2, rules={"huge": too_large, "k-Seq": KSeq})
    assert [rule.name for rule in comparison] == ["k-Seq"]
    assert comparison.left_out == {"huge": "k = 2 needs 10^9 bytes"}
    assert repr(comparison).endswith("\nleft out: huge: k = 2 needs 10^9 bytes")
    assert "<p>left out: huge: k = 2 needs" in comparison._repr_html_()
    with pytest.raises(UnknownMethodError, match="'huge' was left out: k = 2 needs"):
        comparison["huge"]
    alone = otm.compare(*PAIR, 2, rules={"k-Seq": KSeq})
    assert alone.left_out == {}
    assert "left out" not in repr(alone) + alone._repr_html_()


def test_rows_leave_out_a_rule_at_the_ks_that_are_too_large() -> None:
    """Bug: the mean at k = 2 holds zeros of rows that were not computed."""
    means = means_of(*ROWS, [1, 2, 4], rules={"part": out_of_memory_from_two, "k-Seq": KSeq})
    assert [setup for setup in means if setup.rule == "part"] == [Setup("part", 1, 1)]
    assert repr(means).endswith("\nleft out: part, K = 2, 4: Unable to allocate 80 GiB")
    assert means["part", 1, 1] == means["k-Seq", 1, 1]
    with pytest.raises(UnknownMethodError, match="was left out: Unable to allocate"):
        means["part", 2, 1]
    other = means_of(*ROWS, [8], rules={"k-Seq": KSeq})
    assert "left out" not in repr(other)
    assert (other | means).left_out == means.left_out


def test_a_comparison_without_any_rule_is_an_error() -> None:
    for arguments in ((*PAIR, 2), (*ROWS, [2])):
        with pytest.raises(ProblemTooLargeError, match=r"no rule is small enough; .*10\^9 bytes"):
            otm.compare(*arguments, rules={"huge": too_large})


def test_other_errors_of_a_rule_are_not_hidden() -> None:
    """The control: only too little memory or time leaves a rule out."""

    def wrong(problem: Problem) -> TransportPlan:
        raise ZeroDivisionError("a mistake in the rule")

    for arguments in ((*PAIR, 2), (*ROWS, [2])):
        with pytest.raises(ZeroDivisionError):
            otm.compare(*arguments, rules={"wrong": wrong, "k-Seq": KSeq})


def test_a_rule_that_is_too_slow_for_all_rows_is_left_out_after_two(clock: Clock) -> None:
    """Bug: 300 rows of a slow rule are computed to the end, or dropped shortly before it."""
    rows = np.full((300, 2), 0.5)
    rules = {"slow": clock.slow, "k-Seq": KSeq}
    means = means_of(rows, rows, [2], rules=rules, max_seconds=60)
    assert clock.plans == 2
    assert [setup.rule for setup in means] == ["k-Seq"]
    (reason,) = means.left_out.values()
    assert reason == "about 270 s for 300 rows (0.9 s a row), above max_seconds = 60"
    with pytest.raises(ProblemTooLargeError, match="max_seconds = 60"):
        otm.compare(rows, rows, [2], rules={"slow": clock.slow}, max_seconds=60)
    enough = means_of(rows, rows, [2], rules=rules, max_seconds=271)
    assert not enough.left_out
    unlimited = means_of(rows, rows, [2], rules=rules)
    assert unlimited["slow", 2, 1].mean == enough["slow", 2, 1].mean == 1


def test_the_estimate_takes_the_faster_of_the_first_two_rows() -> None:
    """Bug: imports at the first row count for every row."""
    times = left_out.RuleTimes(100, max_seconds=50.0)
    times._of_rows["a"] = [2.0]
    assert times.too_slow("a") is None
    times._of_rows["a"] = [2.0, 0.4]
    assert times.too_slow("a") is None
    times._of_rows["a"] = [2.0, 0.6]
    assert times.too_slow("a") == "about 61.4 s for 100 rows (0.6 s a row), above max_seconds = 50"
    times._of_rows["a"] = [60.0]
    assert "max_seconds" in str(times.too_slow("a"))
    times._of_rows["a"] = [0.4, 0.4, 900.0]
    assert times.too_slow("a") is None


@pytest.mark.parametrize("seconds", [0, -1, float("nan"), "10", True])
def test_bad_limits_are_rejected(seconds: Any) -> None:
    with pytest.raises(InvalidParameterError, match="max_seconds = "):
        otm.compare(*ROWS, [2], max_seconds=seconds)
    with pytest.raises(InvalidInputError, match="leave it out for one pair"):
        otm.compare(*PAIR, 2, max_seconds=seconds)


def test_slow_rules_are_named_from_the_second_row_on(clock: Clock) -> None:
    """Bug: 300 rows show no word about what takes the time until all are computed."""
    lines: list[tuple[str, int, int]] = []
    rules = {"slow": clock.slow, "k-Seq": KSeq}
    otm.compare(*ROWS, [2], rules=rules, progress=lambda *line: lines.append(line))
    assert lines[:2] == [("compare: row", 1, 3), ("compare: slow, row", 1, 3)]
    assert lines[-2:] == [("compare: slow 0.9 s a row; row", r, 3) for r in (2, 3)]
    lines.clear()
    otm.compare(*ROWS, [2], rules={"k-Seq": KSeq}, progress=lambda *line: lines.append(line))
    assert lines[-1] == ("compare: row", 3, 3)
    lines.clear()
    otm.compare(*PAIR, 2, rules=["k-Seq", "optimal"], progress=lambda *line: lines.append(line))
    assert lines == [("compare: k-Seq, rule", 1, 0), ("compare: optimal, rule", 2, 0)]


@pytest.mark.parametrize("is_terminal", [True, False])
def test_a_terminal_shows_the_line_and_a_pipe_shows_nothing(
    monkeypatch: pytest.MonkeyPatch, clock: Clock, is_terminal: bool
) -> None:
    stream = io.StringIO()
    monkeypatch.setattr(stream, "isatty", lambda: is_terminal)
    monkeypatch.setattr(sys, "stderr", stream)
    monkeypatch.setattr(progress_line, "AFTER", 0.0)
    monkeypatch.setattr(progress_line, "BETWEEN", 0.0)
    otm.compare(*ROWS, [2], rules={"slow": clock.slow})
    assert ("compare: slow 0.9 s a row; row 3 of 3, about " in stream.getvalue()) == is_terminal
    assert bool(stream.getvalue()) == is_terminal
