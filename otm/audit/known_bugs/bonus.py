"""What stands behind accepted drafts: the wrong bonus, or tokens that are none."""

from __future__ import annotations

from otm._core.arithmetic import Law, zeros
from otm.audit.adapter import Instance
from otm.audit.known_bugs.bug import KnownBug
from otm.audit.known_bugs.steps import Chain, Rows, Uniforms
from otm.decoding.reading import Path


class _FromTheDraft(Chain):
    def rows(self, instance: Instance, drafts: Path) -> Rows:
        rows = super().rows(instance, drafts)
        rows.wanted[-1] = instance.draft.probs(instance.prompt + drafts)
        return rows


class _RowBefore(Chain):
    def bonus(self, rows: Rows) -> Law:
        return rows.wanted[max(len(rows.drafts) - 1, 0)]


class _EndDrawnAgain(Chain):
    def verify(self, rows: Rows, uniforms: Uniforms) -> Path:
        tokens = super().verify(rows, uniforms)
        end = rows.wanted[0].size - 1
        if tokens[:-1] != rows.drafts or tokens[-2:-1] != (end,):
            return tokens
        return (*tokens[:-2], self.draw_last(rows.wanted[len(tokens) - 2], uniforms.last[0]))


class _PaddingAccepted(Chain):
    def rows(self, instance: Instance, drafts: Path) -> Rows:
        rows = super().rows(instance, (*drafts[:-1], -1)[: len(drafts)])
        for law in rows.offered[-1:]:
            rows.offered[-1] = zeros(law.size, law)  # so that every coin accepts
        return rows


BUGS = (
    KnownBug(
        _FromTheDraft("bonus from the draft model"),
        mistake="bonus from the wrong law",
        summary="Behind drafts that are all accepted comes a token of the draft model.",
    ),
    KnownBug(
        _RowBefore("bonus of the row before"),
        mistake="bonus from the wrong position",
        summary="The bonus is drawn from the target's law at the last draft's own position, as by "
        "a cache that lacks this draft.",
        threads=("vllm-project/vllm #9730",),
    ),
    KnownBug(
        _EndDrawnAgain("accepted end token drawn again"),
        mistake="end of the sequence",
        summary="An end token, here the last of the vocabulary, that ends drafts which are all "
        "accepted is replaced by another sample of the target.",
        threads=("huggingface/transformers #28508",),
    ),
    KnownBug(
        _PaddingAccepted("padding accepted"),
        mistake="padding accepted",
        summary="A chain that ends early is padded with −1, and the padding is judged like a "
        "draft and accepted.",
        threads=("flashinfer-ai/flashinfer #879", "vllm-project/vllm #46533"),
    ),
)
