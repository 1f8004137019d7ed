"""The search for small instances needs Hypothesis, and says so before anything is run."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import pytest

from otm.audit import lossless
from otm.audit.instances import INSTANCES, rows_of
from otm.audit.observe import exact
from otm.errors import MissingDependencyError, ProblemTooLargeError


def test_without_hypothesis_nothing_is_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """Bug: a bare ModuleNotFoundError, after minutes of runs."""
    monkeypatch.setitem(sys.modules, "hypothesis", None)
    calls = 0

    def verify(target_probs: Any, draft_probs: Any, draft_tokens: Any, uniforms: Any) -> list[int]:
        nonlocal calls
        calls += 1
        return [0]

    with pytest.raises(MissingDependencyError, match=r"Hypothesis.*otm\[testing\]"):
        lossless(verify)
    assert calls == 0
    assert not lossless(verify, examples=0).lossless
    assert calls > 0


def test_the_search_observes_nothing_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    """Bug: once more for the report, when the time had run out: an error in place of a verdict."""
    seen: list[str] = []

    def observe_by_paths(runner: Any, instance: Any, deadline: float) -> Any:
        seen.append(repr((instance.gamma, instance.k, rows_of(instance), instance.prompt)))
        if len(seen) != len(set(seen)):
            raise ProblemTooLargeError("no time is left")
        return observed(runner, instance, deadline)

    observed = exact.observe_by_paths
    monkeypatch.setattr(exact, "observe_by_paths", observe_by_paths)
    few = [INSTANCES["two drafts, two tokens"]]

    def wrong(target_probs: Any, draft_probs: Any, draft_tokens: Any, uniforms: Any) -> list[int]:
        return [0]

    report = lossless(wrong, instances=few)
    assert len(seen) > 1
    assert report.counterexample is not None
    assert report.counterexample.instance != few[0]


def test_code_that_draws_for_itself_is_said_to_do_so() -> None:
    """Bug: "it says that its paths cannot be followed", of a function that says nothing."""

    def verify(target_probs: Any, draft_probs: Any, draft_tokens: Any, seed: int) -> list[int]:
        return [int(np.random.default_rng(seed).integers(2))]

    report = lossless(verify, examples=0, max_runs=1000)
    assert report.why_not_exact[0] == "exact paths: it draws its own random numbers"
