"""Tokens that are located wrongly in a cumulative distribution."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np

from otm._core.arithmetic import Law
from otm.audit.known_bugs.bug import KnownBug
from otm.audit.known_bugs.steps import Chain


class _EdgesToTheLeft(Chain):
    def draw_last(self, weights: Law, uniform: Any) -> int:
        return int(np.searchsorted(weights.cumsum(), uniform * weights.sum(), side="left"))


class _OffByOne(Chain):
    def draw_last(self, weights: Law, uniform: Any) -> int:
        before = weights.cumsum() - weights
        place = np.searchsorted(before, uniform * weights.sum(), side="right")
        return min(int(place), weights.size - 1)


class _PastTheEnd(Chain):
    """1/8 stands for what is lost when a long row is summed in single precision."""

    def draw_last(self, weights: Law, uniform: Any) -> int:
        summed = weights.cumsum() * Fraction(7, 8)
        return int(np.searchsorted(summed, uniform * weights.sum(), side="right"))


class _PaddedTail(Chain):
    """The last token alone stands for the last tile, most of which is padding."""

    def draw_last(self, weights: Law, uniform: Any) -> int:
        return super().draw_last(weights, uniform) if weights[-1] else weights.size


BUGS = (
    KnownBug(
        _EdgesToTheLeft("token of weight zero"),
        mistake="token of weight zero",
        summary="u = 0 draws the first token, even if its weight is zero.",
        threads=("pytorch/pytorch #48841", "pytorch/pytorch #4858"),
        isolated=True,
    ),
    KnownBug(
        _OffByOne("off by one in the cumulative distribution"),
        mistake="off by one in the cumulative distribution",
        summary="The token after the right one is drawn.",
    ),
    KnownBug(
        _PastTheEnd("uniform beyond the last edge"),
        mistake="token outside the vocabulary",
        summary="The rounded sum of a row stays below one, and a uniform beyond it gives an index "
        "past the end.",
        threads=("NVIDIA/TensorRT-LLM #19485",),
    ),
    KnownBug(
        _PaddedTail("padded tail of the vocabulary"),
        mistake="token outside the vocabulary",
        summary="Where the last tile of a row is all zero, its padding is drawn.",
        threads=(
            "vllm-project/vllm #44744",
            "vllm-project/vllm #21876",
            "vllm-project/vllm #53029",
        ),
    ),
)
