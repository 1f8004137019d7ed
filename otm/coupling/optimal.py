"""An exactly optimal rule for k i.i.d. drafts, at any vocabulary size: slots and swaps.

That an optimal rule of this kind exists follows from Strassen's theorem: choosing the highest of k
independent uniform priorities U gives Y the distribution p(y) E[k U^(k−1) | y], so a martingale
coupling of the wanted ratio under p with k U^(k−1) is enough.  Slots and swaps are an explicit one.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from otm._core.arithmetic import Probs, read_only, zeros
from otm._core.checks import Drafts, Uniforms
from otm.coupling.residual import ResidualPlan, acceptance_ratio
from otm.coupling.slots import SlotTable, winning_probabilities
from otm.coupling.swaps import match_swaps, optimal_win_ratio


@dataclass(frozen=True, eq=False)
class OptimalPlan(ResidualPlan):
    """The optimal transport plan of OTM-k, with acceptance probability α_k.

    Our own construction: Theorems 5.1 to 5.3 of docs/theory/optimal-plan.md prove it optimal,
    Theorem 5.4 lossless whatever its table.

    A draft takes the slot of its own token in the order of q/p or, with a probability from a
    table of at most n − 1 swaps, the slot of a partner.  The draft in the highest slot wins (the
    first of them, if several share it) and is accepted with probability min(1, q/v'), where v' is
    the distribution of the winner; otherwise the output is drawn from the residual ∝ max(q − v',
    0).

    The distribution v' is recomputed from the stored table, so that the output distribution is q up
    to the rounding of cumulative sums and of k-th powers, whatever the precision of the swaps: they
    can cost acceptance, never correctness.  `acceptance` is then a lower bound on Pr(Y ∈ drafts)
    and, in exact mode, equal to it and to α_k.

    Parameters
    ----------
    problem : Problem
        The draft distribution, the target distribution and the number of drafts.

    Raises
    ------
    InvalidInputError
        If it is given no problem, one with rows, or one about other drafts.

    Examples
    --------
    >>> from fractions import Fraction
    >>> from otm import Problem
    >>> quarter = Fraction(1, 4)
    >>> plan = OptimalPlan(Problem([3 * quarter, quarter], [quarter, 3 * quarter], k=2))
    >>> plan.acceptance
    Fraction(11, 16)
    >>> plan.output_distribution().tolist()
    [Fraction(1, 4), Fraction(3, 4)]
    """

    @property
    def uniforms_per_selection(self) -> int:
        """One uniform a draft for its slot, one coin, one for the residual: k + 2."""
        return self.problem.k + 2

    @cached_property
    def slots(self) -> SlotTable:
        """Which slots the drafts of each token take."""
        order = self.problem.by_ratio
        return SlotTable(order.draft, match_swaps(order, self.problem.k, self.win_ratio))

    @property
    def win_ratio(self) -> Probs:
        """Wanted ratio of winning to drafting, along the order of q/p: array [m]."""
        return optimal_win_ratio(self.problem)

    @property
    def target_mass(self) -> Probs:
        """Mass of each token that is accepted as far as it wins: array [n]."""
        return self.problem.target

    @cached_property
    def winner_distribution(self) -> Probs:
        """Distribution v' of the draft that wins, computed from the stored table: array [n]."""
        probs = zeros(self.problem.n, self.problem.draft)
        probs[self.problem.by_ratio.tokens] = self.slots.winner_distribution(self.problem.k)
        return read_only(probs)

    @cached_property
    def accept_probability(self) -> Probs:
        """Probability min(1, q/v') of accepting each token when it wins: array [n]."""
        return read_only(acceptance_ratio(self.target_mass, self.winner_distribution))

    @cached_property
    def accepted_mass(self) -> Probs:
        """Mass of each token output as an accepted draft: array [n]."""
        return read_only(self.winner_distribution * self.accept_probability)

    def _accept(self, drafts: Drafts, uniforms: Uniforms) -> npt.NDArray[np.int64]:
        slots = self.slots.slot_of(self.problem.by_ratio.place[drafts], uniforms[:, :-1])
        winner = slots.argmax(axis=1)
        token = np.take_along_axis(drafts, winner[:, None], axis=1)[:, 0]
        return np.where(uniforms[:, -1] < self.accept_probability[token], winner, -1)

    def _acceptance_per_draft(self, drafts: Drafts) -> Probs:
        winning = [
            winning_probabilities([self.slots.slot_law(rank) for rank in row])
            for row in self.problem.by_ratio.place[drafts]
        ]
        return np.asarray(np.reshape(winning, drafts.shape) * self.accept_probability[drafts])
