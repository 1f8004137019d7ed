"""The problem that OTM solves, stated once."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

from otm._core.arithmetic import Frozen, Law, is_exact
from otm._core.checks import as_draft_count
from otm._core.distribution import as_law_pair, to_exact
from otm._core.ratio_order import RatioOrder
from otm.drafts.iid import IID

__all__ = ["Problem"]


@dataclass(frozen=True, eq=False, init=False)
class Problem(Frozen):
    """Optimal transport with membership cost and k i.i.d. drafts (OTM-k).

    A draft model proposes tokens X_1, …, X_k, independent with law p.  A selection rule looks at
    them and outputs one token Y, which must have the target law q.  The rule may depend on p, q,
    the drafts and fresh randomness, that is, it is a transport plan π from p^k to q::

        α_k(p, q) = max Pr(Y ∈ {X_1, …, X_k})   over all π with marginals p^k and q.

    Equivalently, π minimises the expected membership cost 1{Y ∉ {X_1, …, X_k}} ([sun2023]_,
    equations 3 and 4).

    Parameters
    ----------
    draft : array-like [n]
        The law p of each draft.
    target : array-like [n]
        The law q that the output must have.
    k : int
        The number of drafts, at least 1.

    Attributes
    ----------
    draft, target : array [n]
        The laws, normalised and read-only: float64, or `fractions.Fraction` in an object array.
    k : int
        The number of drafts.

    Raises
    ------
    InvalidDistributionError
        If a law is not a probability distribution or the lengths differ.
    InvalidDraftCountError
        If k is not an integer of at least 1.

    References
    ----------
    .. [sun2023] Sun et al., "SpecTr: Fast Speculative Decoding via Optimal Transport",
       NeurIPS 2023, section 5.

    Examples
    --------
    >>> problem = Problem([0.5, 0.5], [0.75, 0.25], k=2)
    >>> problem.n, problem.k, problem.exact
    (2, 2, False)
    """

    draft: Law
    target: Law
    k: int

    def __init__(self, draft: Any, target: Any, k: int) -> None:
        object.__setattr__(self, "k", as_draft_count(k))
        for name, law in zip(("draft", "target"), as_law_pair(draft, target), strict=True):
            object.__setattr__(self, name, law)

    @property
    def n(self) -> int:
        """Size of the vocabulary."""
        return self.draft.size

    @property
    def exact(self) -> bool:
        """Whether the laws are fractions, so that every result is exact."""
        return is_exact(self.draft)

    @cached_property
    def drafts(self) -> IID:
        """The joint law p^k of the drafts."""
        return IID(self.draft, self.k)

    @cached_property
    def by_ratio(self) -> RatioOrder:
        """The tokens in ascending order of q/p, with cumulative masses."""
        return RatioOrder(self.draft, self.target)

    def to_exact(self) -> Problem:
        """Return the same problem in fractions: p/Σp and q/Σq in rational arithmetic."""
        if self.exact:
            return self
        return Problem(to_exact(self.draft), to_exact(self.target), self.k)
