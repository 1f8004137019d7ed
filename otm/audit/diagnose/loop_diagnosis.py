"""Recognize mistakes of loops by their draws, and by the tokens that the draws determine.

Loops use their drafts in different ways, so the distribution of a mistake differs from loop to
loop.  But each loop draws from rows of the target or the draft model, and the row of each token
reveals the mistake.
"""

from __future__ import annotations

import itertools
import math
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from otm.audit.adapters.base import Failure, Instance
from otm.audit.adapters.processed import ProcessedModel
from otm.audit.observe.observation import Observation
from otm.audit.observe.run_cache import Cells, Recorded
from otm.audit.runs import Runner
from otm.audit.scope import check_time
from otm.decoding.reading import Path
from otm.models.table import TableModel
from otm.testing.symbolic import MAX_UNIFORMS

AT_ZERO = "u ≤ ratio"
"""Name of the known bug of a loop that accepts drafts at u = 0."""

LEAST = 2
"""Smallest number of runs that must show a mistake."""

TRIES = 100
"""Number of random runs on each pair of models."""

ROUNDING = 1e-5
"""Tolerance for equal rows, because loops compute them in float32 from logits."""

EDGE = 2.0**-20
"""Upper limit of coins that count as zero."""


def draws_twice(
    runner: Runner, observations: Sequence[Observation], until: float = math.inf
) -> bool:
    """Return whether all tokens are drawn from target rows, but some are drawn twice."""
    twice = 0
    for seen in observations:
        uniforms = np.random.default_rng(0).random((TRIES, max(seen.uniforms, MAX_UNIFORMS)))
        for source, output in _runs(runner, seen.instance, uniforms, until):
            again = _draws_again(source, seen.instance, output)
            if again is None:
                return False
            twice += again
    return twice >= LEAST


def _draws_again(source: Recorded, instance: Instance, output: Path) -> bool | None:
    """Return whether a run draws from a row twice; None if a token is not drawn from its row."""
    place, twice, waiting = 0, False, False
    for ends, uniform in source.draws:
        if place == len(output):
            break
        token = _token(ends, uniform, instance.target, instance.prompt + output[:place])
        if token is not None:
            matches = token == output[place]
            twice, waiting = twice or (waiting and matches), not matches
            place += matches
    return twice if place == len(output) else None


def accepts_at_zero(
    runner: Runner, observations: Sequence[Observation], until: float = math.inf
) -> bool:
    """Return whether all impossible tokens are drafts that were accepted at a coin of zero."""
    found = 0
    for seen in observations:
        examples = [seen.examples[each] for each in seen.isolated() if each in seen.examples]
        rows = np.full((len(examples), max(seen.uniforms, MAX_UNIFORMS)), 0.5)
        for row, example in zip(rows, examples, strict=True):
            row[: len(example)] = np.array(example, dtype=np.float64)
        for source, output in _runs(runner, seen.instance, rows, until):
            if not _accepted_at_zero(source, seen.instance, output):
                return False
            found += 1
    return found >= LEAST


def _accepted_at_zero(source: Recorded, instance: Instance, output: Path) -> bool:
    """Return whether the first impossible token is a draft, and some coin of the run is zero."""
    for place, token in enumerate(output):
        before = instance.prompt + output[:place]
        if instance.target.probs(before)[token] == 0:
            target, models = instance.target, [instance.draft]
            if isinstance(target, ProcessedModel):
                # The loop may process its drafts too.
                models.append(target.of(instance.draft))
            drawn = any(
                _token(ends, uniform, model, before) == token
                for ends, uniform in source.draws
                for model in models
            )
            return drawn and any(ends is None and coin < EDGE for ends, coin in source.draws)
    return False


def _runs(
    runner: Runner, instance: Instance, rows: npt.NDArray[np.float64], until: float
) -> Iterator[tuple[Recorded, Any]]:
    """Run and record the draws; return no tokens for a failure."""
    for source, outcome in runner.run_each(instance, map(Recorded, rows)):
        check_time(until, "known mistakes take")
        yield source, () if isinstance(outcome, Failure) else outcome


def _token(ends: Cells | None, uniform: float, model: TableModel, context: Path) -> int | None:
    """Return the token that a uniform draws from a row; None if `ends` do not fit the row.

    Cells of width 0 are ignored: a loop may have more tokens, or another order of its tokens.
    """
    probs = model.probs(context).astype(np.float64)
    tokens = np.flatnonzero(probs > 0)
    positive = [b for a, b in itertools.pairwise((0.0, *(ends or ()))) if b > a]
    if len(positive) != tokens.size or (abs(probs[tokens].cumsum() - positive) > ROUNDING).any():
        return None
    return int(tokens[bisect_right(positive, uniform)])
