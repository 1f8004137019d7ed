"""Conversion of logits to probabilities, and of probabilities to tokens, in torch."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from otm.kernels.common.distributions.numpy import UNIT, mass


def _softmax(logits: Tensor, temperatures: Tensor) -> Tensor:
    """Compute the softmax in float64; the largest logit is subtracted first to avoid overflow."""
    wide = logits.double()
    shifted = wide - wide.amax(-1, keepdim=True)
    return (shifted / temperatures[..., None]).softmax(-1)


def probs_from_logits(
    target_logits: Tensor,
    draft_logits: Tensor | None,
    draft_tokens: Tensor,
    temperature: float | Tensor,
    softmax: Callable[[Tensor, Tensor], Tensor] = _softmax,
) -> tuple[Tensor, Tensor | None]:
    """Return probabilities of both models at any temperature.

    Greedy target rows are one-hot at the first largest logit, and greedy draft rows at the draft.
    `softmax` takes logits [B, …, V] and temperatures [B, 1, …, 1] above 0 without the last axis.
    """
    batch, size = len(target_logits), target_logits.shape[-1]
    vocabulary = torch.arange(size, device=target_logits.device)
    # Fill the tensor on the device, because a copy from the host would wait.
    if not isinstance(temperature, Tensor):
        temperature = torch.full((1,), temperature, dtype=torch.float64, device=vocabulary.device)
    temperatures = temperature.double().expand(batch)
    temperatures = temperatures.reshape(batch, *(1,) * (target_logits.ndim - 2))
    greedy, divisors = temperatures[..., None] == 0, temperatures.where(temperatures != 0, 1.0)
    peak = target_logits.amax(-1, keepdim=True)
    # Select the first of equal logits, which argmax does not guarantee.
    first = torch.where(target_logits == peak, vocabulary, size).amin(-1, keepdim=True)
    target = torch.where(greedy, vocabulary == first, softmax(target_logits, divisors))
    draft = None
    if draft_logits is not None:
        drafted = vocabulary[: draft_logits.shape[-1]] == draft_tokens[..., None]
        draft = torch.where(greedy, drafted, softmax(draft_logits, divisors))
    return target, draft


def at(probs: Tensor, tokens: Tensor) -> Tensor:
    """Return probabilities of tokens in float64: [B, γ, V], [B, γ] → [B, γ].

    Tokens outside the vocabulary have probability 0.
    """
    size = probs.shape[2]
    values = probs.gather(2, tokens.clamp(0, size - 1)[..., None])[..., 0]
    return values.double().where(tokens < size, 0.0)


def extend(values: Tensor, size: int) -> Tensor:
    """Pad values of the draft's vocabulary with 0 to the target's: [B, V'] → [B, V]."""
    extended: Tensor = torch.nn.functional.pad(values, (0, size - values.shape[1]))
    return extended


def draft_mass(row: Tensor | None, token: Tensor, size: int) -> Tensor:
    """Return masses of the draft distributions; one-hot if `row` is None: [B, V'], [B] → [B, V]."""
    if row is None:
        return (torch.arange(size, device=token.device) == token[:, None]) * int(UNIT)
    return extend(mass(row), size)


def locate(masses: Tensor, uniform: Tensor) -> Tensor:
    """Return the first token whose cumulative mass exceeds uniform · total: [B, V], [B] → [B]."""
    return locate_all(masses, uniform[:, None])[:, 0]


def locate_all(masses: Tensor, uniforms: Tensor) -> Tensor:
    """Apply `locate` to m uniforms for each row: [..., V], [..., m] → [..., m]."""
    cumulative = masses.cumsum(-1)
    total = cumulative[..., -1:]
    # The product can round up to the total.
    point = torch.minimum((uniforms * total.double()).long(), total - 1)
    return torch.searchsorted(cumulative, point, right=True).clamp(0, masses.shape[-1] - 1)


def join_output(draft_tokens: Tensor, accepted: Tensor, token: Tensor) -> Tensor:
    """Join accepted drafts, the next token and padding of −1: [B, γ], [B], [B] → [B, γ + 1]."""
    place = torch.arange(draft_tokens.shape[1] + 1, device=draft_tokens.device)
    tokens = torch.nn.functional.pad(draft_tokens, (0, 1)).where(place < accepted[:, None], -1)
    return torch.where(place == accepted[:, None], token[:, None], tokens)
