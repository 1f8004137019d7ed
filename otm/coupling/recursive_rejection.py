"""Recursive (multi-round) rejection of i.i.d. drafts (SpecInfer; SpecTr, appendix B.3)."""

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
"""Largest number of rounds that are computed; each round takes O(n) time."""


@dataclass(frozen=True, eq=False)
class RecursiveRejection(SequentialPlan):
    """Accept draft i with probability min(1, t_i/p); if it is rejected, test the next draft.

    Round i tests draft i against its own target t_i.  The first target is t_1 = q, and the next
    target is the residual t_{i+1} ∝ max(t_i − p, 0).  If all drafts are rejected, the output is
    drawn from t_{k+1} ([miao2024]_; compared in [sun2023]_, appendix B.3 and Figure 6).  All
    targets have the form t_i = max(q − c_i p, 0) / Z_i, with c_1 = 0, Z_1 = 1 and

        c_{i+1} = c_i + Z_i,   Z_{i+1} = Σ max(q − c_{i+1} p, 0)

    So the rule needs k pairs of scalars and no table.

    Parameters
    ----------
    problem : Problem
        The draft distribution, the target distribution and the number of drafts.

    Raises
    ------
    InvalidInputError
        If `problem` is not a single `Problem`, or the rule does not support its drafts.
    ProblemTooLargeError
        On first use, if more than `MOST_ROUNDS` rounds have positive probability.

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
        """The pairs (c_i, Z_i) of all rounds with positive probability, at most k."""
        nothing: Number = as_number(0 * self.problem.target[0])
        cap, mass = nothing, nothing + 1
        rounds: list[tuple[Number, Number]] = []
        for _ in range(self.problem.k):
            # The target of the previous round was p, so that round accepts every draft.
            if mass <= 0:
                break
            if len(rounds) == MOST_ROUNDS:
                raise ProblemTooLargeError(
                    f"recursive rejection still rejects drafts after {MOST_ROUNDS:,} of "
                    f"k = {self.problem.k:,} rounds; use k-Seq, which supports any k and accepts "
                    "at least as often"
                )
            rounds.append((cap, mass))
            # In floats, the later rounds would accept less than the rounding error.
            if cap + mass == cap:
                break
            cap = cap + mass
            left = self.problem.target - cap * self.problem.draft
            mass = as_number(left[left > 0].sum() + nothing)
        return tuple(rounds)

    @cached_property
    def accepted_mass(self) -> Probs:
        """Probability that each token is output as an accepted draft: array [n].

        The probability is a sum over the rounds, and equals min(q, c_{k+1} p) up to rounding.
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
        """Return the probability min(1, t_i/p) of accepting each token in round i ≥ 0."""
        cap, mass = self.rounds[i]
        draft = self.problem.draft[tokens]
        residual: Probs = np.maximum(self.problem.target[tokens] - cap * draft, 0 * draft)
        return acceptance_ratio(residual, mass * draft)

    def _pass_probability(self, drafts: Drafts) -> Probs:
        # Rounds with probability 0 keep the value 0.
        table = np.zeros_like(self.problem.draft, shape=drafts.shape)
        for i in range(len(self.rounds)):
            table[:, i] = self._accept_probability(i, drafts[:, i])
        return table
