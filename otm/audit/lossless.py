"""Audit a verifier in four stages: adapt, observe, compare, diagnose."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace
from typing import Any

from otm._core.display.progress import Progress
from otm._core.numbers import as_integer, as_level, as_positive, as_real, check_name
from otm._core.optional import check_installed
from otm.audit.adapters.base import Instance
from otm.audit.adapters.batched_loops import loops
from otm.audit.adapters.choice import as_adapter
from otm.audit.adapters.neighbours import TwinRows
from otm.audit.adapters.processed import prepared
from otm.audit.compare import Comparison, compare
from otm.audit.diagnose.diagnosis import NO_EXPLANATION, Explanation, explain
from otm.audit.evidence import Sampled
from otm.audit.instances import shape_of
from otm.audit.observe.methods import METHODS, observe
from otm.audit.observe.observation import Observed
from otm.audit.report import Report
from otm.audit.runs import isolated_rng_state
from otm.audit.scope import AT_LEAST, SHARE, AuditBudget, InstanceChoice, instances_of_size
from otm.errors import InvalidParameterError
from otm.testing.statistics import LEAST_DELTA

SECONDS = 40.0
"""Default time limit of an audit, without the additional seconds of `otm.audit.scope`."""


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
    """Audit whether a verifier is lossless: whether its output has the target's distribution.

    docs/theory/problem.md defines lossless; docs/audit.md describes the audit, which is our own
    design.

    If the verifier works on fractions and only compares its uniforms, the audit computes the output
    distribution exactly.  If the verifier's randomness is an argument, the audit computes the
    distribution from breakpoints.  Otherwise the audit estimates the distribution by Monte Carlo.
    The audit compares the output distribution with the target on pairs of small models, and on
    pairs that Hypothesis generates.

    Parameters
    ----------
    verifier : callable, DeviceVerifier or Adapter
        A function that `otm.audit.chain`, `token_rule`, `loop`, `loops`, `chains`, `tree`, `batch`,
        `stateful` or `windowed` accepts; a `DeviceVerifier` of `otm.decoding`, for an audit of one
        step; or an adapter, for example one that these functions return, or one for another
        library.
    kind : str, optional
        "chain", "token", "loop", "loops", "chains", "tree", "batch", "stateful" or "windowed".  The
        kind may be omitted for a function whose first parameters are `target_probs`, `draft_probs`
        and `draft_tokens` (kind "chain"), and for a rule of `otm.coupling`.
    method : str, optional
        "exact paths", "breakpoints" or "Monte Carlo"; by default the first method that works.
    instances : sequence of Instance, optional
        Pairs of models that replace the audit's own pairs.
    vocabulary, gamma : int, optional
        Vocabulary size and number of drafts γ of additional pairs of models.
    prompt : sequence of int, optional
        Prompt of additional pairs of models.
    examples : int, optional
        Number of pairs of models that Hypothesis generates; 0 turns the search off.  With Monte
        Carlo there is no search, because it would pick pairs on which noise looks like a deviation.
    false_alarms : float, optional
        Bound on the probability that Monte Carlo rejects a lossless verifier, over all instances.
    delta : float, optional
        The deviation (TV) that Monte Carlo must detect on each instance with probability 1 − 10^−3;
        above 10^−9.
    max_runs : int, optional
        Largest number of runs of the verifier, for breakpoints and again for Monte Carlo.
    max_seconds : float, optional
        Time limit of the audit in seconds.  Monte Carlo after another method, and the comparison
        with known mistakes, may each take additional time: a quarter of this limit, but at most ten
        seconds.
        The audit never interrupts a run.  If the time ends before enough runs are done, or before a
        whole kind of pairs is tried, a verifier without a deviation is "undecided".
    tolerance : float, optional
        Deviations (TV) up to this value count as rounding.
    seed : int, optional
        Seed of the audit's random numbers.
    progress : callable, optional
        Function that gets the name of the current work, the number of the current item and the
        number of items (0 if unknown).  By default, an audit of more than two seconds shows one
        line on standard error if that is a terminal.
    slow : bool, optional
        Whether one run takes hundredths of a second or more, as kernels in an interpreter do.  The
        audit then uses a few instances, no search, lower precision, and about a minute in all.

    Returns
    -------
    Report
        The verdict and the evidence for it.  A mistake of the verifier, such as a crash or an
        unknown token, is in the report; it raises no error.

    Raises
    ------
    InvalidParameterError
        If an argument is out of range, or if the verifier has a type that is not listed for
        `verifier`, does not support the method, or supports none of the instances.
    UnknownMethodError
        If the method or kind is unknown.
    MissingDependencyError
        If Hypothesis is not installed, `examples` is not 0 and the method is not Monte Carlo.  This
        error is raised before the first run.

    Examples
    --------
    >>> from otm.coupling import KSeq
    >>> print(lossless(KSeq, examples=0))  # doctest: +ELLIPSIS
    KSeq: lossless on everything tried, ... pairs of models by exact paths
      method: exact paths, ... pairs of models, ... runs
      largest distance to the target (TV): 0
      This is evidence, not a proof: no model with more than 300 tokens, ...
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
        asked=frozenset(prepared(adapter, each) for each in asked),
    )
    if budget.examples and method != "Monte Carlo":
        # Check this before the audit runs the verifier.
        check_installed("hypothesis", advice="or do not search, with examples 0")
    choice = InstanceChoice(adapter, instances, asked, slow)
    with closing(adapter):
        observed = observe(choice, budget, methods, progress)
        with isolated_rng_state(budget.seed):
            comparison = compare(observed)
            example = comparison.example
            explanation = explain(observed, example, budget.until()) if example else NO_EXPLANATION
        if example and not explanation.diagnoses and isinstance(adapter, loops):
            explanation = _explain_one_row(adapter, observed, budget) or explanation
    return _report(observed, comparison, explanation)


def _explain_one_row(several: loops, observed: Observed, budget: AuditBudget) -> Explanation | None:
    """Explain a loop over several prompts by the texts of one prompt alone, if these deviate."""
    pairs = [
        o.instance for o in observed.observations if not isinstance(o.instance.target, TwinRows)
    ]
    if not pairs:
        return None
    choice = InstanceChoice(several.for_one_prompt(), pairs, (), budget.slow)
    quick = replace(budget, examples=0, deadline=budget.until())
    try:
        alone = observe(choice, quick, (observed.method,), None)
    except InvalidParameterError:
        # The method does not work for one row.
        return None
    with isolated_rng_state(budget.seed):
        example = compare(alone).example
        return explain(alone, example, budget.until()) if example else None


def _report(observed: Observed, comparison: Comparison, explanation: Explanation) -> Report:
    """Build the report from the results of the stages."""
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
