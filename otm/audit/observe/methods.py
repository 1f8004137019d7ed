"""Observe a verifier by the first method that works: exact paths, breakpoints, Monte Carlo."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from otm._core.display.progress import Progress, watching
from otm.audit import formatting
from otm.audit.adapters.base import Failure, Instance, Outcome
from otm.audit.adapters.processed import prepared
from otm.audit.instances import left_out, needed, rows_of
from otm.audit.intercept.interception import InterceptedRng
from otm.audit.observe.breakpoints import breakpoint_observer
from otm.audit.observe.exact import exact_observer
from otm.audit.observe.later_runs import LaterRuns
from otm.audit.observe.monte_carlo import sample_instances
from otm.audit.observe.observation import MAX_RATIO, Observation, Observed, UnsuitedError
from otm.audit.observe.precision import COARSE, FINE
from otm.audit.observe.search import smallest_deviation
from otm.audit.runs import Runner, isolated_rng_state
from otm.audit.scope import AuditBudget, InstanceChoice, TimeIsUpError
from otm.errors import InvalidParameterError, ProblemTooLargeError
from otm.testing.symbolic import MAX_UNIFORMS

REPEATED = 4
"""Number of rows of uniforms that are run first, and once more after all other runs."""

PARTS, SMALL = 8, 4
"""The test of later runs takes 1/`PARTS` of Monte Carlo's time, on a small pair of models.

