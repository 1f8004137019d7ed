"""Runs decoding methods in turns on the same prompts, and computes ratios of their totals."""

import time
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import NamedTuple, TypeVar

from otm._core.means import ratio_of_totals
from otm.decoding import Generation

__all__ = ["Run", "Way", "in_turns", "ratio"]

Way = Callable[[Sequence[int], int], Generation]
"""A function that decodes one prompt with a seed."""

_Key = TypeVar("_Key", bound=Hashable)


class Run(NamedTuple):
    """One decoded prompt: new tokens, target calls, and total seconds."""

    tokens: int
    steps: int
    seconds: float


def in_turns(
    ways: Mapping[_Key, Way], prompts: Sequence[Sequence[int]]
) -> dict[_Key, Sequence[Run]]:
    """Decode each prompt by every method before the next prompt.

    So a slow moment of the machine affects all methods.  Each method first runs once untimed.
    """
    for decode in ways.values():
        decode(prompts[0], len(prompts))
    runs: dict[_Key, list[Run]] = {key: [] for key in ways}
    for seed, prompt in enumerate(prompts):
        for key, decode in ways.items():
            begun = time.perf_counter()
            made = decode(prompt, seed)
            runs[key].append(Run(made.tokens, len(made.steps), time.perf_counter() - begun))
    return dict(runs)


def ratio(numerators: Sequence[float], denominators: Sequence[float]) -> dict[str, float]:
    """Return the ratio of two totals with a 95 % interval, for independent pairs."""
    return ratio_of_totals(numerators, denominators)._asdict()
