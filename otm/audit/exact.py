"""The law of a verifier by every path of its comparisons, in fractions."""

from __future__ import annotations

from collections import defaultdict
from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt

from otm.audit.adapter import MAX_UNIFORMS, Adapter, Instance
from otm.audit.observation import Observation, UnsuitedError
from otm.audit.running import CountedSource, Failure, Outcome, max_tokens, run, run_rows
from otm.errors import ProblemTooLargeError
from otm.testing.exact import paths

MAX_PATHS = 2_000
"""Most paths that are followed on one instance."""

ROUNDING = Fraction(1, 10**6)
"""Outcomes below this probability may be lost to rounding."""

REPEATED = 8
"""Random runs that are made twice."""


def by_paths(adapter: Adapter, instance: Instance) -> Observation:
    """Exact output distribution of a verifier with its drafts, in fractions, along all its paths.

    Outputs at isolated values of a uniform, such as u = 0, have probability 0.  Raises
    `UnsuitedError` if the verifier does more than compare its uniforms, or does not repeat itself.
    """
    if not adapter.repeatable:
        raise UnsuitedError("it draws random numbers of its own")
    if not adapter.exact:
        raise UnsuitedError("it does not work on fractions")
    size = 8  # the fewer uniforms are at hand, the faster a path is followed
    while True:
        try:
            return _follow(adapter, instance, size)
        except ProblemTooLargeError:
            if size >= MAX_UNIFORMS:
                raise
            size *= 2


def check_in_floats(adapter: Adapter, seen: Observation, rng: np.random.Generator) -> None:
    """Raise `UnsuitedError` if floats in the middle of a path do not take it, or do not repeat.

    Code may treat what is no float differently, or ignore the uniforms and draw for itself: its
    paths are then not those that it takes in use.
    """
    rows = rng.random((REPEATED, MAX_UNIFORMS))
    if run_rows(adapter, seen.instance, rows) != run_rows(adapter, seen.instance, rows):
        raise UnsuitedError("the same uniforms do not always give the same output")
    inside = [outcome for outcome, probability in seen.law.items() if probability > ROUNDING]
    rows = np.full((len(inside), MAX_UNIFORMS), 0.5)
    for row, outcome in zip(rows, inside, strict=True):
        example = seen.examples[outcome]
        row[: len(example)] = [float(u) for u in example]
    if run_rows(adapter, seen.instance, rows) != inside:
        raise UnsuitedError("on floats it does not do what it does on fractions")


def _follow(adapter: Adapter, instance: Instance, size: int) -> Observation:
    def outcome(uniforms: npt.NDArray[Any]) -> tuple[Outcome, int]:
        source = CountedSource(uniforms)
        return run(adapter, instance, source), source.taken

    law: dict[Outcome, Fraction] = defaultdict(Fraction)
    examples: dict[Outcome, tuple[Fraction, ...]] = {}
    widest: dict[Outcome, Fraction] = {}
    runs = 0
    try:
        for path in paths(outcome, size):
            runs += 1
            if runs > MAX_PATHS:
                break
            seen, taken = path.outcome
            law[seen] += path.probability
            if path.probability >= widest.get(seen, 0):
                widest[seen] = path.probability
                examples[seen] = tuple(path.example[:taken])
            if isinstance(seen, Failure) and seen.crashed:
                _crash_in_floats_too(adapter, instance, path.example, seen)
    except IndexError:  # of a script that does not fit what is compared this time
        raise UnsuitedError("the same uniforms do not always give the same comparisons") from None
    if runs > MAX_PATHS:
        raise ProblemTooLargeError(
            f"the verifier has more than {MAX_PATHS:,} paths on {instance.vocabulary} tokens and "
            f"γ = {instance.gamma}; audit it on fewer drafts and tokens, or by Monte Carlo"
        )
    if sum(law.values()) != 1:
        raise UnsuitedError("the same uniforms do not always give the same comparisons")
    return Observation(instance, dict(law), max_tokens(adapter, instance), examples, runs=runs)


def _crash_in_floats_too(
    adapter: Adapter, instance: Instance, example: list[Fraction], crash: Failure
) -> None:
    """Tell a crash of the verifier from its not being made for fractions."""
    row = np.full((1, MAX_UNIFORMS), 0.5)
    row[0, : len(example)] = [float(u) for u in example]
    (again,) = run_rows(adapter, instance, row)
    if not (isinstance(again, Failure) and again.crashed):
        raise UnsuitedError(f"on fractions it {crash.text}")
