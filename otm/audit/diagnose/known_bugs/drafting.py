"""Bugs of drafting: wrong draft distributions, reused uniforms, wrongly drawn tokens.

Also bugs of several drafts: siblings or chains that share random numbers.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterator
from fractions import Fraction
from typing import Any

import numpy as np

from otm._core.arithmetic import Probs, as_fractions
from otm.audit.adapters.base import Instance, Source
from otm.audit.diagnose.known_bugs.in_rows import AllRows, from_aim, from_steps, replace_rejected
from otm.audit.diagnose.known_bugs.steps import (
    Chain,
    Loop,
    Siblings,
    draw_siblings,
    greedy_probs,
    normalised,
    sharpened,
    top_half,
)
from otm.decoding.draft_tree import Randomness
from otm.decoding.reading import Path
from otm.kernels.common.distributions.numpy import locate

WIDTH = 4
"""Width of a beam search."""


def _rounded(probs: Probs) -> Probs:
    """Round to two significant bits; bfloat16 has eight."""
    parts, exponents = np.frexp(probs.astype(np.float64))
    return normalised(as_fractions(np.ldexp(np.round(4 * parts), exponents)))


def _uniform(probs: Probs) -> Probs:
    return np.asarray((0 * probs + 1) / probs.shape[-1])


class _Beam(Chain):
    """Chain verification of the most probable drafts that a beam search finds."""

    def drafts(self, instance: Instance, uniforms: Any) -> Path:
        beams: list[tuple[Any, Path]] = [(1, ())]
        for _ in uniforms:
            longer = []
            for weight, path in beams:
                probs = instance.draft.probs(instance.prompt + path)
                longer += [(weight * p, (*path, x)) for x, p in enumerate(probs)]
            beams = sorted(longer, key=lambda beam: -beam[0])[:WIDTH]
        return beams[0][1]


DRAFTING = (
    Chain("greedy drafts reported as softmax", drawn=greedy_probs).as_bug(
        mistake="greedy draft reported as softmax",
        summary="The most probable token is drafted, and verified as if it had been sampled.",
        threads=(
            "huggingface/transformers #32867",
            "huggingface/transformers #33534",
            "jaymody/speculative-sampling #3",
            "alibaba/rtp-llm #1311",
        ),
        in_rows=from_steps,
    ),
    _Beam("beam drafts verified as samples").as_bug(
        mistake="greedy draft reported as softmax",
        summary="A beam search finds probable drafts, which are verified as if sampled.",
    ),
    Chain("drafts of top-k reported without it", drawn=top_half).as_bug(
        mistake="draft not sampled from its stated distribution",
        summary="Drafts are sampled after top-k, and verified by the draft distribution before it.",
        threads=("huggingface/transformers #47932", "huggingface/transformers #47961"),
    ),
    Chain("temperature of the drafts alone", drawn=sharpened).as_bug(
        mistake="one-sided temperature",
        summary="Drafts are sampled at a temperature that their stated distribution lacks.",
        in_rows=from_steps,
    ),
    # The target is at temperature 1, although temperature 2 was requested.
    Chain("temperature not applied to the target", aim=sharpened).as_bug(
        mistake="one-sided temperature",
        summary="Drafts are verified by the target at temperature 1, for any requested value.",
        threads=("vllm-project/vllm #9834", "vllm-project/vllm #10198"),
        in_rows=from_aim,
    ),
    Chain("drafts sampled in low precision", drawn=_rounded).as_bug(
        mistake="low precision",
        summary="Drafts are sampled in half precision, and verified in single precision.",
        threads=("deepseek-ai/DeepSpec #31",),
    ),
    Chain(
        "draft distribution in the draft model's own ids",
        # Token x of the draft model is token x + 1 of the target.
        drawn=lambda probs: np.roll(probs, 1),
    ).as_bug(
        mistake="draft distribution in other token ids",
        summary="Draft tokens are translated to the target's ids, their distribution is not.",
        threads=("alibaba/rtp-llm #1295", "alibaba/rtp-llm #1311"),
    ),
    Chain(
        "draft rows of the positions before",
        shown=lambda _, rows: rows._replace(draft=[*rows.draft[:1], *rows.draft[:-1]]),
    ).as_bug(
        mistake="draft not sampled from its stated distribution",
        summary="From the second on, a draft is verified by the draft row of the position before.",
    ),
    Chain("draft distribution taken as uniform", stated=_uniform).as_bug(
        mistake="draft not sampled from its stated distribution",
        summary="Where draft distributions are missing, the uniform one takes their place.",
        in_rows=from_steps,
    ),
)


def _same_stream(source: Randomness, gamma: int) -> Iterator[Randomness]:
    stream = source(2 * gamma + 1)
    while True:
        yield Source(stream)


def _one_uniform(source: Randomness, gamma: int) -> Iterator[Randomness]:
    stream = source(1)
    return itertools.repeat(lambda m: np.repeat(stream, m))


def _in_quarters(weights: Probs, uniform: Any) -> int:
    quarters = sum(bool(uniform >= Fraction(quarter, 4)) for quarter in (1, 2, 3))
    return locate(weights, Fraction(quarters, 4))


def _noise_is_coin_in_rows(_: Chain, rows: AllRows) -> Probs:
    """Accept x if the noise, which lies in the interval of x in the cdf, is below t(x)/d(x)."""
    draft, target = rows.draft[0], rows.target[0]
    end = draft.cumsum(axis=-1)
    below = np.divide(target, draft, out=np.zeros_like(target), where=draft > 0)
    accepted = np.clip(np.minimum(end, below) - (end - draft), 0, draft)
    return replace_rejected(accepted, rows.residual(0))


RANDOMNESS = (
    Chain("coin draws the residual", uniforms=lambda u: u._replace(residual=u.coins)).as_bug(
        mistake="shared coin",
        summary="The coin that rejected a draft also draws the token that replaces it.",
        threads=("vllm-project/vllm-ascend #16370",),
    ),
    Chain(
        "draft's noise draws the residual", uniforms=lambda u: u._replace(residual=u.drafts)
    ).as_bug(
        mistake="drafts and residual share a stream",
        summary="The noise that drew a draft also draws the token that replaces it.",
        threads=("vllm-project/vllm #54282", "vllm-project/vllm #47386"),
    ),
    Chain("draft's noise is the coin", uniforms=lambda u: u._replace(coins=u.drafts)).as_bug(
        mistake="drafts and coins share a stream",
        summary="The noise that drew a draft is also the coin that accepts or rejects it.",
        threads=("vllm-project/vllm #47386", "local-inference-lab/vllm #205"),
        in_rows=_noise_is_coin_in_rows,
    ),
    Chain(
        "one coin for all drafts",
        uniforms=lambda u: u._replace(coins=[u.coins[0]] * len(u.coins)),
    ).as_bug(
        mistake="shared coin",
        summary="All drafts of a chain are accepted or rejected by the same coin.",
    ),
    Chain(
        "one uniform draws all drafts",
        uniforms=lambda u: u._replace(drafts=[u.drafts[0]] * len(u.drafts)),
    ).as_bug(
        mistake="re-seeding inside the loop",
        summary="The generator is seeded again for each draft, and one uniform draws all of them.",
    ),
    Chain(
        "seeded before each use",
        uniforms=lambda u: u._replace(
            coins=u.drafts, residual=[u.drafts[0]] * len(u.coins), bonus=u.drafts[0]
        ),
    ).as_bug(
        mistake="re-seeding inside the loop",
        summary="The generator is seeded again before drafts, coins and the last token are drawn.",
    ),
    Loop("seeded in each step", streams=_same_stream).as_bug(
        mistake="re-seeding inside the loop",
        summary="The generator is seeded again in each step of the loop, which repeats itself.",
    ),
    Loop("seeded before each draw", streams=_one_uniform).as_bug(
        mistake="re-seeding inside the loop",
        summary="A loop seeds its generator again for each draw, and one uniform draws all tokens.",
    ),
    Chain(
        "one uniform for all draws of a verifier",
        uniforms=lambda u: u._replace(
            coins=[u.bonus] * len(u.coins), residual=[u.bonus] * len(u.coins)
        ),
    ).as_bug(
        mistake="re-seeding inside the loop",
        summary="The verifier seeds its generator again for each coin and for the last token.",
    ),
    Chain(
        "constant coins", uniforms=lambda u: u._replace(coins=[Fraction(1, 2)] * len(u.coins))
    ).as_bug(
        mistake="constant coin",
        summary="Coins do not change from call to call, for any seed.",
        threads=("vllm-project/vllm #13196",),
        in_rows=from_steps,
    ),
    Chain("uniforms of few bits", draw_last=_in_quarters).as_bug(
        mistake="low precision",
        summary="Tokens are drawn by uniforms with too few bits for the vocabulary.",
        threads=("pytorch/pytorch #2576",),
    ),
)


def _edges_to_the_left(weights: Probs, uniform: Any) -> int:
    return int(np.searchsorted(weights.cumsum(), uniform * weights.sum(), side="left"))


def _off_by_one(weights: Probs, uniform: Any) -> int:
    before = weights.cumsum() - weights
    place = np.searchsorted(before, uniform * weights.sum(), side="right")
    return min(int(place), weights.size - 1)


def _past_the_end(weights: Probs, uniform: Any) -> int:
    """Multiply the cumulative sums by 7/8, to imitate the rounding loss of a long float32 row."""
    summed = weights.cumsum() * Fraction(7, 8)
    return int(np.searchsorted(summed, uniform * weights.sum(), side="right"))


def _padded_tail(weights: Probs, uniform: Any) -> int:
    """Return an index beyond the row if the last tile, which is one token here, has weight 0."""
    return locate(weights, uniform) if weights[-1] else weights.size


LOCATING = (
    Chain("token of weight zero", draw_last=_edges_to_the_left).as_bug(
        mistake="token of weight zero",
        summary="u = 0 draws the first token, even if its weight is zero.",
        threads=("pytorch/pytorch #48841", "pytorch/pytorch #4858"),
        isolated=True,
    ),
    Chain("off by one in the cumulative distribution", draw_last=_off_by_one).as_bug(
        mistake="off by one in the cumulative distribution",
        summary="The token after the right one is drawn.",
    ),
    Chain("uniform beyond the last edge", draw_last=_past_the_end).as_bug(
        mistake="token outside the vocabulary",
        summary="A rounded row sums to less than one; a larger uniform gives an index beyond it.",
        threads=("NVIDIA/TensorRT-LLM #19485",),
    ),
    Chain("padded tail of the vocabulary", draw_last=_padded_tail).as_bug(
        mistake="token outside the vocabulary",
        summary="If the last tile of a row is all zero, a token of its padding is drawn.",
        threads=(
            "vllm-project/vllm #44744",
            "vllm-project/vllm #21876",
            "vllm-project/vllm #53029",
        ),
    ),
)


def _without_replacement(draft: Probs, uniforms: Any) -> list[int]:
    left, tokens = draft, []
    for uniform in uniforms:
        tokens.append(locate(left, uniform))
        left = np.where(np.arange(draft.size) == tokens[-1], 0 * draft, left)
        left = left if left.any() else draft
    return tokens


class _LongestOfAll(Chain):
    """Verifies two chains of one draft and returns the longer output."""

    max_tokens = 2

    def supports(self, instance: Instance) -> bool:
        return instance.k == 2

    def output(self, instance: Instance, source: Randomness) -> Path:
        short = dataclasses.replace(instance, gamma=min(instance.gamma, 1), k=1)
        first, second = (super(_LongestOfAll, self).output(short, source) for _ in range(2))
        return max(first, second, key=len)


SEVERAL = (
    Siblings(
        "one uniform draws all siblings",
        drafts=lambda draft, uniforms: draw_siblings(draft, [uniforms[0]] * len(uniforms)),
    ).as_bug(
        mistake="drafts that are not independent",
        summary="The drafts of a node are drawn by one uniform, and verified as if independent.",
    ),
    Siblings("one coin for all siblings", coins=lambda source, k: [source(1)[0]] * k).as_bug(
        mistake="shared coin",
        summary="All drafts of a node are accepted or rejected by the same coin.",
    ),
    Siblings("siblings drawn without replacement", drafts=_without_replacement).as_bug(
        mistake="draft not sampled from its stated distribution",
        summary="The drafts of a node are drawn without replacement, and verified as if with it.",
    ),
    Siblings("siblings verified by the same target", updates=0).as_bug(
        mistake="no residual",
        summary="After a rejected draft the next one is still verified by the target itself.",
        threads=("NJUNLP/MCSD #5",),
    ),
    _LongestOfAll("longest of several chains").as_bug(
        mistake="choice among outputs",
        summary="Each chain is verified losslessly, but only the longest output is returned.",
        threads=("foundation-model-stack/fms-extras #12",),
    ),
)
