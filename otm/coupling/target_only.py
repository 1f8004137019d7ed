"""Target-only sampling: the optimal rule for deterministic drafts."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from otm._core.arithmetic import Number, at_most_one
from otm.coupling.naive_target_sampling import NaiveTargetSampling
from otm.drafts.top import Top


@dataclass(frozen=True, eq=False)
class TargetOnly(NaiveTargetSampling):
    """Draw Y from the target distribution; accept if it is one of the k deterministic drafts.

    The drafts are the set A of the k most probable tokens of p (`Top`).  The acceptance is q(A),
    and no rule for these drafts accepts more (Theorem 18.1 of docs/theory/trees.md).  The rule does
    not need draft probabilities.  Inference engines verify draft trees in this way ([zheng2024]_).

    Parameters
    ----------
    problem : Problem
        The draft distribution, the target distribution and the number of drafts.  If fewer than k
        tokens have p > 0, all of them are drafted, and `plan.drafts.k` is their number.

    Raises
    ------
    InvalidInputError
        If `problem` is not a single `Problem`, or the rule does not support its drafts.

    References
    ----------
    .. [zheng2024] Zheng et al., "SGLang: Efficient Execution of Structured Language Model
       Programs", NeurIPS 2024; its kernel `tree_speculative_sampling_target_only`.

    Examples
    --------
    >>> from otm import Problem
    >>> plan = TargetOnly(Problem([0.5, 0.25, 0.25], [0.25, 0.125, 0.625], k=2))
    >>> plan.drafts.sure
    array([0, 1])
    >>> plan.acceptance
    0.375
    """

    @cached_property
    def drafts(self) -> Top:
        """The k most probable tokens."""
        return self.problem.drafts_as(Top, self.problem.k)

    @property
    def acceptance(self) -> Number:
        """Acceptance probability q(A)."""
        return at_most_one(self.residual.probs(self.problem.n)[self.drafts.sure].sum())
