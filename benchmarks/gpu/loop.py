"""Decoding loops with both models on the device; "k-Seq" verifies on the host."""

import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from benchmarks.chain.measure import in_short
from benchmarks.gpu.environment import Row
from benchmarks.gpu.settings import Setting
from benchmarks.loops.models import random_pair
from otm.decoding import (
    BestFirstDrafter,
    DrawnTreeDrafter,
    Generation,
    PromptLookup,
    SamplingParameters,
    autoregressive,
    spectr,
    speculative,
)
from otm.models import GPT, GPTConfig

PROMPTS = [[1, 2, 3], [4, 5, 6, 7, 8], [9], [10, 11]]
GREEDY = SamplingParameters(temperature=0)
ALIKE = 0.5
"""Minimum share of greedy tokens equal to the CPU's; a flipped tie changes all later tokens."""


def pair(setting: Setting) -> tuple[GPT, GPT]:
    """Return a target and a draft with random weights, on the CPU."""
    if setting.layers:
        return random_pair(setting.layers)
    return tuple(GPT.random(GPTConfig(layers=1, width=8, heads=2), seed) for seed in (0, 1))


def loop(setting: Setting) -> Iterator[Row]:
    """Decode with and without drafts, and compare greedy outputs with the CPU's."""
    on_host = pair(setting)
    target, draft = (model.to(device=setting.device) for model in on_host)
    options: dict[str, Any] = {"max_tokens": setting.tokens, "seed": 0}
    drafting = {**options, "gamma": setting.gamma}
    ways: dict[str, Callable[..., Generation]] = {
        "without drafts": lambda **more: autoregressive(target, PROMPTS, **options, **more),
        "chain": lambda **more: speculative(target, draft, PROMPTS, **drafting, **more),
        "block": lambda **more: speculative(
            target, draft, PROMPTS, rule="block", **drafting, **more
        ),
        "prompt lookup": lambda **more: speculative(
            target, PromptLookup(), PROMPTS, **drafting, **more
        ),
        "chain, a processor": lambda **more: speculative(
            target, draft, PROMPTS, logits_processor=penalise, **drafting, **more
        ),
    }
    rules = ("grid k-Seq", "grid optimal", "grid walk and keep", "k-Seq")
    for rule in rules:  # the last rule verifies on the host
        ways[rule] = partial(
            spectr, target, draft, PROMPTS, k=setting.chains, rule=rule, **drafting
        )
    nodes = 32 if setting.layers else 6
    trees = {
        "target-only": BestFirstDrafter(draft, nodes),
        "walk and keep": DrawnTreeDrafter(draft, nodes),
    }
    for rule, drafter in trees.items():
        ways[f"tree, {rule}"] = partial(spectr, target, drafter, PROMPTS, rule=rule, **drafting)
    ways["prefix tree, grid walk and keep"] = partial(
        spectr, target, draft, PROMPTS, k=(2, 2, 1), rule="grid walk and keep", **drafting
    )
    expected = autoregressive(on_host[0], PROMPTS, **options, sampling=GREEDY).sequences
    for name, decode in ways.items():
        row: Row = {"case": name}
        try:
            greedy = decode(sampling=GREEDY).sequences
            row["alike"] = alike(greedy, expected)
            begun = time.perf_counter()
            made = decode()
            seconds = time.perf_counter() - begun
            row |= {
                "tokens/s": made.tokens / seconds,
                "block efficiency": made.block_efficiency,
                "seconds": seconds,
                "passed": row["alike"] >= ALIKE and made.tokens == len(PROMPTS) * setting.tokens,
            }
            row["note"] = (
                f"{row['tokens/s']:,.0f} tokens/s, {row['block efficiency']:.2f} tokens a call, "
                f"greedy as on the CPU: {row['alike']:.0%}"
            )
        except Exception as error:
            row |= {"passed": False, "note": in_short(error)}
        yield row


def penalise(tokens: Any, scores: Any, prompts: Any) -> Any:
    """Return the scores unchanged, on their device."""
    return scores - 0 * tokens[:, -1:]


def alike(some: Any, others: Any) -> float:
    """Return the share of tokens before the first difference in each sequence."""
    equal = total = 0
    for mine, other in zip(some, others, strict=True):
        total += len(other)
        for x, y in zip(mine, other, strict=False):
            if x != y:
                break
            equal += 1
    return equal / total
