"""Compare selection rules by their mean acceptance on many pairs of distributions, for each k."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence

import numpy as np
import numpy.typing as npt

from otm._core.checks import as_array
from otm._core.display.progress import Progress, watching
from otm._core.means import PairedMeans, Setup
from otm.coupling.build import PLANS, PlanBuilder, build_plan
from otm.coupling.compare.capped import CAPPED_RULES, capped_rules
from otm.coupling.compare.left_out import RuleTimes, memory_reason, none_left
from otm.errors import InvalidInputError, InvalidParameterError
from otm.problem import Problem
from otm.rules import RULES

QUANTITY = "acceptance probability"

MOST_ROUNDS = 1024
"""Largest k for which one pass computes recursive rejection for all numbers of drafts up to k."""


def compare_rows(
    problem: Problem,
    ks: Sequence[int],
    rules: Mapping[str, PlanBuilder],
    *,
    prompts: npt.ArrayLike | None = None,
    level: float = 0.95,
    max_seconds: float | None = None,
    progress: Progress | None = None,
) -> PairedMeans:
    """Compute the acceptance of each rule at each row of a problem, for each k."""
    clusters = _clusters(prompts, math.prod(problem.shape))
    rows = (problem[place] for place in np.ndindex(problem.shape))
    return compare_pairs(
        rows, ks, rules, prompts=clusters, level=level, max_seconds=max_seconds, progress=progress
    )


def compare_pairs(
    pairs: Iterable[Problem | None],
    ks: Sequence[int],
    rules: Mapping[str, PlanBuilder],
    *,
    prompts: npt.NDArray[np.int64],
    level: float = 0.95,
    max_seconds: float | None = None,
    progress: Progress | None = None,
) -> PairedMeans:
    """Compute the acceptance of every rule on pairs of distributions; each pair has a prompt.

    The k of a pair is ignored.  If a pair is None, its acceptance is 0.  A rule is left out for
    each k that it does not support, and also if it needs too much memory or time: `left_out` has
    the reason.
    """
    counts, size = sorted(set(ks)), prompts.size
    if not (counts and rules and size):
        raise InvalidInputError(
            f"compare was given {len(rules)} rules, {len(counts)} numbers of drafts and {size} "
            "rows; give at least one of each"
        )
    there = {name: [k for k in counts if _takes(name, rule, k)] for name, rule in rules.items()}
    if alone := [name for name, fitting in there.items() if not fitting]:
        raise InvalidParameterError(
            f"the rule {alone[0]} takes {_limit(alone[0])}, not {counts}; add such a number, or "
            "leave out the rule"
        )
    values = {Setup(name, k, 1): np.zeros(size) for name, fitting in there.items() for k in fitting}
    left_out: dict[Setup, str] = {}
    means = PairedMeans(QUANTITY, values, prompts, level, left_out)  # This checks the level.
    times = RuleTimes(size, max_seconds)
    capped = [name for name, rule in rules.items() if _by_cap(name, rule)]
    if counts[-1] > MOST_ROUNDS:
        capped = []
    others = [name for name in rules if name not in capped]
    with watching(progress, "compare") as watch:
        for r, pair in enumerate(pairs):
            watch.tell(f"{times.slowest()}row", r + 1, size)
            if pair is None:
                continue
            row = pair.to_floats()
            if capped:
                found, _ = capped_rules(row.draft, row.target, counts, capped, with_cap=False)
            for name in capped:
                for k, accepted in zip(counts, found[name].probability.tolist(), strict=True):
                    values[Setup(name, k, 1)][r] = accepted
            for name in others:
                if r == 0:  # The text names the slowest rules from the second row on.
                    watch.tell(f"{name}, row", 1, size)
                problems = {k: row.with_k(k) for k in there[name]}
                _compute_by_plan(
                    name, rules[name], problems, r, values=values, left_out=left_out, times=times
                )
            if not values:
                raise none_left({f"{x.rule}, K = {x.k}": why for x, why in left_out.items()})
    return means


def _compute_by_plan(
    name: str,
    rule: PlanBuilder,
    problems: Mapping[int, Problem],
    r: int,
    *,
    values: dict[Setup, npt.NDArray[np.float64]],
    left_out: dict[Setup, str],
    times: RuleTimes,
) -> None:
    """Compute the acceptance of a rule at row r for each k, or leave the rule out."""
    setups = {Setup(name, k, 1): problem for k, problem in problems.items()}
    setups = {setup: problem for setup, problem in setups.items() if setup in values}
    if not setups:
        return
    with times.measuring(name):
        for setup, problem in setups.items():
            try:
                values[setup][r] = build_plan(rule, problem, name).acceptance
            except MemoryError as error:  # This includes ProblemTooLargeError.
                del values[setup]
                left_out[setup] = memory_reason(error)
    if reason := times.too_slow(name):
        for setup in setups:
            if values.pop(setup, None) is not None:
                left_out[setup] = reason


def _clusters(prompts: npt.ArrayLike | None, size: int) -> npt.NDArray[np.int64]:
    """Return the prompt of each row; by default each row has its own prompt."""
    if prompts is None:
        return np.arange(size)
    array = as_array(prompts, "the prompts", InvalidInputError)
    if array.size != size or array.dtype.kind not in "iu":
        raise InvalidInputError(
            f"prompts of shape {array.shape} and type {array.dtype}; give an integer for the "
            f"prompt of each of the {size} rows"
        )
    return array.reshape(-1).astype(np.int64)


def _by_cap(name: str, rule: PlanBuilder) -> bool:
    """Whether `capped_rules` computes this rule."""
    return name in CAPPED_RULES and rule is PLANS[name]


def _takes(name: str, rule: PlanBuilder, k: int) -> bool:
    """Whether a rule supports k drafts; True for the user's own rules, which check k themselves."""
    if rule is not PLANS.get(name):
        return True
    listed = RULES[name]
    return k == listed.k if listed.k else k <= (listed.max_k or k)


def _limit(name: str) -> str:
    """Return the supported numbers of drafts in words."""
    listed = RULES[name]
    return f"{listed.k} drafts" if listed.k else f"at most {listed.max_k} drafts"
