"""Chain verification in plain torch, batched: what every kernel is compared with.

It runs on any device, never waits for it, and reads one row of target and draft for each sequence
beside the probabilities of the drafts.  All that is added up is added as whole numbers, hence the
decisions are those of `otm.kernels.definition` bit for bit, on every device and in every batch.
"""

from __future__ import annotations

from types import ModuleType
from typing import TYPE_CHECKING

from otm._core.optional import require
from otm.kernels.checks import check_chain
from otm.kernels.definition import UNIT, ChainResult

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["import_torch", "verify_chain", "verify_chain_from_logits"]


def verify_chain(
    target_probs: Tensor,
    draft_probs: Tensor | None,
    draft_tokens: Tensor,
    uniforms: Tensor,
    *,
    validate: bool = True,
) -> ChainResult[Tensor]:
    """Accept drafts one after another, and draw the token that follows the accepted ones.

    Equivalent to `otm.kernels.definition.verify_chain`, where everything is said, but batched.

    Parameters
    ----------
    target_probs : Tensor [B, γ + 1, V]
        The target model's laws; float16, bfloat16, float32 or float64, with any strides.
    draft_probs : Tensor [B, γ, V'] or None
        The laws that the drafts were sampled from, V' ≤ V; None for one-hot drafts.
    draft_tokens : int Tensor [B, γ]
        The drafts; the first −1 ends a chain.
    uniforms : float64 Tensor [B, γ + 2]
        A coin for each draft, one uniform for the residual, one for the bonus.
    validate : bool
        Whether to look at all numbers first, which reads every row and waits for the device.
        Without it nothing is checked and no input gives a token outside the vocabulary: NaN and
        laws that do not sum to one give some token, a draft beyond V is rejected, and one of draft
        probability zero is accepted if the target can produce it.

    Returns
    -------
    ChainResult
        int64 tokens [B, γ + 1], padded with −1, and the number of accepted drafts [B].

    Raises
    ------
    InvalidDistributionError, InvalidDraftsError, InvalidUniformsError
        As for `otm.kernels.definition.verify_chain`.
    MissingDependencyError
        If torch is not installed.

    Examples
    --------
    >>> import torch
    >>> target = torch.tensor([[[0.5, 0.5], [0.125, 0.875]]])
    >>> draft = torch.tensor([[[0.75, 0.25]]])
    >>> uniforms = torch.tensor([[0.7, 0.3, 0.5]], dtype=torch.float64)
    >>> verify_chain(target, draft, torch.tensor([[0]]), uniforms)
    ChainResult(tokens=tensor([[ 1, -1]]), accepted=tensor([0]))
    """
    torch = import_torch()
    if validate:
        check_chain(torch, target_probs, draft_probs, draft_tokens, uniforms)
    batch, size = len(target_probs), target_probs.shape[2]
    gamma = draft_tokens.shape[1]
    drafts = draft_tokens.long()
    drafted = drafts >= 0

    wanted = at(target_probs[:, :gamma], drafts)
    offered = torch.ones_like(wanted) if draft_probs is None else at(draft_probs, drafts)
    passed = drafted & (drafts < size) & (uniforms[:, :gamma] * offered < wanted)
    accepted = passed.cumprod(1).sum(1)
    rejected = accepted < drafted.cumprod(1).sum(1)

    # the row after the accepted drafts, less the draft's if one was rejected there
    chains = torch.arange(batch, device=target_probs.device)
    masses = mass(target_probs[chains, accepted])
    if gamma:
        last = accepted.clamp(max=gamma - 1)
        if draft_probs is None:
            vocabulary = torch.arange(size, device=target_probs.device)
            taken = (vocabulary == drafts[chains, last, None]) * int(UNIT)
        else:
            taken = mass(draft_probs[chains, last])
            taken = torch.nn.functional.pad(taken, (0, size - taken.shape[1]))
        left = (masses - taken).clamp(min=0)
        masses = torch.where(rejected[:, None] & left.any(1, keepdim=True), left, masses)
    token = locate(masses, torch.where(rejected, uniforms[:, gamma], uniforms[:, gamma + 1]))
    return ChainResult(output(drafts, accepted, token), accepted)


