"""Test cases for the self-check of kernels that verify trees.

The cases are built like those of `chain_cases`: few tokens have a positive probability, and no
uniform is close to a value that would change a decision.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from torch import Tensor

from otm.kernels.self_check.call_layout import layout_of, numbers_like, rows_like, temperatures_like
from otm.kernels.self_check.chain_cases import (
    EMPTY,
    SEED,
    SEQUENCES,
    Numbers,
    choose_coins,
    draw_draft,
    draw_row,
    draw_temperatures,
    is_rejected,
    split_rows,
    support,
)
from otm.kernels.self_check.run import Call
from otm.kernels.tree.checks import Trees

SAMPLED = 0.7
"""Probability that a draft is sampled, if its node may have another sampled child."""


def call_of_trees(
    target: Tensor,
    draft: Tensor | None,
    trees: Trees[Tensor],
    temperature: Any,
    verify: Any,
    *,
    whole_paths: bool = False,
) -> Call:
    """Describe a call of `verify_tree_probs` or `verify_tree_logits`.

    `whole_paths` means the rule "walk and keep", otherwise drafts are verified token by token.
    """
    kind = "probabilities" if temperature is None else "logits"
    temperatures = temperature
    if isinstance(temperature, Tensor):
        temperatures = temperature.expand(len(target))
    size, below = target.shape[-1], None if draft is None else draft.shape[-1]
    family = (
        *("whole paths" if whole_paths else "trees", kind, target.device, size, below),
        layout_of(temperatures) if isinstance(temperatures, Tensor) else (),
        *map(layout_of, (target, draft, *trees)),
    )
    name = f"trees from {kind} ({target.dtype}, {size:,} tokens, {trees.tokens.shape[1]} drafts)"
    name = f"whole paths of {name}" if whole_paths else name
    cases = partial(cases_like, target, draft, trees, temperatures, whole_paths=whole_paths)
    return Call(name, family, target.device, cases, verify)


def cases_like(
    target: Tensor,
    draft: Tensor | None,
    trees: Trees[Tensor],
    temperature: Any,
    *,
    whole_paths: bool = False,
) -> Iterator[tuple[Any, ...]]:
    """Yield target, draft, trees and temperature with the layout of a call."""
    size = target.shape[-1]
    below = 0 if draft is None else draft.shape[-1]
    places = support(size, below or size)
    drafted = sum(place < below for place in places)
    nodes, (_, levels, passes) = trees.tokens.shape[1], trees.uniforms.shape
    single = not isinstance(temperature, Tensor) or not temperature.stride(0)
    logits = temperature is not None
    options = {"logits": logits, "one_temperature": single, "whole_paths": whole_paths}
    cases = draw_trees((nodes, levels, passes), len(places), drafted, **options)
    tokens, *others = cases.trees
    tree_parts = (np.where(tokens < 0, -1, np.array(places)[tokens]), *others)
    kind = "logits" if logits else "probabilities"
    for part, other in split_rows(2 * (nodes + 1) * size, kind):
        draft_rows: Any = None
        if draft is not None:
            draft_rows = rows_like(draft, cases.draft[part], places[:drafted], other)
        of_trees = Trees(*map(numbers_like, trees, (x[part] for x in tree_parts)))
        values = temperatures_like(temperature, cases.temperatures[part]) if logits else None
        yield rows_like(target, cases.target[part], places, other), draft_rows, of_trees, values


class TreeCases(NamedTuple):
    """Trees of n sequences; tokens are indices in the list of possible tokens."""

    target: Numbers  # [n, N + 1, S]
    draft: Numbers  # [n, N + 1, D]
    trees: Trees[Numbers]
    temperatures: Numbers  # [n]


def draw_trees(
    shape: tuple[int, int, int],
    target_tokens: int,
    draft_tokens: int,
    *,
    logits: bool,
    one_temperature: bool,
    whole_paths: bool = False,
) -> TreeCases:
    """Draw trees of shape (N, L + 1, W + 1), with rows and uniforms, from the seed.

    If whole paths are verified, a node has at most one sampled child.

    If `draft_tokens` is 0, all drafts are deterministic.
    """
    nodes, levels, passes = shape
    rng = np.random.default_rng(SEED)
    target = np.full((SEQUENCES, nodes + 1, target_tokens), np.nan)
    draft = np.full((SEQUENCES, nodes + 1, draft_tokens), np.nan)
    tokens = np.full((SEQUENCES, nodes), -1)
    parents, sampled = tokens.copy(), np.zeros(tokens.shape, bool)
    uniforms = rng.random((SEQUENCES, levels, passes))
    width = 1 if whole_paths else passes - 1
    if passes > 1:
        # Of whole paths, the other uniforms select tokens.
        choose_coins(uniforms[:, :, ::2] if whole_paths else uniforms[:, :, :-1])
    for b in range(SEQUENCES):
        depths = {-1: 0}
        for node in range(-1, nodes * (b != EMPTY)):
            if node >= 0:
                inner = [place for place, depth in depths.items() if depth < levels - 1]
                if not inner:
                    continue
                parent = inner[int(rng.integers(len(inner)))]
                siblings = (parents[b] == parent) & (tokens[b] >= 0)
                is_sampled = bool(draft_tokens) and sampled[b, siblings].sum() < width
                is_sampled &= rng.random() < SAMPLED
                free = np.arange(draft_tokens if is_sampled else target_tokens)
                free = np.setdiff1d(free, tokens[b, siblings])
                if not free.size:
                    continue
                token = int(free[rng.integers(free.size)])
                if is_sampled:
                    last = sampled[b, siblings].sum() == width - 1
                    excess = draft[b, parent + 1, free] - target[b, parent + 1, free]
                    rejected = is_rejected(b, depths[parent], levels - 1, last=last)
                    token = int(free[draw_draft(rng, excess, rejected=rejected)])
                tokens[b, node], parents[b, node], sampled[b, node] = token, parent, is_sampled
                depths[node] = depths[parent] + 1
            target[b, node + 1] = draw_row(rng, target_tokens, logits=logits)
            if draft_tokens:
                draft[b, node + 1] = draw_row(rng, draft_tokens, logits=logits)
    temperatures = draw_temperatures(logits and not one_temperature)
    return TreeCases(target, draft, Trees(tokens, parents, sampled, uniforms), temperatures)
