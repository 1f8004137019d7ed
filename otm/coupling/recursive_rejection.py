"""Recursive (multi-round) rejection of i.i.d. drafts (SpecInfer; SpecTr appendix B.3)."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from otm._core.arithmetic import Number, Probs, as_number, read_only
from otm._core.checks import Drafts
from otm.coupling.residual import SequentialPlan, acceptance_ratio
from otm.errors import ProblemTooLargeError

MOST_ROUNDS = 10_000
"""Most rounds that are worked out, each in O(n)."""


@dataclass(frozen=True, eq=False)
class RecursiveRejection(SequentialPlan):
    """Accept draft i with probability min(1, t_i/p); on rejection go on with the residual.

    The target of the first round is t_1 = q, of the next t_{i+1} ∝ max(t_i − p, 0); after the last
    round the output is drawn from t_{k+1} ([miao2024]_; compared in [sun2023]_, appendix B.3 and
    Figure 6).  All rounds are residuals of one family: with c_1 = 0, Z_1 = 1 and

        c_{i+1} = c_i + Z_i,   Z_{i+1} = Σ max(q − c_{i+1} p, 0)

    t_i = max(q − c_i p, 0) / Z_i, so that the rule needs k scalars and no table.

    Parameters
    ----------
    problem : Problem
        The draft distribution, the target distribution and the number of drafts.

    Raises
    ------
    InvalidInputError
        If `problem` is not a single `Problem`, or the rule does not support its drafts.
    ProblemTooLargeError
        On use, if more than `MOST_ROUNDS` rounds can be reached.

    References
    ----------
    .. [miao2024] Miao et al., "SpecInfer", ASPLOS 2024.
    .. [sun2023] Sun et al., "SpecTr", NeurIPS 2023.

    Examples
    --------
    >>> from otm import Problem
    >>> plan = RecursiveRejection(Problem([0.75, 0.25], [0.25, 0.75], k=2))
    >>> round(plan.acceptance, 12)
    0.625
    """

    @cached_property
    def rounds(self) -> tuple[tuple[Number, Number], ...]:
        """The pairs (c_i, Z_i) of the rounds that can be reached, at most k."""
        nothing: Number = as_number(0 * self.problem.target[0])
        cap, mass = nothing, nothing + 1
        rounds: list[tuple[Number, Number]] = []
        for _ in range(self.problem.k):
            if mass <= 0:  # t_i = p in the round before: it accepts every draft
                break
            if len(rounds) == MOST_ROUNDS:
                raise ProblemTooLargeError(
                    f"after {MOST_ROUNDS:,} of k = {self.problem.k:,} rounds recursive rejection "
                    "still rejects drafts; k-Seq takes any k and accepts at least as much"
                )
            rounds.append((cap, mass))
            if cap + mass == cap:  # in floats: the later rounds accept nothing that can be seen
                break
            cap = cap + mass
            left = self.problem.target - cap * self.problem.draft
            mass = as_number(left[left > 0].sum() + nothing)
        return tuple(rounds)

    @cached_property
    def accepted_mass(self) -> Probs:
        """Mass of each token output as an accepted draft, summed over the rounds: array [n].

        Equal to min(q, c_{k+1} p), up to rounding.
        """
        draft = self.problem.draft
        tokens = np.arange(self.problem.n)
        accepted = 0 * draft
        reached: Number = 0 * draft[0] + 1
        for i in range(len(self.rounds)):
            of_round = draft * self._accept_probability(i, tokens)
            accepted = accepted + reached * of_round
            reached = reached * max(1 - of_round.sum(), 0)
        return read_only(accepted)

    def _accept_probability(self, i: int, tokens: npt.NDArray[np.int64]) -> Probs:
        """Probability min(1, t_i/p) of accepting drafts of these tokens in round i, from 0."""
        cap, mass = self.rounds[i]
        draft = self.problem.draft[tokens]
        left: Probs = np.maximum(self.problem.target[tokens] - cap * draft, 0 * draft)
        return acceptance_ratio(left, mass * draft)

    def _pass_probability(self, drafts: Drafts) -> Probs:
        table = np.zeros_like(self.problem.draft, shape=drafts.shape)  # rounds never reached: 0
        for i in range(len(self.rounds)):
            table[:, i] = self._accept_probability(i, drafts[:, i])
        return table
