"""The audit: a verifier in, a report out, by the first of three methods that works."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from otm._core.numbers import as_integer, as_level, as_positive, as_real, check_name
from otm._core.optional import check_installed
from otm.audit import breakpoints, exact
from otm.audit.adapter import Adapter, Failure, Instance, undisturbed
from otm.audit.adapters.plain import as_adapter
from otm.audit.findings import Findings, same_distribution
from otm.audit.instances import FOR_SAMPLING, INSTANCES, smallest_instance
from otm.audit.observation import Observation, UnsuitedError
from otm.audit.own_draws import OwnDraws, with_own_draws
from otm.audit.report import Report
from otm.audit.sampling import Sampler
from otm.errors import InvalidParameterError, ProblemTooLargeError
from otm.testing.statistics import LEAST_DELTA

COSTLY = 5
"""How many times fewer examples are searched through where each takes thousands of runs."""


@dataclass(frozen=True)
class Effort:
    """How much an audit does, and what it lets pass: as in `otm.audit.lossless`."""

    examples: int
    false_alarms: float
    delta: float
    max_runs: int
    tolerance: float
    seed: int


def by_paths(adapter: Adapter, instances: Sequence[Instance], effort: Effort) -> Findings:
    """Audit in fractions."""
    rng = np.random.default_rng(effort.seed)

    def observe(instance: Instance) -> Observation:
        seen = exact.by_paths(adapter, instance)
        exact.check_in_floats(adapter, seen, rng)
        return seen

    return _by_distributions(adapter, instances, effort, observe, effort.examples)


def by_breakpoints(adapter: Adapter, instances: Sequence[Instance], effort: Effort) -> Findings:
    """Audit in floats."""
    rng = np.random.default_rng(effort.seed)
    left = effort.max_runs

    def observe(instance: Instance) -> Observation:
        nonlocal left
        try:
            seen = breakpoints.by_breakpoints(adapter, instance, rng, left)
        except ProblemTooLargeError:
            left = 0  # the small ones come first
            raise
        left -= seen.runs
        return seen

    findings = _by_distributions(adapter, instances, effort, observe, effort.examples // COSTLY)
    return dataclasses.replace(findings, delta=breakpoints.UNSEEN)


def by_sampling(adapter: Adapter, instances: Sequence[Instance], effort: Effort) -> Findings:
    """Audit by Monte Carlo; the level is shared by the instances."""
    sampler = Sampler(
        effort.false_alarms / len(instances),
        effort.delta,
        max(effort.max_runs // len(instances), 1),
        np.random.default_rng(effort.seed),
    )
    samples = [sampler.sample(adapter, instance) for instance in instances]
    delta = max(sample.delta for sample in samples)
    return Findings(
        [sample.observation for sample in samples],
        [sample.observation for sample in samples if sample.rejected],
        smallest=None,
        same=sampler.fits,
        radius=max(sample.radius for sample in samples),
        false_alarms=effort.false_alarms,
        delta=delta,
        enough=delta <= effort.delta,
    )


def _by_distributions(
    adapter: Adapter,
    instances: Sequence[Instance],
    effort: Effort,
    observe: Callable[[Instance], Observation],
    examples: int,
) -> Findings:
    """Observe where it is not too much, and search for the smallest instance that deviates."""
    observations: list[Observation] = []
    searched: list[Observation] = []
    too_much: Exception | None = None

    def deviates(seen: Observation) -> bool:
        off = float(seen.tv_distance) > seen.error + effort.tolerance
        return off or seen.impossible is not None

    for instance in instances:
        try:
            observations.append(observe(instance))
        except ProblemTooLargeError as error:
            too_much = error
        else:
            _refuse_values_of_noise(adapter, deviates(observations[-1]))
    if not observations:
        raise UnsuitedError(str(too_much))

    def deviates_on(instance: Instance) -> bool:
        try:
            searched.append(observe(instance))
        except (UnsuitedError, ProblemTooLargeError):
            return False
        return deviates(searched[-1])

    smallest = smallest_instance(adapter, deviates_on, examples, effort.seed) if examples else None
    return Findings(
        observations,
        [seen for seen in observations if deviates(seen)],
        None if smallest is None else observe(smallest),
        same_distribution(effort.tolerance),
        searched=searched,
        skipped=len(instances) - len(observations),
        tolerance=effort.tolerance,
    )


METHODS: dict[str, Callable[[Adapter, Sequence[Instance], Effort], Findings]] = {
    "exact paths": by_paths,
    "breakpoints": by_breakpoints,
    "Monte Carlo": by_sampling,
}
"""Ways to know an output distribution, the preferred ones first."""


def lossless(
    verifier: Any,
    *,
    kind: str | None = None,
    method: str | None = None,
    instances: Sequence[Instance] | None = None,
    examples: int = 50,
    false_alarms: float = 1e-6,
    delta: float = 0.03,
    max_runs: int = 1_000_000,
    tolerance: float = 1e-6,
    seed: int = 0,
) -> Report:
    """Find out whether a verifier is lossless: whether its output is distributed as the target.

    Lossless in the sense of docs/theory/problem.md; the audit is our own design (docs/audit.md).

    The output distribution is computed exactly where the verifier works on fractions and only
    compares its uniforms; from its breakpoints where its randomness is an argument; and by Monte
    Carlo otherwise.  It is compared with the target on telling pairs of small models, and on pairs
    that Hypothesis searches for.

    Parameters
    ----------
    verifier : callable, DeviceVerifier or Adapter
        A function as `otm.audit.chain`, `token_rule` or `loop` take it; a `DeviceVerifier` of
        `otm.decoding`, of which one step is audited; or what the former and the adapters of other
        libraries return.
    kind : str, optional
        "chain", "token" or "loop"; may be left out for a function of `target_probs`, `draft_probs`,
        `draft_tokens` and perhaps more, which is a chain, and for a rule of `otm.coupling`.
    method : str, optional
        "exact paths", "breakpoints" or "Monte Carlo"; the first that serves if left out.
    instances : sequence of Instance, optional
        Pairs of models in place of those that come with the audit.
    examples : int, optional
        Number of pairs of models to search through; 0 to leave the search out.  Monte Carlo never
        searches: the search would select for noise.
    false_alarms : float, optional
        Bound on the probability that Monte Carlo rejects a lossless verifier, on all instances
        together.
    delta : float, optional
        The deviation (TV) that Monte Carlo must see on each instance, with probability 1 − 10^−3;
        above 10^−9.
    max_runs : int, optional
        Most runs of the verifier, for breakpoints and again for Monte Carlo.
    tolerance : float, optional
        Deviations (TV) up to this are taken for rounding.
    seed : int, optional
        Of all that is random in the audit.

    Returns
    -------
    Report
        The verdict, and the evidence for it.  What a verifier does wrong, such as a crash or a
        token that does not exist, is in the report and raises nothing.

    Raises
    ------
    InvalidParameterError
        If an argument is out of range, or the verifier is not such a function, or does not go with
        the method or with any of the instances.
    UnknownMethodError
        If there is no such method or kind.
    MissingDependencyError
        If Hypothesis is not installed, `examples` is not 0 and the method not Monte Carlo; before
        the verifier is run.

    Examples
    --------
    >>> from otm.coupling import KSeq
    >>> print(lossless(KSeq, examples=0))  # doctest: +ELLIPSIS
    KSeq: lossless on everything tried
      method: exact paths, ... pairs of models, ... runs
      distance to the target (TV), at worst: 0
      This is evidence, not a proof: other models were not tried, none of more than 4 tokens, ...
    """
    adapter = as_adapter(verifier, kind)
    effort = Effort(
        examples=as_integer(examples, "examples", 0),
        false_alarms=as_level(false_alarms, "false_alarms"),
        delta=as_real(delta, "delta", above=LEAST_DELTA, below=1),
        max_runs=as_positive(max_runs, "max_runs"),
        tolerance=as_level(tolerance, "tolerance"),
        seed=as_integer(seed, "seed", 0),
    )
    if method is not None:
        check_name("method", method, METHODS)
    if effort.examples and method != "Monte Carlo":
        check_installed("hypothesis", advice="or do not search, with examples 0")  # not in the end
    why_not: list[str] = []
    for name in METHODS if method is None else (method,):
        sampled = name == "Monte Carlo"
        chosen = _instances(adapter, instances, few=sampled)
        given = adapter if sampled else with_own_draws(adapter)
        try:
            with undisturbed(effort.seed):
                findings = METHODS[name](given, chosen, effort)
                if isinstance(given, OwnDraws):
                    _refuse_crashes(findings)
                    if given.reset:
                        raise UnsuitedError("it sets the state of a global generator")
                    _refuse_values_of_noise(given, findings.smallest is not None)
                return findings.report(given, name, tuple(why_not))
        except UnsuitedError as reason:
            why_not.append(f"{name}: {reason}")
    raise InvalidParameterError(
        f"{adapter.name} cannot be audited by {'; by '.join(why_not)}; choose another method or "
        "smaller instances"
    )


def _refuse_crashes(findings: Findings) -> None:
    """Leave a verifier that crashes with the audit's draws, maybe for them, to a later method."""
    for seen in findings.observations:
        for outcome in seen.probs:
            if isinstance(outcome, Failure) and outcome.crashed:
                raise UnsuitedError(f"with draws from uniforms of the audit it {outcome.text}")


def _refuse_values_of_noise(adapter: Adapter, deviates: bool) -> None:
    """Leave it to Monte Carlo where pieces that are not quite exact may be what deviates."""
    if deviates and isinstance(adapter, OwnDraws) and adapter.looked:
        raise UnsuitedError("its output may depend on the values of random noise")


def _instances(
    adapter: Adapter, instances: Sequence[Instance] | None, *, few: bool
) -> Sequence[Instance]:
    """Choose the instances that a verifier takes."""
    if instances is None:
        instances = [INSTANCES[name] for name in (FOR_SAMPLING if few else INSTANCES)]
    if not instances or not all(isinstance(instance, Instance) for instance in instances):
        raise InvalidParameterError("`instances` must hold Instance objects, at least one")
    taken = [instance for instance in instances if adapter.supports(instance)]
    if not taken:
        raise InvalidParameterError(
            f"{adapter.name} takes none of the {len(instances)} instances; give others"
        )
    return taken
