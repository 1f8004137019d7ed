"""Plain torch verification of one chain: batched, and written directly from the formulas.

The CPU benchmarks compare the kernels with this code.  All numbers keep the type of the rows, and
`torch.multinomial` draws tokens.
"""

import torch
from torch import Tensor
from torch.nn.functional import pad

__all__ = ["RULES", "block", "chain"]

RULES = ("chain", "block")


def chain(target: Tensor, draft: Tensor, tokens: Tensor, *, logits: bool) -> tuple[Tensor, Tensor]:
    """Accept drafts before the first rejection: `[B, γ + 1, V], [B, γ, V], [B, γ]`."""
    if logits:
        target, draft = target.softmax(-1), draft.softmax(-1)
    batch, gamma = tokens.shape
    ratio = _ratio(target, draft, tokens)
    accepted = (torch.rand_like(ratio) < ratio.clamp(max=1)).cumprod(1).sum(1)
    sequences = torch.arange(batch)
    last = accepted.clamp(max=gamma - 1)
    residual = (target[sequences, last] - draft[sequences, last]).clamp(min=0)
    return _output(target, residual, tokens, accepted)


def block(target: Tensor, draft: Tensor, tokens: Tensor, *, logits: bool) -> tuple[Tensor, Tensor]:
    """Accept the longest prefix that passes its test: `[B, γ + 1, V], [B, γ, V], [B, γ]`."""
    if logits:
        target, draft = target.softmax(-1), draft.softmax(-1)
    batch, gamma = tokens.shape
    ratio = _ratio(target, draft, tokens)
    weights = [torch.ones_like(ratio[:, 0])]
    for i in range(gamma):
        weights.append((weights[i] * ratio[:, i]).clamp(max=1))
    weight = torch.stack(weights, 1)  # [B, γ + 1]
    residual = (weight[:, :gamma, None] * target[:, :gamma] - draft).clamp(min=0)
    excess = residual.sum(-1)  # [B, γ]
    middle = excess / (excess + 1 - weight[:, :gamma])
    passes = torch.rand_like(ratio) < torch.cat([middle[:, 1:], weight[:, gamma:]], 1)
    accepted = torch.where(passes, torch.arange(1, gamma + 1), 0).amax(1)
    last = accepted.clamp(max=gamma - 1)
    return _output(target, residual[torch.arange(batch), last], tokens, accepted)


def _ratio(target: Tensor, draft: Tensor, tokens: Tensor) -> Tensor:
    """Return the ratios q/p of target to draft probability of the draft tokens, `[B, γ]`."""
    column = tokens[..., None]
    return (target[:, :-1].gather(2, column) / draft.gather(2, column))[..., 0]


def _output(
    target: Tensor, residual: Tensor, tokens: Tensor, accepted: Tensor
) -> tuple[Tensor, Tensor]:
    """Draw the next token from the residual `[B, V]`, or from the target after all drafts."""
    gamma = tokens.shape[1]
    everything = (accepted == gamma)[:, None]
    token = torch.multinomial(torch.where(everything, target[:, gamma], residual), 1)
    output = torch.where(torch.arange(gamma + 1) < accepted[:, None], pad(tokens, (0, 1)), -1)
    return output.scatter(1, accepted[:, None], token), accepted
