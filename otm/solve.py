"""`otm.solve` and `otm.alpha`: choose a solution method, run it and record the reason."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from numbers import Real
from typing import Any, overload

from otm._core.arithmetic import Number, read_only
from otm._core.checks import as_draft_count
from otm._core.display.text import shown
from otm._core.interval import Interval
from otm._core.numbers import check_name
from otm._core.probs.distribution import as_probs_pair
from otm._core.probs.sparse import SparseProbs
from otm._core.ratios.bins import RatioBins
from otm._core.tensors import is_tensor
from otm.drafts.base import DraftDistribution
from otm.errors import InvalidDistributionError, InvalidParameterError
from otm.optimum.cut import cut_in_bins, optimal_value
from otm.optimum.many_rows import alpha_rows, optimal_values
from otm.optimum.multisets import MEMORY_LIMIT
from otm.problem import Problem, has_rows
from otm.solution import Solution

# One distribution, as a flat sequence of numbers.
_Probs = Sequence[Any]


def solve(
    p: Any, q: Any, k: Any = None, *, method: str = "auto", memory_limit: int = MEMORY_LIMIT
) -> Solution:
    """Find the optimal rule that turns k drafts from p into one token with distribution q.

    This is the problem OTM-k (optimal transport with membership cost) of [sun2023]_.  Its value
    has a closed form (Theorem 3.1 of docs/theory/closed-form.md), which [hu2025]_ also found.
    Theorem 5.3 of docs/theory/optimal-plan.md constructs the plan, and docs/theory/certificates.md
    proves the certificate.  The formula of the value is proved in Coq; the plan is proved in Coq
    for a given level t and a given matching (docs/theory/machine-checked.md).  For drafts that are
    not i.i.d., see `otm.optimum.non_iid_drafts`.

    Parameters
    ----------
    p : array-like [..., n], SparseProbs or DraftDistribution
        Draft distribution: a list, a NumPy array or a torch tensor on any device, with floats or
        fractions; a `SparseProbs`; or the joint distribution of all drafts (`otm.drafts`).
    q : array-like [..., n] or SparseProbs
        Target distribution, on the same tokens.
    k : int or int array-like [...]
        Number of i.i.d. drafts, at least 1.  All leading axes broadcast.  Leave it out for a joint
        distribution, which has its own number of drafts.
    method : str, optional
        "auto" or "closed-form"; or "lp-highs" or "lp-cvxpy", which solve SpecTr's linear program in
        float64, as an independent check on small instances.
    memory_limit : int, optional
        Largest number of bytes for a linear program, 2 GiB by default.

    Returns
    -------
    Solution
        Has `alpha`, `plan`, `certificate`, `bounds`, `cut`, `method` and `why`.  For fractions the
        result is exact, in fractions; for floats it is in float64.  For rows [..., n] or several k,
        `alpha` is an array and `solution[i]` is the solution of row i.  For `SparseProbs`, the plan
        and the cut use the token ids of `p` and `q`.

    Raises
    ------
    InvalidDistributionError, InvalidDraftCountError
        If the distributions or k are not valid.
    UnknownMethodError
        If the method does not exist.
    InvalidParameterError
        If the method does not support several rows or these drafts, or the memory limit is not a
        number of at least 0.
    ProblemTooLargeError
        If a linear program would exceed the memory limit (it is then not started), or if drafts
        without replacement have too many sets for exact arithmetic in fractions.
    SolverError
        If the solver of a linear program does not reach an optimum.
    MissingDependencyError
        If the solver of a linear program, or networkx for a maximum flow, is not installed.

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
    >>> solution.certificate.check()  # raises an error unless the proof holds
    >>> token, index = solution.plan.select([0, 1], [0.5, 0.5, 0.1, 0.9])

    For fractions the result is a fraction:

    >>> from fractions import Fraction
    >>> solve([Fraction(3, 4), Fraction(1, 4)], [Fraction(1, 4), Fraction(3, 4)], k=2).alpha
    Fraction(11, 16)

    Two targets for one draft distribution, then sparse distributions, then drafts without
    replacement:

    >>> solve([0.75, 0.25], [[0.25, 0.75], [0.5, 0.5]], k=2).alpha
    array([0.6875, 0.9375])
    >>> sparse = SparseProbs([7, 900], [0.75, 0.25]), SparseProbs([7, 900], [0.25, 0.75])
    >>> solution = solve(*sparse, k=2)
    >>> solution.alpha, solution.plan.drafts.draw([0.1, 0.8]).tolist(), solution.cut.tokens.tolist()
    (0.6875, [7, 900], [7])
    >>> from otm.drafts import WithoutReplacement
    >>> round(solve(WithoutReplacement([0.5, 0.25, 0.25], k=2), [0, 0, 1]).alpha, 12)
    0.583333333333
    """
    solve_by = _METHODS[check_name("method", method, _METHODS)]
    if not (isinstance(memory_limit, Real) and memory_limit >= 0):
        raise InvalidParameterError(
            f"memory_limit is {shown(memory_limit)}; give a number of bytes, at least 0"
        )
    return solve_by(Problem(p, q, k), memory_limit)


@overload
def alpha(p: DraftDistribution, q: Any) -> Number | Interval: ...
@overload
def alpha(p: SparseProbs, q: SparseProbs, k: int) -> Number: ...
@overload
def alpha(p: _Probs, q: _Probs, k: int) -> Number: ...
@overload
def alpha(p: Any, q: Any, k: Any) -> Any: ...
def alpha(p: Any, q: Any, k: Any = None) -> Any:
    """Return only the optimal acceptance probability α_k(p, q), as `solve` computes it.

    The method is Theorem 3.1 of docs/theory/closed-form.md for i.i.d. drafts, and
    `otm.optimum.non_iid_drafts` for other drafts.

    Parameters
    ----------
    p, q : array-like [..., n]
        Draft and target distribution, as for `solve`: arrays, or both as `SparseProbs`.  p may also
        be the joint distribution of all drafts (`otm.drafts`).
    k : int or int array-like [...]
        Number of i.i.d. drafts.  All leading axes broadcast; the distributions are sorted only once
        for several k.  Leave it out for a joint distribution.

    Returns
    -------
    float or Fraction
        α_k, for a single pair of distributions and a single k.
    array [...]
        α_k for several rows or several k, equal bit for bit to the results of single calls.
    tensor [...]
        α_k in float64, on the same device and differentiable, if both distributions are torch
        tensors.  The gradient is that of a minimum cut H, dα/dq = 1_H and
        dα/dp = −k p(H)^(k−1) 1_H, propagated through the division by Σp and Σq.
    Interval
        Bounds on α_k, for a joint distribution that has no closed form and is too large for an
        exact maximum flow.

    Raises
    ------
    InvalidDistributionError, InvalidDraftCountError
        If the distributions or k are not valid.
    ProblemTooLargeError
        If drafts without replacement have too many sets for exact arithmetic in fractions.
    MissingDependencyError
        If a joint distribution needs a maximum flow and networkx is not installed.

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
    if _are_float_tensors(p, q):
        from otm.optimum.torch import optimal_values as on_torch

        return on_torch(p, q, k)[0]
    # These paths give the same numbers as a Problem, without storing normalised distributions.
    if has_rows(p, q, k):
        return alpha_rows(p, q, k)
    if not any(isinstance(probs, SparseProbs | DraftDistribution) for probs in (p, q)):
        count = as_draft_count(k)
        return cut_in_bins(RatioBins.of(*as_probs_pair(p, q, keep=False)), count)[0]
    problem = Problem(p, q, k)
    if problem.shape:
        return optimal_values(problem.draft, problem.target, problem.k)
    if problem.iid:
        return optimal_value(problem)
    from otm.optimum.non_iid_drafts import optimum_of

    return optimum_of(problem).value


