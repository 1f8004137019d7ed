"""Verification of draft trees in a batch, with the same decisions as `otm.kernels.tree.numpy`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from otm.kernels.common.distributions.numpy import mass
from otm.kernels.common.distributions.torch import extend, locate, probs_from_logits
from otm.kernels.common.host import LEAST_VOCABULARY, as_arrays
from otm.kernels.common.rows.numpy import read
from otm.kernels.results import VerifiedTree
from otm.kernels.tree import numpy as tree
from otm.kernels.tree.checks import Trees


def verify(
    target: Tensor,
    draft: Tensor | None,
    trees: Trees[Tensor],
    temperature: float | Tensor | None = None,
    *,
    on_arrays: Callable[..., Any] = tree.verify,
    on_tensors: Callable[..., VerifiedTree[Tensor]] | None = None,
) -> VerifiedTree[Tensor]:
    """Verify trees; a temperature means that the rows are logits, else they are probabilities.

    Another rule passes its functions for arrays and for tensors; the default of the second is
    `walk`.
    """
    size = target.shape[-1]
    if target.device.type == "cpu" and size >= LEAST_VOCABULARY:
        of_trees = Trees(*(x.detach().numpy() for x in trees))
        temperatures = temperature.tolist() if isinstance(temperature, Tensor) else temperature
        below = None if draft is None else as_arrays("draft", draft)
        rows = read(as_arrays("target", target), below, of_trees.tokens, size, temperatures)
        return VerifiedTree(*map(torch.from_numpy, on_arrays(*rows, of_trees)))

    def softmax(rows: Tensor) -> Tensor:
        temperatures = 1.0 if temperature is None else temperature
        return probs_from_logits(rows[:, None], None, trees.tokens, temperatures)[0][:, 0]

    probs = (lambda rows: rows) if temperature is None else softmax
    return (on_tensors or walk)(target, draft, trees, probs)


def walk(
    target: Tensor, draft: Tensor | None, trees: Trees[Tensor], probs: Callable[[Tensor], Tensor]
) -> VerifiedTree[Tensor]:
    """Walk through all trees at once; `probs` converts the rows that the walk reaches: [B, V]."""
    tokens, parents, sampled, uniforms = trees
    batch, levels, _ = uniforms.shape
    device, count = target.device, tokens.shape[1]
    sequence, place = (torch.arange(n, device=device) for n in (batch, count))
    node = torch.full((batch,), -1, device=device)
    live = node < 0
    output = torch.full((batch, levels), -1, device=device)
    for level in range(levels):
        left = mass(probs(target[sequence, node + 1]))
        here = (parents == node[:, None]) & (tokens >= 0) & live[:, None]
        if level == levels - 1:  # after L drafts only the bonus token follows
            here = here & False
        accepted = node * 0 - 1
        if draft is not None and count:
            below = mass(extend(probs(draft[sequence, node + 1]), left.shape[1]))
            accepted, left = _test_children(left, below, tokens, here & sampled, uniforms[:, level])
        drawn = locate(left, uniforms[:, level, -1])
        taken = accepted >= 0
        if count:
            drawn = tokens.gather(1, accepted.clamp(min=0)[:, None])[:, 0].where(taken, drawn)
        output[:, level] = drawn.where(live, -1)
        if not count:
            break
        has = here & (tokens == drawn[:, None])
        live = taken | has.any(1)
        child = place.where(has, count - 1).amin(1)
        node = accepted.where(taken, child).where(live, node)
    return VerifiedTree(output, (output >= 0).sum(1) - 1, node)


def _test_children(
    left: Tensor, below: Tensor, tokens: Tensor, tested: Tensor, uniforms: Tensor
) -> tuple[Tensor, Tensor]:
    """Test the children of a node of each sequence, as `_test_children` does in NumPy."""
    order, place = tested.cumsum(1), torch.arange(tokens.shape[1], device=tokens.device)
    accepted = torch.full_like(tokens[:, 0], -1, dtype=torch.int64)
    total, rest = left.sum(1), below.sum(1)
    for j in range(uniforms.shape[1] - 1):
        is_it = tested & (order == j + 1)
        has = is_it.any(1) & (accepted < 0)
        child = place.where(is_it, place.numel() - 1).amin(1, keepdim=True)
        x = tokens.gather(1, child).clamp(0, left.shape[1] - 1).long()
        draft_mass, target_mass = below.gather(1, x)[:, 0], left.gather(1, x)[:, 0]
        passes = (
            uniforms[:, j] * (draft_mass.double() * total.double()) < target_mass * rest.double()
        )
        share = (total.double() / rest.double()).where(rest > 0, 0.0)
        less = (left - (below.double() * share[:, None]).long()).clamp(min=0)
        after = less.sum(1)
        taken = has & (passes | (after == 0))
        accepted = child[:, 0].where(taken, accepted)
        goes_on = has & ~taken
        left = less.where(goes_on[:, None], left)
        total, rest = after.where(goes_on, total), (rest - draft_mass).where(goes_on, rest)
        below = below.scatter(1, x, draft_mass.masked_fill(goes_on, 0)[:, None])
    return accepted, left
