"""Verification steps of whole texts, with γ by the heuristic of transformers.

The logits are random (`benchmarks.chain.inputs`, "typical": about three of four drafts accepted),
so the measurement needs no model.  Each method continues from its own decisions: a method that
accepts more takes fewer steps, with more drafts in each.
"""

import random
from typing import Any

import torch

from benchmarks.chain.contestants import Entry
from benchmarks.chain.inputs import Inputs
from benchmarks.verification.chains import seconds_of
from benchmarks.verification.methods import Model, window

__all__ = ["MOST_DRAFTS", "next_gamma", "texts"]

FIRST_GAMMA = 5
MOST_DRAFTS = 31
"""Largest γ that the heuristic reaches in 256 tokens, if all drafts are accepted."""


def next_gamma(gamma: int, accepted: int, drafted: int) -> int:
    """Return γ + 2 if the step accepted all drafts, otherwise max(γ − 1, 1)."""
    return gamma + 2 if accepted == drafted else max(1, gamma - 1)


def texts(
    model: Model, pool: Inputs, methods: dict[str, Entry], device: torch.device, count: int
) -> list[dict[str, Any]]:
    """Measure all steps of `count` texts in turns, after one text for warm-up."""
    steps: dict[str, list[tuple[int, int, float]]] = {name: [] for name in methods}
    totals: dict[str, list[float]] = {name: [] for name in methods}
    for text in range(count + 1):
        for name, entry in methods.items():
            torch.manual_seed(text)
            made = text_of(entry, pool, device, model.length, random.Random(text))
            if text:
                steps[name] += made
                totals[name].append(sum(seconds for *_, seconds in made))
    return [
        {
            "model": model.name,
            "V": model.vocabulary,
            "length": model.length,
            "scale": model.scale,
            "method": name,
            "gammas": [gamma for gamma, _, _ in made],
            "accepted": [accepted for _, accepted, _ in made],
            "s": [seconds for *_, seconds in made],
            "text s": totals[name],
        }
        for name, made in steps.items()
    ]


def text_of(
    entry: Entry, pool: Inputs, device: torch.device, length: int, places: random.Random
) -> list[tuple[int, int, float]]:
    """Return drafts, accepted drafts and seconds of each step of a text."""
    steps = []
    left, wanted = length, FIRST_GAMMA
    while left > 1:  # drafts cannot help with the last token
        gamma = min(wanted, left - 1, MOST_DRAFTS)
        chain = window(pool, places.randrange(pool.tokens.shape[1] - gamma + 1), gamma)
        accepted, seconds = seconds_of(entry, chain, device)
        steps.append((gamma, int(accepted), seconds))
        left -= int(accepted) + 1
        wanted = next_gamma(wanted, int(accepted), gamma)
    return steps
