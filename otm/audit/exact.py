"""The output distribution of a verifier by every path of its comparisons, in fractions."""

from __future__ import annotations

import math
import time
from collections import defaultdict
from collections.abc import Iterable
from fractions import Fraction

import numpy as np

from otm._core.arithmetic import Number
from otm.audit.adapter import Adapter, Failure, Instance, Outcome, max_tokens, run, run_rows
from otm.audit.observation import NOT_REPEATED, Observation, UnsuitedError
from otm.errors import ProblemTooLargeError
from otm.testing.exact import regions
from otm.testing.symbolic import MAX_UNIFORMS, Region

MAX_PATHS = 2_000
"""Most paths that are followed on one instance."""

ROUNDING = Fraction(1, 10**6)
"""Outcomes below this probability may be lost to rounding."""

NOWHERE = Fraction(0), Region(0)

REPEATED = 8
"""Random runs that are made twice."""


def by_paths(adapter: Adapter, instance: Instance, deadline: float = math.inf) -> Observation:
    """Exact output distribution of a verifier with its drafts, in fractions, along all its paths.

    Outputs at isolated values of a uniform, such as u = 0, have probability 0.  Raises
    `UnsuitedError` if the verifier does more than compare its uniforms, or does not repeat itself,
    `ProblemTooLargeError` after too many paths or the time of a clock, `time.monotonic`.
    """
    if not adapter.repeatable:
        raise UnsuitedError("it draws random numbers of its own")
    if not adapter.exact:
        raise UnsuitedError("it does not work on fractions")
    probs: dict[Outcome, Fraction] = defaultdict(Fraction)
    widest: dict[Outcome, tuple[Fraction, Region]] = {}
    runs = 0
    try:
        for outcome, region in regions(
            lambda source: run(adapter, instance, source), max_isolated=1
        ):
            runs += 1
            if time.monotonic() > deadline:
                raise ProblemTooLargeError("its paths take more than the time that is left")
            if runs > MAX_PATHS:
                raise ProblemTooLargeError(
                    f"the verifier has more than {MAX_PATHS:,} paths on {instance.vocabulary} "
                    f"tokens and γ = {instance.gamma}; audit it on fewer drafts and tokens, or by "
                    "Monte Carlo"
                )
            probability = region.volume()
            probs[outcome] += probability
            if probability >= widest.get(outcome, NOWHERE)[0]:
                widest[outcome] = probability, region
            if isinstance(outcome, Failure) and outcome.crashed:
                (again,) = _run_in_floats(adapter, instance, [region.example()])
                if not (isinstance(again, Failure) and again.crashed):
                    raise UnsuitedError(_why_not_exact(outcome.text))
    except IndexError:  # of a script that does not fit what is compared this time
        raise UnsuitedError("the same uniforms do not always give the same comparisons") from None
    if sum(probs.values()) != 1:
        raise UnsuitedError("the same uniforms do not always give the same comparisons")
    examples = {outcome: tuple(region.example()) for outcome, (_, region) in widest.items()}
    return Observation(instance, dict(probs), max_tokens(adapter, instance), examples, runs=runs)


def _why_not_exact(text: str) -> str:
    """Say why a verifier that crashes on fractions alone is not followed on them."""
    if "SymbolicUniform" in text or "Fraction" in text:
        return "it computes in floats, not in fractions"
    return f"on fractions it {text}"


def check_in_floats(adapter: Adapter, seen: Observation, rng: np.random.Generator) -> None:
    """Raise `UnsuitedError` if floats in the middle of a path do not take it, or do not repeat.

    Code may treat what is no float differently, or ignore the uniforms and draw for itself: its
    paths are then not those that it takes in use.
    """
    rows = rng.random((REPEATED, MAX_UNIFORMS))
    if run_rows(adapter, seen.instance, rows) != run_rows(adapter, seen.instance, rows):
        raise UnsuitedError(NOT_REPEATED)
    inside = [outcome for outcome, probability in seen.probs.items() if probability > ROUNDING]
    examples = [seen.examples[outcome] for outcome in inside]
    if _run_in_floats(adapter, seen.instance, examples) != inside:
        raise UnsuitedError("on floats it does not do what it does on fractions")


def _run_in_floats(
    adapter: Adapter, instance: Instance, examples: Iterable[Iterable[Number]]
) -> list[Outcome]:
    """Run on uniforms, followed by as many more as a run may take."""
    rows = [[*map(float, example)] for example in examples]
    padded = [[*row, *[0.5] * (MAX_UNIFORMS - len(row))] for row in rows]
    return run_rows(adapter, instance, np.reshape(padded, (-1, MAX_UNIFORMS)))
