"""Verifiers that were suspected in public, and are lossless."""

from __future__ import annotations

from typing import Any

from otm._core.arithmetic import Law
from otm.audit.adapter import Adapter
from otm.audit.known_bugs.steps import Chain, Rows, Uniforms, draw, excess, one_hot
from otm.decoding.drafting import Randomness


class _EqualityWithTheTarget(Chain):
    """A token is sampled from the target; the draft passes if it is this token."""

    def uniforms(self, source: Randomness, gamma: int) -> Uniforms:
        drafts, coins, last = super().uniforms(source, gamma)
        return Uniforms(drafts, coins, [*coins, last[-1]])

    def accepts(self, coin: Any, offered: Law, wanted: Law, x: int) -> bool:
        return draw(wanted, coin) == x

    def residual(self, rows: Rows, i: int) -> Law:
        return rows.wanted[i]  # the same uniform draws the same token again


class _GreedyAndEquality(_EqualityWithTheTarget):
    def proposal(self, law: Law) -> Law:
        return one_hot(int(law.argmax()), law)


class _OneHot(Chain):
    """Sampled drafts are judged as if they were certain."""

    def accepts(self, coin: Any, offered: Law, wanted: Law, x: int) -> bool:
        return bool(coin < wanted[x])

    def residual(self, rows: Rows, i: int) -> Law:
        return excess(rows.wanted[i], one_hot(rows.drafts[i], rows.wanted[i]))


SUSPECTED: tuple[Adapter, ...] = (
    _EqualityWithTheTarget("equality with a token of the target"),  # ml-explore/mlx-swift-lm #459
    _GreedyAndEquality("greedy drafts and equality"),  # z-lab/dflash #74
    _OneHot("sampled drafts judged as certain"),  # vllm-project/vllm #40651
)
"""They reject more drafts than they need to, but the target's law is what comes out."""
