"""Softmaxes of the rows that trees have reached, as Triton kernels, level by level."""

# ruff: noqa: PLR0917 - a kernel's arguments are pointers, strides and sizes, in order

from __future__ import annotations

import torch
from torch import Tensor

from otm.kernels.common import runtime
from otm.kernels.common.distributions.triton import write_peak, write_softmax
from otm.kernels.common.runtime import constant, jit, launch, padded, tl
from otm.kernels.common.softmax import check_vocabulary
from otm.kernels.workspace import Workspace

OVER = constant(-1)
"""Row of a sequence whose output is complete."""

NEXT = constant(-2)
"""Code of a row of the next level: row r is stored as −2 − r until that level begins."""


def lay_out_rows(work: Workspace, target: Tensor, draft: Tensor | None) -> tuple[Tensor, Tensor]:
    """Return rows of both models with contiguous entries; copy them only if necessary.

    If there is no draft, the target takes its place.
    """
    laid_out = [target, target if draft is None else draft]
    for i, rows in enumerate(laid_out):
        if rows.stride(-1) != 1:
            kept = work.take(f"rows {i}", tuple(rows.shape), rows.dtype, rows.device)
            laid_out[i] = kept.copy_(rows)
    return laid_out[0], laid_out[1]


class Softmaxes:
    """Launches that compute the softmax of each row that the sequences have reached.

    `states` [positions, B, 2] holds the row of each sequence, and the number of its sampled
    children.  The draft's row is read only if this number is positive.
    """

    def __init__(
        self,
        models: tuple[Tensor, Tensor],
        states: Tensor,
        temperature: float | Tensor,
        work: Workspace,
        *,
        has_draft: bool,
    ) -> None:
        target, draft = models
        batch, size, device = len(target), target.shape[-1], target.device
        check_vocabulary(size)
        self._temperatures = runtime.spread_temperature(work, temperature, batch, device)
        blocks = -(-size // runtime.BLOCK)
        self._peaks = work.take("peaks", (batch, 2, blocks), torch.float32, device)
        self._weights = work.take("weights", (batch, 2, blocks), torch.int64, device)
        self._models, self._states = models, states
        self._strides = (*target.stride()[:2], *draft.stride()[:2], self._temperatures.stride(0))
        self._sizes = (size, draft.shape[-1], blocks)
        self._rows = (batch, 1 + has_draft)

    def __call__(self, softmaxes: Tensor, position: int) -> None:
        """Write the four numbers of each row that `probability` reads to `softmaxes` [B, 2, 4]."""
        of_blocks = (self._peaks, self._weights)
        found = (*self._models, self._states, self._temperatures, *of_blocks, *self._strides)
        grid, block_size = (*self._rows, self._sizes[-1]), runtime.BLOCK
        launch(peak_and_weight, grid, *found, *self._sizes, position, block_size=block_size)
        found = (*of_blocks, self._states, self._temperatures, softmaxes, self._strides[-1])
        blocks = padded(self._sizes[-1])
        launch(finish_softmax, self._rows, *found, *self._sizes, position, padded_blocks=blocks)


@jit
def row_of(
    states: tl.tensor, sequence: tl.tensor, batch: tl.tensor, position: tl.tensor, test: tl.tensor
) -> tl.tensor:
    """Return the row that a sequence has reached before a test, and its number of sampled children.

    The row is negative if the sequence needs no test.
    """
    place = states + (position.to(tl.int64) * batch + sequence) * 2
    row = tl.load(place)  # scalar
    count = tl.load(place + 1)  # scalar
    return tl.where((row <= NEXT) & (test == 0), -row + NEXT, row), count


@jit
def peak_and_weight(
    target: tl.tensor,
    draft: tl.tensor,
    states: tl.tensor,
    temperatures: tl.tensor,
    peaks: tl.tensor,
    weights: tl.tensor,
    target_sequence: tl.tensor,
    target_row: tl.tensor,
    draft_sequence: tl.tensor,
    draft_row: tl.tensor,
    temperature_sequence: tl.tensor,
    size: tl.tensor,
    draft_size: tl.tensor,
    blocks: tl.tensor,
    position: tl.tensor,
    block_size: tl.constexpr,
) -> None:
    """Find the largest logit of a block and the sum of its weights.

    At temperature 0, find the first token with the largest logit instead of the sum.
    """
    sequence = tl.program_id(0).to(tl.int64)
    model, block = tl.program_id(1), tl.program_id(2)
    row, count = row_of(states, sequence, tl.num_programs(0), position, 0)
    if (row < 0) | ((model == 1) & (count == 0)):
        return
    temperature = tl.load(temperatures + sequence * temperature_sequence).to(tl.float64)  # scalar
    token = block * block_size + tl.arange(0, block_size)
    place = (sequence * 2 + model) * blocks + block
    if model == 0:
        start = target + sequence * target_sequence + row * target_row
        # [block size]
        value = tl.load(start + token, mask=token < size, other=float("-inf")).to(tl.float32)
        write_peak(value, token, temperature, peaks + place, weights + place, size)
    else:
        start = draft + sequence * draft_sequence + row * draft_row
        value = tl.load(start + token, mask=token < draft_size, other=float("-inf"))  # [block size]
        value = value.to(tl.float32)
        write_peak(value, token, temperature, peaks + place, weights + place, size)


@jit
def finish_softmax(
    peaks: tl.tensor,
    weights: tl.tensor,
    states: tl.tensor,
    temperatures: tl.tensor,
    softmaxes: tl.tensor,
    temperature_sequence: tl.tensor,
    size: tl.tensor,
    draft_size: tl.tensor,
    blocks: tl.tensor,
    position: tl.tensor,
    padded_blocks: tl.constexpr,
) -> None:
    """Write the four numbers that `probability` reads, for the row that a sequence has reached."""
    sequence = tl.program_id(0).to(tl.int64)
    model = tl.program_id(1)
    row, count = row_of(states, sequence, tl.num_programs(0), position, 0)
    if (row < 0) | ((model == 1) & (count == 0)):
        return
    temperature = tl.load(temperatures + sequence * temperature_sequence).to(tl.float64)  # scalar
    block = tl.arange(0, padded_blocks)
    inside = block < blocks
    of_row = sequence * 2 + model
    tops = tl.load(peaks + of_row * blocks + block, mask=inside, other=float("-inf"))  # [padded]
    added = tl.load(weights + of_row * blocks + block, mask=inside, other=0)  # [padded]
    no_draft = tl.full((), -1, tl.int64)
    write_softmax(tops, added, inside, temperature, no_draft, softmaxes + of_row * 4, size)
