"""Bugs of verification: the test of a draft, and its replacement."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np

from otm._core.arithmetic import Probs
from otm._core.probs.distribution import residual_weights
from otm.audit.adapters.base import Adapter
from otm.audit.diagnose.known_bugs.in_rows import AllRows, from_steps, replace_rejected
from otm.audit.diagnose.known_bugs.known_bug import KnownBug
from otm.audit.diagnose.known_bugs.steps import (
    Chain,
    Rows,
    TestedRows,
    Uniforms,
    accepts,
    bonus,
    greedy_probs,
    normalised,
    residual,
    unchanged,
)
from otm.decoding.reading import Path
from otm.kernels.common.distributions.numpy import locate, one_hot


def _two_coins(uniforms: Uniforms) -> Uniforms:
    more = uniforms.source(len(uniforms.coins))
    return uniforms._replace(coins=list(zip(uniforms.coins, more, strict=True)))


def _two_coins_in_rows(_: Chain, rows: AllRows) -> Probs:
    draft, target = rows.draft[0], rows.target[0]
    accepted = 1 - (1 - target) * (1 - rows.accepted)
    return replace_rejected(draft * accepted, rows.residual(0))


def _second_sample(name: str, drawn: Callable[[Probs], Probs]) -> KnownBug:
    return Chain(
        name,
        drawn=drawn,
        accepts=lambda coin, draft, target, x: locate(target, coin) == x,
        residual=lambda rows, i: rows.target[i],
    ).as_bug(
        mistake="two chances for a draft",
        summary="A draft that differs from a sample of the target is replaced by another sample.",
    )


def _maximum(probs: Probs) -> Any:
    return probs.max(axis=-1, keepdims=probs.ndim > 1)


def _without(x: int, weights: Probs) -> Probs:
    left: Probs = np.where(np.arange(weights.size) == x, 0 * weights, weights)
    return left if left.any() else weights


def _without_draft(rows: Rows, i: int) -> Probs:
    return _without(rows.tokens[i], rows.target[i])


@dataclass(frozen=True, eq=False)
class _KeptDraft(Chain):
    """Keep the first rejected draft, and draw a token after it from `then`, if given."""

    name: str = "rejected draft kept"
    then: Callable[[Rows, int], Probs] | None = None

    def verify(self, rows: Rows, uniforms: Uniforms) -> Path:
        tokens = super().verify(rows, uniforms)
        i = len(tokens) - 1
        if i == len(rows.tokens):
            return tokens
        kept = rows.tokens[: i + 1]
        return kept if self.then is None else (*kept, locate(self.then(rows, i), uniforms.bonus))


def _as_next(rows: Rows, i: int) -> Probs:
    """Return the weights after a kept draft i, as if the next draft were rejected."""
    return rows.residual(i + 1) if i + 1 < len(rows.tokens) else bonus(rows)


ACCEPTANCE = (
    Chain("u ≤ ratio", accepts=lambda coin, draft, target, x: coin * draft[x] <= target[x]).as_bug(
        mistake="u <= ratio",
        summary="A draft is accepted if u ≤ t(x)/d(x): u = 0 accepts impossible tokens.",
        threads=("sgl-project/sglang #35771", "vllm-project/vllm-ascend #11985"),
        isolated=True,
    ),
    Chain(
        "draft and target swapped",
        accepts=lambda coin, draft, target, x: coin * target[x] < draft[x],
        residual=lambda rows, i: residual_weights(rows.draft[i], rows.target[i]),
    ).as_bug(
        mistake="draft and target swapped",
        summary="The ratio and the residual use the draft's distribution in place of the target's.",
        threads=("feifeibear/LLMSpeculativeSampling #36",),
        in_rows=from_steps,
    ),
    Chain(
        "acceptance ratio inverted",
        accepts=lambda coin, draft, target, x: coin * target[x] < draft[x],
    ).as_bug(
        mistake="draft and target swapped",
        summary="A draft is accepted with probability d(x)/t(x); the residual is right.",
    ),
    Chain(
        "comparison reversed",
        accepts=lambda coin, draft, target, x: target[x] < coin * draft[x],
    ).as_bug(
        mistake="comparison reversed",
        summary="A draft is accepted if u > t(x)/d(x), where it must be rejected.",
    ),
    Chain(
        "drafts tested by the next row",
        shown=lambda _, rows: TestedRows.of(rows, rows.target[1:]),
    ).as_bug(
        mistake="acceptance by the wrong row",
        summary="A draft is tested by the target row after it; the residual is right.",
    ),
    Chain(
        "ratio to the largest probability",
        accepts=lambda coin, draft, target, x: coin * _maximum(target) < target[x],
    ).as_bug(
        mistake="acceptance without the draft distribution",
        summary="A draft is accepted with probability t(x)/max t, for any draft probability.",
        threads=("1bit-MONSTER/1bit-MONSTER #637",),
        in_rows=from_steps,
    ),
    Chain(
        "equal tokens pass",
        # A token sampled from the target is x with probability t(x).
        uniforms=_two_coins,
        accepts=lambda coins, draft, target, x: (
            coins[1] < target[x] or accepts(coins[0], draft, target, x)
        ),
    ).as_bug(
        mistake="two chances for a draft",
        summary="A draft equal to a token sampled from the target passes: it has a second chance.",
        threads=("alibaba/rtp-llm #521", "alibaba/rtp-llm #1295"),
        in_rows=_two_coins_in_rows,
    ),
    Chain(
        # 1/2 stands for the thresholds of a single token and of a sum.
        "acceptance thresholds",
        accepts=lambda coin, draft, target, x: 2 * target[x] >= 1 or coin < 2 * target[x],
        residual=_without_draft,
    ).as_bug(
        mistake="lossy acceptance",
        summary="Thresholds below one raise the acceptance probabilities of drafts.",
        threads=("sgl-project/sglang #7702",),
    ),
    Chain(
        # 1/4 stands for a threshold that depends on the entropy.
        "typical acceptance",
        accepts=lambda coin, draft, target, x: 4 * target[x] >= 1,
        residual=lambda rows, i: greedy_probs(rows.target[i]),
    ).as_bug(
        mistake="lossy acceptance",
        summary="A draft above a threshold is accepted; the most probable token replaces others.",
        threads=("vllm-project/vllm #5015", "vllm-project/vllm #5131"),
    ),
    Chain(
        # 1/3 stands for the smallest number of half precision.
        "draft probability underflows",
        accepts=lambda coin, draft, target, x: (
            (target[x] > 0 and 3 * draft[x] < 1) or accepts(coin, draft, target, x)
        ),
    ).as_bug(
        mistake="low precision",
        summary="A small draft probability is rounded to zero, and the draft is always accepted.",
        threads=("lablup/mlxcel #992",),
    ),
    _second_sample("second sample after a mismatch", unchanged),
    _second_sample("greedy drafts and a second sample after a mismatch", greedy_probs),
    _KeptDraft("rejection one position late", then=_as_next).as_bug(
        mistake="rejected draft kept",
        summary="The first rejected draft is kept, and the token after it is replaced.",
    ),
    _KeptDraft("rejected draft in place of its replacement").as_bug(
        mistake="rejected draft kept",
        summary="The first rejected draft ends the step; no token replaces it.",
    ),
    _KeptDraft("rejected draft before its replacement", then=residual).as_bug(
        mistake="rejected draft kept",
        summary="The first rejected draft is kept, and the token that replaces it follows it.",
    ),
    _KeptDraft(
        "target's token after a rejected draft", then=lambda rows, i: rows.target[i + 1]
    ).as_bug(
        mistake="rejected draft kept",
        summary="The first rejected draft is kept, and a token of the target follows it.",
    ),
    Chain(
        "target row overwritten",
        # The comparison is coin < 0, because 0 has replaced t(x).
        accepts=lambda coin, draft, target, x: False,
        residual=_without_draft,
    ).as_bug(
        mistake="target distribution overwritten",
        summary="The residual overwrites the target row before the coin is compared with it.",
        threads=("vllm-project/vllm-ascend #2881",),
    ),
)


def _not_normalised(weights: Probs, uniform: Any) -> int:
    place = np.searchsorted(weights.cumsum(), uniform, side="right")
    return min(int(place), weights.size - 1)


def _not_normalised_in_rows(_: Chain, rows: AllRows) -> Probs:
    accepted = np.minimum(rows.draft[0], rows.target[0])
    last = rows.target[0] - accepted
    # The last token gets the mass that is missing from 1.
    last[:, -1] += accepted.sum(axis=-1)
    return replace_rejected(accepted, last)


def _softmax(rows: Rows, i: int) -> Probs:
    rest = normalised(residual(rows, i))
    if rest.dtype != object:
        return np.asarray(np.exp(rest))
    return np.array([Fraction(math.exp(r)) for r in rest])


def _uniform(rows: Rows, i: int) -> Probs:
    """Return the residual, or uniform weights if it underflows, here below 1/4."""
    rest = residual(rows, i)
    return rest if (4 * rest >= 1).any() else 0 * rest + 1


def _without_last(probs: Probs) -> Probs:
    return normalised(_without(probs.size - 1, probs)) if probs[:-1].any() else one_hot(0, probs)


RESIDUAL = (
    Chain(
        "residual of the next row",
        residual=lambda rows, i: residual_weights(rows.target[i + 1], rows.draft[i]),
    ).as_bug(
        mistake="residual of the wrong row",
        summary="The residual uses the target row at the position after the rejected draft.",
    ),
    Chain(
        "residual of the first draft row",
        residual=lambda rows, i: residual_weights(rows.target[i], rows.draft[0]),
    ).as_bug(
        mistake="residual of the wrong row",
        summary="The residual uses the draft row of the first position for every rejected draft.",
    ),
    Chain("no residual", residual=lambda rows, i: rows.target[i]).as_bug(
        mistake="no residual",
        summary="A rejected draft is replaced by a token drawn from the target itself.",
        threads=("ShopeeLLM/Spec-RL #14", "eth-sri/language-model-arithmetic #14"),
        in_rows=from_steps,
    ),
    Chain("target without the rejected draft", residual=_without_draft).as_bug(
        mistake="biased residual",
        summary="The residual is the target without the rejected token, not target minus draft.",
    ),
    Chain(
        "most probable token of the residual",
        residual=lambda rows, i: greedy_probs(residual(rows, i)),
    ).as_bug(
        mistake="residual not sampled",
        summary="A rejected draft is replaced by the most probable token of the residual.",
        in_rows=from_steps,
    ),
    Chain(
        "residual not clamped", residual=lambda rows, i: abs(rows.target[i] - rows.draft[i])
    ).as_bug(
        mistake="missing clamp",
        summary="The residual also counts tokens that the draft prefers, by their absolute value.",
        in_rows=from_steps,
    ),
    Chain("residual not normalised", draw_last=_not_normalised).as_bug(
        mistake="unnormalised residual",
        summary="The residual is not divided by its sum; the last token gets the missing mass.",
        in_rows=_not_normalised_in_rows,
    ),
    Chain("softmax of the residual", residual=_softmax).as_bug(
        mistake="unnormalised residual",
        summary="A softmax normalises the residual, so that every token has positive probability.",
        threads=("huggingface/transformers #28508",),
        in_rows=from_steps,
    ),
    Chain("uniform where the residual is empty", residual=_uniform).as_bug(
        mistake="empty residual",
        summary="If rounding leaves the residual empty, 0/0 becomes the uniform distribution.",
        threads=("jaymody/speculative-sampling #5", "duoan/TorchCode #16"),
    ),
    Chain(
        "residual on the draft vocabulary",
        drawn=_without_last,
        stated=_without_last,
        residual=lambda rows, i: _without(rows.target[i].size - 1, residual(rows, i)),
    ).as_bug(
        mistake="draft vocabulary smaller",
        summary="The residual omits the tokens that the draft model does not know.",
    ),
)


def _equality(name: str, drawn: Callable[[Probs], Probs]) -> Chain:
    """Return a verifier that samples a target token and accepts only an equal draft."""
    return Chain(
        name,
        uniforms=lambda used: used._replace(residual=used.coins),
        drawn=drawn,
        accepts=lambda coin, draft, target, x: locate(target, coin) == x,
        # The same uniform draws the same token again.
        residual=lambda rows, i: rows.target[i],
    )


SUSPECTED: tuple[Adapter, ...] = (
    _equality("equality with a token of the target", unchanged),
    _equality("greedy drafts and equality", greedy_probs),
    Chain(
        "sampled drafts judged as certain",
        accepts=lambda coin, draft, target, x: coin < target[x],
        residual=_without_draft,
    ),
)
"""Verifiers that reject more drafts than necessary, but whose output follows the target.

The verifiers of this list were suspected in ml-explore/mlx-swift-lm #459, z-lab/dflash #74 and
vllm-project/vllm #40651.
"""
