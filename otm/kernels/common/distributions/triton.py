"""Conversion of row entries to probabilities and integer masses, inside Triton kernels.

A row holds probabilities or logits.  Kernels convert logits by the softmax or, as an approximation,
by the sigmoid.  The softmax needs each row's sum first: `summarise_logits` launches the two kernels
that compute the sums.  All steps repeat those of `otm.kernels.common.softmax`.
"""

# ruff: noqa: PLR0917 - a kernel's arguments are pointers, strides and sizes, in order

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from otm.kernels.common import runtime
from otm.kernels.common.runtime import constant, jit, launch, padded, tl
from otm.kernels.common.softmax import (
    COEFFICIENTS,
    LEAST_EXPONENT,
    LOG2_E,
    SCALES,
    SIGMOID_UNIT,
    WEIGHT_UNIT,
    check_vocabulary,
)
from otm.kernels.workspace import Workspace

C1, C2, C3, C4, C5, C6 = map(constant, COEFFICIENTS)
_LEAST_EXPONENT = constant(LEAST_EXPONENT)
_LOG2_E = constant(LOG2_E)
_ROUNDING = constant(1.5 * 2.0**23)
_SIGMOID_UNIT = constant(SIGMOID_UNIT)
_WEIGHT_UNIT = constant(WEIGHT_UNIT)
_LEAST_SCALE, _LARGEST_SCALE = map(constant, SCALES)


@jit
def exp2(exponent: tl.tensor) -> tl.tensor:
    """Return 2 to the power of an exponent, as `otm.kernels.common.softmax.exp2` does."""
    exponent = tl.where(exponent >= _LEAST_EXPONENT, exponent, -127.0)  # the power becomes 0
    # Adding 1.5 · 2^23 rounds to an integer, without a conversion, which is slow on a GPU.
    rounded = exponent + _ROUNDING
    part = exponent - (rounded - _ROUNDING)
    power = part * C6 + C5
    power = power * part + C4
    power = power * part + C3
    power = power * part + C2
    power = power * part + C1
    power = power * part + 1.0
    # The last bits of `rounded` hold the integer, which is added to the exponent of the power.
    bits = power.to(tl.int32, bitcast=True) + (rounded.to(tl.int32, bitcast=True) << 23)
    return bits.to(tl.float32, bitcast=True)


class Drafts(NamedTuple):
    """Draft tokens of a chain, and the tokens that its sparse draft rows list."""

    tokens: tl.tensor
    listed: tl.tensor


class Rows(NamedTuple):
    """Rows of a chain: pointers to the first entries, strides of rows, sizes, scales of sigmoids.

    All fields are run-time values, because Triton does not keep constants inside a tuple constant.
    """

    target: tl.tensor
    draft: tl.tensor
    softmaxes: tl.tensor
    target_row: tl.tensor
    draft_row: tl.tensor
    gamma: tl.tensor
    size: tl.tensor
    draft_size: tl.tensor
    low: tl.tensor
    span: tl.tensor
    of: Drafts


@jit
def make_rows(pointers: tl.tuple, sizes: tl.tuple, scales: tl.tuple, of: Drafts) -> Rows:
    """Build `Rows` from pointers, strides with sizes, and scales, in the order of the fields."""
    target, draft, softmaxes = pointers
    target_row, draft_row, gamma, size, draft_size = sizes
    low, span = scales
    return Rows(
        target, draft, softmaxes, target_row, draft_row, gamma, size, draft_size, low, span, of
    )


@jit
def target_at(
    rows: Rows,
    position: tl.tensor,
    token: tl.tensor,
    known: tl.tensor,
    used: tl.tensor,
    kind: tl.constexpr,
) -> tl.tensor:
    """Return probabilities of tokens in the target's row at a position; see `probability`.

    `position` is a scalar, or has one position for each token.
    """
    row = rows.target + position.to(tl.int64) * rows.target_row
    softmax = rows.softmaxes + position * 4
    return probability(row, token, known, softmax, used, rows.low, rows.span, kind)


