"""Block verification that judges blocks as if they were tokens."""

from __future__ import annotations

from typing import Any

from otm._core.arithmetic import Law
from otm.audit.known_bugs.bug import KnownBug
from otm.audit.known_bugs.steps import Block, Rows


class _TokenResidual(Block):
    def left(self, rows: Rows, i: int, weight: Any) -> Law:
        return super().left(rows, i, 1 + 0 * weight)


class _TestedByTheRatio(_TokenResidual):
    def passes(self, rows: Rows, i: int, weight: Any) -> Any:
        return weight


BUGS = (
    KnownBug(
        _TestedByTheRatio("blocks tested by their ratio"),
        mistake="block verification judged token by token",
        summary="A block is accepted with the probability ratio of its tokens, and continued by "
        "the residual of a single one.",
        threads=("vllm-project/vllm-ascend #7807", "vllm-project/vllm-ascend #7808"),
    ),
    KnownBug(
        _TokenResidual("residual of a token behind a block"),
        mistake="block verification judged token by token",
        summary="The token behind a block is drawn from the residual of a single token.",
        threads=("vllm-project/vllm-ascend #7807", "vllm-project/vllm-ascend #7808"),
    ),
)
