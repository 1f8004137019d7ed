"""Walk and keep accepts as much as rules that verify token by token, on random trees."""

from __future__ import annotations

import pytest

from benchmarks.drawn_trees import compared, summary
from otm._core.arithmetic import Probs
from otm.coupling.optimal.certain import CertainDrafts


def test_never_below_rules_that_verify_token_by_token() -> None:
    """Theorem 23.6 in fractions, over all drawn values of 100 trees."""
    found = summary(compared(100, 1, most=6))
    for name in ("target_only", "greedy"):
        assert found[name]["less"] == 0
        # Bug: a comparison of a rule with itself.
        assert found[name]["strictly more"] > 10


class DrawnAlwaysWins(CertainDrafts):
    """A lossless rule that wastes the certain drafts beside a drawn one."""

    def _winner_law(self) -> Probs:
        return self._drawn if self._has_drawn else super()._winner_law()


def test_a_winner_with_another_distribution_is_below(monkeypatch: pytest.MonkeyPatch) -> None:
    """The negative control of the test above."""
    monkeypatch.setattr("otm.decoding.verifiers.walk_and_keep.CertainDrafts", DrawnAlwaysWins)
    found = summary(compared(20, 1, most=6))
    assert min(found[name]["less"] for name in ("target_only", "greedy")) > 0
