"""The optimal rule for greedy drafts (Hu et al., ICLR 2025)."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from otm._core.arithmetic import Number, Probs, at_most_one, read_only
from otm._core.checks import Drafts, Uniforms
from otm.coupling.residual import ResidualPlan, acceptance_ratio
from otm.drafts.greedy import Greedy


@dataclass(frozen=True, eq=False)
class GreedyRule(ResidualPlan):
    """Maximal coupling of the target with the only random draft of the greedy drafts.

    The first k − 1 drafts are the set A of the most probable tokens of p.  The last draft is drawn
    from p̃, which is p restricted to the other tokens (`Greedy`).  The last draft is accepted with
    probability min(1, q/p̃); otherwise the output is drawn from the residual ∝ max(q − p̃, 0).
    Because p̃ = 0 on A, the residual contains all target mass of A, and a residual token in A is a
    draft.  So the acceptance probability α is

        α = q(A) + Σ_{x ∉ A} min(q(x), p̃(x))

    This probability is the optimum for greedy drafts ([hu2025]_).  It can be larger or smaller than
    α_k, the optimum for k i.i.d. drafts.

    Parameters
    ----------
    problem : Problem
        The draft distribution, the target distribution and the number of drafts.  If fewer than k
        tokens have p > 0, all of them are drafted, and `plan.drafts.k` is their number.

    Raises
    ------
    InvalidInputError
        If `problem` is not a single `Problem`, or the rule does not support its drafts.

    References
    ----------
    .. [hu2025] Hu et al., "Towards Optimal Multi-draft Speculative Decoding", ICLR 2025.

    Examples
    --------
    >>> from otm import Problem
    >>> plan = GreedyRule(Problem([0.5, 0.25, 0.25], [0.25, 0.125, 0.625], k=2))
    >>> plan.drafts.sure
    array([0])
    >>> plan.acceptance, plan.acceptance_by_test
    (0.875, 0.625)
    """

    @cached_property
    def drafts(self) -> Greedy:
        """The k − 1 most probable tokens and one random draft from the other tokens."""
        return self.problem.drafts_as(Greedy, self.problem.k)

    uniforms_per_selection = 2
    """Two uniforms: one to test the last draft, one to draw from the residual."""

    @cached_property
    def accept_probability(self) -> Probs:
        """Probability min(1, q/p̃) of accepting each token as the last draft: array [n]."""
        return read_only(acceptance_ratio(self.problem.target, self.drafts.last))

    @cached_property
    def accepted_mass(self) -> Probs:
        """Probability min(q, p̃) that each token is output as the accepted last draft: array [n]."""
        return read_only(self.drafts.last * self.accept_probability)

    @property
    def acceptance(self) -> Number:
        """Acceptance probability Pr(Y ∈ {X_1, …, X_k}), including tokens of A from the residual."""
        sure = self.residual.probs(self.problem.n)[self.drafts.sure].sum()
        return at_most_one(self.acceptance_by_test + (1 - self.acceptance_by_test) * sure)

    def _accept(self, drafts: Drafts, uniforms: Uniforms) -> npt.NDArray[np.int64]:
        accepted = uniforms[:, 0] < self.accept_probability[drafts[:, -1]]
        return np.where(accepted, self.drafts.k - 1, -1)

    def _acceptance_per_draft(self, drafts: Drafts) -> Probs:
        table = np.zeros_like(self.problem.draft, shape=drafts.shape)
        table[:, -1] = self.accept_probability[drafts[:, -1]]
        return table
