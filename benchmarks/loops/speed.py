"""Measured speed-up over decoding without drafts, and the cost model's prediction."""

import time
from typing import Any

from figures.shipped_pairs import prompts_of_text
from otm.decoding import Generation, autoregressive, spectr, speculative
from otm.gain import measure_latency, walltime_improvement
from otm.models import load

__all__ = ["speed"]

SETUPS = (("large", 3, 1), ("small", 3, 1), ("small", 5, 1), ("small", 3, 4), ("small", 5, 8))
PROMPTS = 4
LENGTH = 64


def speed(tokens: int, rounds: int, repeats: int) -> list[dict[str, Any]]:
    """Decode with and without drafts in turns, and measure both models in between."""
    target = load("target")
    prompts = prompts_of_text(PROMPTS, LENGTH)
    rows = []
    for name, gamma, k in SETUPS:
        draft = load(name)
        alone, drafting = list[Generation](), list[Generation]()
        seconds = [0.0, 0.0]
        for seed in range(rounds):
            for prompt in prompts:
                options: dict[str, Any] = {"max_tokens": tokens, "seed": seed}
                begun = time.perf_counter()
                alone.append(autoregressive(target, [prompt], **options))
                middle = time.perf_counter()
                if k == 1:
                    drafting.append(speculative(target, draft, [prompt], gamma=gamma, **options))
                else:
                    options |= {"gamma": gamma, "k": k, "rule": "k-Seq"}
                    drafting.append(spectr(target, draft, [prompt], **options))
                seconds[0] += middle - begun
                seconds[1] += time.perf_counter() - middle
        found = sum(made.tokens for made in drafting) / sum(len(made.steps) for made in drafting)
        times = measure_latency(
            target,
            draft,
            LENGTH + tokens // 2,
            [gamma],
            [k],
            repeats=repeats,
            overhead=outside(drafting),
            autoregressive_overhead=outside(alone),
        )
        cost = times.draft[0] / times.autoregressive_time
        rate = sum(made.acceptance_rate for made in drafting) / len(drafting)
        row = {
            "draft": name,
            "gamma": gamma,
            "k": k,
            "block_efficiency": found,
            "measured": seconds[0] / seconds[1],
            "cost_model": times.speedup(found, gamma, k),
            "c": cost,
            "theorem_3_8": walltime_improvement(rate, gamma, cost) if k == 1 else None,
        }
        rows.append(row)
        print("  ", {key: round(v, 3) if isinstance(v, float) else v for key, v in row.items()})
    return rows


def outside(generations: list[Generation]) -> float:
    """Return the mean seconds of a step outside of the models."""
    steps = sum(len(made.steps) for made in generations)
    return sum(made.seconds.other for made in generations) / steps
