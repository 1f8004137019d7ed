"""Loops whose policy changes γ from step to step."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from otm.audit import loop, lossless
from otm.audit.instances import CHANGING, INSTANCES
from otm.audit.larger_instances import larger_instances
from otm.decoding import speculative

OTHERS = [INSTANCES["two drafts, two tokens"], larger_instances()["five tokens back"]]
"""Where a loop takes several steps, too, all of them with one γ."""


def draw(weights: Any, uniform: Any) -> int:
    cdf = np.cumsum(weights)
    return int(np.searchsorted(cdf, uniform * cdf[-1], side="right"))


def full_steps(*, kept: bool) -> Callable[..., list[int]]:
    """Decode in full steps, cut off in the end; rows may be kept in a buffer, which only grows."""

    def decode(  # noqa: PLR0917 - as loops are called
        target: Any, draft: Any, prompt: Any, policy: Any, max_tokens: int, uniforms: Any
    ) -> list[int]:
        tokens, step, buffer = list(prompt), 0, list[Any]()
        while len(tokens) < len(prompt) + max_tokens:
            drafts: list[int] = []
            for _ in range(policy(step)):
                drafts.append(draw(draft.probs((*tokens, *drafts)), uniforms(1)[0]))
            rows = [target.probs((*tokens, *drafts[:i])) for i in range(len(drafts) + 1)]
            buffer[: len(rows)] = rows
            for i, x in enumerate(drafts):
                probs = draft.probs((*tokens, *drafts[:i]))
                if not uniforms(1)[0] * probs[x] < rows[i][x]:
                    tokens += [*drafts[:i], draw(np.maximum(rows[i] - probs, 0), uniforms(1)[0])]
                    break
            else:
                bonus = buffer[-1] if kept else rows[-1]
                tokens += [*drafts, draw(bonus, uniforms(1)[0])]
            step += 1
        return tokens[len(prompt) : len(prompt) + max_tokens]

    return decode


@pytest.mark.usefixtures("no_diagnosis")
def test_a_row_of_a_longer_step_is_found_where_gamma_changes() -> None:
    """Bug of the mutant: the bonus comes from the last row of the longest step so far."""
    report = lossless(loop(full_steps(kept=True)), instances=OTHERS, examples=0)
    assert (report.verdict, report.method) == ("not lossless", "exact paths")
    assert "γ = 2, 1 in turn" in str(report)
    example = json.loads(json.dumps(report.to_dict()))["counterexample"]
    assert example["gammas"] == [2, 1]


def test_nothing_else_finds_it() -> None:
    wrong = loop(full_steps(kept=True))
    wrong.more = ()
    small = [each for each in INSTANCES.values() if each.k == 1 and each.gamma < 3]
    assert lossless(wrong, instances=[*small, *OTHERS], examples=0).lossless


def ours(  # noqa: PLR0917
    target: Any, draft: Any, prompt: Any, policy: Any, max_tokens: int, uniforms: Any
) -> tuple[int, ...]:
    """Decode by the loop of this project."""
    return speculative(
        target, draft, [prompt], gamma=lambda steps: policy(len(steps)), max_tokens=max_tokens,
        uniforms=[uniforms],
    ).sequences[0]  # fmt: skip


@pytest.mark.parametrize("decode", [full_steps(kept=False), ours], ids=["plain", "ours"])
def test_right_loops_pass(decode: Callable[..., Any]) -> None:
    report = lossless(loop(decode), instances=OTHERS[:1], examples=0)
    assert (report.lossless, report.tv_distance, report.instances) == (True, 0, 1 + len(CHANGING))


def test_a_known_bug_is_named_in_such_a_loop() -> None:
    """Bug: known mistakes are repeated with one γ, and none is the verifier's any more."""

    def decode(  # noqa: PLR0917
        target: Any, draft: Any, prompt: Any, policy: Any, max_tokens: int, uniforms: Any
    ) -> list[int]:
        tokens, step = list(prompt), 0
        while len(tokens) < len(prompt) + max_tokens:
            for i in range(policy(step) + 1):
                probs, wanted = (model.probs(tuple(tokens)) for model in (draft, target))
                x = draw(wanted if i == policy(step) else probs, uniforms(1)[0])
                accepted = i == policy(step) or uniforms(1)[0] * probs[x] < wanted[x]
                tokens.append(x if accepted else draw(wanted, uniforms(1)[0]))
                if not accepted:
                    break
            step += 1
        return tokens[len(prompt) : len(prompt) + max_tokens]

    report = lossless(loop(decode), instances=[INSTANCES["two tokens"]], examples=0)
    assert [diagnosis.name for diagnosis in report.diagnoses] == ["no residual"]