@jit
def draft_at(
    rows: Rows,
    position: tl.tensor,
    token: tl.tensor,
    known: tl.tensor,
    used: tl.tensor,
    kind: tl.constexpr,
) -> tl.tensor:
    """Return probabilities of tokens in the draft's row at a position, as `target_at` does."""
    row = rows.draft + position.to(tl.int64) * rows.draft_row
    softmax = rows.softmaxes + (position + rows.gamma + 1) * 4
    return probability(row, token, known, softmax, used, rows.low, rows.span, kind)


@jit
def probability(
    row: tl.tensor,
    token: tl.tensor,
    known: tl.tensor,
    softmax: tl.tensor,
    used: tl.tensor,
    low: tl.tensor,
    span: tl.tensor,
    kind: tl.constexpr,
) -> tl.tensor:
    """Return probabilities of tokens in a row, 0 where `known` is false.

    The result is float64 for float64 probabilities, otherwise float32.  The row holds
    "probabilities", "logits" for a softmax, or logits for a "sigmoid" with scales.  `row` and
    `softmax` each hold a single pointer, or a pointer for each token; a softmax where `used` is
    false is not read.
    """
    value = tl.load(row + token, mask=known, other=0.0)  # [n] of one row, or one of each of n rows
    # Only one `return`: Triton compares the types of all, even of those that never run.
    if kind == "probabilities":
        prob = value if value.dtype == tl.float64 else value.to(tl.float32)
    elif kind == "logits":
        peak = tl.load(softmax, mask=used, other=0.0)  # from softmaxes [4]: scalars or [n]
        scale = tl.load(softmax + 1, mask=used, other=0.0)
        inverse = tl.load(softmax + 2, mask=used, other=0.0)
        certain = tl.load(softmax + 3, mask=used, other=-1.0).to(tl.int32)
        weight = exp2((value.to(tl.float32) - peak) * scale) * inverse
        prob = tl.where(known, tl.where(token == certain, 1.0, weight), 0.0)
    else:
        shifted = value.to(tl.float32) - low
        scaled = tl.div_rn(shifted, tl.full(shifted.shape, span, tl.float32))
        weight = exp2(-(tl.abs(scaled) * _LOG2_E))
        weight = tl.div_rn(tl.where(scaled >= 0, 1.0, weight), weight + 1.0) * _SIGMOID_UNIT
        prob = tl.where(known, weight, 0.0)
    return prob


@jit
def mass(probability: tl.tensor, unit: tl.constexpr) -> tl.tensor:
    """Multiply by `unit`, which is exact for a power of two, and round down to integers."""
    return (probability * unit).to(tl.int64)


@jit
def drafts_of(
    tokens: tl.tensor,
    offsets: tl.tensor,
    chain: tl.tensor,
    gamma: tl.tensor,
    padded_gamma: tl.constexpr,
    packed: tl.constexpr,
) -> tl.tensor:
    """Return a pointer to a chain's drafts, the number of earlier packed drafts, and the length.

    If the drafts are padded instead of packed, the number of earlier packed drafts is 0.  The
    length counts the drafts before the first −1.
    """
    start, most = chain * 0, gamma
    if packed:
        start = tl.load(offsets + chain).to(tl.int64)  # scalar
        most = tl.minimum(tl.load(offsets + chain + 1).to(tl.int64) - start, gamma)  # scalar
        tokens += start
    else:
        tokens += chain * gamma
    step = tl.arange(0, padded_gamma)
    token = tl.load(tokens + step, mask=step < most, other=-1)  # [padded γ]
    return tokens, start, tl.min(tl.where(token < 0, step, padded_gamma), 0)


@jit
def _is_read(row: tl.tensor, length: tl.tensor, gamma: tl.tensor) -> tl.tensor:
    """Whether a decision can read a row; γ + 1 target rows precede γ draft rows."""
    return tl.where(row > gamma, row - gamma, row) <= length


@jit
def _scale(temperature: tl.tensor) -> tl.tensor:
    """Return log₂(e) / temperature, for a temperature above 0, clamped to `SCALES`, in float32."""
    scale = tl.full((), _LOG2_E, tl.float64) / temperature
    return tl.minimum(tl.maximum(scale, _LEAST_SCALE), _LARGEST_SCALE).to(tl.float32)


