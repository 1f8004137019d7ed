"""k-Seq at one node in plain torch, batched: the decisions of `otm.kernels.k_seq_definition`."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from otm.kernels.definition import UNIT
from otm.kernels.k_seq_definition import INTERVALS, SHARES
from otm.kernels.reference import import_torch, mass

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["Choice", "at_least_once", "k_seq"]


class Choice(NamedTuple):
    """What a rule chose at one node of each of B sequences.

    Attributes
    ----------
    index : int64 Tensor [B]
        Place of the accepted draft; −1 if there is none.
    residual : int64 Tensor [B, V]
        Masses to draw from if none is accepted.
    """

    index: Tensor
    residual: Tensor


class Split(NamedTuple):
    """`otm.kernels.k_seq_definition.Split` of B nodes: float64 Tensors [B, 1]."""

    low: Tensor
    high: Tensor
    share: Tensor
    factor: Tensor

    def one_draft(self, target: Tensor, draft: Tensor) -> Tensor:
        """Mass of tokens that one draft gives, in float64: [B, n] for each."""
        torch = import_torch()
        low = torch.minimum(draft, self.low * target)
        return low + self.share * (torch.minimum(draft, self.high * target) - low)


def k_seq(target: Tensor, draft: Tensor, tokens: Tensor, uniforms: Tensor) -> Choice:
    """Accept the first draft that passes its test.

    Equivalent to `otm.kernels.k_seq_definition.k_seq`, where everything is said, but batched.

    Parameters
    ----------
    target, draft : Tensor [B, V]
        The two laws.
    tokens : int64 Tensor [B, K]
        Drafts; −1 for those out of the running.
    uniforms : float64 Tensor [B, K]
        A coin for each draft.

    Returns
    -------
    Choice
        For each node the accepted draft, and what to draw from if there is none.

    Examples
    --------
    >>> import torch
    >>> target, draft = torch.tensor([[1.0, 0.0]]), torch.tensor([[0.5, 0.5]])
    >>> coins = torch.tensor([[0.0, 0.7]], dtype=torch.float64)
    >>> k_seq(target, draft, torch.tensor([[1, 0]]), coins).index
    tensor([1])
    """
    torch = import_torch()
    everything = mass(target)
    target, draft = target.double(), draft.double()
    most, size = tokens.shape[1], target.shape[1]
    running = tokens >= 0
    count = running.sum(1, keepdim=True)
    split = find_split(target, draft, count, most)

    column = tokens.clamp(0, size - 1)
    offered, wanted = draft.gather(1, column), target.gather(1, column)
    passed = running & (tokens < size) & (uniforms * offered < split.one_draft(wanted, offered))
    place = torch.arange(most, device=tokens.device)
    first = torch.where(passed, place, most).amin(1)
    left = (everything - mass(split.factor * split.one_draft(target, draft))).clamp(min=0)
    use = left.any(1, keepdim=True) & (count > 0)
    return Choice(torch.where(first < most, first, -1), torch.where(use, left, everything))


def find_split(target: Tensor, draft: Tensor, count: Tensor, most: int) -> Split:
    """Largest valid mixture for [B, 1] drafts, on the grid for at most so many."""
    torch = import_torch()
    place = torch.arange(INTERVALS + 1, dtype=torch.float64, device=target.device)
    # torch takes number / tensor as number · reciprocal, which is rounded twice
    top = torch.full_like(place, INTERVALS**2)
    scales = top / (top + (most - 1) * place * place)
    sums = [mass(torch.minimum(draft, scale * target)).sum(1) for scale in scales]
    betas = (torch.stack(sums, 1).double() / UNIT).clamp(max=1)
    scales = scales.expand(betas.shape)

    wrong = (~_valid(scales, betas, count, most)).sum(1, keepdim=True)
    low = wrong.clamp(max=INTERVALS)
    high = (low - 1).clamp(min=0)
    scale, beta = scales.gather(1, low), betas.gather(1, low)
    scale_rise, beta_rise = scales.gather(1, high) - scale, betas.gather(1, high) - beta

    shares = torch.arange(1, SHARES, dtype=torch.float64, device=target.device) / SHARES
    right = _valid(scale + shares * scale_rise, beta + shares * beta_rise, count, most)
    share = right.sum(1, keepdim=True).double() / SHARES
    beta = beta + share * beta_rise
    factor = torch.where(beta > 0, at_least_once(beta, count, most) / beta, 0.0)
    return Split(scale, scales.gather(1, high), share, factor)


def _valid(scale: Tensor, beta: Tensor, count: Tensor, most: int) -> Tensor:
    """Whether no token is accepted more often than the target has it."""
    return scale * at_least_once(beta, count, most) <= beta


def at_least_once(beta: Tensor, count: Tensor, most: int) -> Tensor:
    """Probability 1 − (1 − β)^k that one of k drafts is accepted, for k of each row."""
    torch = import_torch()
    hit = beta
    for i in range(1, most):
        hit = torch.where(i < count, hit + (1 - hit) * beta, hit)
    return hit
