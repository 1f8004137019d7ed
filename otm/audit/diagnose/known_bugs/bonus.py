"""Bugs of the bonus token, which follows after all drafts are accepted, and of the last token."""

from __future__ import annotations

from otm._core.probs.distribution import residual_weights
from otm.audit.adapters.base import Instance
from otm.audit.diagnose.known_bugs.in_rows import from_aim
from otm.audit.diagnose.known_bugs.steps import Chain, Rows, Uniforms, top_half
from otm.decoding.reading import Path
from otm.kernels.common.distributions.numpy import locate


def _bonus_from_the_draft(instance: Instance, rows: Rows) -> Rows:
    last = instance.draft.probs(instance.prompt + rows.tokens)
    return rows._replace(target=[*rows.target[:-1], last])


class _EndDrawnAgain(Chain):
    def verify(self, rows: Rows, uniforms: Uniforms) -> Path:
        tokens = super().verify(rows, uniforms)
        # The last token of the vocabulary stands for the end token.
        end = rows.target[0].size - 1
        if tokens[:-1] != rows.tokens or tokens[-2:-1] != (end,):
            return tokens
        return (*tokens[:-2], locate(rows.target[len(tokens) - 2], uniforms.bonus))


def _padded(instance: Instance, rows: Rows) -> Rows:
    """Pad the chain with −1, which is always accepted, because its draft probability is 0."""
    tokens = (*rows.tokens[:-1], -1)
    last = instance.target.probs(instance.prompt + tokens)
    return Rows(tokens, [*rows.draft[:-1], 0 * rows.draft[-1]], [*rows.target[:-1], last])


BONUS = (
    Chain("bonus from the draft model", shown=_bonus_from_the_draft).as_bug(
        mistake="bonus from the wrong distribution",
        summary="After all drafts are accepted, a token of the draft model follows.",
    ),
    Chain("bonus of the row before", bonus=lambda rows: rows.target[len(rows.tokens) - 1]).as_bug(
        mistake="bonus from the wrong position",
        summary="The bonus token is drawn from the row of the last draft.",
        threads=("vllm-project/vllm #9730",),
        in_rows=from_aim,
    ),
    Chain("bonus of the first row", bonus=lambda rows: rows.target[0]).as_bug(
        mistake="bonus from the wrong position",
        summary="The bonus token is drawn from the row of the first draft.",
    ),
    Chain("bonus of top-k", bonus=lambda rows: top_half(rows.target[-1])).as_bug(
        mistake="sampling parameters of the last token alone",
        summary="The bonus token is drawn after top-k, but drafts are verified before top-k.",
    ),
    Chain(
        "last token of top-k",
        residual=lambda rows, i: residual_weights(top_half(rows.target[i]), rows.draft[i]),
        bonus=lambda rows: top_half(rows.target[-1]),
    ).as_bug(
        mistake="sampling parameters of the last token alone",
        summary="Residual and bonus are drawn after top-k, but drafts are accepted before top-k.",
    ),
    Chain("temperature of the bonus", bonus=lambda rows: rows.target[-1] ** 2).as_bug(
        mistake="sampling parameters of the last token alone",
        summary="The temperature of the bonus token is not the temperature of the verification.",
    ),
    _EndDrawnAgain("accepted end token drawn again").as_bug(
        mistake="end of the sequence",
        summary="If the last accepted draft is an end token, a new target sample replaces it.",
        threads=("huggingface/transformers #28508",),
    ),
    Chain("padding accepted", shown=_padded).as_bug(
        mistake="padding accepted",
        summary="A chain that ends early is padded with −1, which is verified and accepted.",
        threads=("flashinfer-ai/flashinfer #879", "vllm-project/vllm #46533"),
    ),
)
