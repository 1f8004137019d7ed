"""The optimum between fixed levels of the ratio q/p, as kernels have it (docs/theory/levels.md)."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from otm._core.arithmetic import (
    Number,
    Probs,
    at_most_one,
    power_slopes,
    read_only,
    running_sum,
    zeros,
)
from otm._core.checks import Drafts, Uniforms
from otm._core.numbers import as_positive
from otm._core.sampling import chunks
from otm.coupling.residual import ResidualPlan, acceptance_ratio
from otm.coupling.slots import Ranks, winning_probabilities
from otm.kernels.numpy.levels import STEPS, Places, Table, at_node, slot_of, winner


@dataclass(frozen=True, eq=False)
class LevelsPlan(ResidualPlan):
    """Slots and swaps between fixed levels of the ratio q/p in place of single tokens.

    What `otm.kernels` does under the name "levels": a draft takes one of the two levels around its
    ratio at random, then the slot of that level or a partner's; the highest slot wins and is
    accepted with probability min(1, q/v').  Lossless whatever the levels (Theorem 11.2 of
    docs/theory/levels.md); they cost a little acceptance.

    Parameters
    ----------
    problem : Problem
        The draft distribution, the target distribution and the number of drafts.
    steps : int, optional
        Levels for each octave of the ratio, those of the kernels if left out.

    Raises
    ------
    InvalidInputError
        If it is given no problem, one with rows, or one about other drafts.
    InvalidParameterError
        If the number of levels is not an integer of at least 1.

    Examples
    --------
    >>> from otm import Problem
    >>> plan = LevelsPlan(Problem([0.75, 0.25], [0.25, 0.75], k=2))
    >>> round(plan.acceptance, 4)   # the optimum is 0.6875
    0.6875
    """

    steps: int = STEPS

    def __post_init__(self) -> None:
        self._check_problem()
        as_positive(self.steps, "steps")

    @property
    def uniforms_per_selection(self) -> int:
        """One uniform a draft for its level, one for its slot, a coin, one for the residual."""
        return 2 * self.problem.k + 2

    @cached_property
    def winner_distribution(self) -> Probs:
        """Distribution v' of the draft that wins: array [n]."""
        places, table = self._node
        return read_only(winner(self.problem.draft, places, table))

    @cached_property
    def accept_probability(self) -> Probs:
        """Probability min(1, q/v') of accepting each token when it wins: array [n]."""
        return read_only(acceptance_ratio(self.problem.target, self.winner_distribution))

    @cached_property
    def accepted_mass(self) -> Probs:
        """Mass of each token output as an accepted draft: array [n]."""
        return read_only(self.winner_distribution * self.accept_probability)

    @cached_property
    def _node(self) -> tuple[Places, Table]:
        k = self.problem.k
        node = at_node(self.problem.target, self.problem.draft, k, k, self.steps)
        for array in (*node[0], *node[1]):
            read_only(array)
        return node

    def _accept(self, drafts: Drafts, uniforms: Uniforms) -> npt.NDArray[np.int64]:
        places, table = self._node
        k = self.problem.k
        level = places.lower[drafts] + (uniforms[:, :k] < places.share[drafts])
        slots = np.empty(drafts.shape, dtype=np.int64)
        for row, i in np.ndindex(*drafts.shape):
            slots[row, i] = slot_of(table, int(level[row, i]), uniforms[row, k + i])
        best = slots.argmax(axis=1)
        token = np.take_along_axis(drafts, best[:, None], axis=1)[:, 0]
        return np.where(uniforms[:, 2 * k] < self.accept_probability[token], best, -1)

    def _acceptance_per_draft(self, drafts: Drafts) -> Probs:
        winning = [winning_probabilities([self._slot_law(x) for x in row]) for row in drafts]
        law: Probs = np.reshape(winning, drafts.shape) * self.accept_probability[drafts]
        return law

    @property
    def acceptance(self) -> Number:
        """Acceptance probability Pr(Y ∈ {X_1, …, X_k}).

        Above `acceptance_by_test` where the residual can hit a draft in a lower slot than that of
        the draft that is rejected.
        """
        by_test, draft, k = self.acceptance_by_test, self.problem.draft, self.problem.k
        residual = self.residual.probs(self.problem.n)
        hits = np.flatnonzero((residual > 0) & (draft > 0))
        if by_test == 1 or not hits.size:
            return by_test
        rejected = self._by_slot(draft * (1 - self.accept_probability))
        everything = self._by_slot(draft)
        by_residual = 0 * by_test
        for chunk in chunks(hits.size, rejected.size, 1 << 20):
            tokens = hits[chunk]
            others = np.maximum(everything - (self._slots_of(tokens).T * draft[tokens]).T, 0)
            # a token is no draft while another one wins, and is rejected
            missed = (rejected * power_slopes(running_sum(others, from_zero=True).T, k).T).sum(
                axis=1
            )
            by_residual += (residual[tokens] * np.maximum(1 - by_test - missed, 0)).sum()
        return at_most_one(by_test + by_residual)

    def _by_slot(self, weights: Probs) -> Probs:
        """Add up weights of drafts by the slots that they take: [n] → [G]."""
        lower, share = self._node[0]
        levels = zeros(len(self._slots_of_levels), weights)
        np.add.at(levels, lower, weights * (1 - share))
        np.add.at(levels, lower + 1, weights * share)
        return np.asarray(levels @ self._slots_of_levels)

    @cached_property
    def _slots_of_levels(self) -> Probs:
        """Probability of each slot for drafts of each level: [G, G]."""
        table = self._node[1]
        moved, masses = np.diff(table.swapped), table.masses + (table.masses == 0)
        probs = zeros((masses.size, masses.size), self.problem.draft)
        np.add.at(probs, (table.low, table.high), moved / masses[table.low])
        np.add.at(probs, (table.high, table.low), moved / masses[table.high])
        probs[np.diag_indices(masses.size)] += 1 - probs.sum(axis=1)
        return read_only(probs)

    def _slots_of(self, tokens: npt.NDArray[np.int64]) -> Probs:
        """Probability of each slot for drafts of tokens: [Y] → [Y, G]."""
        lower, share = (array[tokens] for array in self._node[0])
        below, above = self._slots_of_levels[lower], self._slots_of_levels[lower + 1]
        return np.asarray((below.T * (1 - share) + above.T * share).T)

    def _slot_law(self, token: int) -> tuple[Ranks, Probs]:
        """Slots that drafts of a token can take, ascending, with their probabilities."""
        (probs,) = self._slots_of(np.array([token]))
        slots = np.flatnonzero(probs)
        return slots, probs[slots]
