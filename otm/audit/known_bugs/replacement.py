"""What stands in place of a rejected draft: the wrong residual."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np

from otm._core.arithmetic import Law
from otm.audit.known_bugs.bug import KnownBug
from otm.audit.known_bugs.steps import Chain, Rows, excess, normalised, one_hot


class _NextRow(Chain):
    def residual(self, rows: Rows, i: int) -> Law:
        rest = excess(rows.wanted[i + 1], rows.offered[i])
        return rest if rest.any() else rows.wanted[i + 1]


class _NoResidual(Chain):
    def residual(self, rows: Rows, i: int) -> Law:
        return rows.wanted[i]


class _Likeliest(Chain):
    def residual(self, rows: Rows, i: int) -> Law:
        rest = super().residual(rows, i)
        return one_hot(int(rest.argmax()), rest)


class _NotClamped(Chain):
    def residual(self, rows: Rows, i: int) -> Law:
        difference: Law = abs(rows.wanted[i] - rows.offered[i])
        return difference


class _NotNormalised(Chain):
    def draw_last(self, weights: Law, uniform: Any) -> int:
        place = np.searchsorted(weights.cumsum(), uniform, side="right")
        return min(int(place), weights.size - 1)


class _Softmax(Chain):
    def residual(self, rows: Rows, i: int) -> Law:
        return np.array([Fraction(math.exp(r)) for r in normalised(super().residual(rows, i))])


class _Uniform(Chain):
    """1/4 stands for the smallest number of half precision."""

    def residual(self, rows: Rows, i: int) -> Law:
        rest = super().residual(rows, i)
        return rest if (4 * rest >= 1).any() else 0 * rest + 1


class _SmallerVocabulary(Chain):
    def proposal(self, law: Law) -> Law:
        known = np.where(np.arange(law.size) < law.size - 1, law, 0 * law)
        return normalised(known) if known.any() else one_hot(0, law)

    def residual(self, rows: Rows, i: int) -> Law:
        rest = super().residual(rows, i)
        known = np.where(np.arange(rest.size) < rest.size - 1, rest, 0 * rest)
        return known if known.any() else rest


BUGS = (
    KnownBug(
        _NextRow("residual of the next row"),
        mistake="residual of the wrong row",
        summary="The residual takes the target's law at the position after the rejected draft.",
    ),
    KnownBug(
        _NoResidual("no residual"),
        mistake="no residual",
        summary="A rejected draft is replaced by a token drawn from the target's law itself.",
        threads=("ShopeeLLM/Spec-RL #14", "eth-sri/language-model-arithmetic #14"),
    ),
    KnownBug(
        _Likeliest("likeliest token of the residual"),
        mistake="residual not sampled",
        summary="A rejected draft is replaced by the likeliest token of the residual.",
    ),
    KnownBug(
        _NotClamped("residual not clamped"),
        mistake="missing clamp",
        summary="The residual counts tokens that the draft model prefers as if the target did.",
    ),
    KnownBug(
        _NotNormalised("residual not normalised"),
        mistake="unnormalised residual",
        summary="The residual is not divided by its sum, and what is missing falls on the last "
        "token.",
    ),
    KnownBug(
        _Softmax("softmax of the residual"),
        mistake="unnormalised residual",
        summary="The residual is normalised by a softmax, which gives every token a part of it.",
        threads=("huggingface/transformers #28508",),
    ),
    KnownBug(
        _Uniform("uniform where the residual is empty"),
        mistake="empty residual",
        summary="Where draft and target law are too close for their precision, 0/0 is replaced by "
        "the uniform law.",
        threads=("jaymody/speculative-sampling #5", "duoan/TorchCode #16"),
    ),
    KnownBug(
        _SmallerVocabulary("residual on the draft vocabulary"),
        mistake="draft vocabulary smaller",
        summary="The residual leaves out the tokens that the draft model does not know.",
    ),
)
