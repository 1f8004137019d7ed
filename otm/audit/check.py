"""The audit: a verifier in, a report out, by the first of three methods that works."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Sequence
from typing import Any

from otm._core.display.progress import Progress, watching
from otm._core.numbers import as_integer, as_level, as_positive, as_real, check_name
from otm._core.optional import check_installed
from otm.audit.adapters.base import Adapter, Failure, Instance, undisturbed
from otm.audit.adapters.kinds import as_adapter
from otm.audit.findings import Findings
from otm.audit.instances import FOR_SAMPLING, INSTANCES
from otm.audit.intercept.draws import OwnDraws, with_own_draws
from otm.audit.larger_instances import MOST_DRAFTS, MOST_TOKENS, larger_instances, of_size
from otm.audit.observe.methods import (
    AT_LEAST,
    METHODS,
    NEEDED,
    SHARE,
    Effort,
    refuse_values_of_noise,
    sampled,
)
from otm.audit.observe.observation import UnsuitedError
from otm.audit.report import Report
from otm.errors import InvalidParameterError
from otm.testing.statistics import LEAST_DELTA

SECONDS = 40.0
"""Longest time of an audit, before the additional seconds of `otm.audit.observe.methods`."""

FOR_SLOW = (*NEEDED, "three tokens")
"""Names of the instances for code that is slow."""

FIRST = (*NEEDED, "40 tokens", "five tokens back", "four drafts", "zeros", "three tokens")
"""Names of the first instances, one of each kind, in case the time does not suffice for all."""

LOOKED_AT = ("five tokens back", "drafts from far back", "four drafts")
"""Names of larger instances that are sampled where breakpoints leave some out."""


def lossless(
    verifier: Any,
    *,
    kind: str | None = None,
    method: str | None = None,
    instances: Sequence[Instance] | None = None,
    vocabulary: int | None = None,
    gamma: int | None = None,
    prompt: Sequence[int] | None = None,
    examples: int = 50,
    false_alarms: float = 1e-6,
    delta: float = 0.03,
    max_runs: int = 1_000_000,
    max_seconds: float = SECONDS,
    tolerance: float = 1e-6,
    seed: int = 0,
    progress: Progress | None = None,
    slow: bool = False,
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
        A function as `otm.audit.chain`, `token_rule`, `loop`, `chains`, `tree`, `batch`, `stateful`
        or `windowed` take it; a `DeviceVerifier` of `otm.decoding`, of which one step is audited;
        or what the former and the adapters of other libraries return.
    kind : str, optional
        "chain", "token", "loop", "chains", "tree", "batch", "stateful" or "windowed"; may be left
        out for a function of `target_probs`, `draft_probs`,
        `draft_tokens` and perhaps more, which is a chain, and for a rule of `otm.coupling`.
    method : str, optional
        "exact paths", "breakpoints" or "Monte Carlo"; the first that serves if left out.
    instances : sequence of Instance, optional
        Pairs of models in place of those that come with the audit.
    vocabulary, gamma : int, optional
        Number of tokens, and of drafts γ of a chain, of more pairs of models.
    prompt : sequence of int, optional
        Prompt of more pairs of models.
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
    max_seconds : float, optional
        Longest time of the audit, in seconds.  Monte Carlo after another method, and the comparison
        with known mistakes, may each take a quarter of it more, but at most ten seconds.  A run
        that has begun is finished.  If no time is left for a whole kind of pairs, or for enough
        runs, a verifier without a deviation is "undecided".
    tolerance : float, optional
        Deviations (TV) up to this are taken for rounding.
    seed : int, optional
        Of all that is random in the audit.
    progress : callable, optional
        Takes what is worked on, its number and how many there are, 0 if unknown.  If left out,
        audits of more than two seconds say so in a line on standard error, on terminals only.
    slow : bool, optional
        For code that takes hundredths of a second or more for a run, such as kernels in an
        interpreter: a few instances, no search, a coarser look and about a minute in all.

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
      This is evidence, not a proof: other models were not tried, none of more than 300 tokens, ...
    """
    adapter = as_adapter(verifier, kind)
    seconds = as_real(max_seconds, "max_seconds", above=0)
    effort = Effort(
        examples=0 if slow else as_integer(examples, "examples", 0),
        false_alarms=as_level(false_alarms, "false_alarms"),
        delta=as_real(delta, "delta", above=LEAST_DELTA, below=1),
        max_runs=as_positive(max_runs, "max_runs"),
        tolerance=as_level(tolerance, "tolerance"),
        seed=as_integer(seed, "seed", 0),
        deadline=time.monotonic() + seconds,
        at_least=min(AT_LEAST, SHARE * seconds),
        slow=slow,
    )
    if method is not None:
        check_name("method", method, METHODS)
    if effort.examples and method != "Monte Carlo":
        check_installed("hypothesis", advice="or do not search, with examples 0")  # not in the end
    larger = _of_size(vocabulary, gamma, prompt, effort.seed)
    effort = dataclasses.replace(effort, asked=frozenset(larger))
    why_not: list[str] = []
    for name in METHODS if method is None else (method,):
        by_sampling = name == "Monte Carlo"
        names = FOR_SLOW if slow else FOR_SAMPLING if by_sampling else None
        more = larger if slow else [*adapter.more, *larger]
        chosen = _instances(adapter, instances, more, names)
        given = adapter if by_sampling else with_own_draws(adapter)
        try:
            with undisturbed(effort.seed), watching(progress, name) as watch:
                effort = dataclasses.replace(effort, watch=watch)
                findings = METHODS[name](given, chosen, effort)
                if isinstance(given, OwnDraws):
                    _refuse_crashes(findings)
                    if given.reset:
                        raise UnsuitedError("it sets the state of a global generator")
                    refuse_values_of_noise(given, findings.smallest is not None)
                if name == "breakpoints" and instances is None and not slow:
                    others = _look_at_larger(adapter, findings, effort)
                    findings = dataclasses.replace(findings, sampled=others)
                    if others is not None and others.deviating:
                        seen = "isolated outcomes alone" if findings.deviating else "no deviation"
                        why_not.append(f"{name}: {seen}, but {findings.skipped} pairs left out")
                        return others.report(adapter, "Monte Carlo", tuple(why_not), effort.until())
                return findings.report(given, name, tuple(why_not), effort.until())
        except UnsuitedError as reason:
            why_not.append(f"{name}: {reason}")
    raise InvalidParameterError(
        f"{adapter.name} cannot be audited by {'; by '.join(why_not)}; choose another method or "
        "smaller instances"
    )


