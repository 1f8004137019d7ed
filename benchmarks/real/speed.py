"""Tokens per second of `generate`, of its two kinds of drafts, and of OTM, in turns.

All methods sample the same prompts at T = 1 in one process.  A turn is one prompt by every method.
Drafts of a whole causal model are slow, so they have turns of their own, with fewer prompts.  The
speed-up is a method's tokens per second over those of plain `generate` in the same turn; its median
has an interval of order statistics, which assumes only that prompts are independent.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from benchmarks.real.models import DRAFTS, MAIN, Real
from benchmarks.real_tables import ends
from otm.decoding import SamplingParameters, speculative

__all__ = ["median_with_interval", "speed"]

GAMMA = 3
"""Number of drafts of all methods: these CPUs read four tokens in about the time of one."""
PLAIN = "generate"
SLOW, SLOW_PROMPTS = ("early layers", "SmolLM2"), 3
"""Drafts of whole causal models, and their number of prompts of each kind."""
ENDS = 0.95
"""Least probability that an interval covers the median."""

Way = Callable[[Sequence[int], int], tuple[int, int]]
"""A function that decodes a prompt with a seed; it returns numbers of tokens and target calls."""


class Turn(NamedTuple):
    """One prompt by one method: new tokens, calls of the target, and seconds."""

    tokens: int
    calls: int
    seconds: float

    @property
    def speed(self) -> float:
        """Tokens per second."""
        return self.tokens / self.seconds


def speed(real: Real, prompts: int, tokens: int) -> dict[str, Any]:
    """Measure every method on prompts of all kinds."""
    rows = measured(real, fast_ways(real, tokens), real.prompts(prompts))
    if slow := slow_ways(real, tokens):
        few = real.prompts(min(prompts, SLOW_PROMPTS))
        found = measured(real, {PLAIN: in_generate(real, tokens), **slow}, few)
        rows += [row for row in found if row["method"] != PLAIN]
    return {"model": real.name, "dtype": str(real.model.dtype), "gamma": GAMMA, "rows": rows}


def measured(
    real: Real, ways: Mapping[str, Way], by_kind: Mapping[str, Sequence[Sequence[int]]]
) -> list[dict[str, Any]]:
    """Measure the methods in turns; return a row for each method and kind of prompts."""
    # The kinds alternate, so that a part of the run has all of them.
    order = [
        (kind, prompt)
        for turn in zip(*by_kind.values(), strict=True)
        for kind, prompt in zip(by_kind, turn, strict=True)
    ]
    turns = in_turns(ways, [prompt for _, prompt in order])
    rows = []
    for kind in ("all", *by_kind):
        chosen = [i for i, (of, _) in enumerate(order) if kind in ("all", of)]
        plain = np.array([turns[PLAIN][i].speed for i in chosen])
        for name, found in turns.items():
            mine = [found[i] for i in chosen]
            speeds = np.array([turn.speed for turn in mine])
            row = {
                "kind": kind,
                "method": name,
                "prompts": len(chosen),
                "tokens/s": median_with_interval(speeds),
                "speed-up": median_with_interval(speeds / plain),
                "tokens a step": sum(t.tokens for t in mine) / sum(t.calls for t in mine),
                "tokens": sum(turn.tokens for turn in mine),
            }
            rows.append(row)
            print(
                f"  {kind:<8}{name:<36}{ends(row['tokens/s'])} tokens/s, times {PLAIN} "
                f"{ends(row['speed-up'])}, {row['tokens a step']:.2f} a step",
                flush=True,
            )
    return rows


def fast_ways(real: Real, tokens: int) -> dict[str, Way]:
    """Return `generate`, its prompt lookup, and the loop with drafts that cost little."""
    ways: dict[str, Way] = {
        PLAIN: in_generate(real, tokens),
        "generate, prompt lookup": in_generate(real, tokens, prompt_lookup_num_tokens=GAMMA),
    }
    for draft in DRAFTS[real.name]:
        if draft not in SLOW:
            rules = ("chain", "block") if draft == MAIN[real.name] else ("block",)
            for rule in rules:
                ways[f"otm {rule}, {draft}"] = by_otm(real, tokens, draft, rule)
    return ways


def slow_ways(real: Real, tokens: int) -> dict[str, Way]:
    """Return the methods whose drafts come from a whole causal model."""
    ways = {}
    for draft in DRAFTS[real.name]:
        if draft == "early layers":
            model = real.early_layers
            # A fixed number of drafts, as for the other methods.
            model.generation_config.num_assistant_tokens = GAMMA
            model.generation_config.num_assistant_tokens_schedule = "constant"
            model.generation_config.assistant_confidence_threshold = 0
            ways["generate, early layers"] = in_generate(real, tokens, assistant_model=model)
        if draft in SLOW:
            for rule in ("chain", "block"):
                ways[f"otm {rule}, {draft}"] = by_otm(real, tokens, draft, rule)
    return ways


def in_generate(real: Real, tokens: int, **drafts: Any) -> Way:
    """Return `generate` of transformers, perhaps with its own kind of drafts."""
    import torch

    def decode(prompt: Sequence[int], seed: int) -> tuple[int, int]:
        torch.manual_seed(seed)
        ids, calls = torch.tensor([prompt]), 0

        def count(*_: Any) -> None:
            nonlocal calls
            calls += 1

        hook = real.model.register_forward_hook(count)
        try:
            made = real.model.generate(
                ids,
                attention_mask=torch.ones_like(ids),
                do_sample=True,
                temperature=1.0,
                top_k=0,
                max_new_tokens=tokens,
                **drafts,
            )
        finally:
            hook.remove()
        return made.shape[1] - len(prompt), calls

    return decode


def by_otm(real: Real, tokens: int, draft: str, rule: str) -> Way:
    """Return the loop of OTM with one chain of drafts."""
    sampling = SamplingParameters()
    drafter = real.drafter(draft, 1, sampling)

    def decode(prompt: Sequence[int], seed: int) -> tuple[int, int]:
        made = speculative(
            real.target_of(draft),
            drafter,
            [prompt],
            gamma=GAMMA,
            rule=rule,
            sampling=sampling,
            max_tokens=tokens,
            eos_token_id=real.end,
            seed=seed,
        )
        return made.tokens, len(made.steps)

    return decode


def in_turns(ways: Mapping[str, Way], prompts: Sequence[Sequence[int]]) -> dict[str, list[Turn]]:
    """Decode each prompt by every method, after one run of each method that does not count."""
    for decode in ways.values():
        decode(prompts[0], len(prompts))
    turns: dict[str, list[Turn]] = {name: [] for name in ways}
    names = list(ways)
    for seed, prompt in enumerate(prompts):
        print(f"  prompt {seed + 1} of {len(prompts)}", flush=True)
        # Each turn begins with another method, so that no method always follows the same one.
        first = seed % len(names)
        for name in names[first:] + names[:first]:
            begun = time.perf_counter()
            made = ways[name](prompt, seed)
            turns[name].append(Turn(*made, time.perf_counter() - begun))
    return turns


def median_with_interval(values: np.ndarray) -> dict[str, float | None]:
    """Return the median, and the narrowest order statistics that cover it with 95 % probability.

    Fewer than six values have no such interval.
    """
    from scipy.stats import binom

    ordered = np.sort(values)
    count = ordered.size
    # The interval from the i-th smallest to the i-th largest misses with probability 2 P(X < i).
    places = [i for i in range(1, count // 2 + 1) if 2 * binom.cdf(i - 1, count, 0.5) <= 1 - ENDS]
    low, high = (ordered[places[-1] - 1], ordered[-places[-1]]) if places else (None, None)
    return {"median": float(np.median(ordered)), "low": low, "high": high}
