"""The search for small instances needs Hypothesis, and says so before anything is run."""

from __future__ import annotations

import sys
from typing import Any

import pytest

from otm.audit import lossless
from otm.errors import MissingDependencyError


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


def test_code_that_draws_for_itself_is_said_to_do_so() -> None:
    """Bug: "it says that its paths cannot be followed", of a function that says nothing."""

    def verify(target_probs: Any, draft_probs: Any, draft_tokens: Any, rng: Any) -> list[int]:
        return [int(rng.integers(2))]

    report = lossless(verify, examples=0, max_runs=1000)
    assert report.why_not_exact[0] == "exact paths: it draws random numbers of its own"
