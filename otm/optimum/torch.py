"""The optimal acceptance α_k of torch tensors, on their device and with gradients.

The derivative of a minimum is the derivative of a cut that attains it.  If H is a minimum cut of
the distributions p = a/Σa and q = b/Σb, then α_k = q(H) + 1 − p(H)^k has the gradient

    ∂α/∂q = 1_H          ∂α/∂p = −k p(H)^(k−1) 1_H

and, through the division by the sum,

    ∂α/∂b = (q(Hᶜ) 1_H − q(H) 1_Hᶜ) / Σb
    ∂α/∂a = k p(H)^(k−1) (p(H) 1_Hᶜ − p(Hᶜ) 1_H) / Σa

The code computes these formulas, which need no subtraction of nearly equal numbers.  If several
cuts attain the minimum, α_k has a kink, and the result is the gradient of one of the smooth pieces.
At a probability of zero the gradient is the right-hand derivative.  Gradients have the dtype of
their distributions.  Second derivatives and the transforms of `torch.func` are not supported
(batches need no `vmap`).  `torch.autograd.gradcheck` needs a step below the tolerance of the sums,
such as eps = 1e-7.

NumPy finds the cuts of long rows of CPU tensors.  On other devices torch groups the tokens of long
rows in bins of q/p; then the host waits once for the number of tokens in bins that must be split.
If the host must not wait, or if rows are short, torch sorts all tokens.  The computation needs
memory for about a dozen float64 tensors of the size of the distributions.  Values equal those of
NumPy up to a relative error of about 1e-15, because torch computes the power with expm1 and log1p,
for which the host need not read k from the device.
"""

from __future__ import annotations

import operator
from functools import cache
from typing import Any

import numpy as np

from otm._core.arithmetic import SUM_BLOCK, split_units
from otm._core.checks import as_draft_counts, broadcast_counts
from otm._core.optional import require
from otm._core.probs.distribution import (
    UNIT_SUM_TOLERANCE,
    as_probs_rows,
    broadcast_shape,
    sum_tolerance,
)
from otm._core.ratios.bins import FEW, RatioBins, corners
from otm._core.ratios.keys import MANTISSA, even_bins
from otm.errors import InvalidDistributionError, InvalidDraftCountError, InvalidInputError
from otm.optimum.cut import cuts_in_bins
from otm.optimum.many_rows import probs_axes

FLOATS = ("float16", "bfloat16", "float32", "float64")

ON_HOST = True
"""Whether NumPy computes the cuts of long rows of CPU tensors; if False, torch does."""


def optimal_values(draft: Any, target: Any, k: Any, *, validate: bool = True) -> tuple[Any, Any]:
    """Compute `otm.optimum.many_rows.optimal_values` for tensors on one device, with gradients.

    Without `validate`, the host does not wait for the device, provided that k is an int or on the
    device.  Without `validate`, rows that are not distributions give meaningless numbers or NaN.
    """
    torch = require("torch")
    _check_tensors(torch, draft, target)
    counts = _counts(torch, k, draft.device, validate)
    leading = broadcast_shape(draft, target)
    shape = broadcast_counts(leading, counts)
    if validate and (_is_for_host(draft) or not _are_probs(torch, draft, target)):
        # NumPy's check names the bad row.  It accepts sums that differ from the limit by rounding.
        as_probs_rows(draft, target)

    axes, rows, columns = probs_axes(leading, shape)
    n = draft.shape[-1]
    a, b = (probs.double().expand(*leading, n).reshape(rows, n) for probs in (draft, target))
    by_row = counts.expand(shape).permute(axes).reshape(rows, columns)
    apart = [shape[axis] for axis in axes]
    values, sizes = _minimum_cuts().apply(a, b, by_row, validate)
    return tuple(x.reshape(apart).movedim(tuple(range(len(axes))), axes) for x in (values, sizes))


