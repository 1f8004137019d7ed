"""Limits of an audit: its pairs of models, its runs and its time."""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from otm._core.display.progress import SILENT, Watch
from otm._core.numbers import as_integer
from otm.audit.adapters.base import Adapter, Instance
from otm.audit.adapters.processed import prepared, supports
from otm.audit.instances import FOR_SAMPLING, INSTANCES, NEEDED
from otm.audit.larger_instances import MOST_DRAFTS, MOST_TOKENS, larger_instances, of_size
from otm.errors import InvalidParameterError, ProblemTooLargeError

FOR_SLOW = (*NEEDED, "three tokens")
"""Names of the instances for slow code."""

FIRST = (*NEEDED, "40 tokens", "five tokens back", "four drafts", "zeros", "three tokens")
"""Names of the first instances, one of each kind, in case time is short."""

SAMPLED_TOO = ("five tokens back", "drafts from far back", "four drafts")
"""Names of larger instances to sample if they are too large for breakpoints."""

AT_LEAST, SHARE = 10.0, 0.25
"""Minimum seconds for Monte Carlo and for the search for known mistakes.

If `SHARE` of the audit's time is shorter than `AT_LEAST`, this share is the minimum."""

SECONDS = 0.25
"""Approximate longest time in seconds between two checks of the clock."""

GROWTH = 16
"""Largest factor by which the number of runs grows between two checks of the clock."""


@dataclass(frozen=True)
class AuditBudget:
    """Limits and tolerances of an audit, as in `otm.audit.lossless`."""

    examples: int
    false_alarms: float
    delta: float
    max_runs: int
    tolerance: float
    seed: int
    watch: Watch = SILENT
    # A time of `time.monotonic`.
    deadline: float = math.inf
    # Minimum seconds for the work after the deadline.
    at_least: float = AT_LEAST
    # Whether a run of the verifier takes long.
    slow: bool = False
    # Pairs of models that the user requested by size.
    asked: frozenset[Instance] = frozenset()

    def until(self) -> float:
        """Return the time by which work that begins now must end."""
        return max(self.deadline, time.monotonic() + self.at_least)


@dataclass(frozen=True)
class InstanceChoice:
    """Instances of an audit: the user's or the audit's own, and instances of requested sizes."""

    adapter: Adapter
    given: Sequence[Instance] | None
    asked: Sequence[Instance]
    slow: bool

    def for_method(self, name: str) -> Sequence[Instance]:
        """Choose the instances that the verifier supports; only few if each one needs many runs."""
        more = self.asked if self.slow else [*self.adapter.more, *self.asked]
        if self.given is None:
            known = INSTANCES | larger_instances()
            few = FOR_SLOW if self.slow else FOR_SAMPLING if name == "Monte Carlo" else None
            rest = () if few else [known[each] for each in known if each not in FIRST]
            instances = [*(known[each] for each in few or FIRST), *more, *rest]
        else:
            instances = [*self.given, *more]
        if not instances or not all(isinstance(instance, Instance) for instance in instances):
            raise InvalidParameterError("`instances` must contain Instance objects, at least one")
        taken = self._ready(instances)
        if not taken:
            raise InvalidParameterError(
                f"{self.adapter.name} supports none of the {len(instances)} instances; give others"
                + (
                    ", or a processor that leaves a token in each row and needs no large index"
                    if self.adapter.processor is not None
                    else ""
                )
            )
        return taken

    def sampled_too(self) -> Sequence[Instance]:
        """Choose larger instances to sample if they are too large for breakpoints."""
        if self.given is not None or self.slow:
            return ()
        chosen = (larger_instances()[name] for name in SAMPLED_TOO)
        return self._ready(chosen)

    def _ready(self, instances: Iterable[Instance]) -> list[Instance]:
        """Keep the instances that the verifier supports, with the target that it must follow."""
        adapter = self.adapter
        return [prepared(adapter, each) for each in instances if supports(adapter, each)]


def instances_of_size(
    vocabulary: int | None, gamma: int | None, prompt: Sequence[int] | None, seed: int
) -> list[Instance]:
    """Build instances of the requested sizes, if any."""
    if vocabulary is None and gamma is None and prompt is None:
        return []
    vocabulary = (
        None if vocabulary is None else as_integer(vocabulary, "vocabulary", 2, MOST_TOKENS)
    )
    gamma = None if gamma is None else as_integer(gamma, "gamma", 1, MOST_DRAFTS)
    if prompt is not None:
        prompt = tuple(
            as_integer(token, "prompt", 0, (vocabulary or MOST_TOKENS) - 1) for token in prompt
        )
        if not prompt:
            raise InvalidParameterError("the prompt is empty; give at least one token")
    return of_size(vocabulary, gamma, prompt, seed)


class TimeIsUpError(ProblemTooLargeError):
    """The time limit was reached before the work was finished."""


def check_time(deadline: float, subject: str) -> None:
    """Raise `TimeIsUpError` after a time of `time.monotonic`; `subject` begins the message."""
    if time.monotonic() > deadline:
        raise TimeIsUpError(f"{subject} more than the remaining time")


class Pace:
    """Split rows of uniforms into parts: the first is one run, the next as many as time allows."""

    def __init__(self, deadline: float = math.inf, most: int = 2**20) -> None:
        self.deadline, self.size, self._most = deadline, 1, most

    def parts(
        self, rows: npt.NDArray[np.float64], subject: str
    ) -> Iterator[npt.NDArray[np.float64]]:
        """Yield rows part by part; raise `TimeIsUpError` between two parts after the deadline."""
        start = 0
        while start < len(rows):
            check_time(self.deadline, subject)
            with self.measured(len(rows) - start) as count:
                yield rows[start : start + count]
            start += count

    @contextmanager
    def measured(self, left: int) -> Iterator[int]:
        """Yield how many of the remaining runs to make now, and measure their time."""
        count, begin = min(self.size, left), time.monotonic()
        yield count
        seconds = max(time.monotonic() - begin, 1e-9)
        fitting = int(min(count * SECONDS / seconds, GROWTH * self.size, self._most))
        if count == self.size or fitting < self.size:
            self.size = max(fitting, 1)