def _look_at_larger(adapter: Adapter, findings: Findings, effort: Effort) -> Findings | None:
    """Sample for some seconds on larger instances, if some were left out."""
    chosen = [larger_instances()[name] for name in LOOKED_AT]
    chosen = [instance for instance in chosen if adapter.supports(instance)]
    seen = [*findings.deviating, *([findings.smallest] if findings.smallest else [])]
    is_off = any(each.is_off(effort.tolerance) for each in seen)  # by more than isolated outcomes
    if is_off or not findings.skipped or not chosen:
        return None
    quick = dataclasses.replace(effort, slow=True, deadline=time.monotonic() + effort.at_least)
    try:
        return sampled(adapter, chosen, quick)
    except UnsuitedError:  # a run takes too many uniforms
        return None


def _refuse_crashes(findings: Findings) -> None:
    """Leave a verifier that crashes with the audit's draws, maybe for them, to a later method."""
    for seen in findings.observations:
        for outcome in seen.probs:
            if isinstance(outcome, Failure) and outcome.crashed:
                raise UnsuitedError(f"with draws from uniforms of the audit it {outcome.text}")


def _of_size(
    vocabulary: int | None, gamma: int | None, prompt: Sequence[int] | None, seed: int
) -> list[Instance]:
    """Make instances of the sizes asked for, if any."""
    if vocabulary is None and gamma is None and prompt is None:
        return []
    vocabulary = (
        None if vocabulary is None else as_integer(vocabulary, "vocabulary", 2, MOST_TOKENS)
    )
    gamma = None if gamma is None else as_integer(gamma, "gamma", 1, MOST_DRAFTS)
    if prompt is not None:
        prompt = tuple(
            as_integer(token, "prompt", 0, (vocabulary or MOST_TOKENS) - 1) for token in prompt
        )
        if not prompt:
            raise InvalidParameterError("the prompt is empty; give at least one token")
    return of_size(vocabulary, gamma, prompt, seed)


def _instances(
    adapter: Adapter,
    instances: Sequence[Instance] | None,
    more: Sequence[Instance],
    names: Sequence[str] | None,
) -> Sequence[Instance]:
    """Choose the instances that a verifier takes, those of some names if any are given."""
    if instances is None:
        known = INSTANCES | larger_instances()
        rest = () if names else [known[name] for name in known if name not in FIRST]
        instances = [*(known[name] for name in names or FIRST), *more, *rest]
    else:
        instances = [*instances, *more]
    if not instances or not all(isinstance(instance, Instance) for instance in instances):
        raise InvalidParameterError("`instances` must hold Instance objects, at least one")
    taken = [instance for instance in instances if adapter.supports(instance)]
    if not taken:
        raise InvalidParameterError(
            f"{adapter.name} takes none of the {len(instances)} instances; give others"
        )
    return taken
