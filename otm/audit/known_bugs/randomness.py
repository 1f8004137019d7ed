"""Uniforms that are used twice, or are none."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from typing import Any

from otm._core.arithmetic import Law
from otm.audit.adapter import source_of
from otm.audit.known_bugs.bug import KnownBug
from otm.audit.known_bugs.steps import Chain, Loop, Uniforms
from otm.decoding.drafting import Randomness


class _SharedCoin(Chain):
    def uniforms(self, source: Randomness, gamma: int) -> Uniforms:
        drafts, coins, last = super().uniforms(source, gamma)
        return Uniforms(drafts, coins, [*coins, last[-1]])


class _DraftsAndLast(Chain):
    def uniforms(self, source: Randomness, gamma: int) -> Uniforms:
        drafts, coins, last = super().uniforms(source, gamma)
        return Uniforms(drafts, coins, [*drafts, last[-1]])


class _DraftsAndCoins(Chain):
    def uniforms(self, source: Randomness, gamma: int) -> Uniforms:
        drafts, _, last = super().uniforms(source, gamma)
        return Uniforms(drafts, drafts, last)


class _OneCoin(Chain):
    def uniforms(self, source: Randomness, gamma: int) -> Uniforms:
        drafts, coins, last = super().uniforms(source, gamma)
        return Uniforms(drafts, [*coins[:1]] * gamma, last)


class _OneDraw(Chain):
    def uniforms(self, source: Randomness, gamma: int) -> Uniforms:
        drafts, coins, last = super().uniforms(source, gamma)
        return Uniforms([*drafts[:1]] * gamma, coins, last)


class _OneStream(Chain):
    def uniforms(self, source: Randomness, gamma: int) -> Uniforms:
        stream = source(gamma + 1)
        return Uniforms(stream[:gamma], stream[:gamma], [stream[0]] * (gamma + 1))


class _SeededInTheLoop(Loop):
    def streams(self, source: Randomness, gamma: int) -> Iterator[Randomness]:
        stream = source(2 * gamma + 1)
        while True:
            yield source_of(stream)


class _ConstantCoins(Chain):
    def uniforms(self, source: Randomness, gamma: int) -> Uniforms:
        drafts, _, last = super().uniforms(source, gamma)
        return Uniforms(drafts, [Fraction(1, 2)] * gamma, last)


class _FewBits(Chain):
    def draw_last(self, weights: Law, uniform: Any) -> int:
        quarters = sum(bool(uniform >= Fraction(quarter, 4)) for quarter in (1, 2, 3))
        return super().draw_last(weights, Fraction(quarters, 4))


BUGS = (
    KnownBug(
        _SharedCoin("coin draws the residual"),
        mistake="shared coin",
        summary="The coin that rejected a draft also draws the token that replaces it.",
        threads=("vllm-project/vllm-ascend #16370",),
    ),
    KnownBug(
        _DraftsAndLast("draft's noise draws the residual"),
        mistake="drafts and residual share a stream",
        summary="The noise that drew a draft also draws the token that replaces it.",
        threads=("vllm-project/vllm #54282", "vllm-project/vllm #47386"),
    ),
    KnownBug(
        _DraftsAndCoins("draft's noise is the coin"),
        mistake="drafts and coins share a stream",
        summary="The noise that drew a draft is also the coin that accepts or rejects it.",
        threads=("vllm-project/vllm #47386", "local-inference-lab/vllm #205"),
    ),
    KnownBug(
        _OneCoin("one coin for all drafts"),
        mistake="shared coin",
        summary="All drafts of a chain are accepted or rejected by the same coin.",
    ),
    KnownBug(
        _OneDraw("one uniform draws all drafts"),
        mistake="re-seeding inside the loop",
        summary="The generator is seeded anew for each draft, and all are drawn by one uniform.",
    ),
    KnownBug(
        _OneStream("seeded before each use"),
        mistake="re-seeding inside the loop",
        summary="The generator is seeded anew before drafts, coins and the last token are drawn.",
    ),
    KnownBug(
        _SeededInTheLoop("seeded in each step"),
        mistake="re-seeding inside the loop",
        summary="The generator is seeded anew in each step of the loop, which then repeats itself.",
    ),
    KnownBug(
        _ConstantCoins("constant coins"),
        mistake="constant coin",
        summary="Coins do not change from call to call, whatever the seed.",
        threads=("vllm-project/vllm #13196",),
    ),
    KnownBug(
        _FewBits("uniforms of few bits"),
        mistake="low precision",
        summary="Tokens are drawn by uniforms of too few bits for the vocabulary.",
        threads=("pytorch/pytorch #2576",),
    ),
)
