"""SpecHub: two drafts, one of which is always the most likely token (Sun et al., EMNLP 2024)."""

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
    """SpecHub's transport for its pairs of drafts, of which one is the hub a, the top token of p.

    For i ≠ a the drafts are (i, a) with probability p(i), (a, i) with p(a) p(i) / (1 − p(a))
    (`HubPairs`).  As published ([sun2024spechub]_), the plan gives each token i what it can from
    its first pair, then from its second, and all that is left to the hub:

    - drafts (i, a): accept i with probability min(1, q(i)/p(i));
    - drafts (a, i): accept i, with mass min(p(a) p(i) / (1 − p(a)), max(q(i) − p(i), 0)) in all;
    - otherwise draw from the residual ∝ q less the accepted mass, which holds all of q(a).

    Token i is accepted with mass min(q(i), p(i) / (1 − p(a))) in all, so that

        α = q(a) + Σ_{i ≠ a} min(q(i), p(i) / (1 − p(a)))

    the optimum for these pairs, and that of `GreedyRule` with k = 2: the sets of drafts have the
    same distribution.  The published plan accepts the hub by a test of its own before it draws from
    what is left over; to draw both from one residual gives Y the same distribution given the
    drafts.

    Parameters
    ----------
    problem : Problem
        With k = 2.  If the hub has all the mass of p, it is the only draft.

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
                f"SpecHub pairs two drafts, the problem has k = {self.problem.k}; use GreedyRule, "
                "which has the same acceptance at k = 2, for other numbers"
            )

    @cached_property
    def drafts(self) -> HubPairs:
        """Pairs of the hub and another token, in either order."""
        return self.problem.drafts_as(HubPairs)

    uniforms_per_selection = 2
    """One coin for the draft that is not the hub, one uniform for the residual: 2."""

    @cached_property
    def _accept_by_position(self) -> tuple[Probs, Probs]:
        """Probability of accepting each token as the first and as the second draft: arrays [n].

        Both are 0 at the hub, which only the residual gives.
        """
        first, second = self._pair_probs
        by_first = acceptance_ratio(self.problem.target, first) * self._others
        left = self.problem.target - first * by_first
        by_second = acceptance_ratio(np.maximum(left, 0 * left), second) * self._others
        return read_only(by_first), read_only(by_second)

    @cached_property
    def accepted_mass(self) -> Probs:
        """Mass of each token output as an accepted draft other than the hub: array [n]."""
        (first, second), (by_first, by_second) = self._pair_probs, self._accept_by_position
        return read_only(first * by_first + second * by_second)

    @property
    def acceptance(self) -> Number:
        """Acceptance probability Pr(Y ∈ {X_1, X_2}), residual draws of the hub included."""
        hub = self.residual.probs(self.problem.n)[~self._others].sum()
        return at_most_one(self.acceptance_by_test + (1 - self.acceptance_by_test) * hub)

    @cached_property
    def _others(self) -> npt.NDArray[np.bool_]:
        """Whether each token is not the hub: array [n]."""
        others = np.ones(self.problem.n, dtype=np.bool_)
        others[self.drafts.probs.argmax()] = False
        return read_only(others)

    @cached_property
    def _pair_probs(self) -> tuple[Probs, Probs]:
        """Masses of the drafts (i, a) and of the drafts (a, i) for each token i: arrays [n]."""
        draft = self.drafts.probs
        first = draft * self._others
        second = draft[~self._others] * (first / (first.sum() or 1))
        return read_only(first), read_only(second)

    def _accept(self, drafts: Drafts, uniforms: Uniforms) -> npt.NDArray[np.int64]:
        passed = uniforms < self._acceptance_per_draft(drafts)  # not for the hub: one at most
        return np.where(passed.any(axis=1), passed.argmax(axis=1), -1)

    def _acceptance_per_draft(self, drafts: Drafts) -> Probs:
        columns = zip(self._accept_by_position, drafts.T, strict=False)  # the hub may be alone
        return np.asarray(np.column_stack([accept[tokens] for accept, tokens in columns]))
