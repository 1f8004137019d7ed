"""Decoding methods, called in turns on the same prompts, and ratios of their totals."""

import time
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import NamedTuple, TypeVar

from otm._core.means import ratio_of_totals
from otm.decoding import Generation

__all__ = ["Run", "Way", "in_turns", "ratio"]

Way = Callable[[Sequence[int], int], Generation]
"""Decodes one prompt with a seed."""

_Key = TypeVar("_Key", bound=Hashable)


class Run(NamedTuple):
    """One prompt that was decoded: new tokens, calls of the target, and seconds in all."""

    tokens: int
    steps: int
    seconds: float


def in_turns(
    ways: Mapping[_Key, Way], prompts: Sequence[Sequence[int]]
) -> dict[_Key, Sequence[Run]]:
    """Decode each prompt by every method before the next one, so that a slow moment slows all.

    Every way is run once before, untimed.
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
    """Ratio of two totals with its 95 % interval, for pairs that are independent of each other."""
    return ratio_of_totals(numerators, denominators)._asdict()
