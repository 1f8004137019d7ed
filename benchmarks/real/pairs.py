"""Sampled texts of two tokens against their exact distribution.

The prompt has few probable answers.  The exact probabilities of pairs of tokens come from the
model's logits.  A test with the statistic G compares the counts of the pairs with them; rare pairs
are one cell.  A verifier that accepts every draft is the negative control: the test must reject it.
"""

import math
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from benchmarks.real.models import DRAFTS, MAIN, Real
from otm.decoding import (
    DraftNode,
    Generation,
    Randomness,
    SamplingParameters,
    TargetProbs,
    autoregressive,
    spectr,
    speculative,
    stream,
    tree_rules,
)
from otm.decoding.verifiers.base import draw_token
from otm.testing.statistics import criterion_for_distribution, g_statistic

__all__ = ["pairs"]

PROMPT = "For example"
"""A short text without the chat template, since each sampled text reads it anew."""

GAMMA, CHAINS, BATCH, CELLS = 2, 2, 100, 12
LEVEL = 1e-4
"""Probability of a false alarm of a test."""

Pair = tuple[int, int]
Way = Callable[[int, int], Generation]
"""A function from a number of texts and a seed to these texts."""


def pairs(real: Real, texts: int) -> dict[str, Any]:
    """Test every rule with one draft, every draft with one rule, plain sampling and the control."""
    prompt = tuple(real.tokenizer(PROMPT).input_ids)
    cells = probable_pairs(real, prompt)
    probs = np.array([*cells.values(), 1 - sum(cells.values())])
    criterion = criterion_for_distribution(probs, 1.0, LEVEL)
    detectable = math.sqrt(criterion.draws / texts)
    print(f"  {texts} texts detect a total variation of {detectable:.3f}", flush=True)
    rows = []
    for name, decode in ways_of(real, prompt):
        counts = count_pairs(decode, texts, cells)
        statistic = g_statistic(counts, probs)
        row = {
            "method": name,
            "G": statistic if math.isfinite(statistic) else None,
            "accepted": statistic <= criterion.limit,
            "distance": float(np.abs(counts / texts - probs).sum() / 2),
        }
        rows.append(row)
        print(
            f"  {name}: G = {statistic:.1f}, {'as expected' if row['accepted'] else 'rejected'}",
            flush=True,
        )
    return {
        "model": real.name,
        "prompt": PROMPT,
        "texts": texts,
        "cells": [real.tokenizer.decode(pair) for pair in cells],
        "probabilities": probs.tolist(),
        "limit": criterion.limit,
        "detectable total variation": detectable,
        "rows": rows,
    }


def probable_pairs(real: Real, prompt: Sequence[int]) -> dict[Pair, float]:
    """Return the most probable pairs of the first two tokens, with their exact probabilities."""
    session = real.target.start(1)
    first = probs_of(session.append(np.array([prompt])))[0, -1]
    tokens = np.argsort(-first)[:CELLS]
    session.keep(np.zeros(CELLS, np.int64), np.full(CELLS, len(prompt)))
    second = probs_of(session.append(tokens[:, None]))[:, 0]
    joint = {
        (int(token), int(other)): float(first[token] * row[other])
        for token, row in zip(tokens, second, strict=True)
        for other in np.argsort(-row)[:CELLS]
    }
    return dict(sorted(joint.items(), key=lambda item: -item[1])[:CELLS])


def probs_of(logits: Any) -> np.ndarray:
    return logits.double().softmax(-1).numpy()


def ways_of(real: Real, prompt: tuple[int, ...]) -> Iterator[tuple[str, Way]]:
    """Yield plain sampling, the methods to test, and the negative control."""
    sampling, main = SamplingParameters(), MAIN[real.name]
    options: dict[str, Any] = {"max_tokens": GAMMA + 1, "eos_token_id": real.end}

    def drafting(decode: Callable[..., Generation], draft: str, *given: Any, **more: Any) -> Way:
        target = real.target_of(draft)
        return lambda count, seed: decode(
            target, *given, [prompt] * count, seed=seed, **options, **more
        )

    yield "no drafts", drafting(autoregressive, "none")
    for draft in DRAFTS[real.name]:
        for rule in ("chain", "block"):
            if rule == "chain" or draft == main:
                drafter = real.drafter(draft, 1, sampling)
                way = drafting(speculative, draft, drafter, gamma=GAMMA, rule=rule)
                yield f"{rule}, {draft}", way
    model = real.draft_model(main)
    for rule in tree_rules():
        yield f"{rule}, {main}", drafting(spectr, main, model, k=CHAINS, gamma=GAMMA, rule=rule)
    drafter = real.drafter(main, 1, sampling)

    def control(target: Any, prompts: Any, **given: Any) -> Generation:
        steps = stream(target, prompts, drafter, accept_everything, gamma=GAMMA, **given)
        return Generation(tuple(prompts), tuple(steps))

    yield "control: every draft accepted", drafting(control, main)


def accept_everything(
    root: DraftNode, target_probs: TargetProbs, uniforms: Randomness
) -> tuple[int, ...]:
    """Accept the whole chain: a wrong verifier."""
    node = root
    while node.children:
        (node,) = node.children
    return (*node.path, draw_token(target_probs(node.path), uniforms))


def count_pairs(decode: Way, texts: int, cells: Sequence[Pair] | dict[Pair, float]) -> np.ndarray:
    """Count the first two tokens of sampled texts by cell; the last cell has all other pairs."""
    counts: Counter[Pair] = Counter()
    for seed, start in enumerate(range(0, texts, BATCH)):
        made = decode(min(BATCH, texts - start), seed)
        counts.update((text[0], text[1] if len(text) > 1 else -1) for text in made.sequences)
    in_cells = [counts[pair] for pair in cells]
    return np.array([*in_cells, texts - sum(in_cells)])
