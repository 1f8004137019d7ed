"""The audit of a verifier in four stages: adapt, observe, compare, diagnose."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

from otm._core.display.progress import Progress
from otm._core.numbers import as_integer, as_level, as_positive, as_real, check_name
from otm._core.optional import check_installed
from otm.audit.adapters.base import Instance
from otm.audit.adapters.choice import as_adapter
from otm.audit.compare import Comparison, compare
from otm.audit.diagnose.diagnosis import NO_EXPLANATION, Explanation, explain
from otm.audit.evidence import Sampled
from otm.audit.instances import shape_of
from otm.audit.observe.methods import METHODS, observe
from otm.audit.observe.observation import Observed
from otm.audit.report import Report
from otm.audit.runs import isolated_rng_state
from otm.audit.scope import AT_LEAST, SHARE, AuditBudget, InstanceChoice, instances_of_size
from otm.testing.statistics import LEAST_DELTA

SECONDS = 40.0
"""Longest time of an audit, before the additional seconds of `otm.audit.scope`."""


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
        Called with what is worked on, its number, and how many there are (0 if unknown).  Without
        it, an audit that takes more than two seconds shows one line on standard error, on
        terminals only.
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
    methods = tuple(METHODS) if method is None else (check_name("method", method, METHODS),)
    seconds = as_real(max_seconds, "max_seconds", above=0)
    seed = as_integer(seed, "seed", 0)
    asked = instances_of_size(vocabulary, gamma, prompt, seed)
    budget = AuditBudget(
        examples=0 if slow else as_integer(examples, "examples", 0),
        false_alarms=as_level(false_alarms, "false_alarms"),
        delta=as_real(delta, "delta", above=LEAST_DELTA, below=1),
        max_runs=as_positive(max_runs, "max_runs"),
        tolerance=as_level(tolerance, "tolerance"),
        seed=seed,
        deadline=time.monotonic() + seconds,
        at_least=min(AT_LEAST, SHARE * seconds),
        slow=slow,
        asked=frozenset(asked),
    )
    if budget.examples and method != "Monte Carlo":
        check_installed("hypothesis", advice="or do not search, with examples 0")  # not in the end
    observed = observe(InstanceChoice(adapter, instances, asked, slow), budget, methods, progress)
    with isolated_rng_state(budget.seed):
        comparison = compare(observed)
        example = comparison.example
        explanation = explain(observed, example, budget.until()) if example else NO_EXPLANATION
    return _report(observed, comparison, explanation)


def _report(observed: Observed, comparison: Comparison, explanation: Explanation) -> Report:
    """Put together what the stages have found."""
    example, sampled = comparison.example, observed.sampled
    shapes = [shape_of(seen.instance) for seen in observed.seen]
    return Report(
        verifier=observed.runner.adapter.name,
        verdict=comparison.verdict,
        method=observed.method,
        why_not_exact=observed.why_not_exact,
        tv_distance=comparison.tv_distance,
        tv_interval=comparison.tv_interval,
        instances=len(observed.observations) + len(observed.searched),
        runs=observed.runs,
        skipped=observed.skipped,
        largest_instance=tuple(map(max, zip(*shapes, strict=True))),
        false_alarms=observed.false_alarms,
        delta=observed.delta,
        tolerance=observed.tolerance,
        worst_prefix=example.worst_prefix() if example else None,
        counterexample=comparison.counterexample,
        isolated=comparison.isolated,
        diagnoses=explanation.diagnoses,
        nearest=explanation.nearest,
        sampled=Sampled(len(sampled.observations), sampled.runs, sampled.delta)
        if sampled
        else None,
        left_out=observed.left_out,
        compared=explanation.compared,
        later_runs=observed.later_runs,
        slower=observed.slower,
    )
