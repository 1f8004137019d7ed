"""Softmax in float32 that is bitwise equal on every device; Triton's kernels use it.

Library exponentials differ in their last bit, and sums of floats depend on the order of terms.
This module therefore computes exponentials by a polynomial whose products and sums are each rounded
separately, and adds weights as integers.  This module is the plain torch version; the Triton
kernels take the same steps.

The result is within 10^−6 (TV) of the exact softmax, also at V = 128,256.  The largest measured
distance is 10^−7; torch's own float32 softmax on a CPU reaches 6 · 10^−6.
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
"""Coefficients of 2^f = 1 + c₁f + … + c₆f⁶ on [−1/2, 1/2]: minimax, rounded to float32."""

LOG2_E = math.log2(math.e)

LEAST_EXPONENT = -100.0
"""Weights below 2^−100 become 0, because devices differ in subnormal numbers."""

SCALES = (2.0**-126, 2.0**126)
"""Bounds of the quotient log₂(e) / temperature, which is clamped to stay finite and positive."""

WEIGHT_UNIT = 2.0**42
"""Number of parts that weight 1 is divided into; the largest weight of a row is 1."""

SIGMOID_UNIT = 2.0**-19
"""Factor of sigmoids, which keeps the sum of a row below 4, as masses require."""

LARGEST_VOCABULARY = 2**20
"""Largest vocabulary for which the sum of weights cannot overflow."""


def check_vocabulary(size: int) -> None:
    """Raise if a vocabulary is so large that the sum of weights could overflow."""
    if size > LARGEST_VOCABULARY:
        raise InvalidDistributionError(
            f"the vocabulary has {size:,} tokens; for logits the kernels allow at most "
            f"{LARGEST_VOCABULARY:,} tokens: use backend='torch', or give probabilities"
        )


def exp2(exponent: Tensor) -> Tensor:
    """Return 2 to the power of an exponent ≤ 0; return 0 below 2^−100 and for NaN."""
    counts = exponent >= LEAST_EXPONENT
    exponent = exponent.where(counts, 0.0)
    whole = exponent.round()  # ties to even
    part = exponent - whole
    power = part * COEFFICIENTS[5] + COEFFICIENTS[4]
    for coefficient in (*COEFFICIENTS[3::-1], 1.0):
        power = power * part + coefficient
    scale = ((whole.int() + 127) << 23).view(torch.float32)
    return (power * scale).where(counts, 0.0)


def softmax(logits: Tensor, temperature: Tensor, block: int = BLOCK) -> Tensor:
    """Compute the softmax of logits [..., V] at temperatures [...] above 0, in float32.

    Weights are added in blocks of `block` tokens, relative to the largest logit of the block.  A
    row without a finite logit has probabilities 0.
    """
    logits, size = logits.float(), logits.shape[-1]
    check_vocabulary(size)
    block = min(block, size)
    # torch computes number / tensor as number · reciprocal, which is rounded twice.
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
    # The numerator is a power of two, so the quotient is rounded once.
    inverse = (WEIGHT_UNIT / total.clamp(min=1).double()).float()
    return exp2((logits - peak) * scale) * inverse


def probs_from_logits(
    target_logits: Tensor,
    draft_logits: Tensor | None,
    draft_tokens: Tensor,
    temperature: float | Tensor,
    block: int = BLOCK,
) -> tuple[Tensor, Tensor | None]:
    """Return the probabilities that the kernels compute from logits of one or several chains.

    At temperature 0 target rows are one-hot at the first largest logit, and draft rows at the
    draft.
    """
    draft = None if draft_logits is None else draft_logits.float()
    of_rows = partial(softmax, block=block)
    return distributions.probs_from_logits(
        target_logits.float(), draft, draft_tokens, temperature, of_rows
    )


def sigmoid(logits: Tensor, low: float, high: float) -> Tensor:
    """Return σ((z − low) / (high − low)) · 2^−19 in float32; 2^20 sigmoids sum to less than 2."""
    shifted = logits.float() - low
    scaled = shifted / torch.full_like(shifted, high - low)
    weight = exp2(-(scaled.abs() * LOG2_E))
    return torch.where(scaled >= 0, 1.0, weight) / (weight + 1.0) * SIGMOID_UNIT


def _finite(peaks: Tensor) -> Tensor:
    """Replace −∞ by 0 to avoid −∞ − (−∞)."""
    return peaks.where(peaks > -math.inf, 0.0)