@cache
def _minimum_cuts() -> Any:
    """Return an autograd function: two distributions [R, n] and k [R, K] → values and sizes [R, K].

    The class is created on first use, so that this module can be imported without torch.
    """
    import torch

    class MinimumCuts(torch.autograd.Function):  # type: ignore[misc]
        @staticmethod
        def forward(ctx: Any, a: Any, b: Any, k: Any, validated: bool) -> tuple[Any, Any]:
            found: tuple[Any, ...] | list[Any]
            ctx.on_host = _is_for_host(a)
            wants_masses = any(ctx.needs_input_grad)
            if ctx.on_host:
                arrays = _on_host(a.numpy(), b.numpy(), k.numpy(), wants_masses)
                ratio, a_sum, b_sum, sizes, *found = [torch.from_numpy(x) for x in arrays]
            else:
                (p, a_sum), (q, b_sum) = _normalise(torch, a), _normalise(torch, b)
                ratio = q / p
                # A token with an infinite ratio (p = 0 or overflow) never belongs to a minimum cut.
                items = torch.where(p > 0, ratio, torch.inf), p, q
                if validated and a.shape[-1] > FEW and len(a):
                    items = _in_bins(torch, *items, k)
                found = list(_best_prefixes(torch, items, k, wants_masses))
                sizes = torch.empty_like(k)
                for column in range(k.shape[1]):
                    sizes[:, column] = (ratio < found[1][:, column, None]).sum(-1)
            values, threshold, *masses = found
            if wants_masses:
                ctx.save_for_backward(ratio, a_sum, b_sum, k, threshold, *masses)
            ctx.mark_non_differentiable(sizes)
            return values.clamp(max=1), sizes

        @staticmethod
        def backward(ctx: Any, grad: Any, _: Any) -> tuple[Any, Any, None, None]:
            if torch.is_grad_enabled():
                raise InvalidInputError(
                    "a gradient of α_k was asked for with create_graph=True; second derivatives "
                    "are not available"
                )
            ratio, a_sum, b_sum, k, threshold, p_in, p_out, q_in, q_out = ctx.saved_tensors
            slope, grad = _slope(torch, p_in, p_out, k) * grad / a_sum, grad / b_sum
            # If p = q = 0 the ratio is NaN.  Draft mass there is lost, as inside the cut; target
            # mass there cannot be drafted, as outside the cut.  The comparisons below are then
            # false, which gives these derivatives.
            xp, of_a, of_b = np if ctx.on_host else torch, None, None
            if ctx.needs_input_grad[0]:
                numbers = threshold, slope * p_in, -slope * p_out
                of_a = torch.as_tensor(_by_side(xp, operator.ge, ratio, *numbers))
            if ctx.needs_input_grad[1]:
                numbers = threshold, grad * q_out, -grad * q_in
                of_b = torch.as_tensor(_by_side(xp, operator.lt, ratio, *numbers))
            return of_a, of_b, None, None

    return MinimumCuts


def _is_for_host(probs: Any) -> bool:
    """Return whether NumPy computes the cuts of these rows; the function copies no rows."""
    return ON_HOST and probs.device.type == "cpu" and probs.shape[-1] > FEW


# Without validation, rows that are not distributions give meaningless numbers on every device.
@np.errstate(all="ignore")
def _on_host(a: Any, b: Any, k: Any, with_masses: bool) -> tuple[Any, ...]:
    """Compute ratios [R, n], both sums [R, 1], sizes [R, K] and the output of `_best_prefixes`."""
    ratio, sums = np.empty(a.shape), np.empty((2, len(a), 1))
    sizes, found = np.empty_like(k), np.empty((6 if with_masses else 2, *k.shape))
    for row, counts in enumerate(k.tolist()):
        probs = [a[row], b[row]]
        for i, of_row in enumerate(probs):
            sums[i, row] = total = of_row.sum()
            if not abs(total - 1) <= UNIT_SUM_TOLERANCE:
                probs[i] = of_row / total
        p, q = probs
        np.divide(q, p, out=ratio[row])
        found[0, row], places, bins = cuts_in_bins(RatioBins.of(p, q), counts)
        found[1, row] = np.append(bins.least, np.inf)[places]
        sizes[row] = [np.count_nonzero(ratio[row] < threshold) for threshold in found[1, row]]
        if with_masses:
            undrafted = bins.mass(q, p == 0)
            target_above = np.append(bins.target[::-1].cumsum()[::-1], 0)
            found[2:, row] = (
                bins.draft_below[places],
                bins.draft_above[places],
                bins.target_below[places],
                target_above[places] + undrafted,
            )
    return ratio, *sums, sizes, *found


