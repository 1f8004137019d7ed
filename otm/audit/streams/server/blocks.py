"""The plan of an audit: blocks of one prompt and setting, and blocks of different requests.

In a mixed block, requests with other prompts, lengths, temperatures and seeds run at the same
time, so that a server can mix them up.  Each answer is compared with its own distribution.  The
plan is fixed before the first answer, so the evidence stays valid (docs/theory/server-audit.md).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from otm.audit.streams.server.settings import Setting
from otm.decoding import SamplingParameters

TEMPERATURES = 0.6, 1.4
"""Temperatures of mixed blocks, in addition to those of the settings."""

PLAIN = SamplingParameters()
"""Parameters of a request at temperature 1, without truncation."""

GREEDY = SamplingParameters(temperature=0)
"""Parameters of a greedy request."""

PER_MIXED = 2
"""Number of settings for which a prompt gets one mixed block."""

PLAN_SEED = 16_2026
"""Seed of the plan of mixed blocks."""


@dataclass(frozen=True)
class Request:
    """One request of a block."""

    prompt: int
    parameters: SamplingParameters
    tokens: int
    seed: int | None = None

    @property
    def law(self) -> SamplingParameters:
        """Parameters of the distribution of the tokens: greedy decoding is top-k with k = 1."""
        return SamplingParameters(top_k=1) if self.parameters.temperature == 0 else self.parameters


@dataclass(frozen=True)
class Block:
    """Requests that are added to the evidence together."""

    # Number of the setting; for a mixed block, the number of settings.
    setting: int
    # Number of simultaneous requests.
    concurrency: int
    requests: tuple[Request, ...]


@dataclass(frozen=True)
class Mixture:
    """The contents of mixed blocks."""

    # Sampling parameters that requests draw from.
    parameters: tuple[SamplingParameters, ...]
    concurrency: int
    # Whether half of the requests have seeds.
    seeds: bool

    @classmethod
    def of(cls, settings: Sequence[Setting], *, vary: bool, greedy: bool, seeds: bool) -> Mixture:
        """Combine the settings; `vary` allows other temperatures."""
        concurrency = max(setting.concurrency for setting in settings)
        sampling = list(dict.fromkeys(setting.parameters for setting in settings))
        more = [replace(each, temperature=t) for each in sampling for t in TEMPERATURES]
        pool = dict.fromkeys([*sampling, *(more if vary else ()), *([GREEDY] * greedy)])
        return cls(tuple(pool), concurrency, seeds)

    def block(self, number: int, setting: int, prompts: int, tokens: int, size: int) -> Block:
        """Draw the requests of a block; the number of the block determines them."""
        rng = np.random.default_rng([PLAN_SEED, number])
        requests = tuple(
            Request(
                int(rng.integers(prompts)),
                self.parameters[int(rng.integers(len(self.parameters)))],
                int(rng.integers((tokens + 1) // 2, tokens + 1)),
                # No seed occurs twice, because two texts of one seed are not independent.
                number * size + place if self.seeds and rng.random() < 0.5 else None,
            )
            for place in range(size)
        )
        return Block(setting, self.concurrency, requests)


def plan_blocks(
    settings: Sequence[Setting], prompts: int, tokens: int, size: int, mixture: Mixture | None
) -> Iterator[Block]:
    """Yield all pairs of a prompt and a setting in turn, and mixed blocks after each prompt."""
    number = 0
    while True:
        for prompt in range(prompts):
            for place, setting in enumerate(settings):
                request = Request(prompt, setting.parameters, tokens)
                yield Block(place, setting.concurrency, (request,) * size)
            if mixture is None:
                continue
            for _ in range(math.ceil(len(settings) / PER_MIXED)):
                yield mixture.block(number, len(settings), prompts, tokens, size)
                number += 1
