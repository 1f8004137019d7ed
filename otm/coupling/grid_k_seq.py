"""k-Seq with division factors from a fixed grid, as in the kernels (docs/theory/k-seq.md)."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from otm._core.arithmetic import Probs, read_only
from otm.coupling.residual import TokenwisePlan, acceptance_ratio
from otm.kernels.k_seq.numpy import Split, find_split


@dataclass(frozen=True, eq=False)
class GridKSeq(TokenwisePlan):
    """Accept the first draft that passes a mixture of two k-Seq tests, at two factors of a grid.

    This is the rule "grid k-Seq" of `otm.kernels`.  One pass over the vocabulary finds the two grid
    factors around ρ*, and the test is the best valid mixture of the tests at these factors.  The
    rule is lossless like k-Seq ([sun2023]_, Algorithm 2), and accepts as often as k-Seq or slightly
    less often.

    Parameters
    ----------
    problem : Problem
        The draft distribution, the target distribution and the number of drafts.

    Raises
    ------
    InvalidInputError
        If `problem` is not a single `Problem`, or the rule does not support its drafts.

    References
    ----------
    .. [sun2023] Sun et al., "SpecTr", NeurIPS 2023, section 6 and appendix C.1.

    Examples
    --------
    >>> from otm import Problem
    >>> plan = GridKSeq(Problem([0.5, 0.5], [1, 0], k=2))
    >>> round(plan.acceptance, 12)
    0.75
    """

    @cached_property
    def accept_probability(self) -> Probs:
        """Probability of accepting each token when it is drafted: array [n]."""
        target, draft = self.problem.target, self.problem.draft
        return read_only(acceptance_ratio(self._split.one_draft(target, draft), draft))

    @cached_property
    def _split(self) -> Split:
        problem = self.problem
        return Split(
            *map(read_only, find_split(problem.target, problem.draft, problem.k, problem.k))
        )