def _are_float_tensors(p: Any, q: Any) -> bool:
    """Whether both arguments are float tensors; raise if a gradient would be lost."""
    tensors = [probs for probs in (p, q) if is_tensor(probs)]
    if len(tensors) == 2 and all(probs.is_floating_point() for probs in tensors):
        return True
    if any(probs.requires_grad for probs in tensors):
        raise InvalidDistributionError(
            "one distribution is a tensor that requires a gradient, and the other is not a float "
            "tensor; give both as float tensors, or detach the first"
        )
    return False


WHY = {
    "closed-form": "for i.i.d. drafts α is a minimum over n + 1 prefixes in the order of q/p, "
    "found in O(n log n) time.",
    "rows": "each row is one problem, and the closed form solves it in O(n log n) time.",
    "other drafts": "for these drafts α is a minimum over the prefixes of one order of the tokens.",
    "max-flow": "these drafts have no known closed form; an exact maximum flow over their sets "
    "gives α.",
    "random-order": "these drafts have no known closed form and too many sets for a maximum flow; "
    "rules that pick a draft by a random order give bounds.",
}
"""The reason for the choice of each method, in one sentence."""


def _solve_auto(problem: Problem, memory_limit: int) -> Solution:
    if problem.shape:
        values = optimal_values(problem.draft, problem.target, problem.k)
        return Solution(problem, read_only(values), "closed-form", WHY["rows"])
    # The cut and the plan reuse the bins that the value needs.
    if problem.iid:
        return Solution(problem, optimal_value(problem), "closed-form", WHY["closed-form"])
    from otm.optimum.non_iid_drafts import optimum_of

    optimum = optimum_of(problem)
    method = optimum.method
    why = WHY["other drafts" if method == "closed-form" else method]
    return Solution(problem, optimum.value, method, why, optimum.cut)


def _solve_closed_form(problem: Problem, memory_limit: int) -> Solution:
    solution = _solve_auto(problem, memory_limit)
    if solution.method != "closed-form":
        raise InvalidParameterError(
            f"these drafts ({problem.drafts}) have no known closed form; leave out the method"
        )
    return solution


def _solve_linear_program(problem: Problem, memory_limit: int, name: str) -> Solution:
    from otm.coupling.table import TablePlan
    from otm.optimum.solvers import solve_cvxpy, solve_highs
    from otm.optimum.solvers.linear_program import cut_from_duals, packing_form

    if problem.shape or not problem.iid:
        what = "one pair of distributions and one k" if problem.shape else "i.i.d. drafts"
        raise InvalidParameterError(
            f'method "{name}" supports only {what}; leave out the method, or use "closed-form"'
        )
    problem = problem.to_floats()
    program = packing_form(problem, memory_limit)
    solved = (solve_highs if name == "lp-highs" else solve_cvxpy)(program)
    plan = TablePlan.from_linear_program(solved)
    cut = cut_from_duals(problem, solved.token_duals)
    why = (
        "the caller chose this method; SpecTr's linear program has "
        f"{program.set_of.size:,} variables over draft multisets, in float64."
    )
    return Solution(problem, plan.acceptance, name, why, cut, plan)


_METHODS: dict[str, Callable[[Problem, int], Solution]] = {
    "auto": _solve_auto,
    "closed-form": _solve_closed_form,
    "lp-highs": partial(_solve_linear_program, name="lp-highs"),
    "lp-cvxpy": partial(_solve_linear_program, name="lp-cvxpy"),
}
