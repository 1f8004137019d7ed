"""The sigmoid variant of chain verification (Wagner et al. 2024, section 3.2.2): not exact.

It puts σ((z − a) / (b − a)) of a logit z in the place of its probability, so that no row needs a
sum.  These numbers are no law, and the output does not follow the target's: with b = −a = 10^4 they
lie between 0.622 and 0.623 for all usual logits, hence nearly every draft is accepted, and what
follows a rejection is nearly uniform.  `distance_to_target` says how far from the target it is.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from otm.errors import InvalidDistributionError, InvalidParameterError
from otm.kernels import chain_triton, reference
from otm.kernels.checks import check_chain
from otm.kernels.definition import ChainResult
from otm.kernels.reference import import_torch
from otm.kernels.softmax import check_vocabulary, sigmoid

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["distance_to_target", "output_distribution", "verify_chain", "verify_chain_triton"]

SCALES = (-1e4, 1e4)
"""The scales a and b that the paper takes for summarisation."""


def verify_chain(
    target_logits: Tensor,
    draft_logits: Tensor,
    draft_tokens: Tensor,
    uniforms: Tensor,
    scales: tuple[float, float] = SCALES,
    *,
    validate: bool = True,
) -> ChainResult[Tensor]:
    """Verify chains by sigmoids, which does not preserve the target's law; in torch.

    With t and d the sigmoids of target and draft, draft x is accepted while u · d(x) < t(x); the
    first that is not is replaced by a token drawn ∝ max(t − d, 0), or t if that is empty, and the
    bonus token is drawn ∝ t ([wagner2024]_, section 3.2.2).

    Parameters
    ----------
    target_logits : Tensor [B, γ + 1, V]
        Logits of the target model; float16, bfloat16, float32 or float64, which is rounded.
    draft_logits : Tensor [B, γ, V']
        Logits of the draft model, V' ≤ V.
    draft_tokens, uniforms, validate
        As for `otm.kernels.reference.verify_chain`.
    scales : pair of floats, optional
        a < b.

    Returns
    -------
    ChainResult
        int64 tokens [B, γ + 1], padded with −1, and the number of accepted drafts [B].

    Raises
    ------
    InvalidParameterError
        If the scales are not finite numbers with a < b.
    InvalidDistributionError, InvalidDraftsError, InvalidUniformsError
        As for `otm.kernels.reference.verify_chain_from_logits`, or if there are no draft logits.

    References
    ----------
    .. [wagner2024] Wagner et al., "Optimized Speculative Sampling for GPU Hardware Accelerators",
       EMNLP 2024, section 3.2.2.

    Examples
    --------
    >>> import torch
    >>> target = torch.tensor([[[0.0, 30.0], [0.0, 0.0]]])
    >>> uniforms = torch.full((1, 3), 0.5, dtype=torch.float64)
    >>> verify_chain(target, -target[:, :1], torch.tensor([[0]]), uniforms).accepted
    tensor([1])
    """
    _check(target_logits, draft_logits, draft_tokens, uniforms, scales, validate=validate)
    target, draft = sigmoid(target_logits, *scales), sigmoid(draft_logits, *scales)
    return reference.verify_chain(target, draft, draft_tokens, uniforms, validate=False)


def verify_chain_triton(
    target_logits: Tensor,
    draft_logits: Tensor,
    draft_tokens: Tensor,
    uniforms: Tensor,
    scales: tuple[float, float] = SCALES,
    *,
    validate: bool = True,
) -> ChainResult[Tensor]:
    """Equivalent to, but faster than, `verify_chain`: the same decisions by Triton's kernels.

    Two launches, and of each chain two rows are read.  Each pair of scales is compiled once.
    """
    _check(target_logits, draft_logits, draft_tokens, uniforms, scales, validate=validate)
    given = (target_logits, draft_logits, draft_tokens, uniforms)
    low, high = map(float, scales)
    return chain_triton.run(*given, "sigmoid", low=low, high=high)


def output_distribution(
    target_logits: Tensor, draft_logits: Tensor, scales: tuple[float, float] = SCALES
) -> Tensor:
    """Law of the token in the place of a draft that is sampled from the softmax of its logits.

    Parameters
    ----------
    target_logits, draft_logits : Tensor [V]
        Logits of the two models.
    scales : pair of floats, optional
        a < b.

    Returns
    -------
    Tensor [V]
        Integrated in float64 from the float32 sigmoids that `verify_chain` works with.
    """
    torch = import_torch()
    wanted, offered = (sigmoid(x, *scales) for x in (target_logits, draft_logits))
    drawn = draft_logits.double().softmax(0)
    accepted = drawn * (wanted.double() / offered.double()).clamp(max=1)
    mass = reference.mass(wanted)
    left = (mass - reference.mass(offered)).clamp(min=0)
    left = torch.where(left.any(), left, mass).double()
    return accepted + (1 - accepted.sum()) * left / left.sum()


def distance_to_target(
    target_logits: Tensor, draft_logits: Tensor, scales: tuple[float, float] = SCALES
) -> float:
    """Distance (TV) of `output_distribution` from the softmax of the target's logits.

    Examples
    --------
    >>> import torch
    >>> target, draft = torch.tensor([3.0, 0.0, 0.0]), torch.tensor([0.0, 0.0, 3.0])
    >>> round(distance_to_target(target, draft), 2)  # of the draft's own law: 0.86
    0.86
    """
    law = output_distribution(target_logits, draft_logits, scales)
    return float((law - target_logits.double().softmax(0)).abs().sum() / 2)


def _check(
    target: Tensor,
    draft: Tensor,
    tokens: Tensor,
    uniforms: Tensor,
    scales: tuple[float, float],
    *,
    validate: bool,
) -> None:
    """Refuse what the verifiers refuse, and scales that are none."""
    low, high = scales
    if not (math.isfinite(low) and math.isfinite(high) and low < high):
        raise InvalidParameterError(
            f"scales {low} and {high}; they must be finite numbers, the first below the second"
        )
    if draft is None:
        raise InvalidDistributionError(
            "the sigmoid variant needs the draft model's logits: there are none"
        )
    check_vocabulary(target.shape[-1])
    if validate:
        check_chain(import_torch(), target, draft, tokens, uniforms, logits=True)
