"""The output distribution of a verifier in floats, from its breakpoints, found by bisection.

As a function of its uniforms a verifier is constant between breakpoints.  Uniform by uniform, these
are searched for in every piece that the ones before leave; the later uniforms are held at a few
random values meanwhile.  That this misses nothing is not proved but checked, on random runs.
"""

from __future__ import annotations

import dataclasses
import math
import time
from collections import defaultdict
from collections.abc import Callable
from contextlib import suppress

import numpy as np

from otm.audit.adapters.base import Instance, Outcome, Source
from otm.audit.observe.numbered_outcomes import TAKE, NumberedOutcomes, Numbers
from otm.audit.observe.observation import NOT_REPEATED, Observation, UnsuitedError
from otm.audit.observe.pieces import Pieces
from otm.audit.observe.precision import COARSE, FINE, Floats, Precision, ProbeSettings
from otm.audit.runs import Runner
from otm.audit.scope import AuditBudget, TimeIsUpError, check_time
from otm.errors import ProblemTooLargeError
from otm.testing.symbolic import MAX_UNIFORMS

REPEATED = 16
"""Random runs that are made twice, of a verifier of which it is known what it draws."""

SLOW = 0.002
"""Seconds of a run from which on draws that nothing seems to come of are followed once at first."""

ROUNDING = 2.0**-20
"""A distance up to this is rounding of float32."""

SHARES, AT_LEAST_RUNS = 8, 20_000
"""Breakpoints of one instance may take this part of all runs, and so many in any case."""


def breakpoint_observer(runner: Runner, budget: AuditBudget) -> Callable[[Instance], Observation]:
    """Return a function that observes a verifier in floats; instances share the runs."""
    rng = np.random.default_rng(budget.seed)
    left = budget.max_runs
    precision = COARSE if budget.slow else FINE

    def observe(instance: Instance) -> Observation:
        nonlocal left
        allowed = min(left, max(budget.max_runs // SHARES, AT_LEAST_RUNS))
        try:
            seen = by_breakpoints(
                runner, instance, rng, allowed, precision=precision, deadline=budget.deadline
            )
        except TimeIsUpError:
            raise
        except ProblemTooLargeError:
            left -= allowed
            raise
        left -= seen.runs
        return seen

    return observe


def by_breakpoints(
    runner: Runner,
    instance: Instance,
    rng: np.random.Generator,
    max_runs: int,
    *,
    precision: Precision = FINE,
    deadline: float = math.inf,
) -> Observation:
    """Compute the output distribution in floats, from the breakpoints of all uniforms.

    What only the edges u = 0 and u = 1 − 2^−24 give has their tiny probability.  Raises
    `UnsuitedError` if the pieces fail to predict the output at random uniforms, or are too many,
    `ProblemTooLargeError` after so many runs or the time of a clock, `time.monotonic`.
    """
    if not runner.repeatable:
        raise UnsuitedError("it draws random numbers of its own")
    tries = rng.random((precision.tries, MAX_UNIFORMS))
    numbered = NumberedOutcomes(runner, instance, max_runs, precision.batch, deadline)
    if numbered.cache is not None:
        tries = tries[:REPEATED]  # all other runs are compared with those that begin alike
    before, tries = numbered.first(tries, rng)
    start = time.monotonic()
    if (numbered.fresh(tries) != before).any():
        raise UnsuitedError(NOT_REPEATED)
    slow = time.monotonic() - start > SLOW * len(tries)
    numbered.depth = numbered.depth or _uniforms_taken(runner, instance, tries, deadline)
    more = [ProbeSettings(number) for number in precision.probes]
    few = [ProbeSettings(1, few=True, merged=True)] if slow else []
    for settings in [*few, ProbeSettings(1, few=True), *more] if numbered.shows_coins else more:
        pieces = Pieces(
            numbered, rng.random((settings.number, tries.shape[1])), precision, settings
        )
        while pieces.depth < numbered.depth:  # which is more when a run has taken more
            pieces.split()
        checks = rng.random((precision.checks, tries.shape[1]))
        found = numbered(pieces.points)  # once: a run is all that costs
        predicted = numbered.outcomes(found[pieces.indices(checks)])
        if numbered.outcomes(numbered.fresh(checks)) == predicted:
            seen = _observed(numbered, pieces, found, instance, runner.max_tokens(instance))
            # merged cells find nobody guilty: what deviates is looked at again without them
            sound = not seen.is_off(ROUNDING) and seen.impossible is None
            if not settings.merged or (sound and pieces.are_constant(found)):
                return dataclasses.replace(seen, runs=numbered.runs)
        if runner.reads_noise:  # whose values more probes do not mend
            raise UnsuitedError("its output depends on the values of random noise")
    raise UnsuitedError("its output is not constant on the pieces between its breakpoints")


def _observed(
    numbered: NumberedOutcomes, pieces: Pieces, found: Numbers, instance: Instance, length: int
) -> Observation:
    """Sum the volumes of the pieces of each outcome."""
    probs: dict[Outcome, float] = defaultdict(float)
    examples: dict[Outcome, tuple[float, ...]] = {}
    by_piece = numbered.outcomes(found)
    for i in np.argsort(-pieces.weights, kind="stable").tolist():
        outcome = by_piece[i]
        probs[outcome] += float(pieces.weights[i])
        examples.setdefault(outcome, tuple(pieces.points[i, : pieces.depth].tolist()))
    return Observation(
        instance, dict(probs), length, examples,
        error=pieces.error, uniforms=pieces.depth, pieces=len(pieces.points),
    )  # fmt: skip


def _uniforms_taken(runner: Runner, instance: Instance, tries: Floats, deadline: float) -> int:
    """Return the most uniforms that the verifier takes in some runs."""
    sources = [Source(row) for row in tries]
    for source in sources:
        check_time(deadline, TAKE)
        with suppress(ProblemTooLargeError):
            runner.run(instance, source)
    return max(source.taken for source in sources)