@jit
def write_peak(
    value: tl.tensor,
    token: tl.tensor,
    temperature: tl.tensor,
    to_peak: tl.tensor,
    to_weight: tl.tensor,
    size: tl.tensor,
) -> None:
    """Write the largest logit of a block and the sum of its weights.

    At temperature 0, write the first token with the largest logit instead of the sum.
    """
    peak = tl.max(value, 0)
    tl.store(to_peak, peak)
    if temperature == 0:
        certain = tl.min(tl.where(value == peak, token, size), 0)
        tl.store(to_weight, certain.to(tl.int64))
    else:
        reference = tl.where(peak > float("-inf"), peak, 0.0)  # avoids −∞ − (−∞)
        weight = exp2((value - reference) * _scale(temperature))
        tl.store(to_weight, tl.sum(mass(weight, _WEIGHT_UNIT), 0))


@jit
def write_softmax(
    tops: tl.tensor,
    sums: tl.tensor,
    inside: tl.tensor,
    temperature: tl.tensor,
    drafted: tl.tensor,
    softmax: tl.tensor,
    size: tl.tensor,
) -> None:
    """Write the four numbers that `probability` reads: peak, scale, inverse sum, greedy token.

    At temperature 0 the greedy token is the draft, if there is one, or the first token with the
    largest logit.  At positive temperatures the greedy token is −1.
    """
    peak = tl.max(tops, 0)
    if temperature == 0:
        certain = tl.min(tl.where(inside & (tops == peak), sums, size), 0)
        certain = tl.where(drafted >= 0, drafted, certain)
        tl.store(softmax, float("inf"))
        tl.store(softmax + 1, 1.0)
        tl.store(softmax + 2, 0.0)
        tl.store(softmax + 3, certain.to(tl.float32))
    else:
        peak = tl.where(peak > float("-inf"), peak, 0.0)
        scale = _scale(temperature)
        factor = exp2((tops - peak) * scale).to(tl.float64)
        total = tl.sum((sums.to(tl.float64) * factor).to(tl.int64), 0)
        inverse = tl.full((), _WEIGHT_UNIT, tl.float64) / tl.maximum(total, 1).to(tl.float64)
        tl.store(softmax, peak)
        tl.store(softmax + 1, scale)
        tl.store(softmax + 2, inverse.to(tl.float32))
        tl.store(softmax + 3, -1.0)


@jit
def peaks_and_weights(
    target: tl.tensor,
    draft: tl.tensor,
    tokens: tl.tensor,
    offsets: tl.tensor,
    temperatures: tl.tensor,
    peaks: tl.tensor,
    weights: tl.tensor,
    target_sequence: tl.tensor,
    target_chain: tl.tensor,
    target_row: tl.tensor,
    draft_sequence: tl.tensor,
    draft_chain: tl.tensor,
    draft_row: tl.tensor,
    temperature_sequence: tl.tensor,
    chains: tl.tensor,
    gamma: tl.tensor,
    size: tl.tensor,
    draft_size: tl.tensor,
    padded_gamma: tl.constexpr,
    block_size: tl.constexpr,
    packed: tl.constexpr,
) -> None:
    """Find for each block of logits what `write_peak` writes."""
    chain = tl.program_id(0).to(tl.int64)
    row, block = tl.program_id(1), tl.program_id(2)
    sequence, in_sequence = chain // chains, chain % chains
    temperature = tl.load(temperatures + sequence * temperature_sequence).to(tl.float64)  # scalar
    _, first, length = drafts_of(tokens, offsets, chain, gamma, padded_gamma, packed)
    if (not _is_read(row, length, gamma)) | ((temperature == 0) & (row > gamma)):
        return
    token = block * block_size + tl.arange(0, block_size)  # [block size], as the values
    if row <= gamma:
        start = target + sequence * target_sequence + in_sequence * target_chain
        start += (first + row) * target_row
        value = tl.load(start + token, mask=token < size, other=float("-inf")).to(tl.float32)
    else:
        start = draft + sequence * draft_sequence + in_sequence * draft_chain
        start += (first + row - gamma - 1) * draft_row
        value = tl.load(start + token, mask=token < draft_size, other=float("-inf")).to(tl.float32)
    place = (chain * (2 * gamma + 1) + row) * tl.num_programs(2) + block
    write_peak(value, token, temperature, peaks + place, weights + place, size)


