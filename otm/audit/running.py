"""Runs of a verifier: what they return is checked, and a failure is an outcome like others."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from otm._core.text import shown
from otm.audit.adapter import Adapter, Instance, source_of
from otm.decoding.drafting import Randomness
from otm.decoding.reading import Path
from otm.errors import MissingDependencyError, ProblemTooLargeError


@dataclass(frozen=True)
class Failure:
    """What a run gave instead of tokens."""

    text: str  # such as "returned token 7 of 3"
    crashed: bool = False  # whether the run ended by an exception


Outcome: TypeAlias = Path | Failure
"""What a run gave."""


class CountedSource:
    """A source of given uniforms [m], floats or symbolic; `taken` counts those handed out."""

    def __init__(self, uniforms: npt.NDArray[Any]) -> None:
        self._source = source_of(uniforms)
        self.taken = 0

    def __call__(self, m: int) -> npt.NDArray[Any]:
        """Hand out m uniforms."""
        self.taken += m
        return self._source(m)


CRASHES = (Exception, SystemExit, GeneratorExit)
"""What a verifier may raise; SystemExit would end the audit with whatever status it has."""

NOT_OF_THE_VERIFIER = (MissingDependencyError, ProblemTooLargeError)
"""Errors that say nothing about a verifier, and go on to the caller."""


def max_tokens(adapter: Adapter, instance: Instance) -> int:
    """Most tokens that a run may return."""
    return instance.gamma + 1 if adapter.max_tokens is None else adapter.max_tokens


def run(adapter: Adapter, instance: Instance, source: Randomness) -> Outcome:
    """Run once, whatever happens."""
    try:
        output = adapter.output(instance, source)
    except NOT_OF_THE_VERIFIER:
        raise
    except CRASHES as error:  # whatever code of others raises is what the audit reports
        return _crash(error)
    return _checked(adapter, instance, output)


def run_rows(
    adapter: Adapter, instance: Instance, uniforms: npt.NDArray[np.float64]
) -> list[Outcome]:
    """Run on each row of uniforms, whatever happens."""
    try:
        outputs: Sequence[Path] = adapter.outputs(instance, uniforms)
    except NOT_OF_THE_VERIFIER:
        raise
    except CRASHES as error:  # of one of the rows, which has to be found
        if len(uniforms) == 1:
            return [_crash(error)]
        return [run_rows(adapter, instance, row[None])[0] for row in uniforms]
    return [_checked(adapter, instance, output) for output in outputs]


def _crash(error: BaseException) -> Failure:
    try:
        text = " ".join(_without_address(str(error)).split())
    except Exception:  # its own
        text = "(its message cannot be read)"
    return Failure(f"crashed with {type(error).__name__}: {text:.150}", crashed=True)


def _without_address(text: str) -> str:
    """Leave out what differs between runs that give the same."""
    return re.sub(r" at 0x[0-9a-fA-F]+", "", text)


def _checked(adapter: Adapter, instance: Instance, output: Any) -> Outcome:
    """Check that an output is one or more tokens of the vocabulary, and not too many."""
    if not isinstance(output, Sequence) or isinstance(output, str):
        text = _without_address(shown(output))
        return Failure(f"returned {text} of type {type(output).__name__}, not tokens")
    if not output:
        return Failure("returned no token")
    most = max_tokens(adapter, instance)
    if len(output) > most:
        return Failure(f"returned {len(output)} tokens; at most {most} can follow from one run")
    for token in output:
        if isinstance(token, bool) or not isinstance(token, int | np.integer):
            text = _without_address(shown(token))
            return Failure(f"returned {text} of type {type(token).__name__} as a token")
        if not 0 <= token < instance.vocabulary:
            return Failure(f"returned token {shown(token)} of {instance.vocabulary}")
    return tuple(map(int, output))
