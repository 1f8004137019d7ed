"""`TablePlan`: a transport plan as a table over multisets or tuples of drafts."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import numpy.typing as npt

from otm._core.arithmetic import (
    Number,
    Probs,
    as_fractions,
    as_number,
    at_most_one,
    read_only,
    scatter_sum,
    zeros,
)
from otm._core.checks import Drafts, Uniforms, as_numbers
from otm._core.display.text import shown
from otm.coupling.residual import ResidualPlan, acceptance_ratio
from otm.drafts.base import DraftDistribution
from otm.errors import InvalidParameterError
from otm.optimum.multisets import (
    Multisets,
    first_occurrences,
    multiset_count,
    multiset_probabilities,
    multiset_rank,
    multisets,
)
from otm.optimum.solvers.max_flow import acceptance_by_max_flow
from otm.problem import Problem

if TYPE_CHECKING:
    from otm.optimum.solvers.linear_program import LinearProgramSolution

AcceptanceRule = Callable[[tuple[int, ...]], Mapping[int, Any]]
"""Function from drafts (ascending if i.i.d.) to the probability of accepting each token."""

ROW_SUM_TOLERANCE = 1e-9
"""A row of floats may sum to at most 1 plus this tolerance; any excess above 1 is removed."""


@dataclass(frozen=True, eq=False)
class TablePlan(ResidualPlan):
    """A plan that accepts drafts with the probabilities of an explicit table.

    For i.i.d. drafts, the table is over multisets of drafts, because an optimal plan does not need
    their order.  A table over multisets can store the solution of a linear program.  For drafts
    that are not i.i.d., the table is over all tuples of positive probability.

    The plan is lossless for every table: if the accepted mass v of a token exceeds its target
    probability, the entries of the token are scaled down.  If no draft is accepted, the output is
    drawn from the residual ∝ q − v.  If the table is not optimal, an output from the residual can
    be a draft; `acceptance` includes such outputs, but `acceptance_by_test` does not.

    Parameters
    ----------
    problem : Problem
        The draft distribution, the target distribution and the number of drafts.
    accept : array-like [R, k]
        Entry (r, i) is the probability of accepting draft i in row r.  For i.i.d. drafts, row r of
        the table belongs to row r of `multisets(m, k)` over the m draftable tokens
        `np.flatnonzero(problem.draft)`; for other drafts, it belongs to the r-th tuple of
        `problem.drafts.tuples()`.  If row r contains a token several times, the probability is in
        the first of its columns.

    Raises
    ------
    InvalidInputError
        If `problem` is not a single `Problem`, or the rule does not support its drafts.
    InvalidParameterError
        If the table has a wrong shape, a negative entry or a row with a sum above one.
    ProblemTooLargeError
        On first use, if there are too many multisets or tuples to list.

    Examples
    --------
    >>> problem = Problem([0.75, 0.25], [0.25, 0.75], k=2)
    >>> plan = TablePlan(problem, [[4 / 9, 0], [0, 1], [1, 0]])  # drafts {0,0}, {0,1}, {1,1}
    >>> round(plan.acceptance, 12)
    0.6875
    >>> token, index = plan.select([1, 0], [0.5, 0.5])
    >>> int(token), int(index)
    (1, 0)
    """

    accept: Probs

    def __post_init__(self) -> None:
        self._check_problem()
        object.__setattr__(self, "accept", _checked(self.problem, self.accept))

    @classmethod
    def from_rule(cls, problem: Problem, rule: AcceptanceRule) -> Self:
        """Build the table from a function of the drafts.

        Parameters
        ----------
        problem : Problem
            The draft distribution, the target distribution and the number of drafts.
        rule : callable
            Function from a tuple of k drafts (ascending if they are i.i.d.) to a mapping from each
            token to its acceptance probability.  Tokens that are not in the mapping have
            probability 0.

        Returns
        -------
        TablePlan
            The plan, which is lossless for every `rule`.

        Raises
        ------
        InvalidParameterError
            If the rule accepts a token that was not drafted or its probabilities are not valid.
        ProblemTooLargeError
            If there are too many multisets to list.

        Examples
        --------
        SpecTr's plan for Bernoulli distributions, appendix B.1, with p = Ber(1/4) and q = Ber(3/4):

        >>> problem = Problem([0.75, 0.25], [0.25, 0.75], k=2)
        >>> rule = {(0, 0): {0: 4 / 9}, (0, 1): {1: 1}, (1, 1): {1: 1}}
        >>> float(TablePlan.from_rule(problem, rule.__getitem__).output_distribution()[1])
        0.75
        """
        sets = problem.tokens[_rows(problem)]
        accept = zeros(sets.shape, problem.draft)
        for row, drafts in enumerate(map(tuple, sets.tolist())):
            for token, probability in rule(drafts).items():
                if token not in drafts:
                    raise InvalidParameterError(
                        f"the rule accepts token {shown(token)} for the drafts {drafts}; a rule "
                        "can accept only drafts, and other tokens come from the residual"
                    )
                accept[row, drafts.index(token)] = probability
        return cls(problem, accept)

    @classmethod
    def from_linear_program(cls, solution: LinearProgramSolution) -> Self:
        """Build the plan from the flow of a solved linear program.

        Parameters
        ----------
        solution : LinearProgramSolution
            Result of `solve_highs` or `solve_cvxpy`.

        Returns
        -------
        TablePlan
            A lossless plan in the number type of the problem, optimal up to the tolerance of the
            solver.

        Raises
        ------
        ProblemTooLargeError
            If there are too many multisets to list.

        Examples
        --------
        >>> from otm.optimum.solvers.highs import solve_highs
        >>> from otm.optimum.solvers.linear_program import packing_form
        >>> problem = Problem([0.75, 0.25], [0.25, 0.75], k=2)
        >>> plan = TablePlan.from_linear_program(solve_highs(packing_form(problem)))
        >>> round(plan.acceptance, 12)
        0.6875
        """
        problem = solution.program.problem
        accept: Probs = solution.acceptance_table()
        # Rounded quotients can sum to slightly more than one.
        if problem.exact:
            accept = as_fractions(accept)
            accept = accept / np.maximum(accept.sum(axis=1, keepdims=True), np.asarray(Fraction(1)))
        return cls(problem, accept)

    @classmethod
    def from_max_flow(cls, problem: Problem) -> Self:
        """Build an optimal plan for any drafts from an exact maximum flow, for small problems.

        Parameters
        ----------
        problem : Problem
            A problem with any joint distribution of drafts, if `otm.optimum.solvers.max_flow` can
            list all tuples.

        Returns
        -------
        TablePlan
            The plan.  Its acceptance is the optimum: exactly for fractions, up to rounding for
            floats.

        Raises
        ------
        ProblemTooLargeError
            If there are too many tuples of drafts.
        MissingDependencyError
            If networkx is not installed.

        Examples
        --------
        >>> from otm.drafts import Joint
        >>> half = Fraction(1, 2)
        >>> problem = Problem(Joint({(0, 1): half, (2, 2): half}, n=3), [half, half, Fraction(0)])
        >>> plan = TablePlan.from_max_flow(problem)
        >>> plan.acceptance, plan.output_distribution().tolist()
        (Fraction(1, 2), [Fraction(1, 2), Fraction(1, 2), Fraction(0, 1)])
        """
        # The shares are fractions; an array of floats rounds them.
        shares = acceptance_by_max_flow(problem.drafts, problem.target)
        sets = _rows(problem)
        accept = zeros(sets.shape, problem.draft)
        for row, drafts in enumerate(sets.tolist()):
            for token, share in shares[frozenset(drafts)].items():
                accept[row, drafts.index(token)] = share
        return cls(problem, accept)

    @property
    def drafts(self) -> DraftDistribution:
        """The drafts of the problem, with any joint distribution."""
        return self.problem.drafts

    uniforms_per_selection = 2
    """Two uniforms: one for the accepted draft, one for the residual."""

    @cached_property
    def accepted_mass(self) -> Probs:
        """Probability that each token is output as an accepted draft: array [n]."""
        return read_only(self._mass(self._per_column))

    @property
    def acceptance(self) -> Number:
        """Acceptance probability Pr(Y ∈ {X_1, …, X_k}), including drafts from the residual."""
        sets = np.sort(self._sets, axis=1)
        hit = (self.residual.probs(self.problem.n)[sets] * first_occurrences(sets)).sum(axis=1)
        rejected = 1 - self._cumulative[:, -1]
        by_residual_draw = as_number((self._set_probs * rejected * hit).sum())
        return at_most_one(self.acceptance_by_test + by_residual_draw)

    @cached_property
    def _support(self) -> npt.NDArray[np.int64]:
        return read_only(np.flatnonzero(self.problem.draft))

    @cached_property
    def _sets(self) -> Multisets:
        """Positions of the drafts in each row: array [R, k]."""
        return read_only(_rows(self.problem))

    @cached_property
    def _set_probs(self) -> Probs:
        """Probability of each row: array [R]."""
        if self.problem.iid:
            return read_only(multiset_probabilities(self.problem.draft, self._sets))
        return read_only(np.array([mass for _, mass in self.drafts.position_tuples()]))

    @cached_property
    def _row_of_tuple(self) -> dict[tuple[int, ...], int]:
        """Mapping from each tuple of drafts that are not i.i.d. to its row."""
        return {drafts: row for row, drafts in enumerate(map(tuple, self._sets.tolist()))}

    @cached_property
    def _cumulative(self) -> Probs:
        """Cumulative acceptance probability over the columns, after scaling: array [R, k].

        Selections and all distributions use this table.
        """
        scale = acceptance_ratio(self.problem.target, self._mass(self.accept))
        cumulative = np.cumsum(self.accept * scale[self._sets], axis=1)
        whole: Probs = np.asarray(0 * self.problem.draft[0] + 1)
        return read_only(np.minimum(cumulative, whole))

    @cached_property
    def _per_column(self) -> Probs:
        """Probability that `_accept` accepts each column: array [R, k]."""
        before = 0 * self._cumulative[:, :1]
        return read_only(np.diff(self._cumulative, axis=1, prepend=before))

    def _mass(self, accept: Probs) -> Probs:
        """Return the accepted mass of each token for a table: array [n]."""
        mass = (self._set_probs[:, None] * accept).ravel()
        return scatter_sum(self._sets.ravel(), mass, self.problem.n)

    def _rows_of(self, drafts: Drafts) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """Return the row of each set of drafts [B], and the draft index of each column [B, k]."""
        if not self.problem.iid:
            rows = [self._row_of_tuple[tuple(row)] for row in drafts.tolist()]
            order = np.tile(np.arange(self.problem.k), (len(drafts), 1))
            return np.array(rows, dtype=np.int64), order
        order = np.argsort(drafts, axis=1)
        ascending = np.take_along_axis(drafts, order, axis=1)
        return multiset_rank(np.searchsorted(self._support, ascending)), order

    def _accept(self, drafts: Drafts, uniforms: Uniforms) -> npt.NDArray[np.int64]:
        row, order = self._rows_of(drafts)
        column = (self._cumulative[row] <= uniforms).sum(axis=1)
        last = self.problem.k - 1
        position = np.take_along_axis(order, np.minimum(column, last)[:, None], axis=1)[:, 0]
        return np.where(column <= last, position, -1)

    def _acceptance_per_draft(self, drafts: Drafts) -> Probs:
        row, order = self._rows_of(drafts)
        in_order = self._per_column[row]
        probs = np.empty_like(in_order)
        np.put_along_axis(probs, order, in_order, axis=1)
        return probs


def _rows(problem: Problem) -> Multisets:
    """List the draft positions of each row: multisets if i.i.d., otherwise tuples."""
    if problem.iid:
        support = np.flatnonzero(problem.draft)
        return support[multisets(support.size, problem.k)]
    return np.array([drafts for drafts, _ in problem.drafts.position_tuples()], dtype=np.int64)


def _checked(problem: Problem, accept: Any) -> Probs:
    """Return a checked, read-only table in the number type of the problem."""
    m = int(np.count_nonzero(problem.draft))
    rows = multiset_count(m, problem.k) if problem.iid else problem.drafts.tuple_count
    shape = (rows, problem.k)
    need = (
        f"k = {problem.k} drafts of {m} tokens with p > 0 need shape {shape}, with a row for each "
        f"{'multiset' if problem.iid else 'tuple'}"
    )
    table = as_numbers(accept, shape, problem.exact, "a table of probabilities", need)
    tolerance = 0 if problem.exact else ROW_SUM_TOLERANCE
    valid = (table >= 0).all(axis=1)
    valid &= table.sum(axis=1) <= 1 + tolerance
    if not valid.all():
        row = int(np.flatnonzero(~valid)[0])
        raise InvalidParameterError(
            f"row {row} of the table is {table[row].tolist()}; the probabilities of accepting "
            "each draft must be at least 0 and sum to at most 1"
        )
    return read_only(table)
