"""Drafts that were not drawn from the law that the verifier is told, or a target that is wrong."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np

from otm._core.arithmetic import Law
from otm.audit.adapter import Instance
from otm.audit.known_bugs.bug import KnownBug
from otm.audit.known_bugs.steps import Chain, Rows, normalised, one_hot
from otm.decoding.reading import Path


class _StatedRaw(Chain):
    def stated(self, law: Law) -> Law:
        return law


class _Greedy(_StatedRaw):
    def proposal(self, law: Law) -> Law:
        return one_hot(int(law.argmax()), law)


class _TopK(_StatedRaw):
    def proposal(self, law: Law) -> Law:
        kept = np.argsort(-law, kind="stable")[: (law.size + 1) // 2]
        return normalised(np.where(np.isin(np.arange(law.size), kept), law, 0 * law))


class _DraftTemperature(_StatedRaw):
    def proposal(self, law: Law) -> Law:
        return normalised(law**2)  # temperature 1/2


class _TargetTemperature(Chain):
    def aim(self, law: Law) -> Law:
        return normalised(law**2)  # the target at temperature 1, where 2 was asked for


class _LowPrecision(_StatedRaw):
    def proposal(self, law: Law) -> Law:
        return normalised(np.array([_two_bits(probability) for probability in law]))


class _NotRemapped(_StatedRaw):
    def proposal(self, law: Law) -> Law:
        return np.roll(law, 1)  # token x of the draft model is token x + 1 of the target


class _RowBefore(Chain):
    def rows(self, instance: Instance, drafts: Path) -> Rows:
        rows = super().rows(instance, drafts)
        return rows._replace(offered=[*rows.offered[:1], *rows.offered[:-1]])


class _NoDraftLaw(Chain):
    def stated(self, law: Law) -> Law:
        uniform: Law = (0 * law + 1) / law.size
        return uniform


def _two_bits(number: Fraction) -> Fraction:
    """Round to two significant bits, of which bfloat16 has eight."""
    if number <= 0:
        return 0 * number
    unit = Fraction(2) ** (math.floor(math.log2(number)) - 1)
    return round(number / unit) * unit


BUGS = (
    KnownBug(
        _Greedy("greedy drafts reported as softmax"),
        mistake="greedy draft reported as softmax",
        summary="The likeliest token is drafted, and judged as if it had been sampled.",
        threads=(
            "huggingface/transformers #32867",
            "huggingface/transformers #33534",
            "jaymody/speculative-sampling #3",
            "alibaba/rtp-llm #1311",
        ),
    ),
    KnownBug(
        _TopK("drafts of top-k reported without it"),
        mistake="draft not sampled from its stated law",
        summary="Drafts are sampled after top-k, and judged by the draft model's law before it.",
        threads=("huggingface/transformers #47932", "huggingface/transformers #47961"),
    ),
    KnownBug(
        _DraftTemperature("temperature of the drafts alone"),
        mistake="one-sided temperature",
        summary="Drafts are sampled at a temperature that the draft law they are judged by lacks.",
    ),
    KnownBug(
        _TargetTemperature("temperature not applied to the target"),
        mistake="one-sided temperature",
        summary="Drafts are judged by the target's law at temperature 1, whatever was asked for.",
        threads=("vllm-project/vllm #9834", "vllm-project/vllm #10198"),
    ),
    KnownBug(
        _LowPrecision("drafts sampled in low precision"),
        mistake="low precision",
        summary="Drafts are sampled from a law in half precision, and judged by the same law in "
        "single precision.",
        threads=("deepseek-ai/DeepSpec #31",),
    ),
    KnownBug(
        _NotRemapped("draft law in the draft model's own ids"),
        mistake="draft law in other token ids",
        summary="Draft tokens are translated to the target's ids, the law they were drawn from "
        "is not.",
        threads=("alibaba/rtp-llm #1295", "alibaba/rtp-llm #1311"),
    ),
    KnownBug(
        _RowBefore("draft laws of the rows before"),
        mistake="draft not sampled from its stated law",
        summary="From the second draft on, drafts are judged by the draft law at the position "
        "before.",
    ),
    KnownBug(
        _NoDraftLaw("draft law taken as uniform"),
        mistake="draft not sampled from its stated law",
        summary="Where draft laws are missing, the uniform law takes their place.",
    ),
)
