"""`otm.solve` and `otm.alpha`: choose a method, use it, and say why."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, overload

import numpy as np
import numpy.typing as npt

from otm.arithmetic import Law, Number
from otm.errors import InvalidDraftCountError, UnknownMethodError
from otm.membership.cut import minimum_cut, optimal_value
from otm.membership.multisets import MEMORY_LIMIT
from otm.problem import MembershipProblem, as_draft_count
from otm.solution import Solution

__all__ = ["alpha", "solve"]


def solve(
    p: Any, q: Any, k: int, *, method: str = "auto", memory_limit: int = MEMORY_LIMIT
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
    MissingDependencyError
        If a linear program's solver is not installed.

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
    solve_by = _METHODS.get(str(method))
    if solve_by is None:
        raise UnknownMethodError(f"method {method!r}; known methods are {', '.join(_METHODS)}")
    return solve_by(MembershipProblem(p, q, k), memory_limit)


@overload
def alpha(p: Any, q: Any, k: int) -> Number: ...
@overload
def alpha(p: Any, q: Any, k: Sequence[Any] | npt.NDArray[np.integer]) -> Law: ...
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
    try:
        given = np.asarray(k)
    except Exception as error:  # whatever a foreign object raises when it is asked for its entries
        raise InvalidDraftCountError(f"k is not a number or an array: {error}") from error
    if given.ndim == 0:
        problem = MembershipProblem(p, q, k)
        return optimal_value(problem.by_ratio, problem.k)[0]
    counts = [as_draft_count(count) for count in given.flat]
    problem = MembershipProblem(p, q, 1)
    values = np.empty(len(counts), dtype=problem.draft.dtype)
    values[:] = [optimal_value(problem.by_ratio, count)[0] for count in counts]
    return values.reshape(given.shape)


def _by_closed_form(problem: MembershipProblem, memory_limit: int) -> Solution:
    cut = minimum_cut(problem)
    why = "for i.i.d. drafts α is a minimum over n + 1 prefixes in q/p: no solver, O(n log n)."
    return Solution(problem, cut.value, cut, "closed-form", why)


def _by_linear_program(problem: MembershipProblem, memory_limit: int, solver: str) -> Solution:
    from otm.coupling.table import TablePlan
    from otm.membership.linear_program import cut_from_duals, packing_form

    if problem.exact:
        draft, target = problem.draft.astype(np.float64), problem.target.astype(np.float64)
        problem = MembershipProblem(draft, target, problem.k)
    program = packing_form(problem, memory_limit)
    if solver == "highs":
        from otm.membership.highs_ import solve_highs

        found = solve_highs(program)
    else:
        from otm.membership.cvxpy_ import solve_cvxpy

        found = solve_cvxpy(program)
    plan = TablePlan.from_linear_program(found)
    cut = cut_from_duals(problem, found.token_duals)
    why = (
        f"asked for; SpecTr's linear program in float64, {program.set_of.size:,} variables over "
        "draft multisets."
    )
    return Solution(problem, plan.acceptance, cut, f"lp-{solver}", why, plan)


_METHODS: dict[str, Callable[[MembershipProblem, int], Solution]] = {
    "auto": _by_closed_form,
    "closed-form": _by_closed_form,
    "lp-highs": partial(_by_linear_program, solver="highs"),
    "lp-cvxpy": partial(_by_linear_program, solver="cvxpy"),
}