@jit
def finish_softmaxes(
    peaks: tl.tensor,
    weights: tl.tensor,
    tokens: tl.tensor,
    offsets: tl.tensor,
    temperatures: tl.tensor,
    softmaxes: tl.tensor,
    temperature_sequence: tl.tensor,
    chains: tl.tensor,
    gamma: tl.tensor,
    size: tl.tensor,
    blocks: tl.tensor,
    padded_gamma: tl.constexpr,
    padded_blocks: tl.constexpr,
    packed: tl.constexpr,
) -> None:
    """Combine the results of a row's blocks into the four numbers that `probability` reads."""
    chain = tl.program_id(0).to(tl.int64)
    row = tl.program_id(1)
    # scalar
    temperature = tl.load(temperatures + chain // chains * temperature_sequence).to(tl.float64)
    tokens, _, length = drafts_of(tokens, offsets, chain, gamma, padded_gamma, packed)
    if not _is_read(row, length, gamma):
        return
    place = chain * (2 * gamma + 1) + row
    softmax = softmaxes + place * 4
    block = tl.arange(0, padded_blocks)
    # No draft row of a greedy chain is read; the drafts themselves define the softmaxes.
    greedy_draft = (temperature == 0) & (row > gamma)
    inside = block < tl.where(greedy_draft, 0, blocks)  # [padded blocks], as what is read
    tops = tl.load(peaks + place * blocks + block, mask=inside, other=float("-inf"))
    sums = tl.load(weights + place * blocks + block, mask=inside, other=0)
    # scalar
    drafted = tl.load(tokens + row - gamma - 1, mask=greedy_draft, other=-1).to(tl.int64)
    write_softmax(tops, sums, inside, temperature, drafted, softmax, size)


def summarise_logits(
    target: Tensor,
    draft: Tensor,
    tokens: Tensor,
    temperature: float | Tensor,
    workspace: Workspace,
    *,
    of_target: bool = False,
    offsets: Tensor | None = None,
    most: int = 0,
) -> Tensor:
    """Compute, for each row, the four numbers that `probability` reads: [B, K, 2γ + 1, 4].

    Target rows precede draft rows.  Logits of one or several chains have the layout that `lay_out`
    returns; packed logits have at most `most` drafts per sequence.  With `of_target` only target
    rows are computed.  Rows after the end of a chain are neither read nor written.
    """
    batch, gamma = (len(tokens), tokens.shape[-1]) if offsets is None else (len(offsets) - 1, most)
    chains = tokens.shape[1] if tokens.ndim == 3 else 1
    size, device = target.shape[-1], target.device
    check_vocabulary(size)
    temperatures = runtime.spread_temperature(workspace, temperature, batch, device)
    count = gamma + 1 if of_target else 2 * gamma + 1
    blocks = -(-size // runtime.BLOCK)
    of_rows = (batch, chains, 2 * gamma + 1)
    peaks = workspace.take("peaks", (*of_rows, blocks), torch.float32, device)
    weights = workspace.take("weights", (*of_rows, blocks), torch.int64, device)
    softmaxes = workspace.take("softmaxes", (*of_rows, 4), torch.float32, device)
    rows = (batch * chains, count)
    of_drafts = (tokens, tokens if offsets is None else offsets, temperatures)
    arguments = (target, draft, *of_drafts, peaks, weights)
    strides = (*strides_of(target, 1), *strides_of(draft, 0), temperatures.stride(0))
    shape = (chains, gamma, size, draft.shape[-1])
    of_chains = {"padded_gamma": padded(gamma), "packed": offsets is not None}
    constants = {**of_chains, "block_size": runtime.BLOCK}
    launch(peaks_and_weights, (*rows, blocks), *arguments, *strides, *shape, **constants)
    of_blocks = (peaks, weights, *of_drafts, softmaxes)
    shape = (chains, gamma, size, blocks)
    constants = {**of_chains, "padded_blocks": padded(blocks)}
    launch(finish_softmaxes, rows, *of_blocks, temperatures.stride(0), *shape, **constants)
    return softmaxes


def strides_of(rows: Tensor, further: int) -> tuple[int, int, int]:
    """Return strides: sequences, chains, rows; packed ones have `further` more rows than drafts."""
    if rows.ndim == 2:
        return further * rows.stride(0), 0, rows.stride(0)
    of_rows = rows.stride()[:-1]
    return of_rows[0], of_rows[-2], of_rows[-1]
