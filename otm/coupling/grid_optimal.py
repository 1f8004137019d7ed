"""A nearly optimal plan on a fixed grid of ratios q/p, as in the kernels (docs/theory/grid.md)."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from otm._core.arithmetic import (
    Number,
    Probs,
    at_most_one,
    is_exact,
    power_slopes,
    read_only,
    running_sum,
    scatter_sum,
    zeros,
)
from otm._core.checks import Drafts, Uniforms
from otm._core.numbers import as_positive
from otm._core.probs.sampling import chunks
from otm.coupling.optimal.slots import winning_probabilities
from otm.coupling.optimal.swaps import Slots, match_amounts
from otm.coupling.residual import ResidualPlan, acceptance_ratio
from otm.kernels.optimal.numpy import (
    STEPS,
    Places,
    Table,
    bin_tokens,
    choose_slots,
    deterministic_count,
    swap_partners,
    winner_probs,
)


@dataclass(frozen=True, eq=False)
class GridOptimal(ResidualPlan):
    """The optimal plan with slots and swaps for bins of a grid of ratios q/p.

    This is the rule "grid optimal" of `otm.kernels`.  Each token is in one bin of a fixed grid of
    ratios.  A draft takes the slot of its bin or, with a probability that depends on its ratio, the
    slot of a partner bin.  The draft in the highest slot wins and is accepted with probability
    min(1, q/v'), where v' is the distribution of the winner.  The rule is lossless for every grid
    (Theorem 11.2 of docs/theory/grid.md); the grid makes the acceptance slightly smaller.

    Parameters
    ----------
    problem : Problem
        The draft distribution, the target distribution and the number of drafts.
    steps : int, optional
        Number of bins for each octave of ratios above 1/2; the kernels use the default number.

    Raises
    ------
    InvalidInputError
        If `problem` is not a single `Problem`, or the rule does not support its drafts.
    InvalidParameterError
        If the number of bins is not an integer of at least 1.

    Examples
    --------
    >>> from otm import Problem
    >>> plan = GridOptimal(Problem([0.75, 0.25], [0.25, 0.75], k=2))
    >>> round(plan.acceptance, 4)   # the optimum is 0.6875
    0.6875
    """

    steps: int = STEPS

    def __post_init__(self) -> None:
        self._check_problem()
        as_positive(self.steps, "steps")

    @property
    def uniforms_per_selection(self) -> int:
        """One uniform for the slot of each draft, one for the test, one for the residual: k + 2."""
        return self.problem.k + 2

    @cached_property
    def winner_distribution(self) -> Probs:
        """Distribution v' of the winning draft: array [n]."""
        places, table = self._node
        return read_only(winner_probs(self.problem.draft, places, table))

    @cached_property
    def accept_probability(self) -> Probs:
        """Probability min(1, q/v') of accepting each token if it wins: array [n]."""
        return read_only(acceptance_ratio(self.problem.target, self.winner_distribution))

    @cached_property
    def accepted_mass(self) -> Probs:
        """Probability that each token is output as an accepted draft: array [n]."""
        return read_only(self.winner_distribution * self.accept_probability)

    @cached_property
    def _node(self) -> tuple[Places, Table]:
        k = self.problem.k
        node = bin_tokens(
            self.problem.target, self.problem.draft, deterministic_count(k), k, self.steps
        )
        for array in (*node[0], *node[1]):
            read_only(array)
        return node

    def _accept(self, drafts: Drafts, uniforms: Uniforms) -> npt.NDArray[np.int64]:
        places, table = self._node
        k = self.problem.k
        drafted = Places(places.bin[drafts], places.share[drafts])
        best = choose_slots(table, drafted, uniforms[:, :k]).argmax(axis=1)
        token = np.take_along_axis(drafts, best[:, None], axis=1)[:, 0]
        return np.where(uniforms[:, k] < self.accept_probability[token], best, -1)

    def _acceptance_per_draft(self, drafts: Drafts) -> Probs:
        winning = [
            winning_probabilities([self._slot_distribution(x) for x in row]) for row in drafts
        ]
        accepted: Probs = np.reshape(winning, drafts.shape) * self.accept_probability[drafts]
        return accepted

    @property
    def acceptance(self) -> Number:
        """Acceptance probability Pr(Y ∈ {X_1, …, X_k}).

        The probability is larger than `acceptance_by_test` if the token from the residual can equal
        a draft in a lower slot than the rejected winner.
        """
        by_test, k = self.acceptance_by_test, self.problem.k
        target, draft = self.problem.target, self.problem.draft
        residual = self.residual.probs(self.problem.n)
        rejected = self._by_slot(draft * (1 - self.accept_probability))
        everything = self._by_slot(draft)
        by_residual = 0 * by_test
        # Only drafts that can be in a slot below a rejected winner count.  Rejected or residual
        # mass below this relative size is a rounding error.
        rounding = 0 if is_exact(draft) else 2.0**-48
        top = np.flatnonzero(rejected > rounding * everything).max(initial=-1)
        lowest = np.arange(rejected.size)
        np.minimum.at(lowest, *self._moves[:2])
        is_residual = target - self.winner_distribution > rounding * target
        hits = np.flatnonzero(is_residual & (draft > 0) & (lowest[self._node[0].bin] <= top))
        for chunk in chunks(hits.size, rejected.size, 1 << 20):
            tokens = hits[chunk]
            own = (self._slot_distributions(tokens).T * draft[tokens]).T
            others = np.maximum(everything - own, 0)
            # This is the probability that the winner is rejected and no draft is the token.
            missed = (rejected * power_slopes(running_sum(others, from_zero=True).T, k).T).sum(
                axis=1
            )
            by_residual += (residual[tokens] * np.maximum(1 - by_test - missed, 0)).sum()
        return at_most_one(by_test + by_residual)

    @cached_property
    def _moves(self) -> tuple[Slots, Slots, Probs]:
        """Bin, slot and rate of each move; the rate is per unit of `_move_weight`: arrays [M]."""
        table = self._node[1]
        # `choose_slots` uses the same pairs of bins.
        lacking = np.diff(table.lack - table.excess, prepend=0 * table.lack[:1])
        moves = match_amounts(lacking, table.slopes).moves
        own, slot, mass = (each[moves.mass > 0] for each in moves)
        rate = mass / swap_partners(table.lack, table.excess, own)[2]
        return read_only(own), read_only(slot), read_only(rate)

    @cached_property
    def _move_weight(self) -> Probs:
        """Factor of the move rates for each token: the change of its win ratio, array [n]."""
        places, table = self._node
        ratio = table.win[places.bin] + places.share * table.rise[places.bin]
        return read_only(abs(ratio - table.slopes[places.bin]))

    def _by_slot(self, weights: Probs) -> Probs:
        """Return the sum of draft weights in each slot, after moves: `[n] → [G]`."""
        (bins, _), table = self._node
        (own, slot, rate), size = self._moves, table.win.size
        stay, moving = (scatter_sum(bins, x, size) for x in (weights, weights * self._move_weight))
        moved = moving[own] * rate
        return np.asarray(stay - scatter_sum(own, moved, size) + scatter_sum(slot, moved, size))

    def _slot_distributions(self, tokens: Slots) -> Probs:
        """Return the distribution of the slot of a draft, for each token: `[Y] → [Y, G]`."""
        bins, (own, slot, rate) = self._node[0].bin[tokens], self._moves
        probs = zeros((tokens.size, self._node[1].win.size), self.problem.draft)
        probs[np.arange(tokens.size), bins] += 1
        row, move = np.nonzero(bins[:, None] == own)
        moved = self._move_weight[tokens[row]] * rate[move]
        np.add.at(probs, (row, slot[move]), moved)
        np.subtract.at(probs, (row, bins[row]), moved)
        return probs

    def _slot_distribution(self, token: int) -> tuple[Slots, Probs]:
        """Return the possible slots of a draft in ascending order, and their probabilities."""
        (probs,) = self._slot_distributions(np.array([token]))
        slots = np.flatnonzero(probs)
        return slots, probs[slots]