def _by_side(xp: Any, is_there: Any, ratio: Any, *numbers: Any) -> Any:
    """For each ratio, choose one of two values in each column, and sum them: [R, n] → [R, n].

    `numbers` are three arrays [R, K]: the thresholds, the values for ratios on the side of the
    threshold that `is_there` tests, and the values for the other ratios.
    """
    ratio, *columns = map(xp.asarray, (ratio, *numbers))
    total = xp.zeros_like(ratio)
    for column in range(columns[0].shape[1]):
        threshold, there, elsewhere = (x[:, column, None] for x in columns)
        total += xp.where(is_there(ratio, threshold), there, elsewhere)
    return total


def _best_prefixes(
    torch: Any, items: tuple[Any, Any, Any], k: Any, with_masses: bool
) -> tuple[Any, ...]:
    """Find the best cut {r < threshold} of items by a sort: items [R, m], k [R, K] → [R, K].

    Return values, thresholds and, with `with_masses`, p(H), p(Hᶜ), q(H) and q(Hᶜ).
    """
    ratio, p, q = items
    ratio, order = ratio.sort(-1)
    p, q = p.gather(-1, order), q.gather(-1, order)
    p_above, q_below = _running_sums(torch, p.flip(-1)).flip(-1), _running_sums(torch, q)
    values, sizes = torch.empty_like(k, dtype=p.dtype), torch.empty_like(k)
    for column in range(k.shape[1]):
        some_above = _at_least_once(torch, p_above, k[:, column, None])
        values[:, column], sizes[:, column] = (q_below + some_above).min(-1)
    ends = torch.nn.functional.pad(ratio, (0, 1), value=torch.inf)
    threshold = ends.gather(-1, sizes)
    if not with_masses:
        return values, threshold
    # If the cut ended among tokens of one ratio, the set {r < threshold} excludes all of them.
    sizes = torch.searchsorted(ends, threshold)
    p_below, q_above = _running_sums(torch, p), _running_sums(torch, q.flip(-1)).flip(-1)
    masses = (x.gather(-1, sizes) for x in (p_below, p_above, q_below, q_above))
    return values, threshold, *masses


def _in_bins(torch: Any, ratio: Any, p: Any, q: Any, k: Any) -> tuple[Any, Any, Any]:
    """Replace tokens by bins, except in bins that may contain the best cut: [R, n] → [R, m].

    The function takes and returns ratios, draft masses and target masses.  Like
    `otm.optimum.cut.cuts_in_bins`, but for many rows at once.  The host waits for the device once.
    """
    first, edges = even_bins()
    edges = torch.from_numpy(edges).to(p.device)
    low, high = edges[:-1], edges[1:]
    rows, m = p.shape[0], low.numel()
    key = (ratio.view(torch.int64) >> MANTISSA).sub_(first).clamp_(0, m - 1)
    draft, target = (
        sum(p.new_zeros(rows, m).scatter_add_(-1, key, part) for part in split_units(probs))
        for probs in (p, q)
    )
    above, below = _running_sums(torch, draft.flip(-1)).flip(-1), _running_sums(torch, target)
    masses = draft, target, above[:, :-1], below[:, :-1]
    corner_above, corner_below = corners(torch, p.shape[-1], low, high, masses)
    doubtful = torch.zeros_like(draft, dtype=torch.bool)
    for column in range(k.shape[1]):
        count = k[:, column, None]
        best = (below + _at_least_once(torch, above, count)).amin(-1, keepdim=True)
        bound = corner_below + _at_least_once(torch, corner_above, count)
        doubtful |= bound < best * (1 - UNIT_SUM_TOLERANCE)

    inside = doubtful.gather(-1, key)
    row, token = inside.nonzero(as_tuple=True)
    counts = inside.sum(-1)
    place = m + torch.arange(row.numel(), device=p.device) - (counts.cumsum(0) - counts)[row]
    items = []
    for of_bins, of_tokens, rest in ((low, ratio, torch.inf), (draft, p, 0), (target, q, 0)):
        item = p.new_full((rows, m + int(counts.max())), rest)
        item[:, :m] = of_bins if of_bins is low else of_bins.masked_fill(doubtful, 0)
        item[row, place] = of_tokens[row, token]
        items.append(item)
    return items[0], items[1], items[2]


