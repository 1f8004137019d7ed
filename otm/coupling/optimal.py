"""An exactly optimal rule for k i.i.d. drafts, at any vocabulary size: bins and swaps.

That an optimal rule of this kind exists follows from Strassen's theorem: choosing the highest of k
independent uniform priorities U gives Y the distribution p(y) E[k U^(k−1) | y], so a martingale
coupling of the wanted ratio under p with k U^(k−1) is enough.  Bins and swaps are an explicit one.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from otm._core.arithmetic import TINY, Probs, read_only, zeros
from otm._core.checks import Drafts, Uniforms
from otm._core.ratios.keys import blocks, ratio_of
from otm.coupling.residual import ResidualPlan, acceptance_ratio
from otm.coupling.slots import Ranks, SlotTable, winning_probabilities
from otm.coupling.swaps import match_swaps
from otm.errors import InvalidDraftCountError
from otm.optimum.win_ratio import WinRatio, optimal_win_ratio

LARGEST_COUNT = 2**30
"""Most drafts in floats: up to here plans have been measured to lose less than 1e-7 of acceptance.

What is proved grows with the number of bins as well (Theorem 5.8 of docs/theory/optimal-plan.md).
"""

FEW = 16
"""Drafts of one set up to which Python's floats are faster than arrays."""


