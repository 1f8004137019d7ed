"""The optimum of bins of the ratio q/p, as kernels have it (docs/theory/grid.md)."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from otm._core.arithmetic import (
    Number,
    Probs,
    at_most_one,
    power_slopes,
    read_only,
    running_sum,
    scatter_sum,
    zeros,
)
from otm._core.checks import Drafts, Uniforms
from otm._core.numbers import as_positive
from otm._core.sampling import chunks
from otm.coupling.residual import ResidualPlan, acceptance_ratio
from otm.coupling.slots import Ranks, winning_probabilities
from otm.kernels.numpy.grid_optimal import (
    STEPS,
    Places,
    Table,
    at_node,
    choose_slots,
    matched,
    winner,
)


class Moves(NamedTuple):
    """Moves between the slots of two bins: arrays [s], both columns of bins ascend."""

    low: Ranks
    high: Ranks
    up: Probs  # probability of a draft of the lower bin, per unit of what it wins more
    down: Probs  # of one of the higher bin, per unit of what it wins less


@dataclass(frozen=True, eq=False)
class GridOptimal(ResidualPlan):
    """Slots and swaps of bins of the ratio q/p in place of single tokens.

    What `otm.kernels` does under the name "grid optimal": each token is in one bin of a fixed grid
    of ratios, and a draft takes the slot of its bin or, with a probability that its own ratio
    decides, that of a partner; the highest slot wins and is accepted with probability min(1, q/v').
    Lossless whatever the grid (Theorem 11.2 of docs/theory/grid.md); it costs a little acceptance.

    Parameters
    ----------
    problem : Problem
        The draft distribution, the target distribution and the number of drafts.
    steps : int, optional
        Bins for each octave of the ratio above 1/2, those of the kernels if left out.

    Raises
    ------
    InvalidInputError
        If it is given no problem, one with rows, or one about other drafts.
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
        """One uniform a draft for its slot, a coin, one for the residual."""
        return self.problem.k + 2

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
        drafted = Places(places.bin[drafts], places.share[drafts])
        best = choose_slots(table, drafted, uniforms[:, :k]).argmax(axis=1)
        token = np.take_along_axis(drafts, best[:, None], axis=1)[:, 0]
        return np.where(uniforms[:, k] < self.accept_probability[token], best, -1)

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
        rejected = self._by_slot(draft * (1 - self.accept_probability))
        everything = self._by_slot(draft)
        by_residual = 0 * by_test
        # only drafts that can be in such a slot
        lowest = np.array([self._slot_law(x)[0][0] for x in range(self.problem.n)])
        below = lowest <= np.flatnonzero(rejected > 0).max(initial=-1)
        hits = np.flatnonzero((residual > 0) & (draft > 0) & below)
        for chunk in chunks(hits.size, rejected.size, 1 << 20):
            tokens = hits[chunk]
            own = zeros((tokens.size, rejected.size), draft)
            for row, x in zip(own, tokens, strict=True):
                slots, law = self._slot_law(x)
                row[slots] = draft[x] * law
            others = np.maximum(everything - own, 0)
            # a token is no draft while another one wins, and is rejected
            missed = (rejected * power_slopes(running_sum(others, from_zero=True).T, k).T).sum(
                axis=1
            )
            by_residual += (residual[tokens] * np.maximum(1 - by_test - missed, 0)).sum()
        return at_most_one(by_test + by_residual)

    @cached_property
    def _moves(self) -> Moves:
        """Which slots bins exchange, as `choose_slots` does: the points with the same partners."""
        table = self._node[1]
        ends = np.unique(np.concatenate([table.lack, table.excess]))
        ends = ends[(ends > 0) & (ends <= min(table.lack[-1], table.excess[-1]))]
        starts = np.append(0 * ends[:1], ends[:-1])
        low, high = (np.searchsorted(x, starts, side="right") for x in (table.lack, table.excess))
        useful = (low < high) & (table.slopes[high] > table.slopes[low])  # else by rounding
        low, high, size = low[useful], high[useful], (ends - starts)[useful]
        gain = table.slopes[high] - table.slopes[low]
        up, down = (size / matched(table.lack, table.excess, x)[2] / gain for x in (low, high))
        return Moves(*map(read_only, (low, high, up, down)))

    @cached_property
    def _change(self) -> Probs:
        """What a draft of each token wins more or less than in its bin's slot: array [n]."""
        (places, table) = self._node
        ratio = table.win[places.bin] + places.share * table.rise[places.bin]
        return read_only(abs(ratio - table.slopes[places.bin]))

    def _by_slot(self, weights: Probs) -> Probs:
        """Add up weights of drafts by the slots that they take: [n] → [G]."""
        bins, size, moves = self._node[0].bin, self._node[1].win.size, self._moves
        changes = scatter_sum(bins, weights * self._change, size)
        up, down = moves.up * changes[moves.low], moves.down * changes[moves.high]
        sums = scatter_sum(bins, weights, size) + scatter_sum(moves.low, down - up, size)
        law: Probs = sums + scatter_sum(moves.high, up - down, size)
        return law

    def _slot_law(self, token: int) -> tuple[Ranks, Probs]:
        """Slots that drafts of a token can take, ascending, with their probabilities."""
        own, moves = self._node[0].bin[token], self._moves
        for bins, others, rate in (
            (moves.low, moves.high, moves.up),
            (moves.high, moves.low, moves.down),
        ):
            start, stop = np.searchsorted(bins, [own, own + 1])
            if start < stop:
                law = rate[start:stop] * self._change[token]
                slots, law = np.append(others[start:stop], own), np.append(law, 1 - law.sum())
                order = slots.argsort()
                return slots[order], law[order]
        return np.array([own]), np.array([1 + 0 * self._change[token]])
