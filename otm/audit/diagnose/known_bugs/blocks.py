"""Bugs of block verification (Sun et al. 2024): weights, tests of prefixes, residuals."""

from __future__ import annotations

from typing import Any

import numpy as np

from otm.audit.diagnose.known_bugs.steps import Block, Rows, Uniforms, passes, residual, weighed


def _uncapped_at_the_end(rows: Rows, i: int, weight: Any) -> Any:
    """Accept the whole block without the cap of 1 on the ratios before the last draft."""
    if i < len(rows.tokens):
        return passes(rows, i, weight)
    ratio: Any = 1
    for x, draft, target in zip(rows.tokens, rows.draft, rows.target, strict=False):
        ratio = ratio * target[x] / draft[x]
    return min(ratio, 1)


def _by_the_row_before(rows: Rows, i: int, weight: Any) -> Any:
    target, draft = ([row[0], *row] for row in (rows.target, rows.draft))
    return passes(rows._replace(target=target, draft=draft), i, weight)


def _by_mass(rows: Rows, i: int, weight: Any) -> Any:
    if i == len(rows.tokens):
        return weight
    return np.maximum(weight * rows.target[i] - rows.draft[i], 0).sum()


class _FirstFailure(Block):
    def accepted(self, rows: Rows, uniforms: Uniforms, weights: list[Any]) -> int:
        i = 0
        while i < len(rows.tokens) and uniforms.coins[i] < self.passes(rows, i + 1, weights[i + 1]):
            i += 1
        return i


class _OneLess(Block):
    def accepted(self, rows: Rows, uniforms: Uniforms, weights: list[Any]) -> int:
        i = super().accepted(rows, uniforms, weights)
        return i - (0 < i < len(rows.tokens))


BLOCKS = (
    Block(
        "blocks tested by their ratio",
        passes=lambda rows, i, weight: weight,
        left=lambda rows, i, weight: residual(rows, i),
    ).as_bug(
        mistake="blocks verified token by token",
        summary="A block is accepted by its ratio and continued by the residual of a single token.",
        threads=("vllm-project/vllm-ascend #7807", "vllm-project/vllm-ascend #7808"),
    ),
    Block(
        "residual of a token after a block",
        left=lambda rows, i, weight: residual(rows, i),
    ).as_bug(
        mistake="blocks verified token by token",
        summary="The token after a block is drawn from the residual of a single token.",
        threads=("vllm-project/vllm-ascend #7807", "vllm-project/vllm-ascend #7808"),
    ),
    Block("whole blocks accepted by their uncapped ratio", passes=_uncapped_at_the_end).as_bug(
        mistake="whole block tested by another ratio than its parts",
        summary="Only the parts of a block are tested by capped ratios, as in published code of"
        " hierarchical verification (arXiv 2601.05724).",
    ),
    Block(
        "weights of a block inverted",
        weighed=lambda weight, target, draft: (
            weighed(weight, draft, target) if target else weight and 1
        ),
    ).as_bug(
        mistake="draft and target swapped",
        summary="The weights of a block use the ratio d(x)/t(x).",
    ),
    Block(
        "weights of a block not capped",
        weighed=lambda weight, target, draft: weight * target / draft,
    ).as_bug(
        mistake="weights of a block",
        summary="The weight of a prefix is the product of its ratios, which may exceed 1.",
    ),
    Block(
        "ratios of a block capped one by one",
        weighed=lambda weight, target, draft: weight * min(target / draft, 1),
    ).as_bug(
        mistake="blocks verified token by token",
        summary="The weight of a prefix is the product of min(1, t(x)/d(x)), as in a chain.",
    ),
    Block(
        "prefixes tested without their weights",
        passes=lambda rows, i, weight: passes(rows, i, weight if i == len(rows.tokens) else 1),
    ).as_bug(
        mistake="weights of a block",
        summary="The tests of the shorter prefixes use the weight 1.",
    ),
    Block("prefixes tested by the row before", passes=_by_the_row_before).as_bug(
        mistake="acceptance by the wrong row",
        summary="The test of a prefix uses the rows of its last draft, not those after it.",
    ),
    Block("prefixes tested by the residual mass", passes=_by_mass).as_bug(
        mistake="weights of a block",
        summary="A prefix passes with the mass of its residual, which is not divided by Z + 1 − w.",
    ),
    Block(
        "tests of a block reversed", passes=lambda rows, i, weight: 1 - passes(rows, i, weight)
    ).as_bug(
        mistake="comparison reversed",
        summary="A prefix is accepted if its uniform exceeds its probability.",
    ),
    _FirstFailure("block ended by the first test that fails").as_bug(
        mistake="blocks verified token by token",
        summary="The tests of longer prefixes are skipped after a prefix that fails.",
    ),
    _OneLess("last draft of a block dropped").as_bug(
        mistake="accepted draft dropped",
        summary="If some drafts are accepted but not all, the last accepted one is dropped.",
    ),
    Block(
        "bonus of the row before a block's end",
        bonus=lambda rows: rows.target[len(rows.tokens) - 1],
    ).as_bug(
        mistake="bonus from the wrong position",
        summary="After a whole block, the bonus token is drawn from the row of the last draft.",
    ),
)
