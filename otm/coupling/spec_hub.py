"""SpecHub: two drafts, where one is always the most probable token (Sun et al., EMNLP 2024)."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from otm._core.arithmetic import Number, Probs, at_most_one, read_only
from otm._core.checks import Drafts, Uniforms
from otm.coupling.residual import ResidualPlan, acceptance_ratio
from otm.drafts.hub_pairs import HubPairs
from otm.errors import InvalidDraftCountError


@dataclass(frozen=True, eq=False)
class SpecHub(ResidualPlan):
    """SpecHub's plan for pairs of drafts, where one draft is the hub a, the top token of p.

    For i ≠ a, the drafts are (i, a) with probability p(i), and (a, i) with probability
    p(a) p(i) / (1 − p(a)) (`HubPairs`).  As published ([sun2024spechub]_), the plan accepts each
    token i first from the pair (i, a), then from the pair (a, i), and then accepts the hub:

    - For drafts (i, a), accept i with probability min(1, q(i)/p(i)).
    - For drafts (a, i), accept i with total mass min(p(a) p(i) / (1 − p(a)), max(q(i) − p(i), 0)).
    - Otherwise draw from the residual, the target minus the accepted mass; it contains all of q(a).

    The total accepted mass of token i is min(q(i), p(i) / (1 − p(a))), so

        α = q(a) + Σ_{i ≠ a} min(q(i), p(i) / (1 − p(a)))

    This acceptance α is the optimum for hub pairs.  The optimum equals that of `GreedyRule` with
    k = 2, because the sets of drafts have the same distribution.  The published plan first tests
    the hub, then draws from the residual of that test.  This class instead draws from one residual,
    which includes the hub; this gives the same distribution of Y given the drafts.

    Parameters
    ----------
    problem : Problem
        A problem with k = 2.  If p(a) = 1, the hub is the only draft.

    Raises
    ------
    InvalidInputError
        If `problem` is not a single `Problem`, or the rule does not support its drafts.
    InvalidDraftCountError
        If k is not 2.

    References
    ----------
    .. [sun2024spechub] Sun et al., "SpecHub: Provable Acceleration to Multi-Draft Speculative
       Decoding", EMNLP 2024.

    Examples
    --------
    >>> from otm import Problem
    >>> plan = SpecHub(Problem([0.5, 0.25, 0.25], [0.25, 0.125, 0.625], k=2))
    >>> plan.acceptance
    0.875
    """

    def __post_init__(self) -> None:
        self._check_problem()
        if self.problem.k != 2 and self.problem.iid:
            raise InvalidDraftCountError(
                f"SpecHub needs k = 2 drafts, but the problem has k = {self.problem.k}; use "
                "GreedyRule, which has the same acceptance at k = 2 and supports any k"
            )

    @cached_property
    def drafts(self) -> HubPairs:
        """The pairs of the hub and another token, in both orders."""
        return self.problem.drafts_as(HubPairs)

    uniforms_per_selection = 2
    """Two uniforms: one to test the draft that is not the hub, one to draw from the residual."""

    @cached_property
    def _accept_by_position(self) -> tuple[Probs, Probs]:
        """Probability of accepting each token as the first and as the second draft: arrays [n].

        Both probabilities are 0 for the hub, because the hub is drawn only from the residual.
        """
        first, second = self._pair_probs
        by_first = acceptance_ratio(self.problem.target, first) * self._others
        remaining = self.problem.target - first * by_first
        by_second = acceptance_ratio(np.maximum(remaining, 0 * remaining), second) * self._others
        return read_only(by_first), read_only(by_second)

    @cached_property
    def accepted_mass(self) -> Probs:
        """Probability that each token other than the hub is output as an accepted draft: [n]."""
        (first, second), (by_first, by_second) = self._pair_probs, self._accept_by_position
        return read_only(first * by_first + second * by_second)

    @property
    def acceptance(self) -> Number:
        """Acceptance probability Pr(Y ∈ {X_1, X_2}), including the hub from the residual."""
        hub = self.residual.probs(self.problem.n)[~self._others].sum()
        return at_most_one(self.acceptance_by_test + (1 - self.acceptance_by_test) * hub)

    @cached_property
    def _others(self) -> npt.NDArray[np.bool_]:
        """False for the hub, True for all other tokens: array [n]."""
        others = np.ones(self.problem.n, dtype=np.bool_)
        others[self.drafts.probs.argmax()] = False
        return read_only(others)

    @cached_property
    def _pair_probs(self) -> tuple[Probs, Probs]:
        """Probabilities of the pairs (i, a) and of the pairs (a, i), for each i: arrays [n]."""
        draft = self.drafts.probs
        first = draft * self._others
        second = draft[~self._others] * (first / (first.sum() or 1))
        return read_only(first), read_only(second)

    def _accept(self, drafts: Drafts, uniforms: Uniforms) -> npt.NDArray[np.int64]:
        # The hub never passes, so at most one draft of a pair does.
        passed = uniforms < self._acceptance_per_draft(drafts)
        return np.where(passed.any(axis=1), passed.argmax(axis=1), -1)

    def _acceptance_per_draft(self, drafts: Drafts) -> Probs:
        # There is only one column if the hub is the only draft.
        columns = zip(self._accept_by_position, drafts.T, strict=False)
        return np.asarray(np.column_stack([accept[tokens] for accept, tokens in columns]))
