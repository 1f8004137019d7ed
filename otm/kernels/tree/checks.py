"""Arguments that describe trees of drafts, and their checks."""

from __future__ import annotations

from typing import Any, Generic, NamedTuple

import numpy as np
import numpy.typing as npt

from otm._core.tensors import to_host
from otm.errors import InvalidDistributionError, InvalidDraftsError, InvalidUniformsError
from otm.kernels.checks import (
    check_arrays,
    check_temperature,
    check_types,
    check_uniforms,
    faults_of_logits,
    faults_of_probs,
)
from otm.kernels.common.arrays import array_module
from otm.kernels.results import Array

Indices = npt.NDArray[np.int64]


class Trees(NamedTuple, Generic[Array]):
    """Drafts of B trees, and the uniforms for their verification."""

    tokens: Array  # [B, N]
    parents: Array
    sampled: Array  # bool; None until the entry function sets it
    uniforms: Array  # [B, L + 1, W + 1]


def check_trees(
    target: Any, draft: Any, trees: Trees[Any], temperature: Any, *, uniforms: int | None = None
) -> None:
    """Check all arguments; `temperature` is None for probabilities.

    `uniforms` is the number of uniforms of a level, for a rule that verifies whole paths.
    """
    tokens, parents, sampled, coins = trees
    library = array_module(target)
    logits = temperature is not None
    arrays = {"target": target, "draft_tokens": tokens, "parents": parents, "uniforms": coins}
    further = {"draft": draft, "sampled": sampled}
    arrays |= {name: array for name, array in further.items() if array is not None}
    check_arrays(library, arrays, temperature)
    shape = tuple(tokens.shape)
    if tokens.ndim != 2 or tuple(parents.shape) != shape:
        raise InvalidDraftsError(
            f"draft tokens have shape {shape}, and parents have shape {tuple(parents.shape)}; both "
            "must be [B, N], where each tree has at most N drafts"
        )
    if sampled is not None and (
        draft is None or tuple(sampled.shape) != shape or "bool" not in str(sampled.dtype)
    ):
        raise InvalidDraftsError(
            f"sampled is of type {sampled.dtype} and shape {tuple(sampled.shape)}; it must contain "
            f"booleans of shape {shape}, like the draft tokens, and needs draft distributions"
        )
    batch, nodes = shape
    size = target.shape[-1] if target.ndim == 3 else 0
    for model, rows in (("target", target), ("draft", target if draft is None else draft)):
        if rows.ndim != 3 or tuple(rows.shape[:2]) != (batch, nodes + 1):
            raise InvalidDistributionError(
                f"the {model} has shape {tuple(rows.shape)}; for draft tokens of shape {shape} it "
                f"must be {(batch, nodes + 1)} and the vocabulary: one row after the context, and "
                "one after each draft"
            )
        if not 0 < rows.shape[2] <= size:
            raise InvalidDistributionError(
                f"the {model} has rows of {rows.shape[2]} tokens; a row must have at least one "
                f"token, and a draft row at most {size} tokens, as many as a target row"
            )
    _check_coins(coins, batch, uniforms)
    check_types(target, draft, [tokens, parents], coins, logits=logits)
    check_uniforms(coins)
    not_greedy = (
        check_temperature(library, temperature, batch) > 0 if logits else np.ones(batch, bool)
    )
    drafts, above = to_host(tokens).astype(np.int64), to_host(parents).astype(np.int64)
    tested = np.full(shape, draft is not None) if sampled is None else to_host(sampled)
    tested = tested & (drafts >= 0) & not_greedy[:, None]
    there = _check_shape(drafts, above, size, coins.shape[1] - 1)
    parts = [("target", target, np.concatenate([np.ones((batch, 1), np.bool_), there], axis=1))]
    if draft is not None:
        likely = draft if not logits else draft > -np.inf
        parts.append(("draft", draft, _check_sampled(likely, drafts, above, tested)))
    siblings = tested[:, :, None] & tested[:, None] & (above[:, :, None] == above[:, None])
    children = siblings.sum(2).max(initial=0)
    if uniforms is not None and children > 1:
        raise InvalidDraftsError(
            f"a node has {children} sampled children; this rule verifies at most one sampled child "
            "of a node, so use the rule 'recursive rejection without replacement'"
        )
    if children > coins.shape[2] - 1:
        raise InvalidDraftsError(
            f"a node has {children} sampled children, but the uniforms are for at most "
            f"{coins.shape[2] - 1}: draw uniforms of shape [B, L + 1, W + 1]"
        )
    faults = faults_of_logits if logits else faults_of_probs
    for model, rows, used in parts:
        for wrong, what in faults(library, rows) if batch else ():
            if (wrong & used).any():
                sequence, row = np.argwhere(wrong & used)[0].tolist()
                where = f"after draft {row - 1}" if row else "after the context"
                raise InvalidDistributionError(
                    f"the {model}'s row {where}, number {row} of sequence {sequence}, {what}"
                )


