"""The audit: a verifier in, a report out."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from otm._core.numbers import as_integer, as_level, as_positive, as_real, check_name
from otm.audit.adapter import Adapter, Instance
from otm.audit.adapters.plain import as_adapter
from otm.audit.findings import Findings
from otm.audit.instances import FOR_SAMPLING, INSTANCES
from otm.audit.methods import Effort, by_breakpoints, by_paths, by_sampling
from otm.audit.observation import UnsuitedError
from otm.audit.report import Report
from otm.audit.search import check_hypothesis
from otm.audit.surroundings import undisturbed
from otm.errors import InvalidParameterError
from otm.testing.statistics import LEAST_DELTA

METHODS: dict[str, Callable[[Adapter, Sequence[Instance], Effort], Findings]] = {
    "exact paths": by_paths,
    "breakpoints": by_breakpoints,
    "Monte Carlo": by_sampling,
}
"""Ways to find the law of an output, the preferred ones first."""


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
    """Find out whether a verifier is lossless: whether its output has the law of the target.

    Lossless in the sense of docs/theory/problem.md; the audit is our own design (docs/audit.md).

    The law of the output is computed exactly where the verifier works on fractions and only
    compares its uniforms; from its breakpoints where its randomness is an argument; and by Monte
    Carlo otherwise.  It is compared with the target on telling pairs of small models, and on pairs
    that Hypothesis searches for.

    Parameters
    ----------
    verifier : callable or Adapter
        A function as `otm.audit.adapters.chain`, `token_rule` or `loop` take it, or what these and
        the adapters of other libraries return.
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
        The verdict, and what it rests on.  What a verifier does wrong is in the report and raises
        nothing: a crash, or a token that does not exist.

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
    seed = as_integer(seed, "seed", 0)
    effort = Effort(
        examples=as_integer(examples, "examples", 0),
        false_alarms=as_level(false_alarms, "false_alarms"),
        delta=as_real(delta, "delta", above=LEAST_DELTA, below=1),
        max_runs=as_positive(max_runs, "max_runs"),
        tolerance=as_level(tolerance, "tolerance"),
        seed=seed,
    )
    if method is not None:
        check_name("method", method, METHODS)
    if effort.examples and method != "Monte Carlo":
        check_hypothesis()
    why_not: list[str] = []
    for name in METHODS if method is None else (method,):
        chosen = _instances(adapter, instances, few=name == "Monte Carlo")
        try:
            with undisturbed(seed):
                findings = METHODS[name](adapter, chosen, effort)
                return findings.report(adapter, name, tuple(why_not))
        except UnsuitedError as reason:
            why_not.append(f"{name}: {reason}")
    raise InvalidParameterError(
        f"{adapter.name} cannot be audited by {'; by '.join(why_not)}; choose another method or "
        "smaller instances"
    )


def _instances(
    adapter: Adapter, given: Sequence[Instance] | None, *, few: bool
) -> Sequence[Instance]:
    """Choose the instances that a verifier takes."""
    if given is None:
        given = [INSTANCES[name] for name in (FOR_SAMPLING if few else INSTANCES)]
    if not given or not all(isinstance(instance, Instance) for instance in given):
        raise InvalidParameterError("`instances` must hold Instance objects, at least one")
    taken = [instance for instance in given if adapter.supports(instance)]
    if not taken:
        raise InvalidParameterError(
            f"{adapter.name} takes none of the {len(given)} instances; give `instances` of its own"
        )
    return taken