The pair has at most `SMALL` tokens and `SMALL` drafts.
"""

COSTLY = 5
"""Factor by which the search has fewer examples if each one needs thousands of runs."""


def observe(
    choice: InstanceChoice, budget: AuditBudget, methods: Sequence[str], progress: Progress | None
) -> Observed:
    """Observe a verifier by the first method that works, on the instances chosen for it."""
    adapter = choice.adapter
    why_not: list[str] = []
    for name in methods:
        instances = choice.for_method(name)
        rng = InterceptedRng() if adapter.uses_global_rng and name != "Monte Carlo" else None
        runner = Runner(adapter, rng)
        try:
            with isolated_rng_state(budget.seed), watching(progress, name) as watch:
                watched = replace(budget, watch=watch)
                observed = METHODS[name](runner, instances, watched)
                if rng is not None:
                    _check_interception(rng, observed)
                if name == "breakpoints":
                    others = _sample_larger(observed, choice, watched)
                    observed = replace(observed, sampled=others)
                    if others is not None and others.deviating:
                        seen = "only isolated outcomes" if observed.deviating else "no deviation"
                        why_not.append(f"{name}: {seen}, but {observed.skipped} pairs left out")
                        # The report then names the method of the deciding samples.
                        name, observed = "Monte Carlo", others  # noqa: PLW2901
            return replace(observed, method=name, why_not_exact=tuple(why_not))
        except UnsuitedError as reason:
            why_not.append(f"{name}: {reason}")
    raise InvalidParameterError(
        f"{adapter.name} cannot be audited by {'; by '.join(why_not)}; choose another method or "
        "smaller instances"
    )


def by_exact_paths(runner: Runner, instances: Sequence[Instance], budget: AuditBudget) -> Observed:
    """Observe in fractions."""
    observer = exact_observer(runner, budget)
    return observe_each(runner, instances, budget, observer, budget.examples)


def by_breakpoints(runner: Runner, instances: Sequence[Instance], budget: AuditBudget) -> Observed:
    """Observe in floats."""
    observer = breakpoint_observer(runner, budget)
    observed = observe_each(runner, instances, budget, observer, budget.examples // COSTLY)
    return replace(observed, delta=(COARSE if budget.slow else FINE).unseen)


def observe_each(
    runner: Runner,
    instances: Sequence[Instance],
    budget: AuditBudget,
    observe_one: Callable[[Instance], Observation],
    examples: int,
) -> Observed:
    """Observe the instances that are not too large, and search for the smallest deviating one."""
    observations: list[Observation] = []
    searched: list[Observation] = []
    too_much: Exception | None = None
    late: Sequence[Instance] = ()
    repeats: RepeatCheck | None = None
    for place, instance in enumerate(
        budget.watch.over(instances, "pair of models", len(instances))
    ):
        try:
            observations.append(observe_one(instance))
        except TimeIsUpError as error:
            too_much, late = error, instances[place:]
            break
        except ProblemTooLargeError as error:
            too_much = error
        else:
            require_noise_independent(runner, observations[-1].deviates(budget.tolerance))
            repeats = repeats or RepeatCheck(runner, observations[-1], budget.seed)
    if not observations:
        raise UnsuitedError(str(too_much))
    off = (seen.tv_distance for seen in observations if seen.is_off(budget.tolerance))
    most = max(map(float, off), default=0.0)

    def deviation(instance: Instance) -> Observation | None:
        if time.monotonic() > budget.deadline:
            return None
        budget.watch.tell("search, pair of models", len(searched) + 1)
        try:
            searched.append(observe_one(prepared(runner.adapter, instance)))
        except (UnsuitedError, ProblemTooLargeError):
            return None
        seen = searched[-1]
        telling = seen.is_off(budget.tolerance) and float(seen.tv_distance) >= most / MAX_RATIO
        return seen if (telling if most else seen.deviates(budget.tolerance)) else None

    smallest = (
        smallest_deviation(runner.adapter, deviation, examples, budget.seed) if examples else None
    )
    seen_instances = [seen.instance for seen in observations]
    observed = Observed(
        runner,
        observations,
        smallest,
        searched,
        skipped=len(instances) - len(observations),
        enough=not needed(runner.adapter) & (set(instances) - set(seen_instances)),
        left_out=left_out(seen_instances, late)
        + (("pairs of the requested size",) if budget.asked & set(late) else ()),
        tolerance=budget.tolerance,
    )
    if repeats is not None and not observed.deviating:
        repeats.check()
    return observed


class RepeatCheck:
    """A few runs of a verifier; repeated after all other runs, they must give the same outputs."""

    def __init__(self, runner: Runner, seen: Observation, seed: int) -> None:
        width = max(seen.uniforms, MAX_UNIFORMS)
        self._rows = np.random.default_rng(seed).random((REPEATED, width))
        self._runner, self._instance = runner, seen.instance
        self._first = self._outcomes()

    def _outcomes(self) -> list[Outcome]:
        return self._runner.run_rows(self._instance, self._rows)

    def check(self) -> None:
        """Raise `UnsuitedError` if an output has changed, unless it depends on noise values."""
        for before, now in zip(self._first, self._outcomes(), strict=True):
            if before != now and not self._runner.reads_noise:
                a, b = map(formatting.outcome, (before, now))
                raise UnsuitedError(
                    f"the same uniforms first gave {a}, and after many runs they gave {b}"
                )


def require_noise_independent(runner: Runner, deviates: bool) -> None:
    """Raise `UnsuitedError` if a deviation may come from noise, whose pieces are not exact."""
    if deviates and runner.reads_noise:
        raise UnsuitedError("its output may depend on the values of random noise")


def by_sampling(runner: Runner, instances: Sequence[Instance], budget: AuditBudget) -> Observed:
    """Observe frequencies, and test whether runs change later runs."""
    small = [each for each in instances if each.vocabulary <= SMALL and each.gamma <= SMALL]
    # Choose the instance whose rows depend most on earlier tokens.
    telling = max(small or instances, key=lambda each: sum(map(len, rows_of(each))))
    later = LaterRuns(runner, telling, budget.seed)

    def run_series() -> None:
        now = time.monotonic()
        later.run_series(now + max(budget.until() - now, 0) / PARTS)

    try:
        run_series()
        observed = sample_instances(runner, instances, budget)
        run_series()
    except ProblemTooLargeError as error:
        raise UnsuitedError(str(error)) from None
    changed = later.changed(budget.false_alarms)
    return replace(observed, later_runs=changed, slower=later.slower)


METHODS: dict[str, Callable[[Runner, Sequence[Instance], AuditBudget], Observed]] = {
    "exact paths": by_exact_paths,
    "breakpoints": by_breakpoints,
    "Monte Carlo": by_sampling,
}
"""Methods of observing an output distribution, in order of preference."""


def _check_interception(rng: InterceptedRng, observed: Observed) -> None:
    """Raise `UnsuitedError` if a verifier may behave differently with replaced generators."""
    for seen in observed.observations:
        for outcome in seen.probs:
            if isinstance(outcome, Failure) and outcome.crashed:
                raise UnsuitedError(f"with draws from the audit's uniforms it {outcome.text}")
    if rng.was_reset:
        raise UnsuitedError("the verifier sets the state of a global generator")
    require_noise_independent(observed.runner, observed.smallest is not None)


def _sample_larger(
    observed: Observed, choice: InstanceChoice, budget: AuditBudget
) -> Observed | None:
    """If larger instances were skipped, sample on them for some seconds."""
    # Sample more pairs only if no outcome but isolated ones deviates.
    is_off = any(each.is_off(observed.tolerance) for each in observed.deviating)
    if is_off or not observed.skipped or not (larger := choice.sampled_too()):
        return None
    quick = replace(budget, slow=True, deadline=time.monotonic() + budget.at_least)
    try:
        return sample_instances(Runner(choice.adapter), larger, quick)
    except UnsuitedError:
        # A run needs too many uniforms.
        return None
