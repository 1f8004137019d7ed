"""Blocks verified as if they were tokens, and several drafts that share what they must not."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np

from otm._core.arithmetic import Law
from otm.audit.adapter import Instance
from otm.audit.known_bugs.steps import (
    Block,
    Chain,
    KnownBug,
    Siblings,
    draw,
    draw_siblings,
    residual,
)
from otm.decoding.drafting import Randomness
from otm.decoding.reading import Path

BLOCKS = (
    KnownBug(
        Block(
            "blocks tested by their ratio",
            passes=lambda rows, i, weight: weight,
            left=lambda rows, i, weight: residual(rows, i),
        ),
        mistake="blocks verified token by token",
        summary="A block is accepted with the probability ratio of its tokens, and continued by "
        "the residual of a single one.",
        threads=("vllm-project/vllm-ascend #7807", "vllm-project/vllm-ascend #7808"),
    ),
    KnownBug(
        Block(
            "residual of a token behind a block",
            left=lambda rows, i, weight: residual(rows, i),
        ),
        mistake="blocks verified token by token",
        summary="The token behind a block is drawn from the residual of a single token.",
        threads=("vllm-project/vllm-ascend #7807", "vllm-project/vllm-ascend #7808"),
    ),
)


def _without_replacement(draft: Law, uniforms: Any) -> list[int]:
    left, tokens = draft, []
    for uniform in uniforms:
        tokens.append(draw(left, uniform))
        left = np.where(np.arange(draft.size) == tokens[-1], 0 * draft, left)
        left = left if left.any() else draft
    return tokens


class _LongestOfAll(Chain):
    """Two chains of one draft show it."""

    max_tokens = 2

    def supports(self, instance: Instance) -> bool:
        return instance.k == 2

    def output(self, instance: Instance, source: Randomness) -> Path:
        short = dataclasses.replace(instance, gamma=min(instance.gamma, 1), k=1)
        first, second = (super(_LongestOfAll, self).output(short, source) for _ in range(2))
        return max(first, second, key=len)


SEVERAL = (
    KnownBug(
        Siblings(
            "one uniform draws all siblings",
            drafts=lambda draft, uniforms: draw_siblings(draft, [uniforms[0]] * len(uniforms)),
        ),
        mistake="drafts that are not independent",
        summary="The drafts of a node are drawn by one uniform, and verified as if independent.",
    ),
    KnownBug(
        Siblings("one coin for all siblings", coins=lambda source, k: [source(1)[0]] * k),
        mistake="shared coin",
        summary="All drafts of a node are accepted or rejected by the same coin.",
    ),
    KnownBug(
        Siblings("siblings drawn without replacement", drafts=_without_replacement),
        mistake="draft not sampled from its stated distribution",
        summary="The drafts of a node are drawn without replacement, and verified as if with it.",
    ),
    KnownBug(
        Siblings("siblings judged by the same law", left=lambda target, draft: target),
        mistake="no residual",
        summary="After a rejected draft the next one is still verified by the target itself.",
        threads=("NJUNLP/MCSD #5",),
    ),
    KnownBug(
        _LongestOfAll("longest of several chains"),
        mistake="choice among outputs",
        summary="Chains are verified one by one, each losslessly, and the longest output is kept.",
        threads=("foundation-model-stack/fms-extras #12",),
    ),
)