def _check_coins(coins: Any, batch: int, columns: int | None) -> None:
    """Raise unless the uniforms have the shape of a level for each draft of a path."""
    if coins.ndim != 3 or len(coins) != batch or 0 in coins.shape[1:]:
        raise InvalidUniformsError(
            f"uniforms have shape {tuple(coins.shape)}; give [{batch}, L + 1, W + 1], where no "
            "path has more than L drafts and no node more than W sampled children"
        )
    if columns not in (None, coins.shape[2]):
        raise InvalidUniformsError(
            f"uniforms have shape {tuple(coins.shape)}; this rule needs [{batch}, L + 1, "
            f"{columns}], where no path has more than L drafts"
        )


def _check_shape(tokens: Indices, parents: Indices, size: int, most: int) -> npt.NDArray[np.bool_]:
    """Raise unless the drafts are trees with at most `most` levels; return the mask of drafts."""
    there = tokens >= 0
    if not ((tokens >= -1) & (tokens < size)).all():
        raise InvalidDraftsError(
            f"draft tokens must lie in [0, {size}), the vocabulary, or be −1 for no draft; these "
            f"range from {tokens.min()} to {tokens.max()}"
        )
    depth = np.ones(tokens.shape, np.int64)
    for node in range(tokens.shape[1]):
        here, parent = there[:, node], parents[:, node]
        above = parent.clip(0, max(node - 1, 0))[:, None]
        known = (parent < node) & np.take_along_axis(there, above, 1)[:, 0]
        wrong = here & (parent != -1) & ~((parent >= 0) & known)
        if wrong.any():
            sequence = int(wrong.argmax())
            raise InvalidDraftsError(
                f"draft {node} of sequence {sequence} has the parent {parent[sequence]}; it must "
                "be the index of an earlier draft that is not −1, or −1 after the context"
            )
        depth[:, node] += np.where(parent >= 0, np.take_along_axis(depth, above, 1)[:, 0], 0)
        siblings = there[:, :node] & (parents[:, :node] == parent[:, None])
        twice = here & (siblings & (tokens[:, :node] == tokens[:, node, None])).any(1)
        if twice.any():
            sequence = int(twice.argmax())
            raise InvalidDraftsError(
                f"draft {node} of sequence {sequence} is the token {tokens[sequence, node]}, like "
                "an earlier draft of the same parent; merge both drafts and their children"
            )
    deep = (depth * there).max(initial=0)
    if deep > most:
        raise InvalidDraftsError(
            f"a path has {deep} drafts, but the uniforms are for at most {most}: draw uniforms "
            "of shape [B, L + 1, W + 1], where no path has more than L drafts"
        )
    return there


def _check_sampled(
    draft: Any, tokens: Indices, parents: Indices, sampled: npt.NDArray[np.bool_]
) -> npt.NDArray[np.bool_]:
    """Raise for drafts that cannot have been sampled; return the mask of used draft rows.

    The mask has shape [B, N + 1].
    """
    used = np.zeros((len(tokens), tokens.shape[1] + 1), np.bool_)
    sequence, node = np.nonzero(sampled)
    row, token = parents[sequence, node] + 1, tokens[sequence, node]
    used[sequence, row] = True
    outside = token >= draft.shape[2]
    column = np.where(outside, 0, token)
    if isinstance(draft, np.ndarray):
        scores = draft[sequence, row, column]
    else:
        scores = to_host(draft[sequence.tolist(), row.tolist(), column.tolist()])
    wrong = outside | ~(scores > 0)
    if wrong.any():
        first = int(wrong.argmax())
        raise InvalidDraftsError(
            f"draft {node[first]} of sequence {sequence[first]} is token {token[first]}, which "
            "has probability 0 and cannot have been sampled; pass the distributions that the "
            "drafts were sampled from"
        )
    return used
