"""What an audit requests, its reference, and the limits of its verdict."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from otm.audit.streams.server.answers import Prompt
from otm.audit.streams.server.blocks import Block, Mixture, plan_blocks
from otm.audit.streams.server.distributions.references import ProbsOf
from otm.audit.streams.server.request_parameters import NO_PARAMETERS, RequestParameters
from otm.audit.streams.server.settings import Setting

PAIRED = 32
"""Number of requests of a block to each of two servers; in large blocks, more texts agree."""


@dataclass(frozen=True)
class Limits:
    """Limits at which the audit ends."""

    requests: int
    tv: float
    level: float


@dataclass(frozen=True)
class Plan:
    """The arguments of an audit that determine its requests and its evidence."""

    prompts: tuple[Prompt, ...]
    settings: tuple[Setting, ...]
    limits: Limits
    # Number of tokens of each answer.
    tokens: int
    listed: int
    # None for a comparison with the second server.
    probs_of: ProbsOf | None
    # Largest error of a class's probability.
    drift: float
    request: RequestParameters = NO_PARAMETERS
    # Sampling parameters that requests leave out.
    omitted: tuple[str, ...] = ()
    # Contents of mixed blocks; None if there are none.
    mixture: Mixture | None = None

    @property
    def block(self) -> int:
        """Number of requests of a block to each server."""
        largest = max(setting.concurrency for setting in self.settings)
        return largest if self.probs_of is not None else max(PAIRED, largest)

    def blocks(self) -> Iterator[Block]:
        """Yield the blocks of the audit without end."""
        return plan_blocks(self.settings, len(self.prompts), self.tokens, self.block, self.mixture)

    @property
    def groups(self) -> dict[str, int]:
        """Number of groups of tokens of each kind."""
        settings = len(self.settings) + (self.mixture is not None)
        return {"prompt": len(self.prompts), "setting": settings, "place": self.tokens}

    @property
    def mixed_temperatures(self) -> list[float]:
        """Temperatures of the requests that mixed blocks draw from."""
        return [] if self.mixture is None else [x.temperature for x in self.mixture.parameters]

    @property
    def least_temperature(self) -> float:
        """Smallest temperature above 0, or 1 if all are larger."""
        stated = [setting.parameters.temperature for setting in self.settings]
        return min(1.0, *(each for each in (*stated, *self.mixed_temperatures) if each > 0))
