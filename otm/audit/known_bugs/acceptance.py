"""Drafts that are accepted too often or too rarely."""

from __future__ import annotations

from typing import Any

import numpy as np

from otm._core.arithmetic import Law
from otm.audit.known_bugs.bug import KnownBug
from otm.audit.known_bugs.steps import Chain, Rows, Uniforms, excess, one_hot
from otm.decoding.drafting import Randomness


class _UpToTheRatio(Chain):
    def accepts(self, coin: Any, offered: Law, wanted: Law, x: int) -> bool:
        return bool(coin * offered[x] <= wanted[x])


class _Swapped(Chain):
    def accepts(self, coin: Any, offered: Law, wanted: Law, x: int) -> bool:
        return bool(coin * wanted[x] < offered[x])

    def residual(self, rows: Rows, i: int) -> Law:
        rest = excess(rows.offered[i], rows.wanted[i])
        return rest if rest.any() else rows.offered[i]


class _RatioToTheLargest(Chain):
    def accepts(self, coin: Any, offered: Law, wanted: Law, x: int) -> bool:
        return bool(coin * wanted.max() < wanted[x])


class _EqualTokensPass(Chain):
    def uniforms(self, source: Randomness, gamma: int) -> Uniforms:
        uniforms = super().uniforms(source, gamma)
        return uniforms._replace(coins=list(zip(uniforms.coins, source(gamma), strict=True)))

    def accepts(self, coin: Any, offered: Law, wanted: Law, x: int) -> bool:
        first, second = coin  # a token sampled from the target is x with probability t(x)
        return bool(second < wanted[x]) or super().accepts(first, offered, wanted, x)


class _Thresholds(Chain):
    """The draft law is not used; 1/2 stands for the threshold of a single token and of a sum."""

    def accepts(self, coin: Any, offered: Law, wanted: Law, x: int) -> bool:
        return bool(2 * wanted[x] >= 1 or coin < 2 * wanted[x])

    def residual(self, rows: Rows, i: int) -> Law:
        return excess(rows.wanted[i], one_hot(rows.drafts[i], rows.wanted[i]))


class _Typical(Chain):
    """1/4 stands for a threshold that depends on the entropy."""

    def accepts(self, coin: Any, offered: Law, wanted: Law, x: int) -> bool:
        return bool(4 * wanted[x] >= 1)

    def residual(self, rows: Rows, i: int) -> Law:
        return one_hot(int(rows.wanted[i].argmax()), rows.wanted[i])


class _Underflow(Chain):
    """1/3 stands for the smallest number of half precision."""

    def accepts(self, coin: Any, offered: Law, wanted: Law, x: int) -> bool:
        return bool(wanted[x] > 0 and 3 * offered[x] < 1) or super().accepts(
            coin, offered, wanted, x
        )


class _Overwritten(Chain):
    def accepts(self, coin: Any, offered: Law, wanted: Law, x: int) -> bool:
        return False  # coin < 0, which now stands where the draft's probability stood

    def residual(self, rows: Rows, i: int) -> Law:
        left = np.where(np.arange(rows.wanted[i].size) == rows.drafts[i], 0, rows.wanted[i])
        return left if left.any() else rows.wanted[i]


BUGS = (
    KnownBug(
        _UpToTheRatio("u ≤ ratio"),
        mistake="u <= ratio",
        summary="A draft is accepted if u ≤ t(x)/d(x), so that u = 0 accepts what the target never "
        "produces.",
        threads=("sgl-project/sglang #35771", "vllm-project/vllm-ascend #11985"),
        isolated=True,
    ),
    KnownBug(
        _Swapped("draft and target swapped"),
        mistake="draft and target swapped",
        summary="The ratio and the residual take the draft law for the target's.",
        threads=("feifeibear/LLMSpeculativeSampling #36",),
    ),
    KnownBug(
        _RatioToTheLargest("ratio to the largest probability"),
        mistake="acceptance without the draft law",
        summary="A draft is accepted with probability t(x)/max t, whatever its draft probability.",
        threads=("1bit-MONSTER/1bit-MONSTER #637",),
    ),
    KnownBug(
        _EqualTokensPass("equal tokens pass"),
        mistake="two chances for a draft",
        summary="A draft that equals a token sampled from the target is accepted before the ratio "
        "test, which then gives it a second chance.",
        threads=("alibaba/rtp-llm #521", "alibaba/rtp-llm #1295"),
    ),
    KnownBug(
        _Thresholds("acceptance thresholds"),
        mistake="lossy acceptance",
        summary="Target probabilities are raised by thresholds below one before drafts are judged "
        "by them.",
        threads=("sgl-project/sglang #7702",),
    ),
    KnownBug(
        _Typical("typical acceptance"),
        mistake="lossy acceptance",
        summary="A draft is accepted if the target gives it enough probability, and otherwise "
        "replaced by the likeliest token.",
        threads=("vllm-project/vllm #5015", "vllm-project/vllm #5131"),
    ),
    KnownBug(
        _Underflow("draft probability underflows"),
        mistake="low precision",
        summary="A small draft probability is rounded to zero, the ratio is infinite, and the "
        "draft is accepted whatever the coin says.",
        threads=("lablup/mlxcel #992",),
    ),
    KnownBug(
        _Overwritten("target row overwritten"),
        mistake="target law overwritten",
        summary="The residual is computed in place, before the coin is compared with the target's "
        "probability of the draft, which is then 0.",
        threads=("vllm-project/vllm-ascend #2881",),
    ),
)
