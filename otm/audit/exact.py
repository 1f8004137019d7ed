"""The law of a subject by every path of its comparisons, in fractions."""

from __future__ import annotations

from collections import defaultdict
from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt

from otm.audit.observation import Observation, UnsuitedError
from otm.audit.running import CountedSource, Outcome, Wrong, max_tokens, run, run_rows
from otm.audit.subject import MOST_UNIFORMS, Instance, Subject
from otm.errors import ProblemTooLargeError
from otm.testing.exact import paths

__all__ = ["MOST_PATHS", "by_paths", "check_in_floats"]

MOST_PATHS = 2_000
"""Most paths that are followed on one instance."""

ROUNDING = Fraction(1, 10**6)
"""Outcomes below this probability may be lost to rounding."""

REPEATED = 8
"""Random runs that are made twice."""


def by_paths(subject: Subject, instance: Instance) -> Observation:
    """Exact law of what a subject outputs, drafts and all.

    Parameters
    ----------
    subject : Subject
        Anything; `UnsuitedError` says if it is not `exact` after all.
    instance : Instance
        The models.

    Returns
    -------
    Observation
        With fractions.  Outcomes that only isolated values of a uniform give, such as u = 0, have
        probability 0.

    Raises
    ------
    UnsuitedError
        If the subject does more with its uniforms than to compare them, cannot take fractions, or
        does not repeat itself.
    ProblemTooLargeError
        If it takes more than `MOST_UNIFORMS` uniforms, or has more than `MOST_PATHS` paths.
    """
    if not subject.repeatable:
        raise UnsuitedError("it draws random numbers of its own")
    if not subject.exact:
        raise UnsuitedError("it does not work on fractions")
    size = 8  # the fewer uniforms are at hand, the faster a path is followed
    while True:
        try:
            return _follow(subject, instance, size)
        except ProblemTooLargeError:
            if size >= MOST_UNIFORMS:
                raise
            size *= 2


def check_in_floats(subject: Subject, seen: Observation, rng: np.random.Generator) -> None:
    """Refuse a law that says nothing of the subject in floats, for which it is written.

    Code may do something else with what is no float, or draw on randomness of its own and pay no
    heed to the uniforms; its paths are then not those that it takes in use.

    Parameters
    ----------
    subject : Subject
        Whose law it is.
    seen : Observation
        From `by_paths`.
    rng : Generator
        For runs that are made twice.

    Raises
    ------
    UnsuitedError
        If floats in the middle of a path do not take it, or the same floats do not always give the
        same output.
    """
    rows = rng.random((REPEATED, MOST_UNIFORMS))
    if run_rows(subject, seen.instance, rows) != run_rows(subject, seen.instance, rows):
        raise UnsuitedError("the same uniforms do not always give the same output")
    inside = [outcome for outcome, probability in seen.law.items() if probability > ROUNDING]
    rows = np.full((len(inside), MOST_UNIFORMS), 0.5)
    for row, outcome in zip(rows, inside, strict=True):
        example = seen.examples[outcome]
        row[: len(example)] = [float(u) for u in example]
    if run_rows(subject, seen.instance, rows) != inside:
        raise UnsuitedError("on floats it does not do what it does on fractions")


def _follow(subject: Subject, instance: Instance, size: int) -> Observation:
    def outcome(uniforms: npt.NDArray[Any]) -> tuple[Outcome, int]:
        source = CountedSource(uniforms)
        return run(subject, instance, source), source.taken

    law: dict[Outcome, Fraction] = defaultdict(Fraction)
    examples: dict[Outcome, tuple[Fraction, ...]] = {}
    widest: dict[Outcome, Fraction] = {}
    runs = 0
    try:
        for path in paths(outcome, size):
            runs += 1
            if runs > MOST_PATHS:
                break
            seen, taken = path.outcome
            law[seen] += path.probability
            if path.probability >= widest.get(seen, 0):
                widest[seen] = path.probability
                examples[seen] = tuple(path.example[:taken])
            if isinstance(seen, Wrong) and seen.crashed:
                _crash_in_floats_too(subject, instance, path.example, seen)
    except IndexError:  # of a script that does not fit what is compared this time
        raise UnsuitedError("the same uniforms do not always give the same comparisons") from None
    if runs > MOST_PATHS:
        raise ProblemTooLargeError(
            f"the verifier has more than {MOST_PATHS:,} paths on {instance.vocabulary} tokens and "
            f"γ = {instance.gamma}; audit it on fewer drafts and tokens, or by Monte Carlo"
        )
    if sum(law.values()) != 1:
        raise UnsuitedError("the same uniforms do not always give the same comparisons")
    return Observation(instance, dict(law), max_tokens(subject, instance), examples, runs=runs)


def _crash_in_floats_too(
    subject: Subject, instance: Instance, example: list[Fraction], crash: Wrong
) -> None:
    """Tell a crash of the subject from its not being made for fractions."""
    row = np.full((1, MOST_UNIFORMS), 0.5)
    row[0, : len(example)] = [float(u) for u in example]
    (again,) = run_rows(subject, instance, row)
    if not (isinstance(again, Wrong) and again.crashed):
        raise UnsuitedError(f"on fractions it {crash.text}")
