"""α_k of torch tensors, on their device and with gradients: the closed form once more.

The derivative of a minimum is that of a cut that attains it.  With the minimum cut H of the
distributions p = a/Σa and q = b/Σb, α_k = q(H) + 1 − p(H)^k has the gradient

    ∂α/∂q = 1_H          ∂α/∂p = −k p(H)^(k−1) 1_H

and, through the division by the sum,

    ∂α/∂b = (q(Hᶜ) 1_H − q(H) 1_Hᶜ) / Σb
    ∂α/∂a = k p(H)^(k−1) (p(H) 1_Hᶜ − p(Hᶜ) 1_H) / Σa

which is how it is computed: nothing is subtracted.  Where several cuts attain the minimum, α_k has
a kink, and this is one of the gradients of its smooth pieces.  At a probability of zero it is the
derivative to the right.  Gradients have the type of the distributions they belong to.  There are no
second derivatives, and the transforms of `torch.func` are not supported (batches need no `vmap`).
`torch.autograd.gradcheck` must step by less than the tolerance of the sums, with eps = 1e-7 for
example.

Tensors as large as the distributions are held in float64, about a dozen of them.  Values equal
those of NumPy up to rounding, about 1e-15 relative: the power is taken in one step by expm1 and
log1p, so that k may stay on the device.
"""

from __future__ import annotations

from functools import cache
from typing import Any

from otm._core.arithmetic import SUM_BLOCK
from otm._core.checks import as_draft_counts, broadcast_counts
from otm._core.distribution import (
    DEFAULT_SUM_TOLERANCE,
    ROUNDING,
    SUM_TOLERANCE,
    as_probs_rows,
    broadcast_shape,
)
from otm._core.optional import require
from otm.errors import InvalidDistributionError, InvalidDraftCountError, InvalidInputError
from otm.optimum.rows import probs_axes

FLOATS = ("float16", "bfloat16", "float32", "float64")


def optimal_values(draft: Any, target: Any, k: Any, *, validate: bool = True) -> tuple[Any, Any]:
    """`otm.optimum.rows.optimal_values` of tensors of floats on one device, differentiable.

    Without `validate` nothing waits for the device, if k is an int or on it; then rows that are no
    distributions give meaningless numbers or NaN.
    """
    torch = require("torch")
    _check_tensors(torch, draft, target)
    counts = _counts(torch, k, draft.device, validate)
    leading = broadcast_shape(draft, target)
    shape = broadcast_counts(leading, counts)
    if validate and not _are_probs(torch, draft, target):
        as_probs_rows(draft, target)  # says which row, unless the sum was at the very tolerance

    axes, rows, columns = probs_axes(leading, shape)
    n = draft.shape[-1]
    a, b = (probs.double().expand(*leading, n).reshape(rows, n) for probs in (draft, target))
    by_row = counts.expand(shape).permute(axes).reshape(rows, columns)
    apart = [shape[axis] for axis in axes]
    values, sizes = _minimum_cuts().apply(a, b, by_row)
    return tuple(x.reshape(apart).movedim(tuple(range(len(axes))), axes) for x in (values, sizes))


@cache
def _minimum_cuts() -> Any:
    """Values and sizes of minimum cuts as a function of autograd: [R, n], [R, n], [R, K] → [R, K].

    Made on use, so that this module can be imported without torch.
    """
    import torch

    class MinimumCuts(torch.autograd.Function):  # type: ignore[misc]
        @staticmethod
        def forward(ctx: Any, a: Any, b: Any, k: Any) -> tuple[Any, Any]:
            (p, a_sum), (q, b_sum) = _normalise(torch, a), _normalise(torch, b)
            possible = p > 0
            # a token of infinite ratio, from p = 0 or by overflow, costs more than it can save
            order = torch.where(possible, q / p, torch.inf).argsort(dim=-1)
            p, q = p.gather(-1, order), q.gather(-1, order)
            below = _running_sums(torch, q)
            above = _running_sums(torch, p.flip(-1)).flip(-1)
            survival = torch.log1p(-above.clamp(max=1))  # log P_j
            values, sizes = torch.empty_like(k, dtype=a.dtype), torch.empty_like(k)
            for column in range(k.shape[1]):
                some_above = -torch.expm1(k[:, column, None] * survival)
                values[:, column], sizes[:, column] = (below + some_above).min(dim=-1)
            # among equals beyond the last possible token any may have been found
            sizes = sizes.minimum(possible.sum(-1, keepdim=True))
            ctx.save_for_backward(p, q, a_sum, b_sum, order, sizes, k)
            ctx.mark_non_differentiable(sizes)
            return values.clamp(max=1), sizes

        @staticmethod
        def backward(ctx: Any, grad: Any, _: Any) -> tuple[Any, Any, None]:
            if torch.is_grad_enabled():
                raise InvalidInputError(
                    "a gradient of α_k was asked for with create_graph=True; second derivatives "
                    "are not available"
                )
            p, q, a_sum, b_sum, order, sizes, k = ctx.saved_tensors
            of_a, of_b = torch.zeros_like(p), torch.zeros_like(q)
            place = torch.arange(p.shape[-1], device=p.device)
            for column in range(k.shape[1]):
                inside = place < sizes[:, column, None]
                p_in, p_out, q_in, q_out = (
                    (x * chosen).sum(-1, keepdim=True)
                    for x in (p, q)
                    for chosen in (inside, ~inside)
                )
                factor = _slope(torch, p_in, p_out, k[:, column, None]) * grad[:, column, None]
                # draft mass on a token that neither distribution gives would be lost: as if in the
                # cut
                lost = inside | ((p == 0) & (q == 0))
                of_a += factor * torch.where(lost, -p_out, p_in)
                of_b += grad[:, column, None] * torch.where(inside, q_out, -q_in)
            of_a, of_b = (torch.empty_like(x).scatter_(-1, order, x) for x in (of_a, of_b))
            return of_a / a_sum, of_b / b_sum, None

    return MinimumCuts


