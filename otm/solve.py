"""`otm.solve` and `otm.alpha`: choose a method, use it, and say why."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from otm.arithmetic import Law, Number
from otm.errors import UnknownMethodError
from otm.membership.cut import minimum_cut, optimal_value
from otm.problem import MembershipProblem, as_draft_count
from otm.solution import Solution

__all__ = ["alpha", "solve"]

DEFAULT_MEMORY_LIMIT = 2 * 2**30
"""Bytes that a linear program may take unless told otherwise."""


def solve(
    p: Any, q: Any, k: int, *, method: str = "auto", memory_limit: int = DEFAULT_MEMORY_LIMIT
) -> Solution:
    """Solve OTM-k: the best way to turn k i.i.d. drafts from p into one token from q.

    Parameters
    ----------
    p : array-like [n]
        Draft law: lists, NumPy arrays, torch tensors on any device, or fractions.
    q : array-like [n]
        Target law, on the same vocabulary.
    k : int
        Number of i.i.d. drafts, at least 1.
    method : str, optional
        "auto" or "closed-form"; "lp-highs" and "lp-cvxpy" solve SpecTr's linear program instead,
        in float64, as an independent check on small instances.
    memory_limit : int, optional
        Bytes that a linear program may take, 2 GiB if left out.

    Returns
    -------
    Solution
        With `alpha`, `plan`, `certificate`, `bounds`, `method` and `why`.  Laws given in fractions
        are solved exactly and give fractions; float laws give float64.

    Raises
    ------
    InvalidLawError, InvalidDraftCountError
        If the laws or k are not valid.
    UnknownMethodError
        If the method does not exist.
    ProblemTooLargeError
        If a linear program would exceed the memory limit; nothing is allocated then.
    SolverError
        If a linear program's solver does not end at an optimum.

    Examples
    --------
    >>> solution = solve([0.75, 0.25], [0.25, 0.75], k=2)
    >>> round(solution.alpha, 12)
    0.6875
    >>> solution.certificate.check()  # returns nothing: the proof holds
    >>> token, index = solution.plan.select([0, 1], [0.5, 0.5, 0.1, 0.9])

    Fractions in, fractions out:

    >>> from fractions import Fraction
    >>> solve([Fraction(3, 4), Fraction(1, 4)], [Fraction(1, 4), Fraction(3, 4)], k=2).alpha
    Fraction(11, 16)
    """
    if method not in _METHODS:
        raise UnknownMethodError(f"method {method!r}; known methods are {', '.join(_METHODS)}")
    return _METHODS[method](MembershipProblem(p, q, k), memory_limit)


def alpha(p: Any, q: Any, k: Any) -> Number | Law:
    """Optimal acceptance probability α_k(p, q) for k i.i.d. drafts.

    Parameters
    ----------
    p, q : array-like [n]
        Draft and target law, as for `solve`.
    k : int or int array-like [...]
        Number of drafts, or several of them at once (the laws are sorted only once).

    Returns
    -------
    float, Fraction or array [...]
        α_k; an array of the shape of k if k is not a single number.

    Raises
    ------
    InvalidLawError, InvalidDraftCountError
        If the laws or k are not valid.

    Examples
    --------
    >>> alpha([0.5, 0.5, 0, 0], [0.25, 0.25, 0.25, 0.25], [1, 2, 8])
    array([0.5, 0.5, 0.5])
    >>> alpha([0.25, 0.25, 0.25, 0.25], [0.5, 0.5, 0, 0], [1, 2, 8])
    array([0.5       , 0.75      , 0.99609375])
    """
    if np.ndim(k) == 0:
        problem = MembershipProblem(p, q, k)
        return optimal_value(problem.by_ratio, problem.k)[0]
    counts = [as_draft_count(count) for count in np.asarray(k).flat]
    problem = MembershipProblem(p, q, 1)
    values = np.empty(len(counts), dtype=problem.draft.dtype)
    values[:] = [optimal_value(problem.by_ratio, count)[0] for count in counts]
    return values.reshape(np.shape(k))


def _by_closed_form(problem: MembershipProblem, memory_limit: int) -> Solution:
    cut = minimum_cut(problem)
    why = (
        "for i.i.d. drafts α is a minimum over the prefixes of the vocabulary in q/p, which is "
        "exact and takes O(n log n) at any vocabulary size."
    )
    return Solution(problem, cut.value, cut, "closed-form", why)


_METHODS: dict[str, Callable[[MembershipProblem, int], Solution]] = {
    "auto": _by_closed_form,
    "closed-form": _by_closed_form,
}
