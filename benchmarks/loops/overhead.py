"""Share of a step's time outside of the two models."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from benchmarks.loops.models import VOCABULARY, random_pair
from figures.shipped_pairs import prompts_of_text
from otm.decoding import (
    BestFirstDrafter,
    Drafter,
    DrawnTreeDrafter,
    Generation,
    SamplingParameters,
    spectr,
    speculative,
)
from otm.models import LanguageModel, load

__all__ = [
    "overhead",
    "overhead_of_random_pair",
    "overhead_of_random_trees",
    "overhead_of_shipped_pair",
    "overhead_of_trees",
    "time_of_step",
]

GAMMA = 5
CHAINS = 8
TOP_K = 1000
NODES = 32
DEPTH = 8
RULES = ("k-Seq", "optimal", "recursive rejection", "traversal")


def overhead_of_random_pair(layers: int, tokens: int) -> list[dict[str, Any]]:
    """Measure a vocabulary of 50,257 tokens with top-k 1,000."""
    prompt = np.random.default_rng(0).integers(0, VOCABULARY, 64).tolist()
    return overhead(*random_pair(layers), prompt, tokens, SamplingParameters(top_k=TOP_K))


def overhead_of_random_trees(layers: int, tokens: int) -> list[dict[str, Any]]:
    """Measure trees of 32 drafts with a vocabulary of 50,257 tokens, without truncation."""
    prompt = np.random.default_rng(0).integers(0, VOCABULARY, 64).tolist()
    return overhead_of_trees(*random_pair(layers), prompt, tokens, SamplingParameters())


def overhead_of_shipped_pair(tokens: int) -> list[dict[str, Any]]:
    """Measure the byte-level pair of the package."""
    (prompt,) = prompts_of_text(1, 64)
    return overhead(load("target"), load("small"), prompt, tokens, SamplingParameters())


def overhead(
    target: LanguageModel,
    draft: LanguageModel,
    prompt: list[int],
    tokens: int,
    sampling: SamplingParameters,
) -> list[dict[str, Any]]:
    """Measure the milliseconds of a step in both models and outside, for one and eight chains."""
    options: dict[str, Any] = {"gamma": GAMMA, "max_tokens": tokens, "sampling": sampling}
    ways: dict[tuple[str, int], Callable[..., Generation]] = {
        ("chain", 1): partial(speculative, rule="chain"),
        ("block", 1): partial(speculative, rule="block"),
        **{(rule, CHAINS): partial(spectr, k=CHAINS, rule=rule) for rule in RULES},
    }
    rows = []
    for (rule, k), decode in ways.items():
        decode(target, draft, [prompt], seed=1, **options)
        generation = decode(target, draft, [prompt], seed=0, **options)
        rows.append(time_of_step(rule, k, generation))
    return rows


def overhead_of_trees(
    target: LanguageModel,
    draft: LanguageModel,
    prompt: Sequence[int],
    tokens: int,
    sampling: SamplingParameters,
) -> list[dict[str, Any]]:
    """Measure steps with trees of 32 drafts, verified where `spectr` chooses to."""
    drafters: dict[str, Drafter] = {
        "target-only": BestFirstDrafter(draft, NODES, None, sampling),
        "walk and keep": DrawnTreeDrafter(draft, NODES, sampling=sampling),
    }
    rows = []
    for rule, drafter in drafters.items():
        for seed in (1, 0):  # the first run does not count
            generation = spectr(
                target,
                drafter,
                [tuple(prompt)],
                rule=rule,
                gamma=DEPTH,
                max_tokens=tokens,
                sampling=sampling,
                seed=seed,
            )
        rows.append(time_of_step(f"{rule}, tree", NODES, generation))
    return rows


def time_of_step(rule: str, k: int, generation: Generation) -> dict[str, Any]:
    """Return and print the mean milliseconds of a step in both models and outside."""
    steps, seconds = len(generation.steps), generation.seconds
    row = {
        "rule": rule,
        "k": k,
        "block_efficiency": generation.block_efficiency,
        "draft_ms": 1e3 * seconds.draft / steps,
        "target_ms": 1e3 * seconds.target / steps,
        "other_ms": 1e3 * seconds.other / steps,
        "share": seconds.other / seconds.total,
    }
    print(
        f"  {rule:20s} K = {k}  tokens per step {row['block_efficiency']:.2f}  draft "
        f"{row['draft_ms']:.2f} ms  target {row['target_ms']:.2f} ms  other "
        f"{row['other_ms']:.2f} ms  {100 * row['share']:.1f} %",
        flush=True,
    )
    return row
