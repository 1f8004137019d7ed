"""Rules and solutions for laws given by their support, in terms of the original token ids."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from otm.arithmetic import Law, Number
from otm.coupling.plan import Selection, TransportPlan
from otm.errors import InvalidDraftsError
from otm.membership.cut import Cut
from otm.problem import MembershipProblem
from otm.solution import Solution
from otm.sparse import SparseLaw, Tokens, align

__all__ = ["OnTokens", "SparseSolution", "on_tokens"]


@dataclass(frozen=True, eq=False)
class OnTokens:
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
    >>> draft, target = SparseLaw([300, 1200], [0.75, 0.25]), SparseLaw([300, 1200], [0.25, 0.75])
    >>> plan = on_tokens(OptimalPlan, draft, target, k=2)
    >>> round(plan.acceptance, 12), plan.uniforms_per_selection
    (0.6875, 4)
    >>> token, index = plan.select([300, 1200], [0.5, 0.5, 0.1, 0.9])
    >>> int(token), int(index)
    (1200, 1)
    """

    plan: TransportPlan
    tokens: Tokens

    @property
    def uniforms_per_selection(self) -> int:
        """Number m of independent uniforms in [0, 1) that one selection takes."""
        return self.plan.uniforms_per_selection

    @property
    def acceptance(self) -> Number:
        """Acceptance probability Pr(Y ∈ {X_1, …, X_k})."""
        return self.plan.acceptance

    def output_law(self) -> SparseLaw:
        """Law of the output Y, integrated from what the plan really does."""
        return SparseLaw(self.tokens, self.plan.output_law())

    def conditional(self, drafts: npt.ArrayLike) -> Law:
        """Law of the output Y given the drafts [..., k]: array [..., m] over `tokens`."""
        return self.plan.conditional(self._positions(drafts))

    def select(self, drafts: npt.ArrayLike, uniforms: npt.ArrayLike) -> Selection:
        """Choose the output token for each set of drafts.

        Parameters
        ----------
        drafts : int array-like [..., k]
            Original ids of the draft tokens.
        uniforms : array-like [..., m]
            Independent uniforms in [0, 1), m = `uniforms_per_selection` for each set.

        Returns
        -------
        Selection
            Original ids, and indices, of shape [...].

        Raises
        ------
        InvalidDraftsError, InvalidUniformsError
            As the plan's own `select` does, in terms of the original ids.
        """
        return self._named(self.plan.select(self._positions(drafts), uniforms))

    def sample(self, drafts: npt.ArrayLike, rng: np.random.Generator) -> Selection:
        """`select` with uniforms from a generator, for convenience."""
        return self._named(self.plan.sample(self._positions(drafts), rng))

    def _named(self, chosen: Selection) -> Selection:
        return Selection(self.tokens[chosen.token], chosen.index)

    def _positions(self, drafts: npt.ArrayLike) -> Tokens:
        """Positions of draft tokens in `tokens`; the plan checks the shape and what is possible."""
        try:
            ids = np.asarray(drafts)
        except (RuntimeError, TypeError, ValueError) as reason:
            raise InvalidDraftsError(
                f"the drafts are not array-like ({reason}); give an array"
            ) from reason
        if ids.dtype.kind not in "iu":
            raise InvalidDraftsError(
                f"drafts of type {ids.dtype}; draft tokens must be integers, the ids of tokens"
            )
        position = np.searchsorted(self.tokens, ids)
        found = self.tokens[np.minimum(position, self.tokens.size - 1)] == ids
        drafted = self.plan.problem.draft[np.where(found, position, 0)] > 0
        if not (found & drafted).all():
            raise InvalidDraftsError(
                f"draft token {ids[~(found & drafted)].flat[0]} has probability 0 under the draft "
                "law, so it cannot have been drawn from it; pass the law that the drafts were "
                "really sampled from"
            )
        return position


def on_tokens(
    rule: Callable[[MembershipProblem], TransportPlan], draft: SparseLaw, target: SparseLaw, k: int
) -> OnTokens:
    """Build a rule for two laws given by their supports; its cost is that of the supports.

    Parameters
    ----------
    rule : callable
        From a problem to a plan: `OptimalPlan`, `KSeq`, …
    draft, target : SparseLaw
        The draft law and the target law.
    k : int
        Number of drafts, at least 1.

    Examples
    --------
    >>> from otm.coupling import KSeq
    >>> plan = on_tokens(KSeq, SparseLaw([5, 8], [0.5, 0.5]), SparseLaw([5], [1]), k=2)
    >>> round(plan.acceptance, 12), plan.output_law().tokens.tolist()
    (0.75, [5])
    """
    tokens, draft_law, target_law = align(draft, target)
    return OnTokens(rule(MembershipProblem(draft_law, target_law, k)), tokens)


@dataclass(frozen=True, eq=False)
class SparseSolution:
    """Solution of OTM-k for two laws given by their supports.

    Attributes
    ----------
    solution : Solution
        The solution on the union of the supports, with certificate, bounds, method and reason.
    tokens : int array [m]
        The original ids of its tokens, ascending.
    """

    solution: Solution
    tokens: Tokens

    @property
    def alpha(self) -> Number:
        """Optimal acceptance probability α_k."""
        return self.solution.alpha

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
