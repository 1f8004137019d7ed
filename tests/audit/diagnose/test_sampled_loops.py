"""Names of mistakes in loops that Monte Carlo audits."""

from __future__ import annotations

import random
from typing import Any

import pytest

from otm.audit import NOT_LOSSLESS, loop, lossless
from otm.audit.instances import INSTANCES


@pytest.mark.parametrize("wrong", ["second sample", "draft model"])
def test_second_samples_are_named_after_monte_carlo(wrong: str) -> None:
    """Bug: a slow loop with drafts of its own has no name; or any wrong loop gets this name."""

    def decode(target: Any, draft: Any, prompt: Any, gamma: int, max_tokens: int) -> list[int]:
        text = list(prompt)
        for _ in range(max_tokens):
            model = draft if wrong == "draft model" else target
            weights = model.probs(tuple(text)).astype(float)
            (token,) = random.choices(range(len(weights)), weights)
            if wrong == "second sample" and token != text[-1]:
                (token,) = random.choices(range(len(weights)), weights)
            text.append(token)
        return text[len(prompt) :]

    few = [INSTANCES["two tokens"]]
    report = lossless(loop(decode), instances=few, method="Monte Carlo", delta=0.1, max_seconds=20)
    assert report.verdict == NOT_LOSSLESS
    named = "second sample after a mismatch" in [diagnosis.name for diagnosis in report.diagnoses]
    assert named == (wrong == "second sample")
