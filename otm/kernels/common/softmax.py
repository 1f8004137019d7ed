"""Softmax in float32 whose every bit is the same on every device: what Triton's kernels work with.

Exponentials of libraries differ in their last bit, and sums of floats depend on their order.  Here
an exponential is a polynomial in products and sums, each rounded on its own, and weights are added
as whole numbers.  The Triton kernels take the same steps; this is their plain version in torch.

It is within 10^−6 (TV) of the exact softmax, at V = 128,256 too: measured are 10^−7 at most,
where torch's own float32 softmax on a CPU is up to 6 · 10^−6 away.
"""

from __future__ import annotations

import math
from functools import partial

import torch
from torch import Tensor

from otm.errors import InvalidDistributionError
from otm.kernels.common.distributions import torch as distributions
from otm.kernels.common.runtime import BLOCK

COEFFICIENTS = (
    0.6931471824645996,
    0.24022647738456726,
    0.055503323674201965,
    0.00961843691766262,
    0.0013398875016719103,
    0.00015353361959569156,
)
"""Of 2^f = 1 + c₁f + … + c₆f⁶ on [−1/2, 1/2]; minimax, then rounded to float32."""

LOG2_E = math.log2(math.e)

LEAST_EXPONENT = -100.0
"""Weights below 2^−100 are 0: devices differ in numbers that are too small to be normal."""

SCALES = (2.0**-126, 2.0**126)
"""Bounds of log₂(e) over the temperature: all of them finite, none of them 0."""

WEIGHT_UNIT = 2.0**42
"""Weights relative to the largest are added as whole numbers of this many parts."""

SIGMOID_UNIT = 2.0**-19
"""What a row of sigmoids is multiplied by, so that its sum stays below 4, as masses need."""

LARGEST_VOCABULARY = 2**20
"""The sum of more weights could overflow."""


def check_vocabulary(size: int) -> None:
    """Refuse a vocabulary whose weights could overflow their sum."""
    if size > LARGEST_VOCABULARY:
        raise InvalidDistributionError(
            f"a vocabulary of {size:,} tokens; from logits the kernels add weights of at most "
            f"{LARGEST_VOCABULARY:,}: use backend='torch', or give probabilities"
        )


def exp2(exponent: Tensor) -> Tensor:
    """Return 2 to the power of an exponent of at most 0; 0 below 2^−100, and for NaN."""
    counts = exponent >= LEAST_EXPONENT
    exponent = exponent.where(counts, 0.0)
    whole = (exponent + 0.5).floor()
    part = exponent - whole
    power = part * COEFFICIENTS[5] + COEFFICIENTS[4]
    for coefficient in (*COEFFICIENTS[3::-1], 1.0):
        power = power * part + coefficient
    scale = ((whole.int() + 127) << 23).view(torch.float32)
    return (power * scale).where(counts, 0.0)


def softmax(logits: Tensor, temperature: Tensor, block: int = BLOCK) -> Tensor:
    """Softmax of logits [..., V] at temperatures [...] above 0, in float32; 0 where there is none.

    Weights are added by blocks of so many tokens, each relative to its own largest.
    """
    logits, size = logits.float(), logits.shape[-1]
    check_vocabulary(size)
    block = min(block, size)
    # torch takes number / tensor as number · reciprocal, which is rounded twice
    scale = torch.full_like(temperature, LOG2_E, dtype=torch.float64) / temperature.double()
    scale = scale.clamp(*SCALES).float()[..., None]
    padded = torch.nn.functional.pad(logits, (0, -size % block), value=-math.inf)
    blocks = padded.unflatten(-1, (-1, block))
    peaks = blocks.amax(-1)
    weights = exp2((blocks - _finite(peaks)[..., None]) * scale[..., None])
    sums = (weights * WEIGHT_UNIT).long().sum(-1)

    peak = _finite(peaks.amax(-1, keepdim=True))
    factors = exp2((peaks - peak) * scale)
    total = (sums.double() * factors.double()).long().sum(-1, keepdim=True)
    inverse = (WEIGHT_UNIT / total.clamp(min=1).double()).float()  # a power of two: rounded once
    return exp2((logits - peak) * scale) * inverse


def probs_from_logits(
    target_logits: Tensor,
    draft_logits: Tensor | None,
    draft_tokens: Tensor,
    temperature: float | Tensor,
    block: int = BLOCK,
) -> tuple[Tensor, Tensor | None]:
    """Probabilities that the kernels make of logits, of one chain or of several a sequence.

    Where the temperature is 0: the first of the target's largest logits, and the draft itself.
    """
    draft = None if draft_logits is None else draft_logits.float()
    of_rows = partial(softmax, block=block)
    return distributions.probs_from_logits(
        target_logits.float(), draft, draft_tokens, temperature, of_rows
    )


def sigmoid(logits: Tensor, low: float, high: float) -> Tensor:
    """σ((z − low) / (high − low)) · 2^−19 in float32: at most 2^20 of them sum to less than 2."""
    shifted = logits.float() - low
    scaled = shifted / torch.full_like(shifted, high - low)
    weight = exp2(-(scaled.abs() * LOG2_E))
    return torch.where(scaled >= 0, 1.0, weight) / (weight + 1.0) * SIGMOID_UNIT


def _finite(peaks: Tensor) -> Tensor:
    """Replace −∞ by 0, so that −∞ − (−∞) does not arise."""
    return peaks.where(peaks > -math.inf, 0.0)
