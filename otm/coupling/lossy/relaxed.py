"""Lossy rules that verify exactly against another target q': ensembles and cascades.

The output has exactly the relaxed target distribution q'.  Theorem 7.5 of docs/theory/lenience.md
compares these rules with the best rule of the same total variation from q.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import numpy as np
import numpy.typing as npt

from otm._core.arithmetic import Number, Probs, read_only
from otm._core.checks import Drafts, Uniforms
from otm._core.numbers import as_parameter, check_name
from otm.coupling.optimal.plan import OptimalPlan
from otm.coupling.plan import TransportPlan
from otm.problem import Problem


@dataclass(frozen=True, eq=False)
class RelaxedPlan(TransportPlan):
    """The optimal rule for a relaxed target q' instead of q.

    A subclass implements `relaxed_target`.

    Parameters
    ----------
    problem : Problem
        The draft distribution, the target distribution and the number of drafts.

    Raises
    ------
    InvalidInputError
        If `problem` is not a single `Problem`, or the rule does not support its drafts.
    """

    lossless = False
    """False, because the output has the relaxed target distribution."""

    @property
    @abstractmethod
    def relaxed_target(self) -> Probs:
        """The distribution q' of the output: array [n]."""

    @cached_property
    def _plan(self) -> OptimalPlan:
        return OptimalPlan(Problem(self.problem.draft, self.relaxed_target, self.problem.k))

    @property
    def uniforms_per_selection(self) -> int:
        """Number of uniforms of the optimal plan: k + 2."""
        return self._plan.uniforms_per_selection

    @property
    def acceptance(self) -> Number:
        """Acceptance probability α_k(p, q')."""
        return self._plan.acceptance

    def output_distribution(self) -> Probs:
        """Return the distribution of the output Y, computed from the decisions of the plan."""
        return self._plan.output_distribution()

    def _output_given(self, drafts: Drafts) -> Probs:
        return self._plan._output_given(drafts)

    def _select(self, drafts: Drafts, uniforms: Uniforms) -> npt.NDArray[np.int64]:
        return self._plan._select(drafts, uniforms)


@dataclass(frozen=True, eq=False)
class EnsemblePlan(RelaxedPlan):
    """Verify against the mixture q' = w q + (1 − w) p of target and draft distribution.

    This is the option `assistant_ensemble_weight` of Hugging Face transformers, after [wang2026]_;
    transformers supports one draft.  For one draft, no rule with the same total variation
    (1 − w) TV(p, q) accepts more.  For several drafts, some rules with this total variation accept
    more than `EnsemblePlan`.

    Parameters
    ----------
    problem : Problem
        The draft distribution, the target distribution and the number of drafts.
    weight : float or Fraction
        The weight w of the target, in [0, 1]; at w = 1 the rule is lossless.

    Raises
    ------
    InvalidInputError
        If `problem` is not a single `Problem`, or the rule does not support its drafts.
    InvalidParameterError
        If w is not in [0, 1].

    References
    ----------
    .. [wang2026] Wang et al., "DIVERSED: Relaxed Speculative Decoding via Dynamic Ensemble
       Verification", arXiv 2604.07622.

    Examples
    --------
    >>> from otm.coupling.lossy import distance_to_target
    >>> plan = EnsemblePlan(Problem([0.75, 0.25], [0.25, 0.75], k=1), 0.5)
    >>> plan.acceptance, distance_to_target(plan).total_variation
    (0.75, 0.25)
    """

    weight: Number

    def __post_init__(self) -> None:
        self._check_problem()
        weight = as_parameter(self.weight, "weight", least=0, most=1, exact=self.problem.exact)
        object.__setattr__(self, "weight", weight)

    @cached_property
    def relaxed_target(self) -> Probs:
        """The mixture w q + (1 − w) p: array [n]."""
        draft, target = self.problem.draft, self.problem.target
        return read_only(np.asarray(self.weight * target + (1 - self.weight) * draft))


@dataclass(frozen=True, eq=False)
class CascadePlan(RelaxedPlan):
    """Keep a draft token if it is probable enough; otherwise draw a token from the target.

    These are the token-specific rules of speculative cascades, as we read [narasimhan2025]_,
    section 4.4.  A token x is deferred to the target if

    - "V1": p(x) < max q − a;
    - "V2": q(x) < max q − a;
    - "V3": q(x) < (1 − a) max q.

    Each token that is not deferred keeps its draft probability in q'.  The draft mass of the
    deferred tokens is distributed according to q.  Other cascades defer all tokens at a
    position or none, depending on max p or on the distance of p and q.  Such cascades of whole
    positions are ensembles with weight 0 or 1 at each position.

    Parameters
    ----------
    problem : Problem
        The draft distribution, the target distribution and the number of drafts.
    slack : float or Fraction
        The slack a in [0, 1].
    version : {"V1", "V2", "V3"}, optional
        The test.

    Raises
    ------
    InvalidInputError
        If `problem` is not a single `Problem`, or the rule does not support its drafts.
    InvalidParameterError
        If a is not in [0, 1].
    UnknownMethodError
        If `version` is not "V1", "V2" or "V3".

    References
    ----------
    .. [narasimhan2025] Narasimhan et al., "Faster Cascades via Speculative Decoding", ICLR 2025.

    Examples
    --------
    >>> plan = CascadePlan(Problem([0.5, 0.25, 0.25], [0.25, 0.5, 0.25], k=1), 0.25, "V2")
    >>> plan.relaxed_target                    # every token has q(x) ≥ 0.5 − 0.25
    array([0.5 , 0.25, 0.25])
    >>> plan.acceptance
    1.0
    """

    slack: Number
    version: Literal["V1", "V2", "V3"] = "V3"

    def __post_init__(self) -> None:
        self._check_problem()
        slack = as_parameter(self.slack, "slack", least=0, most=1, exact=self.problem.exact)
        object.__setattr__(self, "slack", slack)
        check_name("version", self.version, ("V1", "V2", "V3"))

    @cached_property
    def relaxed_target(self) -> Probs:
        """The draft mass of kept tokens, plus the deferred mass times the target: array [n]."""
        draft, target = self.problem.draft, self.problem.target
        tested = draft if self.version == "V1" else target
        largest = target.max()
        least = (1 - self.slack) * largest if self.version == "V3" else largest - self.slack
        kept = np.where(tested >= least, draft, 0 * draft)
        return read_only(np.asarray(kept + (1 - kept.sum()) * target))
