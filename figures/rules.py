"""Selection rules that the figures compare, by their names in the figures."""

from __future__ import annotations

from collections.abc import Callable

import numpy.typing as npt

from otm._core.arithmetic import Number
from otm.coupling import KSeq, RecursiveRejection
from otm.optimum.cut import optimal_value
from otm.problem import Problem

OPTIMUM, K_SEQ, MULTI_ROUND = "optimal", "k-Seq", "recursive rejection"
"""Names in `otm.rules`; the paper calls the last rule multi-round rejection sampling."""


def acceptance(rule: str, draft: npt.ArrayLike, target: npt.ArrayLike, k: int) -> float:
    """Compute the acceptance probability of a rule for k i.i.d. drafts.

    Examples
    --------
    >>> for rule in (OPTIMUM, K_SEQ, MULTI_ROUND):
    ...     print(f"{acceptance(rule, [0.75, 0.25], [0.25, 0.75], k=2):.4f}  {rule}")
    0.6875  optimal
    0.6483  k-Seq
    0.6250  recursive rejection
    """
    return float(_ACCEPTANCE[rule](Problem(draft, target, k)))


_ACCEPTANCE: dict[str, Callable[[Problem], Number]] = {
    OPTIMUM: optimal_value,
    K_SEQ: lambda problem: KSeq(problem).acceptance,
    MULTI_ROUND: lambda problem: RecursiveRejection(problem).acceptance,
}
