"""Compute the output distribution of a verifier in floats, from breakpoints found by bisection.

As a function of its uniforms, a verifier is constant between breakpoints.  The search goes through
the uniforms in order, and finds the breakpoints in every piece that earlier uniforms have left,
with a few random values of the later uniforms.  There is no proof that the search finds all
breakpoints; random runs check its result.
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
"""Number of random runs that are repeated, for a verifier whose draws are recorded."""

SLOW = 0.002
"""Seconds of a run above which draws without a visible effect are first followed only once."""

ROUNDING = 2.0**-20
"""Largest distance that counts as rounding of float32."""

SHARES, AT_LEAST_RUNS = 8, 20_000
"""One instance may use 1/`SHARES` of all runs, or `AT_LEAST_RUNS` if that is more."""


def breakpoint_observer(runner: Runner, budget: AuditBudget) -> Callable[[Instance], Observation]:
    """Return a function that observes a verifier in floats; instances share one limit of runs."""
    rng = np.random.default_rng(budget.seed)
    left = budget.max_runs
    precision = COARSE if budget.slow else FINE

    def observe(instance: Instance) -> Observation:
        nonlocal left
        allowed = min(left, max(budget.max_runs // SHARES, AT_LEAST_RUNS))
        try:
            seen = observe_by_breakpoints(
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


def observe_by_breakpoints(
    runner: Runner,
    instance: Instance,
    rng: np.random.Generator,
    max_runs: int,
    *,
    precision: Precision = FINE,
    deadline: float = math.inf,
) -> Observation:
    """Compute the output distribution in floats, from the breakpoints of all uniforms.

    An output that occurs only at u = 0 or u = 1 − 2^−24 has the probability of this value.  Raises
    `UnsuitedError` if the pieces do not predict the output at random uniforms, or are too many;
    `ProblemTooLargeError` after `max_runs` runs or the time `deadline` of `time.monotonic`.
    """
    if not runner.repeatable:
        raise UnsuitedError("the verifier draws its own random numbers")
    tries = rng.random((precision.tries, MAX_UNIFORMS))
    numbered = NumberedOutcomes(runner, instance, max_runs, precision.batch, deadline)
    if numbered.cache is not None:
        # The cache compares all other runs with those that begin alike.
        tries = tries[:REPEATED]
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
        # The depth grows when a run needs more uniforms.
        while pieces.depth < numbered.depth:
            pieces.split()
        checks = rng.random((precision.checks, tries.shape[1]))
        # Run once on each piece, because runs are the whole cost.
        found = numbered(pieces.points)
        predicted = numbered.outcomes(found[pieces.indices(checks)])
        if numbered.outcomes(numbered.fresh(checks)) == predicted:
            seen = _observed(numbered, pieces, found, instance, runner.max_tokens(instance))
            # Merged cells cannot prove a deviation, so a deviation is checked again without
            # merging.
            sound = not seen.is_off(ROUNDING) and seen.impossible is None
            if not settings.merged or (sound and pieces.are_constant(found)):
                return dataclasses.replace(seen, runs=numbered.runs)
        if runner.reads_noise:
            # More probes cannot replace the values of noise.
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
    """Return the largest number of uniforms that the verifier needs in some runs."""
    sources = [Source(row) for row in tries]
    for source in sources:
        check_time(deadline, TAKE)
        with suppress(ProblemTooLargeError):
            runner.run(instance, source)
    return max(source.taken for source in sources)
