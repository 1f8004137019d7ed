"""The audit: a verifier in, a report out."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from otm.audit.adapters.plain import as_subject
from otm.audit.breakpoints import by_breakpoints
from otm.audit.diagnosis import Diagnosis, Same, diagnose, fitting, same_law
from otm.audit.exact import by_paths
from otm.audit.instances import FOR_SAMPLING, INSTANCES
from otm.audit.observation import Observation, UnsuitedError
from otm.audit.report import LOSSLESS, NOT_LOSSLESS, UNDECIDED, Counterexample, Report
from otm.audit.sampling import Sampler
from otm.audit.search import Search
from otm.audit.subject import Instance, Subject, source_of
from otm.audit.surroundings import undisturbed
from otm.decoding.counts import as_integer, as_positive
from otm.errors import InvalidInputError, InvalidParameterError, ProblemTooLargeError
from otm.interval import Interval
from otm.shown import shown

__all__ = ["METHODS", "lossless"]

METHODS = ("exact paths", "breakpoints", "Monte Carlo")
"""Ways to find the law of an output, the preferred ones first."""


def lossless(
    verifier: Any,
    *,
    kind: str | None = None,
    method: str | None = None,
    instances: Sequence[Instance] | None = None,
    examples: int = 50,
    level: float = 1e-6,
    delta: float = 0.03,
    most_runs: int = 1_000_000,
    tolerance: float = 1e-6,
    seed: int = 0,
) -> Report:
    """Find out whether a verifier is lossless: whether its output has the law of the target.

    The law of the output is computed exactly where the verifier works on fractions and only
    compares its uniforms; from its breakpoints where its randomness is an argument; and by Monte
    Carlo otherwise.  It is compared with the target on telling pairs of small models, and on pairs
    that Hypothesis searches for.

    Parameters
    ----------
    verifier : callable or Subject
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
    level : float, optional
        Bound on the probability that Monte Carlo rejects a lossless verifier, on all instances
        together.
    delta : float, optional
        The deviation (TV) that Monte Carlo must see on each instance, with probability 1 − 10^−3.
    most_runs : int, optional
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
    MissingDependencyError
        If Hypothesis is not installed, and `examples` is not 0.

    Examples
    --------
    >>> from otm.coupling import KSeq
    >>> print(lossless(KSeq, examples=0))  # doctest: +ELLIPSIS
    KSeq: lossless on everything tried
      method: exact paths, ... pairs of models, ... runs
      distance to the target (TV), at worst: 0
      This is evidence, not a proof: other models were not tried.
    """
    subject = as_subject(verifier, kind)
    seed = as_integer(seed, "seed", 0)
    audit = _Audit(
        subject=subject,
        given=_taken(subject, instances),
        examples=as_integer(examples, "examples", 0),
        level=_between(level, "level", 0, 1),
        delta=_between(delta, "delta", 0, 1),
        most_runs=as_positive(most_runs, "most_runs"),
        tolerance=_between(tolerance, "tolerance", 0, 1),
        rng=np.random.default_rng(seed),
    )
    if method is not None and method not in METHODS:
        raise InvalidParameterError(
            f"method = {shown(method)}; known methods are {', '.join(map(repr, METHODS))}"
        )
    with undisturbed(seed):
        return audit.report(METHODS if method is None else (method,))


@dataclass(frozen=True)
class _Audit:
    """One audit: the subject, and the arguments of `lossless`."""

    subject: Subject
    given: Sequence[Instance] | None
    examples: int
    level: float
    delta: float
    most_runs: int
    tolerance: float
    rng: np.random.Generator

    def report(self, methods: Sequence[str]) -> Report:
        """Audit by the first method that serves."""
        ways: dict[str, Callable[[], _Findings]] = {
            "exact paths": self._by_paths,
            "breakpoints": self._by_breakpoints,
            "Monte Carlo": self._by_sampling,
        }
        reasons: list[str] = []
        for method in methods:
            try:
                return ways[method]().report(self.subject, method, tuple(reasons))
            except UnsuitedError as reason:
                reasons.append(f"{method}: {reason}")
        raise InvalidParameterError(
            f"{self.subject.name} cannot be audited by {reasons[0]}; leave the method out"
        )

    def _by_paths(self) -> _Findings:
        found = self._certain(lambda instance: by_paths(self.subject, instance), self._searched)
        again = by_paths(self.subject, found.observations[0].instance)
        if again.law != found.observations[0].law:
            raise UnsuitedError("the same uniforms do not always give the same output")
        return found

    def _by_breakpoints(self) -> _Findings:
        left = self.most_runs

        def observe(instance: Instance) -> Observation:
            nonlocal left
            seen = by_breakpoints(self.subject, instance, self.rng, left)
            left -= seen.runs
            return seen

        return self._certain(observe, self._searched // BREAKPOINTS_SEARCH)