def _at_least_once(torch: Any, mass: Any, k: Any) -> Any:
    """Compute the probability 1 − (1 − mass)^k."""
    return -torch.expm1(k * torch.log1p(-mass.clamp(max=1)))


def _slope(torch: Any, inside: Any, outside: Any, k: Any) -> Any:
    """Compute the slope k P^(k−1) at P = inside = 1 − outside, from min(inside, outside)."""
    exponent = (k - 1).double()
    near_one = torch.special.xlog1py(exponent, -outside.clamp(max=0.5))
    power = torch.where(outside < 0.5, near_one, torch.special.xlogy(exponent, inside)).exp()
    return k * power


def _normalise(torch: Any, probs: Any) -> tuple[Any, Any]:
    """Divide distributions [R, n] by their sums [R, 1], unless the sums are one up to rounding."""
    total = probs.sum(-1, keepdim=True)
    settled = (total - 1).abs() <= UNIT_SUM_TOLERANCE
    return probs / torch.where(settled, 1, total), total


def _running_sums(torch: Any, terms: Any) -> Any:
    """Compute `otm._core.arithmetic.running_parts` without its division: [R, m] → [R, m + 1]."""
    rows, m = terms.shape
    block = min(m, SUM_BLOCK)
    padded = torch.nn.functional.pad(torch.stack(split_units(terms)), (0, -m % block))
    blocks = padded.reshape(2, rows, padded.shape[-1] // block, block).cumsum(-1)
    blocks[..., 1:, :] += blocks[..., :-1, -1].cumsum(-1)[..., None]
    sums = blocks[0] + blocks[1]
    return torch.nn.functional.pad(sums.reshape(rows, padded.shape[-1])[:, :m], (1, 0))


def _check_tensors(torch: Any, draft: Any, target: Any) -> None:
    """Raise unless both are tensors with the shape and dtype of distributions; read no values."""
    for probs, name in ((draft, "draft"), (target, "target")):
        if not isinstance(probs, torch.Tensor):
            raise InvalidDistributionError(
                f"the {name} distribution has type {type(probs).__name__}; give two tensors, or "
                "two arrays to otm.alpha"
            )
        if probs.dtype not in {getattr(torch, kind) for kind in FLOATS} or probs.is_sparse:
            raise InvalidDistributionError(
                f"the {name} distribution is a {probs.layout} tensor of {probs.dtype}; allowed "
                f"are dense tensors of {', '.join(FLOATS)}"
            )
        if probs.ndim == 0 or probs.shape[-1] == 0:
            raise InvalidDistributionError(
                f"the {name} distributions have shape {tuple(probs.shape)}; the last axis must "
                "hold one probability per token"
            )
    if draft.device != target.device:
        raise InvalidDistributionError(
            f"the draft distribution is on {draft.device} and the target distribution on "
            f"{target.device}; move both to one device"
        )


def _are_probs(torch: Any, draft: Any, target: Any) -> bool:
    """Return whether every row is a distribution; the host waits for the device."""
    valid = torch.ones((), dtype=torch.bool, device=draft.device)
    for probs in (draft, target):
        kind = str(probs.dtype).removeprefix("torch.")
        total = probs.detach().sum(-1, dtype=torch.float64)
        near_one = (total - 1).abs() <= sum_tolerance(kind, probs.shape[-1])
        # Rows with NaN or ∞ fail the check of the sum.
        valid = valid & near_one.all() & (probs.detach() >= 0).all()
    return bool(valid)


def _counts(torch: Any, k: Any, device: Any, validate: bool) -> Any:
    """Return the numbers of drafts as an int64 tensor on the device."""
    if not isinstance(k, torch.Tensor):
        counts = as_draft_counts(k)
        if counts.ndim == 0:  # torch.full needs no transfer from the host.
            return torch.full((), int(counts), dtype=torch.int64, device=device)
        return torch.tensor(counts, dtype=torch.int64, device=device)
    if k.is_floating_point() or k.is_complex() or k.dtype == torch.bool:
        raise InvalidDraftCountError(
            f"k is a tensor of {k.dtype}; numbers of drafts must be integers"
        )
    if validate:
        as_draft_counts(k.detach().cpu().numpy())
    return k.to(device, torch.int64)
