"""Compute the output distribution of a verifier in fractions, along every path."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterable
from fractions import Fraction

import numpy as np
import numpy.typing as npt

from otm._core.arithmetic import Number
from otm.audit.adapters.base import Failure, Instance, Outcome
from otm.audit.instances import needed
from otm.audit.observe.observation import NOT_REPEATED, Observation, UnsuitedError
from otm.audit.runs import Runner
from otm.audit.scope import AuditBudget, Pace, check_time
from otm.errors import ProblemTooLargeError
from otm.testing.exact import regions
from otm.testing.symbolic import MAX_UNIFORMS, Region

LONGEST = 512
"""Largest number of uniforms of a path, for code that may draw without end."""

MAX_PATHS = 2_000
"""Largest number of paths on one instance."""

ROUNDING = Fraction(1, 10**6)
"""Outcomes below this probability may be lost to rounding."""

NOWHERE = Fraction(0), Region(0)

REPEATED = 8
"""Number of random runs that are repeated."""


def exact_observer(runner: Runner, budget: AuditBudget) -> Callable[[Instance], Observation]:
    """Return a function that observes in fractions; needed instances must not be too large."""
    rng = np.random.default_rng(budget.seed)

    def observe(instance: Instance) -> Observation:
        try:
            seen = observe_by_paths(runner, instance, budget.deadline)
            check_in_floats(runner, seen, rng, budget.deadline)
        except ProblemTooLargeError as error:
            if instance not in needed(runner.adapter):
                raise
            raise UnsuitedError(f"a pair that a verdict needs is too large: {error}") from None
        return seen

    return observe


def observe_by_paths(runner: Runner, instance: Instance, deadline: float = math.inf) -> Observation:
    """Compute the exact output distribution of a verifier along all its paths, in fractions.

    Outputs at isolated values of a uniform, such as u = 0, have probability 0.  Raises
    `UnsuitedError` if the verifier does more than compare its uniforms, or does not repeat its
    outputs; `ProblemTooLargeError` after too many paths, or once `time.monotonic()` is past
    `deadline`.
    """
    if not runner.repeatable:
        raise UnsuitedError("the verifier draws its own random numbers")
    if not runner.adapter.exact:
        raise UnsuitedError("it does not work on fractions")
    probs: dict[Outcome, Fraction] = defaultdict(Fraction)
    widest: dict[Outcome, tuple[Fraction, Region]] = {}
    runs = taken = 0
    try:
        for outcome, region in regions(runner.on(instance), LONGEST, max_isolated=1):
            runs += 1
            taken = max(taken, len(region.between))
            check_time(deadline, "its paths take")
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
                example = _in_floats([region.example()], max(taken, MAX_UNIFORMS))
                (again,) = runner.run_rows(instance, example)
                if not (isinstance(again, Failure) and again.crashed):
                    raise UnsuitedError(_why_not_exact(outcome.text))
    except IndexError:
        # The recorded comparisons do not fit those of this run.
        raise UnsuitedError("the same uniforms do not always give the same comparisons") from None
    if sum(probs.values()) != 1:
        raise UnsuitedError("the same uniforms do not always give the same comparisons")
    examples = {outcome: tuple(region.example()) for outcome, (_, region) in widest.items()}
    return Observation(
        instance, dict(probs), runner.max_tokens(instance), examples, runs=runs, uniforms=taken
    )


def _why_not_exact(text: str) -> str:
    """Explain why a verifier that only crashes on fractions cannot be observed exactly."""
    if "SymbolicUniform" in text or "Fraction" in text:
        return "it computes in floats, not in fractions"
    return f"on fractions it {text}"


def check_in_floats(
    runner: Runner, seen: Observation, rng: np.random.Generator, deadline: float = math.inf
) -> None:
    """Raise `UnsuitedError` if runs on floats do not follow their path, or do not repeat.

    Code that treats floats differently, or ignores the uniforms and draws its own random numbers,
    takes other paths on floats than on fractions.
    """
    width = max(seen.uniforms, MAX_UNIFORMS)
    rows = rng.random((REPEATED, width))
    first, again = (_run_all(runner, seen.instance, rows, deadline) for _ in range(2))
    if first != again:
        raise UnsuitedError(NOT_REPEATED)
    inside = [outcome for outcome, probability in seen.probs.items() if probability > ROUNDING]
    examples = _in_floats([seen.examples[outcome] for outcome in inside], width)
    if not all(map(_alike, _run_all(runner, seen.instance, examples, deadline), inside)):
        raise UnsuitedError("its outputs on floats differ from those on fractions")


def _alike(one: Outcome, other: Outcome) -> bool:
    """Whether outcomes are equal, or failures of one kind, whose details may depend on NaN."""
    if isinstance(one, Failure) and isinstance(other, Failure):
        return one.kind == other.kind
    return one == other


def _run_all(
    runner: Runner, instance: Instance, rows: npt.NDArray[np.float64], deadline: float
) -> list[Outcome]:
    """Run on all rows of uniforms; raise `TimeIsUpError` after the deadline."""
    parts = Pace(deadline).parts(rows, "its runs take")
    return [outcome for part in parts for outcome in runner.run_rows(instance, part)]


def _in_floats(examples: Iterable[Iterable[Number]], width: int) -> npt.NDArray[np.float64]:
    """Convert uniforms to floats [B, width], padded with 0.5."""
    rows = [[*map(float, example)] for example in examples]
    padded = [[*row, *[0.5] * (width - len(row))] for row in rows]
    return np.reshape(padded, (-1, width))
