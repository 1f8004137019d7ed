"""Sigmoid variant of chain verification (Wagner et al. 2024, section 3.2.2): not lossless.

The variant replaces the probability of a logit z by σ((z − a) / (b − a)), so no row needs a sum.
The sigmoids of a row are not a distribution, and the output does not have the target's
distribution.  With b = −a = 10^4 the sigmoids of all usual logits lie between 0.622 and 0.623, so
almost every draft is accepted, and the token after a rejection is nearly uniform.
`sigmoid_distance` computes the distance of the output from the target.
"""

from __future__ import annotations

import math
from functools import partial
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from otm.errors import InvalidDistributionError, InvalidParameterError
from otm.kernels.chain import torch as chain
from otm.kernels.checks import check_arguments
from otm.kernels.common.distributions.numpy import mass
from otm.kernels.common.softmax import check_vocabulary, sigmoid
from otm.kernels.layout import Chains
from otm.kernels.registry import AUTO, choose_backend
from otm.kernels.results import Verified
from otm.kernels.sparse_drafts import SparseDrafts

if TYPE_CHECKING:
    from otm.kernels.workspace import Workspace

SCALES = (-1e4, 1e4)
"""Scales a and b that the paper uses for summarisation."""


def verify_sigmoid(
    target_logits: Tensor,
    draft_logits: Tensor,
    draft_tokens: Tensor,
    uniforms: Tensor,
    scales: tuple[float, float] = SCALES,
    *,
    backend: str = "auto",
    validate: bool = True,
) -> Verified[Tensor]:
    """Verify chains by sigmoids of logits, for comparison only: the output is **not** lossless.

    Let t and d be the sigmoids of target and draft logits.  A draft x is accepted if
    u · d(x) < t(x).  The first rejected draft is replaced by a token drawn ∝ max(t − d, 0), or ∝ t
    if the residual is empty.  The bonus token is drawn ∝ t ([wagner2024]_, section 3.2.2).

    Parameters
    ----------
    target_logits : Tensor [B, γ + 1, V]
        Logits of the target model: float16, bfloat16, float32, or float64, which is rounded to
        float32.
    draft_logits : Tensor [B, γ, V']
        Logits of the draft model, V' ≤ V.
    draft_tokens : int Tensor [B, γ]
        The drafts; the first −1 ends a chain.
    uniforms : float64 Tensor [B, γ + 2]
        Independent uniforms in [0, 1).
    scales : pair of floats, optional
        The scales a and b of the sigmoid, with a < b.
    backend : {"auto", "torch", "triton"}, optional
        "auto" uses Triton for CUDA tensors if it is installed, and torch otherwise.  Both backends
        make the same decisions, bit for bit.
    validate : bool, optional
        Whether to check all numbers first, which reads every row and waits for the device.

    Returns
    -------
    Verified
        int64 tokens [B, γ + 1], padded with −1, and the number of accepted drafts [B].

    Raises
    ------
    InvalidParameterError
        If the scales are not finite numbers with a < b.
    InvalidDistributionError, InvalidDraftsError, InvalidUniformsError
        As for `otm.kernels.verify_logits`, or if there are no draft logits.
    InvalidInputError
        If the arguments are not tensors on one device, or the backend cannot process them.
    UnknownMethodError
        If the backend does not exist.
    MissingDependencyError
        If torch or Triton is needed and not installed.

    References
    ----------
    .. [wagner2024] Wagner et al., "Optimized Speculative Sampling for GPU Hardware Accelerators",
       EMNLP 2024, section 3.2.2.

    Examples
    --------
    >>> import torch
    >>> from otm.kernels import verify_sigmoid
    >>> target = torch.tensor([[[0.0, 30.0], [0.0, 0.0]]])
    >>> uniforms = torch.full((1, 3), 0.5, dtype=torch.float64)
    >>> verify_sigmoid(target, -target[:, :1], torch.tensor([[0]]), uniforms).accepted
    tensor([1])
    """
    low, high = scales
    if not (math.isfinite(low) and math.isfinite(high) and low < high):
        raise InvalidParameterError(
            f"scales {low} and {high}; they must be finite numbers, the first less than the second"
        )
    if draft_logits is None or isinstance(draft_logits, SparseDrafts):
        raise InvalidDistributionError(
            "the sigmoid variant needs draft logits for all tokens of the draft model"
        )
    chosen = choose_backend(target_logits, backend, ("torch", "triton"))
    check_vocabulary(target_logits.shape[-1])
    chains = Chains(target_logits, draft_logits, draft_tokens, uniforms, sigmoid=True)
    if validate:
        check_arguments(chains._replace(temperature=1.0), logits=True)
    if chosen == AUTO:
        from otm.kernels.self_check import chain_cases
        from otm.kernels.self_check import run as self_check

        # The scales of the test cases keep the sigmoids of their logits far apart.
        of_cases = partial(_verify, scales=(-4.0, 4.0))
        chosen = self_check.checked_backend(chain_cases.call_of_chains("chain", chains, of_cases))
    return _verify(chosen, chains, scales=(float(low), float(high)))


def _verify(
    backend: str,
    chains: Chains,
    workspace: Workspace | None = None,
    *,
    scales: tuple[float, float],
) -> Verified[Tensor]:
    """Verify on a backend, with the scales of the sigmoid."""
    target, draft, draft_tokens, uniforms, *_ = chains
    if backend == "triton":
        from otm.kernels.chain.triton import verify

        drafts = (draft_tokens, uniforms, "sigmoid")
        return verify(target, draft, *drafts, scales=scales, workspace=workspace)
    target, draft = (sigmoid(x, *scales) for x in (target, draft))
    return chain.verify(target, draft, draft_tokens, uniforms)


def output_distribution(
    target_logits: Tensor, draft_logits: Tensor, scales: tuple[float, float] = SCALES
) -> Tensor:
    """Return the distribution [V] of the token at a draft's position, for logits [V], [V].

    The draft is sampled from the softmax of its logits.  The computation uses float64 and the
    float32 sigmoids of `verify_sigmoid`.
    """
    target, draft = (sigmoid(x, *scales) for x in (target_logits, draft_logits))
    drawn = draft_logits.double().softmax(0)
    accepted = drawn * (target.double() / draft.double()).clamp(max=1)
    masses = mass(target)
    residual = (masses - mass(draft)).clamp(min=0)
    residual = torch.where(residual.any(), residual, masses).double()
    return accepted + (1 - accepted.sum()) * residual / residual.sum()


def sigmoid_distance(
    target_logits: Tensor, draft_logits: Tensor, scales: tuple[float, float] = SCALES
) -> float:
    """Return the distance (TV) between the target and the output of `verify_sigmoid` at a draft.

    Parameters
    ----------
    target_logits, draft_logits : Tensor [V]
        Logits of the two models; the draft is sampled from the softmax of `draft_logits`.
    scales : pair of floats, optional
        The scales a and b of the sigmoid, with a < b.

    Returns
    -------
    float
        The distance in [0, 1], computed without sampling.

    Raises
    ------
    MissingDependencyError
        If torch is not installed.

    Examples
    --------
    >>> import torch
    >>> from otm.kernels import sigmoid_distance
    >>> target, draft = torch.tensor([3.0, 0.0, 0.0]), torch.tensor([0.0, 0.0, 3.0])
    >>> round(sigmoid_distance(target, draft), 2)  # the draft's own distance is 0.86 too
    0.86
    """
    output = output_distribution(target_logits, draft_logits, scales)
    return float((output - target_logits.double().softmax(0)).abs().sum() / 2)
