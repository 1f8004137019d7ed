"""Rules and solutions for laws given by their support, in terms of the original token ids."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from otm._core.arithmetic import Frozen, Law, Number
from otm._core.checks import Drafts, as_array, check_generator
from otm._core.interval import Interval
from otm._core.sparse import SparseProbs, Tokens, align
from otm._core.tensors import like, to_host
from otm.coupling.plan import Selection, TransportPlan
from otm.drafts.base import NEVER_DRAWN, DraftDistribution
from otm.errors import InvalidDraftsError
from otm.optimum.bounds import Bound
from otm.optimum.cut import Cut
from otm.problem import Problem
from otm.solution import Solution

if TYPE_CHECKING:
    from otm.proof import Certificate

__all__ = ["DraftsOnTokens", "OnTokens", "SparseSolution", "on_tokens"]


@dataclass(frozen=True, eq=False)
class DraftsOnTokens(Frozen):
    """A joint law of drafts on the union of two supports, in the original token ids.

    Parameters
    ----------
    law : DraftDistribution
        The joint law, on m tokens.
    tokens : int array [m]
        The original ids of these tokens, ascending.

    Examples
    --------
    >>> from otm.drafts import IID
    >>> drafts = DraftsOnTokens(IID([0.25, 0.75], k=2), np.array([5, 900]))
    >>> drafts.draw([0.1, 0.5]).tolist()
    [5, 900]
    """

    law: DraftDistribution
    tokens: Tokens

    @property
    def k(self) -> int:
        """Number of drafts of one selection."""
        return self.law.k

    @property
    def uniforms_per_draw(self) -> int:
        """Number of independent uniforms in [0, 1) that one draw of k drafts takes."""
        return self.law.uniforms_per_draw

    def draw(self, uniforms: npt.ArrayLike) -> Drafts:
        """Draw drafts as `DraftDistribution.draw` does.

        Parameters
        ----------
        uniforms : array-like or tensor [..., m]
            Independent uniforms in [0, 1), m = `uniforms_per_draw` for each draw.

        Returns
        -------
        int array [..., k]
            Original ids; a tensor on the device of the uniforms if these are one.

        Raises
        ------
        InvalidUniformsError
            If the uniforms have a wrong shape or do not lie in [0, 1).
        """
        drafts: Drafts = like(uniforms, self.tokens[self.law.draw(to_host(uniforms))])
        return drafts

    def sample(self, rng: np.random.Generator, size: int | tuple[int, ...] = ()) -> Drafts:
        """`draw` with uniforms from a generator, for convenience.

        Parameters
        ----------
        rng : Generator
            Where the uniforms come from.
        size : int or tuple of int, optional
            How many draws; a single one if left out.

        Returns
        -------
        int array [..., k]
            Original ids of the drafts of each draw.

        Raises
        ------
        InvalidParameterError
            If `rng` is no generator.
        """
        return self.tokens[self.law.sample(rng, size)]

    def check(self, drafts: npt.ArrayLike) -> Drafts:
        """Return drafts as an integer array [..., k], if they can have been drawn.

        Parameters
        ----------
        drafts : int array-like or tensor [..., k]
            Original ids of the draft tokens.

        Raises
        ------
        InvalidDraftsError
            As `DraftDistribution.check` does, in terms of the original ids.
        """
        return self.tokens[self.positions(drafts)]

    def positions(self, drafts: npt.ArrayLike) -> Drafts:
        """Positions in `tokens` of drafts that `check` does not refuse.

        Parameters
        ----------
        drafts : int array-like or tensor [..., k]
            Original ids of the draft tokens.

        Returns
        -------
        int array [..., k]
            Numbers in [0, m).

        Raises
        ------
        InvalidDraftsError
            As for `check`, which refuses the same.
        """
        ids = as_array(drafts, "the drafts", InvalidDraftsError)
        if ids.dtype.kind not in "iu":
            raise InvalidDraftsError(
                f"drafts of type {ids.dtype}; draft tokens must be integers, the ids of tokens"
            )
        position = np.minimum(np.searchsorted(self.tokens, ids), self.tokens.size - 1)
        known = self.tokens[position] == ids
        if not known.all():
            raise InvalidDraftsError(f"draft token {ids[~known].flat[0]} {NEVER_DRAWN}")
        return self.law.check(position, names=self.tokens)


@dataclass(frozen=True, eq=False)
class OnTokens(Frozen):
    """A plan on the union of two supports that takes and returns the original token ids.

    Parameters
    ----------
    plan : TransportPlan
        Any rule, for a problem on m tokens.
    tokens : int array [m]
        The original ids of these tokens, ascending.

    Examples
    --------
    >>> from otm.coupling import OptimalPlan
    >>> draft = SparseProbs([300, 1200], [0.75, 0.25])
    >>> target = SparseProbs([300, 1200], [0.25, 0.75])
    >>> plan = on_tokens(OptimalPlan, draft, target, k=2)
    >>> round(plan.acceptance, 12), plan.uniforms_per_selection
    (0.6875, 4)
    >>> token, index = plan.select([300, 1200], [0.5, 0.5, 0.1, 0.9])
    >>> int(token), int(index)
    (1200, 1)
    >>> plan.drafts.sample(np.random.default_rng(0), size=3).tolist()
    [[300, 300], [300, 300], [1200, 1200]]
    """

    plan: TransportPlan
    tokens: Tokens

    @property
    def lossless(self) -> bool:
        """Whether the output has exactly the target law."""
        return self.plan.lossless

    @cached_property
    def drafts(self) -> DraftsOnTokens:
        """Joint law that the drafts must be drawn from, in original ids."""
        return DraftsOnTokens(self.plan.drafts, self.tokens)

    @property
    def uniforms_per_selection(self) -> int:
        """Number of independent uniforms in [0, 1) that one selection takes."""
        return self.plan.uniforms_per_selection

    @property
    def acceptance(self) -> Number:
        """Acceptance probability Pr(Y ∈ {X_1, …, X_k})."""
        return self.plan.acceptance

    @property
    def acceptance_bounds(self) -> Interval:
        """Bounds on `acceptance`, of gap 0 unless the exact number would take too long."""
        return self.plan.acceptance_bounds

    def output_distribution(self) -> SparseProbs:
        """Law of the output Y, integrated from what the plan really does.

        Returns
        -------
        SparseProbs
            Over original ids; the target law if the rule is lossless.
        """
        return SparseProbs(self.tokens, self.plan.output_distribution())

    def conditional(self, drafts: npt.ArrayLike) -> Law:
        """Law of the output Y given the drafts.

        Parameters
        ----------
        drafts : int array-like or tensor [..., k]
            Original ids of the draft tokens.

        Returns
        -------
        array [..., m]
            One law over `tokens`, not over the original ids, for each set of drafts: entry i is
            the probability of `tokens[i]`.

        Raises
        ------
        InvalidDraftsError
            As the plan's own `conditional` does, in terms of the original ids.
        """
        return self.plan.conditional(self.drafts.positions(drafts))

    def select(self, drafts: npt.ArrayLike, uniforms: npt.ArrayLike) -> Selection:
        """Choose the output token for each set of drafts.

        Parameters
        ----------
        drafts : int array-like or tensor [..., k]
            Original ids of the draft tokens.
        uniforms : array-like or tensor [..., u]
            Independent uniforms in [0, 1), u = `uniforms_per_selection` for each set.

        Returns
        -------
        Selection
            Original ids, and indices, of shape [...]; int64 tensors on the drafts' device if these
            are a tensor.

        Raises
        ------
        InvalidDraftsError, InvalidUniformsError
            As the plan's own `select` does, in terms of the original ids.
        """
        token, index = self.plan.select(self.drafts.positions(drafts), uniforms)
        return Selection(like(drafts, self.tokens[token]), like(drafts, index))

    def sample(self, drafts: npt.ArrayLike, rng: np.random.Generator) -> Selection:
        """`select` with uniforms from a generator, for convenience.

        Parameters
        ----------
        drafts : int array-like or tensor [..., k]
            Original ids of the draft tokens.
        rng : Generator
            Where the uniforms come from.

        Returns
        -------
        Selection
            As from `select`.

        Raises
        ------
        InvalidDraftsError
            As for `select`.
        InvalidParameterError
            If `rng` is no generator.
        """
        check_generator(rng)
        shape = self.drafts.positions(drafts).shape[:-1]
        return self.select(drafts, rng.random((*shape, self.uniforms_per_selection)))


def on_tokens(
    rule: Callable[[Problem], TransportPlan],
    draft: SparseProbs,
    target: SparseProbs,
    k: int,
) -> OnTokens:
    """Build a rule for two laws given by their supports; its cost is that of the supports.

    Parameters
    ----------
    rule : callable
        From a problem to a plan: `OptimalPlan`, `KSeq`, …
    draft, target : SparseProbs
        The draft law and the target law.
    k : int
        Number of drafts, at least 1.

    Returns
    -------
    OnTokens
        The plan, in original ids.

    Raises
    ------
    InvalidDistributionError, InvalidDraftCountError
        If one of the laws is no `SparseProbs`, or k is not valid; and what the rule itself raises.

    Examples
    --------
    >>> from otm.coupling import KSeq
    >>> plan = on_tokens(KSeq, SparseProbs([5, 8], [0.5, 0.5]), SparseProbs([5], [1]), k=2)
    >>> round(plan.acceptance, 12), plan.output_distribution().tokens.tolist()
    (0.75, [5])
    """
    tokens, draft_law, target_law = align(draft, target)
    return OnTokens(rule(Problem(draft_law, target_law, k)), tokens)


@dataclass(frozen=True, eq=False)
class SparseSolution(Frozen):
    """Solution of OTM-k for two laws given by their supports.

    It offers what a `Solution` offers.  `plan` and `cut` speak of the original token ids; `problem`
    and `certificate` of the union of the supports, where token i stands for `tokens[i]`.

    Attributes
    ----------
    solution : Solution
        The solution on the union of the supports.
    tokens : int array [m]
        The original ids of its tokens, ascending.

    Examples
    --------
    >>> from otm import solve
    >>> draft = SparseProbs([300, 1200], [0.75, 0.25])
    >>> target = SparseProbs([300, 1200], [0.25, 0.75])
    >>> solution = solve(draft, target, k=2)
    >>> round(solution.alpha, 12), solution.cut.tokens.tolist(), solution.problem.n
    (0.6875, [300], 2)
    """

    solution: Solution
    tokens: Tokens

    @property
    def alpha(self) -> Number:
        """Optimal acceptance probability α_k."""
        return self.solution.alpha

    @property
    def problem(self) -> Problem:
        """What was solved, on the union of the supports: k, and the laws of `tokens`."""
        return self.solution.problem

    @property
    def certificate(self) -> Certificate:
        """Proof of optimality about `problem`, the union of the supports, as of a `Solution`."""
        return self.solution.certificate

    @property
    def bounds(self) -> tuple[Bound, ...]:
        """The bounds of the SpecTr paper on α_k, each with its theorem; they need no token ids."""
        return self.solution.bounds

    @property
    def method(self) -> str:
        """How it was solved: "closed-form", "lp-highs" or "lp-cvxpy"."""
        return self.solution.method

    @property
    def why(self) -> str:
        """One sentence on the choice of the method."""
        return self.solution.why

    @cached_property
    def plan(self) -> OnTokens:
        """An optimal rule that takes and returns original token ids."""
        return OnTokens(self.solution.plan, self.tokens)

    @cached_property
    def cut(self) -> Cut:
        """A minimum cut, in original token ids."""
        return Cut(self.solution.cut.value, self.tokens[self.solution.cut.tokens])

    def __repr__(self) -> str:
        return f"{self.solution!r}\n  on the union of the supports; original ids are in .tokens"