def _slope(torch: Any, inside: Any, outside: Any, k: Any) -> Any:
    """Slope k P^(k−1) at P = inside = 1 − outside, from the smaller of the two."""
    exponent = (k - 1).double()
    near_one = torch.special.xlog1py(exponent, -outside.clamp(max=0.5))
    power = torch.where(outside < 0.5, near_one, torch.special.xlogy(exponent, inside)).exp()
    return k * power


def _normalise(torch: Any, probs: Any) -> tuple[Any, Any]:
    """Distributions [R, n] divided by their sums [R, 1], unless these are one up to rounding."""
    total = probs.sum(-1, keepdim=True)
    settled = (total - 1).abs() <= ROUNDING
    return probs / torch.where(settled, 1, total), total


def _running_sums(torch: Any, terms: Any) -> Any:
    """Like `otm._core.arithmetic.running_sum` from zero along each row: [R, m] → [R, m + 1]."""
    rows, m = terms.shape
    block = min(m, SUM_BLOCK)
    padded = torch.nn.functional.pad(terms, (0, -m % block))
    blocks = padded.reshape(rows, padded.shape[1] // block, block).cumsum(-1)
    blocks[:, 1:] += blocks[:, :-1, -1].cumsum(-1)[..., None]
    return torch.nn.functional.pad(blocks.reshape(rows, padded.shape[1])[:, :m], (1, 0))


def _check_tensors(torch: Any, draft: Any, target: Any) -> None:
    """Refuse what is not a pair of tensors of distributions, without looking at the numbers."""
    for probs, name in ((draft, "draft"), (target, "target")):
        if not isinstance(probs, torch.Tensor):
            raise InvalidDistributionError(
                f"the {name} distribution has type {type(probs).__name__}; give two tensors, or "
                "two arrays to otm.alpha"
            )
        if probs.dtype not in {getattr(torch, kind) for kind in FLOATS} or probs.is_sparse:
            raise InvalidDistributionError(
                f"the {name} distribution is a {probs.layout} tensor of {probs.dtype}; allowed "
                f"are dense ones of {', '.join(FLOATS)}"
            )
        if probs.ndim == 0 or probs.shape[-1] == 0:
            raise InvalidDistributionError(
                f"the {name} distributions have shape {tuple(probs.shape)}; the last axis must "
                "hold one probability a token"
            )
    if draft.device != target.device:
        raise InvalidDistributionError(
            f"the draft distribution is on {draft.device} and the target distribution on "
            f"{target.device}; move one"
        )


def _are_probs(torch: Any, draft: Any, target: Any) -> bool:
    """Whether every row is a distribution: one answer, for which the host waits."""
    valid = torch.ones((), dtype=torch.bool, device=draft.device)
    for probs in (draft, target):
        kind = str(probs.dtype).removeprefix("torch.")
        total = probs.detach().sum(-1, dtype=torch.float64)
        near_one = (total - 1).abs() <= SUM_TOLERANCE.get(kind, DEFAULT_SUM_TOLERANCE)
        valid = valid & near_one.all() & (probs.detach() >= 0).all()  # NaN and ∞ are not near one
    return bool(valid)


def _counts(torch: Any, k: Any, device: Any, validate: bool) -> Any:
    """Numbers of drafts as an int64 tensor on the device."""
    if not isinstance(k, torch.Tensor):
        counts = as_draft_counts(k)
        if counts.ndim == 0:  # without a transfer
            return torch.full((), int(counts), dtype=torch.int64, device=device)
        return torch.tensor(counts, dtype=torch.int64, device=device)
    if k.is_floating_point() or k.is_complex() or k.dtype == torch.bool:
        raise InvalidDraftCountError(
            f"k is a tensor of {k.dtype}; numbers of drafts must be integers"
        )
    if validate:
        as_draft_counts(k.detach().cpu().numpy())
    return k.to(device, torch.int64)
