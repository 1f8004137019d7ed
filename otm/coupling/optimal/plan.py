"""An exactly optimal rule for k i.i.d. drafts, at any vocabulary size: slots and swaps.

Strassen's theorem proves that an optimal rule of this kind exists.  If each draft has a uniform
priority U and the highest priority wins, the winner has the distribution p(y) E[k U^(k−1) | y].  So
a martingale coupling of the target win ratio t (under p) with k U^(k−1) is enough.  Slots and swaps
define such a martingale coupling.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from operator import truediv

import numpy as np
import numpy.typing as npt

from otm._core.arithmetic import Probs, read_only, zeros
from otm._core.checks import Drafts, Uniforms
from otm._core.ratios.keys import blocks, ratio_of
from otm.coupling.optimal.slots import SlotTable, winning_probabilities
from otm.coupling.optimal.swaps import Slots, TargetWinRatio, target_win_ratio
from otm.coupling.residual import ResidualPlan, acceptance_ratio
from otm.errors import InvalidDraftCountError

LARGEST_COUNT = 2**30
"""Largest k in floats; up to this k, the measured loss of acceptance is below 1e-7.

The proved bound on the loss also grows with the number of bins (Theorem 5.8 of
docs/theory/optimal-plan.md).
"""

FEW = 16
"""Largest number of drafts for which Python floats are faster than arrays."""


@dataclass(frozen=True, eq=False)
class OptimalPlan(ResidualPlan):
    """The optimal transport plan of OTM-k, with acceptance probability α_k.

    This construction is new.  Theorems 5.1 to 5.3 of docs/theory/optimal-plan.md prove that the
    plan is optimal; Theorem 5.4 proves that it is lossless for every table.

    Tokens are grouped in bins by the ratio q/p, with one bin for each ratio if the tokens are few
    or the numbers are fractions.  A draft takes the slot of its bin or, with a probability from a
    table, the slot of a partner bin.  The draft in the highest slot wins (the first one, if several
    drafts share the slot).  The winner is accepted with probability min(1, q/v'), where v' is the
    distribution of the winner; otherwise the output is drawn from the residual ∝ max(q − v', 0).

    The distribution v' is recomputed from the stored table.  So the output distribution is q up to
    a few roundings, for every k (Theorem 5.7).  In floats, rounding of the table can reduce the
    acceptance, by about k · 2^−53 in measurements, but the plan stays lossless.  In floats,
    `acceptance` is a lower bound on Pr(Y ∈ drafts); for fractions, both are equal to α_k.

    Parameters
    ----------
    problem : Problem
        The draft distribution, the target distribution and the number of drafts.

    Raises
    ------
    InvalidInputError
        If `problem` is not a single `Problem`, or the rule does not support its drafts.
    InvalidDraftCountError
        If the problem has floats and more than 2^30 drafts, because rounding of the moves would
        reduce the acceptance.

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

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.problem.k > LARGEST_COUNT and not self.problem.exact:
            raise InvalidDraftCountError(
                f"k = {self.problem.k:,}; in floats the optimal plan supports at most "
                f"{LARGEST_COUNT:,} drafts, because rounding to 2^−53 would reduce acceptance; "
                "otm.alpha supports any k"
            )

    @property
    def uniforms_per_selection(self) -> int:
        """One uniform for the slot of each draft, one for the test, one for the residual: k + 2."""
        return self.problem.k + 2

    @cached_property
    def slots(self) -> SlotTable:
        """The table of slots that the drafts of each bin take."""
        return SlotTable.build(self._target_win_ratio, self.problem.k)

    @cached_property
    def _target_win_ratio(self) -> TargetWinRatio:
        """Target value of Pr(the winner is the token) / p(token), for the tokens of each bin."""
        return target_win_ratio(self.problem)

    @property
    def target_mass(self) -> Probs:
        """Upper bound on the accepted mass of each token: array [n]; here the target."""
        return self.problem.target

    @cached_property
    def winner_distribution(self) -> Probs:
        """Distribution v' of the winning draft, computed from the stored table: array [n]."""
        probs = zeros(self.problem.n, self.problem.draft)
        for tokens, draft, target in blocks(self.problem.draft, self.problem.target):
            probs[tokens] = draft * self._win_ratio(*self.slots.place(ratio_of(draft, target)))
        return read_only(probs)

    def _win_ratio(self, bins: Slots, rates: Probs) -> Probs:
        """Return Pr(the winner is the token) / p(token), from the bins and rates of tokens."""
        slope, added = self.slots.win_ratio
        return np.asarray(slope.take(bins) + added.take(bins) * rates)

    @cached_property
    def accept_probability(self) -> Probs:
        """Probability min(1, q/v') of accepting each token if it wins: array [n]."""
        return read_only(acceptance_ratio(self.target_mass, self.winner_distribution))

    @cached_property
    def accepted_mass(self) -> Probs:
        """Probability that each token is output as an accepted draft: array [n]."""
        return read_only(self.winner_distribution * self.accept_probability)

    def _accept(self, drafts: Drafts, uniforms: Uniforms) -> npt.NDArray[np.int64]:
        if drafts.shape[0] == 1 and drafts.size <= FEW and not self.problem.exact:
            return np.array([self._accept_few(drafts[0], uniforms[0].tolist())], dtype=np.int64)
        draft = self.problem.draft.take(drafts)
        bins, rates = self.slots.place(ratio_of(draft, self.problem.target.take(drafts)))
        winner: npt.NDArray[np.int64] = self.slots.slots_of(bins, rates, uniforms[:, :-1]).argmax(1)
        at = winner + np.arange(0, drafts.size, drafts.shape[1])
        winner_probs = draft.take(at) * self._win_ratio(bins.take(at), rates.take(at))
        accept = acceptance_ratio(self.target_mass.take(drafts.take(at)), winner_probs)
        winner[~(uniforms[:, -1] < accept)] = -1
        return winner

    def _accept_few(self, drafts: Drafts, uniforms: list[float]) -> int:
        """Equivalent to `_accept` for one set of few drafts in floats, but faster."""
        draft = self.problem.draft.take(drafts).tolist()
        target = self.problem.target.take(drafts).tolist()
        table = self.slots
        bins, rates = table.place_few(list(map(truediv, target, draft)))
        slots = table.slots_of_few(bins, rates, uniforms)
        winner = slots.index(max(slots))
        slope, added = (each.item(bins[winner]) for each in table.win_ratio)
        winner_prob = draft[winner] * (slope + added * rates[winner])
        mass = self.target_mass.item(drafts[winner])
        accept = mass > 0 if winner_prob <= 0 else mass / winner_prob
        return winner if uniforms[-1] < accept else -1

    def slot_distribution(self, token: int) -> tuple[Slots, Probs]:
        """Return the possible slots of a drafted token, ascending, and their probabilities.

        Parameters
        ----------
        token : int
            Position of the token in `problem.tokens`; its draft probability must be positive.

        Returns
        -------
        tuple of (int array [s], array [s])
            Indices in `slots.bins`, and probabilities that sum to one.
        """
        ratio = ratio_of(self.problem.draft[[token]], self.problem.target[[token]])
        (place,), (rate,) = self.slots.place(ratio)
        return self.slots.slot_distribution(place, rate)

    def _acceptance_per_draft(self, drafts: Drafts) -> Probs:
        winning = [
            winning_probabilities([self.slot_distribution(x) for x in row]) for row in drafts
        ]
        return np.asarray(np.reshape(winning, drafts.shape) * self.accept_probability[drafts])
