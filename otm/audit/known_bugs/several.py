"""Several drafts that are not what their verifier takes them for."""

from __future__ import annotations

from typing import Any

import numpy as np

from otm._core.arithmetic import Law
from otm.audit.adapter import Instance
from otm.audit.known_bugs.bug import KnownBug
from otm.audit.known_bugs.steps import Chain, Siblings, draw
from otm.decoding.drafting import Randomness
from otm.decoding.reading import Path


class _OneDraw(Siblings):
    def drafts(self, law: Law, uniforms: Any) -> tuple[list[int], list[Law]]:
        return super().drafts(law, [uniforms[0]] * len(uniforms))


class _OneCoin(Siblings):
    def coins(self, source: Randomness, k: int) -> Any:
        return [source(1)[0]] * k


class _WithoutReplacement(Siblings):
    def drafts(self, law: Law, uniforms: Any) -> tuple[list[int], list[Law]]:
        left, tokens = law, []
        for uniform in uniforms:
            tokens.append(draw(left, uniform))
            left = np.where(np.arange(law.size) == tokens[-1], 0 * law, left)
            left = left if left.any() else law
        return tokens, [law] * len(tokens)


class _NoResidual(Siblings):
    def left(self, wanted: Law, offered: Law) -> Law:
        return wanted


class _LongestOfAll(Chain):
    """Two chains of one draft show it."""

    max_tokens = 2

    def supports(self, instance: Instance) -> bool:
        return instance.k == 2

    def output(self, instance: Instance, source: Randomness) -> Path:
        short = Instance(
            instance.target, instance.draft, min(instance.gamma, 1), prompt=instance.prompt
        )
        first, second = (super(_LongestOfAll, self).output(short, source) for _ in range(2))
        return max(first, second, key=len)


BUGS = (
    KnownBug(
        _OneDraw("one uniform draws all siblings"),
        mistake="drafts that are not independent",
        summary="The drafts of a node are drawn by one uniform, and judged as if independent.",
    ),
    KnownBug(
        _OneCoin("one coin for all siblings"),
        mistake="shared coin",
        summary="All drafts of a node are accepted or rejected by the same coin.",
    ),
    KnownBug(
        _WithoutReplacement("siblings drawn without replacement"),
        mistake="draft not sampled from its stated law",
        summary="The drafts of a node are drawn without replacement, and judged as if with it.",
    ),
    KnownBug(
        _NoResidual("siblings judged by the same law"),
        mistake="no residual",
        summary="After a rejected draft the next one is still judged by the target's law itself.",
        threads=("NJUNLP/MCSD #5",),
    ),
    KnownBug(
        _LongestOfAll("longest of several chains"),
        mistake="choice among outputs",
        summary="Chains are verified one by one, each losslessly, and the longest output is kept.",
        threads=("foundation-model-stack/fms-extras #12",),
    ),
)