def verify_chain_from_logits(
    target_logits: Tensor,
    draft_logits: Tensor | None,
    draft_tokens: Tensor,
    uniforms: Tensor,
    temperature: float | Tensor = 1.0,
    *,
    validate: bool = True,
) -> ChainResult[Tensor]:
    """`verify_chain` for logits: the laws are softmax(logits / temperature), in float64.

    Equivalent to `otm.kernels.definition.verify_chain_from_logits`, but batched, and up to the last
    bit of the exponential function.

    Parameters
    ----------
    target_logits : Tensor [B, γ + 1, V]
        Logits of the target model; float16, bfloat16, float32 or float64, −inf for impossible
        tokens.
    draft_logits : Tensor [B, γ, V'] or None
        Logits of the draft model, V' ≤ V; None for one-hot drafts.
    draft_tokens, uniforms
        As for `verify_chain`.
    temperature : float or float Tensor [B]
        Of both models, for each sequence; 0 means greedy.
    validate : bool
        As for `verify_chain`.

    Returns
    -------
    ChainResult
        int64 tokens [B, γ + 1], padded with −1, and the number of accepted drafts [B].

    Raises
    ------
    InvalidDistributionError, InvalidParameterError, InvalidDraftsError, InvalidUniformsError
        As for `otm.kernels.definition.verify_chain_from_logits`.
    MissingDependencyError
        If torch is not installed.

    Examples
    --------
    >>> import torch
    >>> target = torch.tensor([[[0.0, 2.0], [1.0, 0.0]]])
    >>> uniforms = torch.zeros(1, 3, dtype=torch.float64)
    >>> verify_chain_from_logits(target, None, torch.tensor([[1]]), uniforms, temperature=0)
    ChainResult(tokens=tensor([[1, 0]]), accepted=tensor([1]))
    """
    torch = import_torch()
    if validate:
        check_chain(
            torch,
            target_logits,
            draft_logits,
            draft_tokens,
            uniforms,
            logits=True,
            temperature=temperature,
        )
    laws = laws_from_logits(target_logits, draft_logits, draft_tokens, temperature)
    return verify_chain(*laws, draft_tokens, uniforms, validate=False)


def import_torch() -> ModuleType:
    """Return the module torch, or say which extra brings it."""
    torch: ModuleType = require("torch", advice="or use otm.kernels.definition on NumPy arrays")
    return torch


def laws_from_logits(
    target_logits: Tensor,
    draft_logits: Tensor | None,
    draft_tokens: Tensor,
    temperature: float | Tensor,
) -> tuple[Tensor, Tensor | None]:
    """Laws of target and draft; greedy ones are the first of the largest logits, and the draft."""
    torch = import_torch()
    batch, size = len(target_logits), target_logits.shape[-1]
    vocabulary = torch.arange(size, device=target_logits.device)
    if isinstance(temperature, torch.Tensor):
        heat = temperature.double().expand(batch)
        heat = heat.reshape(batch, *(1,) * (target_logits.ndim - 1))
    else:  # filled on the device: a copy from the host would wait
        heat = torch.full((), temperature, dtype=torch.float64, device=vocabulary.device)
    peak = target_logits.amax(-1, keepdim=True)
    # of equal logits the first, which argmax does not promise
    first = torch.where(target_logits == peak, vocabulary, size).amin(-1, keepdim=True)
    target = torch.where(heat == 0, (vocabulary == first).double(), _softmax(target_logits, heat))
    draft = None
    if draft_logits is not None:
        drafted = vocabulary[: draft_logits.shape[-1]] == draft_tokens[..., None]
        draft = torch.where(heat == 0, drafted.double(), _softmax(draft_logits, heat))
    return target, draft


def at(laws: Tensor, tokens: Tensor) -> Tensor:
    """Probabilities of tokens in float64, 0 outside the vocabulary: [B, γ, V], [B, γ] → [B, γ]."""
    size = laws.shape[2]
    found = laws.gather(2, tokens.clamp(0, size - 1)[..., None])[..., 0]
    return found.double().where(tokens < size, 0.0)


def mass(laws: Tensor) -> Tensor:
    """Whole numbers of parts; a power of two, so that float32 is wide enough for the product."""
    wide = laws if laws.dtype.itemsize >= 4 else laws.float()
    return (wide * UNIT).long()


def locate(masses: Tensor, uniform: Tensor) -> Tensor:
    """First token at which the cumulative mass exceeds uniform · total: [B, V], [B] → [B]."""
    torch = import_torch()
    cumulative = masses.cumsum(1)
    total = cumulative[:, -1:]
    # the product can round up to the total
    point = torch.minimum((uniform[:, None] * total.double()).long(), total - 1)
    return torch.searchsorted(cumulative, point, right=True)[:, 0].clamp(0, masses.shape[1] - 1)


def output(drafts: Tensor, accepted: Tensor, token: Tensor) -> Tensor:
    """Join accepted drafts, the token that follows and −1: [B, γ], [B], [B] → [B, γ + 1]."""
    torch = import_torch()
    place = torch.arange(drafts.shape[1] + 1, device=drafts.device)
    tokens = torch.nn.functional.pad(drafts, (0, 1)).where(place < accepted[:, None], -1)
    return torch.where(place == accepted[:, None], token[:, None], tokens)


def _softmax(logits: Tensor, temperature: Tensor) -> Tensor:
    """Softmax in float64; the largest logit goes first, so that no temperature overflows."""
    wide = logits.double()
    shifted = wide - wide.amax(-1, keepdim=True)
    return (shifted / temperature.where(temperature != 0, 1.0)).softmax(-1)