@dataclass(frozen=True, eq=False)
class OptimalPlan(ResidualPlan):
    """The optimal transport plan of OTM-k, with acceptance probability α_k.

    Our own construction: Theorems 5.1 to 5.3 of docs/theory/optimal-plan.md prove it optimal,
    Theorem 5.4 lossless whatever its table.

    Tokens are put into bins of the ratio q/p, one for each ratio if they are few or in fractions.
    A draft takes the slot of its bin or, with a probability from a table, that of a partner.  The
    draft in the highest slot wins (the first of them, if several share it) and is accepted with
    probability min(1, q/v'), where v' is the distribution of the winner; otherwise the output is
    drawn from the residual ∝ max(q − v', 0).

    The distribution v' is recomputed from the stored table, so that the output distribution is q up
    to a few roundings whatever k is (Theorem 5.7): a table in floats can cost acceptance, about
    k · 2^−53 as measured, but never correctness.  `acceptance` is then a lower bound on
    Pr(Y ∈ drafts) and, in exact mode, equal to it and to α_k.

    Parameters
    ----------
    problem : Problem
        The draft distribution, the target distribution and the number of drafts.

    Raises
    ------
    InvalidInputError
        If it is given no problem, one with rows, or one about other drafts.
    InvalidDraftCountError
        If it is given floats and more than 2^30 drafts, for which moves would lose acceptance.

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
                f"k = {self.problem.k:,}; in floats the optimal plan takes at most "
                f"{LARGEST_COUNT:,} drafts, since its moves of probability 2^−53 would cost "
                "acceptance with more; otm.alpha takes any number"
            )

    @property
    def uniforms_per_selection(self) -> int:
        """One uniform a draft for its slot, one coin, one for the residual: k + 2."""
        return self.problem.k + 2

    @cached_property
    def slots(self) -> SlotTable:
        """Which slots the drafts of each bin take."""
        return SlotTable(self._wanted.bins, match_swaps(self._wanted))

    @cached_property
    def _wanted(self) -> WinRatio:
        """Law of the winner that is aimed at."""
        return optimal_win_ratio(self.problem)

    @cached_property
    def _win_ratio(self) -> tuple[Probs, Probs]:
        """Ratios of winning to drafting as the stored table has them (`SlotTable.win_ratio`).

        The table speaks of p/Σp; they are corrected so that v' belongs to Σq = 1.
        """
        of_draft, of_target = self.slots.bins.excess[:, 0]
        slope, added = self.slots.win_ratio(self.problem.k)
        scale = 1 + (of_target - of_draft)
        return read_only(slope * scale), read_only(added * scale)

    @cached_property
    def _stretch(self) -> Probs | None:
        """Share of a token: (q/p − first) · second, from third to fourth; array [4, m].

        It is one where t does not follow q/p; None if that is everywhere.
        """
        wanted = self._wanted
        if not np.count_nonzero(wanted.follows):
            return None
        moved = self.slots.moved
        limit = np.divide(1, moved, out=np.full_like(moved, np.inf), where=moved > 0)
        gap = wanted.mean - wanted.slope
        follows = wanted.follows & (gap != 0)
        factor = np.divide(1, gap, out=np.ones_like(gap), where=follows)
        least, limit = np.where(follows, TINY, 1), np.where(follows, limit, 1)
        return read_only(np.array((wanted.slope, factor, least, limit)))

    def _place(self, draft: Probs, target: Probs) -> tuple[Ranks, Probs]:
        """Bins of tokens, and how often each of them swaps, over the mean of its bin."""
        ratio = ratio_of(draft, target)
        place = self._wanted.bins.place(ratio)
        if self._stretch is None:
            return place, np.ones(ratio.shape, ratio.dtype)
        slope, factor, least, limit = self._stretch.take(place, axis=1)
        share = (ratio - slope) * factor
        return place, np.minimum(np.maximum(share, least), limit)  # only rounding is cut off

    @property
    def target_mass(self) -> Probs:
        """Mass of each token that is accepted as far as it wins: array [n]."""
        return self.problem.target

    @cached_property
    def winner_distribution(self) -> Probs:
        """Distribution v' of the draft that wins, computed from the stored table: array [n]."""
        probs = zeros(self.problem.n, self.problem.draft)
        for tokens, draft, target in blocks(self.problem.draft, self.problem.target):
            probs[tokens] = draft * self._ratio(*self._place(draft, target))
        return read_only(probs)

    def _ratio(self, place: Ranks, share: Probs) -> Probs:
        """Ratio of winning to drafting, of tokens in these bins."""
        slope, added = self._win_ratio
        return np.asarray(slope.take(place) + added.take(place) * share)

    @cached_property
    def accept_probability(self) -> Probs:
        """Probability min(1, q/v') of accepting each token when it wins: array [n]."""
        return read_only(acceptance_ratio(self.target_mass, self.winner_distribution))

    @cached_property
    def accepted_mass(self) -> Probs:
        """Mass of each token output as an accepted draft: array [n]."""
        return read_only(self.winner_distribution * self.accept_probability)

    def _accept(self, drafts: Drafts, uniforms: Uniforms) -> npt.NDArray[np.int64]:
        if drafts.shape[0] == 1 and drafts.size <= FEW and not self.problem.exact:
            return np.array([self._accept_few(drafts[0], uniforms[0].tolist())], dtype=np.int64)
        draft = self.problem.draft.take(drafts)
        place, share = self._place(draft, self.problem.target.take(drafts))
        slots = self.slots.slot_of(place, uniforms[:, :-1], share)
        winner: npt.NDArray[np.int64] = slots.argmax(axis=1)
        at = winner + np.arange(0, drafts.size, drafts.shape[1])
        won = draft.take(at) * self._ratio(place.take(at), share.take(at))
        accept = acceptance_ratio(self.target_mass.take(drafts.take(at)), won)
        winner[~(uniforms[:, -1] < accept)] = -1
        return winner

    def _accept_few(self, drafts: Drafts, uniforms: list[float]) -> int:
        """Equivalent to `_accept` of one set, but faster for few drafts in floats: [k], [k + 1]."""
        draft = self.problem.draft.take(drafts).tolist()
        target = self.problem.target.take(drafts).tolist()
        ratio = [q / p for p, q in zip(draft, target, strict=True)]
        place = self._wanted.bins.place(np.array(ratio))
        share = [1.0] * len(ratio)
        if self._stretch is not None:
            stretch = self._stretch.take(place, axis=1).tolist()
            for i, (r, slope, factor, least, limit) in enumerate(zip(ratio, *stretch, strict=True)):
                within = (r - slope) * factor
                share[i] = least if within < least else limit if within > limit else within
        slots = self.slots.slots_of_few(place, uniforms, share)
        winner = slots.index(max(slots))
        slope, added = (each.item(place[winner]) for each in self._win_ratio)
        won = draft[winner] * (slope + added * share[winner])
        mass = self.target_mass.item(drafts[winner])
        accept = float(mass > 0) if won <= 0 else min(mass, won) / won
        return winner if uniforms[-1] < accept else -1

    def slot_law(self, token: int) -> tuple[Ranks, Probs]:
        """Slots that drafts of a token can take, ascending, with their probabilities.

        Parameters
        ----------
        token : int
            Its position in `problem.tokens`; it must be one that can be drafted.

        Returns
        -------
        tuple of (int array [s], array [s])
            Places in `slots.bins`, and probabilities that sum to one.
        """
        (place,), (share,) = self._place(self.problem.draft[[token]], self.problem.target[[token]])
        return self.slots.slot_law(place, share)

    def _acceptance_per_draft(self, drafts: Drafts) -> Probs:
        winning = [winning_probabilities([self.slot_law(x) for x in row]) for row in drafts]
        return np.asarray(np.reshape(winning, drafts.shape) * self.accept_probability[drafts])
