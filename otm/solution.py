"""`Solution`, the result of `otm.solve`: the optimal acceptance probability with its proof."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from otm._core.arithmetic import Frozen
from otm._core.checks import (
    Drafts,
    as_array,
    as_drafts,
    check_generator,
    check_uniforms,
    name_row,
    normalize_row,
)
from otm._core.display.reprs import FactsRepr, number_text
from otm._core.display.text import html_table
from otm._core.probs.sparse import places_of
from otm._core.tensors import like
from otm.drafts.base import NEVER_DRAWN
from otm.errors import InvalidDraftsError, InvalidInputError, ProblemTooLargeError
from otm.optimum.cut import Cut, minimum_cut, optimal_value
from otm.problem import Problem

if TYPE_CHECKING:
    from otm.certificate_builder import Certificate
    from otm.coupling.plan import Selection, TransportPlan
    from otm.optimum.bounds import Bound

PADDING = -1
"""Entry of a draft array after the last draft of a row with fewer drafts than columns."""

CACHED_TOKENS = 2**20
"""Largest number of tokens in the cached row solutions, about 0.2 GB of floats."""

OVERHEAD_TOKENS = 32
"""Fixed memory of a cached solution, counted as this number of tokens."""


@dataclass(frozen=True, eq=False)
class Solution(FactsRepr, Frozen):
    """Solution of a problem, or of many problems, one for each row.

    For a problem with rows, `solution[i]` with one index for each leading axis is the solution of
    one row, built on first use.  With one leading axis, the solution is also a sequence of rows.
    The latest row solutions are cached with their plans, at most 2^20 / (n + 32) rows but at least
    one.  The cache takes about 0.2 GB, or ten times as much for fractions.  Rows outside the
    cache are built again on each access.

    Attributes
    ----------
    problem : Problem
        The problem: the normalised distributions, k, and the token ids.
    alpha : float, Fraction, Interval or array [...]
        Optimal acceptance probability α_k(p, q), one for each row.  An `Interval` for drafts that
        have no closed form and are too many for an exact maximum flow.
    method : str
        "closed-form", "lp-highs" or "lp-cvxpy".  For drafts that are not i.i.d., the method can
        also be "max-flow", or "random-order" if `alpha` is an interval.
    why : str
        The reason for the choice of the method, in one sentence.

    Examples
    --------
    >>> from otm import solve
    >>> solution = solve([0.75, 0.25], [0.25, 0.75], k=2)
    >>> round(solution.alpha, 12), solution.cut.tokens.tolist(), solution.method
    (0.6875, [0], 'closed-form')
    >>> solution.plan.output_distribution().round(12).tolist()
    [0.25, 0.75]

    Two rows; the second has one draft:

    >>> rows = solve([[0.75, 0.25], [0.5, 0.5]], [0.25, 0.75], k=[2, 1])
    >>> rows
    OTM-k solutions
      rows     (2,), n = 2 tokens
      k        1 to 2
      α        mean 0.71875, min 0.6875, max 0.75
    >>> rows[0].certificate.check()
    >>> rows.select([[0, 1], [0, -1]], [[0.5, 0.5, 0.1, 0.9], [0.5, 0.1, 0.9, 0.5]]).token.tolist()
    [1, 0]
    """

    problem: Problem
    alpha: Any
    method: str
    why: str
    _cut: Cut | None = None
    _plan: TransportPlan | None = None
    _cache: OrderedDict[tuple[int, ...], Solution] = field(default_factory=OrderedDict, init=False)

    @cached_property
    def cut(self) -> Cut:
        """A minimum cut as token ids; it bounds α from above (docs/theory/minimum-cut.md).

        Raises
        ------
        InvalidInputError
            If the solution has rows.
        """
        cut = self._position_cut("cut")
        return Cut(cut.value, self.problem.ids(cut.tokens))

    @cached_property
    def plan(self) -> TransportPlan:
        """An optimal transport plan, built on first use.

        The plan is an `OptimalPlan` for i.i.d. drafts, `TargetOnly` for `Top` drafts, `GreedyRule`
        for `Greedy` drafts and `SpecHub` for `HubPairs`.  Other drafts with few enough tuples get a
        `TablePlan` from the maximum flow.

        Raises
        ------
        InvalidInputError
            If the solution has rows.
        ProblemTooLargeError
            If drafts that are not i.i.d. have too many tuples for a table.
        MissingDependencyError
            If the plan needs the maximum flow and networkx is not installed.
        """
        self._check_single("plan")
        if self._plan is not None:
            return self._plan
        if not self.problem.iid:
            return _plan_of_other_drafts(self.problem)
        from otm.coupling.optimal import OptimalPlan

        return OptimalPlan(self.problem)

    @cached_property
    def certificate(self) -> Certificate:
        """Proof of optimality, which `check()` verifies without a solver.

        The certificate has `lower`, `upper`, `gap` and a `cut`, whose tokens are given as positions
        in `problem.tokens`.

        Raises
        ------
        InvalidInputError
            If the solution has rows, or the drafts are not i.i.d.
        """
        cut = self._position_cut("certificate")
        self._check_iid("a certificate", "`cut` bounds α from above and `plan` attains it")
        # Modules that write JSON are imported on use, to keep `import otm` fast.
        from otm.certificate_builder import Certificate

        return Certificate.build(self.problem, self.alpha, cut, self.method)

    @cached_property
    def bounds(self) -> tuple[Bound, ...]:
        """The bounds of the SpecTr paper on α_k, each with its theorem.

        Raises
        ------
        InvalidInputError
            If the solution has rows, or the drafts are not i.i.d.
        """
        self._check_single("bounds")
        self._check_iid("the bounds of the SpecTr paper", "`alpha` needs no bounds")
        from otm.optimum.bounds import spectr_bounds

        return spectr_bounds(self.problem)

    def select(self, drafts: Any, uniforms: Any) -> Selection:
        """Choose an output token by the optimal plan; each row uses its own plan.

        Parameters
        ----------
        drafts : int array-like or tensor [..., K]
            Draft tokens, as for `plan.select`.  For many rows, K = max k, with one set of drafts
            for each row; a row with k < K drafts has −1 in its last K − k entries.
        uniforms : array-like or tensor [..., m]
            Independent uniforms in [0, 1), m = `plan.uniforms_per_selection`.  For many rows,
            m = K + 2; each row uses its first k + 2 uniforms.

        Returns
        -------
        Selection
            Tokens and indices of shape [...]; tensors on the same device if the drafts are a
            tensor.

        Raises
        ------
        InvalidDraftsError
            If the drafts have a wrong shape or type, or have probability 0, or the entries after
            the k drafts of a row are not −1.
        InvalidUniformsError
            If the uniforms have a wrong shape or do not lie in [0, 1).

        Notes
        -----
        The method is a Python loop over the rows.  Each row has its own plan in NumPy, built on
        first use and cached with the solution of the row.

        Equivalent to `rows[i].plan.select(drafts[i, :k], uniforms[i, :k + 2])` for each row i.
        """
        shape = self.problem.shape
        if not shape:
            return self.plan.select(drafts, uniforms)
        tokens = _checked_drafts(self.problem, drafts)
        expected = (*shape, tokens.shape[-1] + 2)
        need = f"these rows need shape {expected}, the number of drafts plus two on the last axis"
        numbers = check_uniforms(uniforms, expected, self.problem.exact, need)
        counts = np.asarray(self.problem.k)
        token, index = (np.empty(shape, dtype=np.int64) for _ in range(2))
        for row in np.ndindex(shape):
            plan, k = self[row].plan, counts[row]
            token[row], index[row] = plan.select(tokens[row][:k], numbers[row][: k + 2])
        from otm.coupling.plan import Selection

        return Selection(like(drafts, token), like(drafts, index))

    def sample(self, drafts: Any, rng: np.random.Generator) -> Selection:
        """Call `select` with uniforms from a generator.

        Parameters
        ----------
        drafts : int array-like or tensor [..., K]
            Same as for `select`.
        rng : Generator
            Generator that draws the uniforms.

        Returns
        -------
        Selection
            Same as for `select`.

        Raises
        ------
        InvalidDraftsError
            Same as for `select`.
        InvalidParameterError
            If `rng` is not a NumPy Generator.
        """
        if not self.problem.shape:
            return self.plan.sample(drafts, rng)
        check_generator(rng)
        width = _checked_drafts(self.problem, drafts).shape[-1]
        return self.select(drafts, rng.random((*self.problem.shape, width + 2)))

    def __len__(self) -> int:
        if not self.problem.shape:
            raise TypeError("a single solution has no rows, so it has no length")
        return self.problem.shape[0]

    def __bool__(self) -> bool:
        return True

    def __getitem__(self, row: int | tuple[int, ...]) -> Solution:
        """Return the solution of one row."""
        place = normalize_row(row, self.problem.shape)
        if not self.problem.shape:
            return self
        solution = self._cache.get(place)
        if solution is None:
            limit = CACHED_TOKENS // (self.problem.n + OVERHEAD_TOKENS)
            if self._cache and len(self._cache) >= limit:
                # Another thread may already have removed the oldest solution.
                with suppress(KeyError):
                    self._cache.popitem(last=False)
            problem = self.problem[place]
            solution = Solution(problem, optimal_value(problem), self.method, self.why)
            self._cache[place] = solution
        return solution

    def __iter__(self) -> Iterator[Solution]:
        if len(self.problem.shape) != 1:
            raise TypeError(
                f"solutions of shape {self.problem.shape} are not iterable; index them instead"
            )
        return (self[i] for i in range(len(self)))

    def _position_cut(self, name: str) -> Cut:
        self._check_single(name)
        return minimum_cut(self.problem) if self._cut is None else self._cut

    def _check_single(self, name: str) -> None:
        if self.problem.shape:
            raise InvalidInputError(
                f"only a single row has `{name}`, and this solution has rows of shape "
                f"{self.problem.shape}; use solution[i].{name}, with one index for each axis"
            )

    def _check_iid(self, what: str, instead: str) -> None:
        if not self.problem.iid:
            raise InvalidInputError(
                f"only i.i.d. drafts have {what}, but these are {self.problem.drafts}; {instead}"
            )

    def _lines(self) -> list[tuple[str, str]]:
        problem = self.problem
        if problem.shape:
            return _summary(problem, self.alpha)
        drafts = f"k = {problem.k} drafts" if problem.iid else f"drafts: {problem.drafts}"
        lines = [
            ("problem", f"n = {problem.n:,} tokens, {drafts}"),
            ("numbers", "exact fractions" if problem.exact else "float64"),
            ("α", number_text(self.alpha)),
            ("method", f"{self.method}: {self.why}"),
        ]
        if problem.iid:
            lines.insert(3, ("gap", f"{float(self.certificate.gap):.0g} (certificate)"))
        return lines

    @property
    def _title(self) -> str:
        return "OTM-k solutions" if self.problem.shape else "OTM-k solution"

    def _repr_html_(self) -> str:
        table = super()._repr_html_()
        if self.problem.shape or not self.problem.iid:
            return table
        ranked = sorted(self.bounds, key=lambda bound: bound.value)
        bounds = html_table((x.kind, f"{float(x.value):.6f}", x.formula, x.source) for x in ranked)
        return f"{table}<details><summary>Bounds on α (SpecTr)</summary>{bounds}</details>"


def _summary(problem: Problem, alpha: Any) -> list[tuple[str, str]]:
    """Build the printed lines that summarise the solutions of many rows."""
    lines = [("rows", f"{problem.shape}, n = {problem.n:,} tokens")]
    counts, values = np.asarray(problem.k), alpha.astype(np.float64)
    if counts.size:
        least, largest = counts.min(), counts.max()
        lines += [
            ("k", f"{least}" if least == largest else f"{least} to {largest}"),
            ("α", f"mean {values.mean():.6g}, min {values.min():.6g}, max {values.max():.6g}"),
        ]
    return lines


def _plan_of_other_drafts(problem: Problem) -> TransportPlan:
    """Return an optimal plan for drafts that are not i.i.d.; raise if there are too many tuples."""
    from otm.coupling import GreedyRule, SpecHub, TablePlan, TargetOnly
    from otm.drafts import Greedy, HubPairs, Top, WithoutReplacement
    from otm.optimum.solvers.max_flow import LARGEST_FLOW, fits_max_flow

    drafts = problem.drafts
    if isinstance(drafts, Top):
        return TargetOnly(problem)
    if isinstance(drafts, Greedy):
        return GreedyRule(problem)
    if isinstance(drafts, HubPairs):
        return SpecHub(problem)
    if fits_max_flow(drafts):
        return TablePlan.from_max_flow(problem)
    instead = (
        "RecursiveRejectionWithoutReplacement(solution.problem) is a lossless rule for these "
        "drafts at any size, but it is not optimal"
        if isinstance(drafts, WithoutReplacement)
        else "`alpha` and `cut` work at any size, and i.i.d. drafts have an optimal plan at any "
        "size"
    )
    raise ProblemTooLargeError(
        f"an optimal plan for these drafts ({drafts}) is a table of all tuples, and they have more "
        f"than {LARGEST_FLOW:,} / k = {LARGEST_FLOW // drafts.k:,} tuples; {instead}"
    )


def _checked_drafts(problem: Problem, drafts: Any) -> Drafts:
    """Return the drafts [..., K] of many rows; raise if a draft or its padding is not valid."""
    advice = "give an array, with −1 after the k drafts of each row"
    array = as_array(drafts, "the drafts", InvalidDraftsError, advice)
    counts, n = np.asarray(problem.k), problem.n
    width = int(counts.max()) if counts.size else (0, *array.shape)[-1]
    if array.shape != (*problem.shape, width):
        raise InvalidDraftsError(
            f"drafts of shape {array.shape}; these rows need {(*problem.shape, width)}, where the "
            "last axis has the drafts of one row and its length is the largest k"
        )
    tokens = as_drafts(array, width, None)
    drafted = np.arange(width) < counts[..., None]

    def reject(wrong: Any, why: str) -> None:
        if wrong.any():
            *row, place = (int(i) for i in np.argwhere(wrong)[0])
            raise InvalidDraftsError(
                f"{name_row(tuple(row))}draft {place} is {tokens[(*row, place)]}, where "
                f"k = {counts[tuple(row)]}; {why}"
            )

    reject(~drafted & (tokens != PADDING), "entries after the k drafts must be −1")
    places, known = places_of(problem.tokens, tokens)
    # The tokens are the whole vocabulary, so the message can name its range.
    if problem.tokens[-1] == n - 1:
        reject(drafted & ~known, f"the k drafts must lie in [0, {n})")
    draft = np.broadcast_to(problem.draft, (*problem.shape, n))
    drawable = known & (np.take_along_axis(draft, places, -1) > 0)
    reject(drafted & ~drawable, f"it {NEVER_DRAWN}")
    return tokens
