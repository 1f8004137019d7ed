"""The preset for slow code makes few runs, and still finds what is wrong."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from otm.audit import chain, lossless
from otm.audit.observe.precision import COARSE, FINE

pytestmark = pytest.mark.usefixtures("no_diagnosis")

FEW_RUNS = 2_500
"""What a kernel does in a minute if it takes a fortieth of a second for a run."""


def right(target_probs: Any, draft_probs: Any, draft_tokens: Any, uniforms: Any) -> Any:
    for i, x in enumerate(draft_tokens):
        if uniforms[i] * draft_probs[i][x] >= target_probs[i][x]:
            weights = np.maximum(target_probs[i] - draft_probs[i], 0)
            break
    else:
        i, weights = len(draft_tokens), target_probs[-1]
    ends = weights.cumsum()
    return [*draft_tokens[:i], int(np.searchsorted(ends, uniforms[-1] * ends[-1], side="right"))]


def one_coin(target_probs: Any, draft_probs: Any, draft_tokens: Any, uniforms: Any) -> Any:
    return right(target_probs, draft_probs, draft_tokens, uniforms[[0] * len(uniforms)])


def no_residual(target_probs: Any, draft_probs: Any, draft_tokens: Any, uniforms: Any) -> Any:
    return right(target_probs, draft_probs / 2, draft_tokens, uniforms)


def small_slip(target_probs: Any, draft_probs: Any, draft_tokens: Any, uniforms: Any) -> Any:
    return right(target_probs, draft_probs * 0.97, draft_tokens, uniforms)


def test_a_right_verifier_in_few_runs() -> None:
    """Bug: a coarse look that takes what it misses for a deviation."""
    report = lossless(chain(right, convert=np.asarray), slow=True)
    assert (report.verdict, report.method) == ("lossless on everything tried", "breakpoints")
    assert report.runs < 2 * FEW_RUNS
    assert report.instances == 3
    assert report.tv_interval.upper < 1e-3
    assert report.delta == COARSE.unseen > FINE.unseen


@pytest.mark.parametrize("wrong", [one_coin, no_residual, small_slip])
def test_wrong_verifiers_in_few_runs(wrong: Any) -> None:
    report = lossless(chain(wrong, convert=np.asarray), slow=True)
    assert (report.verdict, report.method) == ("not lossless", "breakpoints")
    assert report.counterexample is not None
    assert report.counterexample.drafts is not None


def test_what_takes_too_long_is_left_out() -> None:
    """Bug: a limit of time that nobody looks at."""
    report = lossless(chain(right, convert=np.asarray), slow=True, max_seconds=1e-9)
    assert (report.verdict, report.method) == ("undecided", "Monte Carlo")
    assert any("more than the remaining time" in why for why in report.why_not_exact)
