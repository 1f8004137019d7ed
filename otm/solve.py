"""`otm.solve` and `otm.alpha`: choose a method, use it, and say why."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from numbers import Real
from typing import TYPE_CHECKING, Any, overload

import numpy as np

from otm._core.arithmetic import Number
from otm._core.interval import Interval
from otm._core.numbers import check_name
from otm._core.sparse import SparseProbs, align
from otm._core.tensors import is_tensor
from otm._core.text import shown
from otm.drafts import DraftDistribution
from otm.errors import (
    InvalidDistributionError,
    InvalidDraftCountError,
    InvalidParameterError,
)
from otm.optimum.cut import minimum_cut, optimal_value
from otm.optimum.multisets import MEMORY_LIMIT
from otm.problem import Problem
from otm.solution import Solution

if TYPE_CHECKING:
    from otm.batch import SolutionRows
    from otm.on_tokens import SparseSolution

__all__ = ["alpha", "solve"]

_Laws = Sequence[Any]  # one law as a flat sequence of numbers


@overload
def solve(
    p: SparseProbs,
    q: SparseProbs,
    k: int,
    *,
    method: str = ...,
    memory_limit: int = ...,
) -> SparseSolution: ...
@overload
def solve(
    p: _Laws, q: _Laws, k: int, *, method: str = ..., memory_limit: int = ...
) -> Solution: ...
@overload
def solve(p: Any, q: Any, k: Any, *, method: str = ..., memory_limit: int = ...) -> Any: ...
def solve(
    p: Any, q: Any, k: Any, *, method: str = "auto", memory_limit: int = MEMORY_LIMIT
) -> Solution | SolutionRows | SparseSolution:
    """Solve OTM-k: the best way to turn k i.i.d. drafts from p into one token from q.

    The problem is that of [sun2023]_.  Its value in closed form (Theorem 3.1 of
    docs/theory/closed-form.md) was also found by [hu2025]_; the plan is that of Theorem 5.3 of
    docs/theory/optimal-plan.md, the proof that of docs/theory/certificates.md.

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
        Most bytes that a linear program may take, 2 GiB if left out.

    Returns
    -------
    Solution
        With `alpha`, `plan`, `certificate`, `bounds`, `method` and `why`.  Laws given in fractions
        are solved exactly and give fractions; float laws give float64.
    SolutionRows
        Of laws [..., n], one a row, or of several k; all leading axes broadcast.
    SparseSolution
        Of two laws by their support (`SparseProbs`): its plan takes and returns their token ids.

    Raises
    ------
    InvalidDistributionError, InvalidDraftCountError
        If the laws or k are not valid.
    UnknownMethodError
        If the method does not exist.
    InvalidParameterError
        If a linear program is asked for with several rows, or the memory limit is not a number of
        at least 0.
    ProblemTooLargeError
        If a linear program would exceed the memory limit; nothing is allocated then.
    SolverError
        If a linear program's solver does not end at an optimum.
    MissingDependencyError
        If a linear program's solver is not installed.

    References
    ----------
    .. [sun2023] Sun et al., "SpecTr: Fast Speculative Decoding via Optimal Transport",
       NeurIPS 2023, equations 3 and 4.
    .. [hu2025] Hu et al., "Towards Optimal Multi-draft Speculative Decoding", ICLR 2025.

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

    One draft law beside two target laws, and laws by their support:

    >>> solve([0.75, 0.25], [[0.25, 0.75], [0.5, 0.5]], k=2).alpha
    array([0.6875, 0.9375])
    >>> solve(SparseProbs([7, 900], [0.75, 0.25]), SparseProbs([7, 900], [0.25, 0.75]), k=2).alpha
    0.6875
    """
    solve_by = _METHODS[check_name("method", method, _METHODS)]
    if not (isinstance(memory_limit, Real) and memory_limit >= 0):
        raise InvalidParameterError(
            f"memory_limit = {shown(memory_limit)}; give a number of bytes, at least 0"
        )
    if isinstance(p, DraftDistribution):
        raise InvalidDistributionError(
            "the draft law is a joint law of all drafts; `otm.alpha` has its optimum, and the "
            "rules of `otm.coupling` have plans for such drafts"
        )
    if isinstance(p, SparseProbs) or isinstance(q, SparseProbs):
        from otm.on_tokens import SparseSolution

        tokens, draft, target = align(p, q)
        solution = solve_by(Problem(draft, target, k), memory_limit)
        return SparseSolution(solution, tokens)
    if _axes(p) > 1 or _axes(q) > 1 or _axes(k) > 0:
        if solve_by is not _by_closed_form:
            raise InvalidParameterError(
                f"method {shown(method)} takes one pair of laws and one k; several rows are solved "
                'in closed form: leave the method out, or use "closed-form"'
            )
        from otm.batch import solve_rows

        return solve_rows(p, q, k)
    return solve_by(Problem(p, q, k), memory_limit)


@overload
def alpha(p: DraftDistribution, q: Any) -> Number | Interval: ...
@overload
def alpha(p: SparseProbs, q: SparseProbs, k: int) -> Number: ...
@overload
def alpha(p: _Laws, q: _Laws, k: int) -> Number: ...
@overload
def alpha(p: Any, q: Any, k: Any) -> Any: ...
def alpha(p: Any, q: Any, k: Any = None) -> Any:
    """Optimal acceptance probability α_k(p, q) for k i.i.d. drafts, or for any joint law of drafts.

    For i.i.d. drafts by Theorem 3.1 of docs/theory/closed-form.md, for joint laws by
    `otm.optimum.other_drafts`.

    Parameters
    ----------
    p, q : array-like [..., n]
        Draft and target law, as for `solve`; two laws by their support (`SparseProbs`); or for p a
        joint law of all drafts (`otm.drafts`).
    k : int or int array-like [...]
        Number of i.i.d. drafts.  All leading axes broadcast; the laws are sorted only once for
        several k.  To be left out for a joint law, which has its own number of drafts.

    Returns
    -------
    float or Fraction
        α_k, of a single pair of laws and a single k.
    array [...]
        Of several, equal bit for bit to single calls.
    tensor [...]
        If both laws are torch tensors: float64, on their device, and differentiable.  The gradient
        is that of a minimum cut H, dα/dq = 1_H and dα/dp = −k p(H)^(k−1) 1_H, taken through the
        division by Σp and Σq.
    Interval
        For joint laws that have no closed form and are too large for an exact maximum flow.

    Raises
    ------
    InvalidDistributionError, InvalidDraftCountError
        If the laws or k are not valid.
    ProblemTooLargeError
        If drafts without replacement are given in fractions and are too many for exact arithmetic.
    MissingDependencyError
        If a joint law needs a maximum flow and networkx is not installed.

    Examples
    --------
    >>> alpha([0.5, 0.5, 0, 0], [0.25, 0.25, 0.25, 0.25], [1, 2, 8])
    array([0.5, 0.5, 0.5])
    >>> alpha([[0.25, 0.25, 0.25, 0.25], [1, 0, 0, 0]], [0.5, 0.5, 0, 0], 2)
    array([0.75, 0.5 ])
    >>> from otm.drafts import WithoutReplacement
    >>> round(alpha(WithoutReplacement([0.5, 0.25, 0.25], k=2), [0, 0, 1]), 12)
    0.583333333333
    """
    if isinstance(p, DraftDistribution):
        if k is not None:
            raise InvalidDraftCountError(
                f"k = {shown(k)} beside a joint law of {p.k} drafts, which says how many there "
                "are; leave k out"
            )
        from otm.optimum.other_drafts import optimal_value_of

        return optimal_value_of(p, q)
    if isinstance(p, SparseProbs) or isinstance(q, SparseProbs):
        _, p, q = align(p, q)
    elif _wants_tensor(p, q):
        from otm.optimum.torch import optimal_values

        return optimal_values(p, q, k)[0]
    if _axes(p) > 1 or _axes(q) > 1 or _axes(k) > 0:
        from otm.optimum.rows import alpha_rows

        return alpha_rows(p, q, k)
    problem = Problem(p, q, k)
    return optimal_value(problem.by_ratio, problem.k)[0]


def _wants_tensor(p: Any, q: Any) -> bool:
    """Whether both laws are tensors of floats; a gradient is not dropped without a word."""
    tensors = [law for law in (p, q) if is_tensor(law)]
    if len(tensors) == 2 and all(law.is_floating_point() for law in tensors):
        return True
    if any(law.requires_grad for law in tensors):
        raise InvalidDistributionError(
            "one law is a tensor that requires a gradient and the other no tensor of floats; give "
            "both as tensors, or detach the one"
        )
    return False


def _axes(values: Any) -> int:
    """Count the axes, as far as the first entry shows: 2 stands for more, and so 0 for none."""
    if isinstance(values, Sequence) and not isinstance(values, str | bytes):
        first = values[0] if len(values) else None
        nested = isinstance(first, list | tuple) or getattr(first, "ndim", 0) > 0
        return 2 if nested else 1
    return int(getattr(values, "ndim", 0))


def _by_closed_form(problem: Problem, memory_limit: int) -> Solution:
    cut = minimum_cut(problem)
    why = "for i.i.d. drafts α is a minimum over n + 1 prefixes in q/p: no solver, O(n log n)."
    return Solution(problem, cut.value, cut, "closed-form", why)


def _by_linear_program(problem: Problem, memory_limit: int, solver: str) -> Solution:
    from otm.coupling.table import TablePlan
    from otm.optimum.solvers.linear_program import cut_from_duals, packing_form

    if problem.exact:
        draft, target = problem.draft.astype(np.float64), problem.target.astype(np.float64)
        problem = Problem(draft, target, problem.k)
    program = packing_form(problem, memory_limit)
    if solver == "highs":
        from otm.optimum.solvers.highs import solve_highs

        found = solve_highs(program)
    else:
        from otm.optimum.solvers.cvxpy import solve_cvxpy

        found = solve_cvxpy(program)
    plan = TablePlan.from_linear_program(found)
    cut = cut_from_duals(problem, found.token_duals)
    why = (
        f"asked for; SpecTr's linear program in float64, {program.set_of.size:,} variables over "
        "draft multisets."
    )
    return Solution(problem, plan.acceptance, cut, f"lp-{solver}", why, plan)


_METHODS: dict[str, Callable[[Problem, int], Solution]] = {
    "auto": _by_closed_form,
    "closed-form": _by_closed_form,
    "lp-highs": partial(_by_linear_program, solver="highs"),
    "lp-cvxpy": partial(_by_linear_program, solver="cvxpy"),
}
