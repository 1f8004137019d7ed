"""Many pairs of laws solved at once: one solution a row."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from otm._core.arithmetic import Frozen, Law, read_only
from otm._core.checks import (
    Counts,
    Drafts,
    as_array,
    as_draft_counts,
    check_generator,
    check_uniforms,
    name_row,
)
from otm._core.distribution import as_law_rows
from otm._core.tensors import like, to_host
from otm._core.text import shown
from otm.coupling.plan import Selection
from otm.drafts.base import NEVER_DRAWN
from otm.errors import InvalidDraftsError
from otm.optimum.cut import minimum_cut
from otm.optimum.rows import optimal_values
from otm.problem import Problem
from otm.solution import Solution

__all__ = ["SolutionRows", "solve_rows"]

PADDING = -1
"""Stands in place of drafts that a row does not have."""

KEPT_TOKENS = 2**20
"""Most tokens in the solutions that are kept, about 0.2 GB of floats."""

TOKENS_BESIDE = 32
"""A solution takes as much memory beside its tokens as this many tokens do."""


@dataclass(frozen=True, eq=False, repr=False)
class SolutionRows(Frozen):
    """Solutions of OTM-k for many pairs of laws, as `solve_rows` makes them.

    `rows[i]`, with an index for each of the leading axes, is the `Solution` of one row, built when
    it is asked for; along one leading axis the rows are also a sequence.  The latest solutions are
    kept with their plans, at most 2^20 / (n + 32) of them but at least one, in about 0.2 GB, or ten
    times that in fractions; others are built again each time.

    Attributes
    ----------
    draft, target : array [..., n]
        The laws, normalised, each of the shape that it was given in.
    k : int array [...]
        Numbers of drafts, one a row.
    alpha : array [...]
        Optimal acceptance probabilities α_k, equal to those of the single solutions: float64 or
        fractions.

    Examples
    --------
    >>> rows = solve_rows([[0.75, 0.25], [0.5, 0.5]], [0.25, 0.75], k=[2, 1])
    >>> rows.alpha.round(12).tolist()
    [0.6875, 0.75]
    >>> rows[0].certificate.check()
    >>> rows.select([[0, 1], [0, -1]], [[0.5, 0.5, 0.1, 0.9], [0.5, 0.1, 0.9, 0.5]]).token.tolist()
    [1, 0]
    """

    draft: Law
    target: Law
    k: Counts
    alpha: Law
    _solutions: OrderedDict[tuple[int, ...], Solution] = field(
        default_factory=OrderedDict, init=False
    )

    @property
    def shape(self) -> tuple[int, ...]:
        """Leading axes: all but that of the vocabulary."""
        return self.alpha.shape

    def __len__(self) -> int:
        if not self.shape:
            raise TypeError("these rows have no leading axis: rows[()] is the only solution")
        return self.shape[0]

    def __getitem__(self, row: int | tuple[int, ...]) -> Solution:
        """Return the solution of one row."""
        index = row if isinstance(row, tuple) else (row,)
        if len(index) != len(self.shape) or not all(
            -size <= i < size for i, size in zip(index, self.shape, strict=True)
        ):
            raise IndexError(
                f"there is no row {shown(row)}; give one index for each axis of {self.shape}"
            )
        place = tuple(i % size for i, size in zip(index, self.shape, strict=True))
        solution = self._solutions.get(place)
        if solution is None:
            most = KEPT_TOKENS // (self.draft.shape[-1] + TOKENS_BESIDE)
            if self._solutions and len(self._solutions) >= most:
                with suppress(KeyError):  # other threads may have been faster
                    self._solutions.popitem(last=False)  # the oldest
            draft, target = (self._of_shape(law)[place] for law in (self.draft, self.target))
            problem = Problem(draft, target, int(self.k[place]))
            why = "one of several rows; the closed form needs no solver, O(n log n)."
            cut = minimum_cut(problem)
            solution = Solution(problem, cut.value, cut, "closed-form", why)
            self._solutions[place] = solution
        return solution

    def __iter__(self) -> Iterator[Solution]:
        if len(self.shape) != 1:
            raise TypeError(f"rows of shape {self.shape} are not a sequence; index them")
        return (self[i] for i in range(len(self)))

    def select(self, drafts: Any, uniforms: Any) -> Selection:
        """Choose an output token for each row, by its optimal plan.

        Parameters
        ----------
        drafts : int array-like or tensor [..., K]
            Draft tokens, K = max k; −1 in place of those that a row with a smaller k lacks.
        uniforms : array-like or tensor [..., K + 2]
            Independent uniforms in [0, 1).  A row uses its first k + 2.

        Returns
        -------
        Selection
            Tokens and indices of the shape of the rows; tensors on the drafts' device if these
            were a tensor.

        Raises
        ------
        InvalidDraftsError
            If the drafts have a wrong shape or type, could not have been drawn, or are not −1
            exactly where a row has none.
        InvalidUniformsError
            If the uniforms have a wrong shape or do not lie in [0, 1).

        Notes
        -----
        A loop over the rows, not over tokens: each row has a plan of its own, in NumPy, built when
        it is used and kept as long as the solutions are.

        Equivalent to `rows[i].plan.select(drafts[i, :k], uniforms[i, :k + 2])` for each row i.
        """
        tokens = self._check_drafts(drafts)
        expected = (*self.shape, tokens.shape[-1] + 2)
        need = f"these rows need uniforms of shape {expected}: two more than drafts"
        numbers = check_uniforms(uniforms, expected, self.alpha.dtype == object, need)
        token, index = (np.empty(self.shape, dtype=np.int64) for _ in range(2))
        for row in np.ndindex(self.shape):
            plan, k = self[row].plan, self.k[row]
            token[row], index[row] = plan.select(tokens[row][:k], numbers[row][: k + 2])
        return Selection(like(drafts, token), like(drafts, index))

    def sample(self, drafts: Any, rng: np.random.Generator) -> Selection:
        """`select` with uniforms from a generator, for convenience.

        Parameters
        ----------
        drafts : int array-like or tensor [..., K]
            As for `select`.
        rng : Generator
            Where the uniforms come from.

        Returns
        -------
        Selection
            As from `select`.

        Raises
        ------
        InvalidDraftsError
            As for `select`.
        InvalidParameterError
            If `rng` is no generator.
        """
        check_generator(rng)
        width = self._check_drafts(drafts).shape[-1]
        return self.select(drafts, rng.random((*self.shape, width + 2)))

    def _check_drafts(self, drafts: Any) -> Drafts:
        """Return drafts [..., K] as an integer array, with every draft and padding as due."""
        advice = "give an array, with −1 in place of those that a row lacks"
        array = as_array(drafts, "the drafts", InvalidDraftsError, advice)
        width = int(self.k.max()) if self.k.size else (0, *array.shape)[-1]
        if array.shape != (*self.shape, width):
            raise InvalidDraftsError(
                f"drafts of shape {array.shape}; these rows need {(*self.shape, width)}, the last "
                "axis with the drafts of one row, as many as the largest k"
            )
        n = self.draft.shape[-1]
        if array.dtype.kind not in "iu":
            raise InvalidDraftsError(
                f"drafts of type {array.dtype}; draft tokens must be integers in [0, {n})"
            )
        drafted = np.arange(width) < self.k[..., None]
        self._refuse(array, ~drafted & (array != PADDING), "beyond the k drafts −1 must stand")
        outside = drafted & ((array < 0) | (array >= n))
        self._refuse(array, outside, f"the k drafts must lie in [0, {n})")
        array = array.astype(np.int64)
        drawable = np.take_along_axis(self._of_shape(self.draft), np.maximum(array, 0), -1) > 0
        self._refuse(array, drafted & ~drawable, f"it {NEVER_DRAWN}")
        return array

    def _refuse(self, drafts: Drafts, wrong: Any, why: str) -> None:
        if wrong.any():
            *row, place = (int(i) for i in np.argwhere(wrong)[0])
            raise InvalidDraftsError(
                f"{name_row(tuple(row))}draft {place} is {drafts[(*row, place)]}, where "
                f"k = {self.k[tuple(row)]}; {why}"
            )

    def _of_shape(self, law: Law) -> Law:
        return np.broadcast_to(law, (*self.shape, law.shape[-1]))

    def __repr__(self) -> str:
        head = f"OTM-k solutions\n  rows     {self.shape}, n = {self.draft.shape[-1]:,} tokens"
        if not self.k.size:
            return head
        alpha = self.alpha.astype(np.float64)
        fewest, most = self.k.min(), self.k.max()
        return (
            f"{head}\n  k        {fewest if fewest == most else f'{fewest} to {most}'}"
            f"\n  α        mean {alpha.mean():.6g}, min {alpha.min():.6g}, max {alpha.max():.6g}"
        )


def solve_rows(p: Any, q: Any, k: Any) -> SolutionRows:
    """Solve OTM-k for many pairs of laws at once, in closed form.

    By Theorem 3.1 of docs/theory/closed-form.md, row by row.

    Parameters
    ----------
    p, q : array-like or tensor [..., n]
        Draft and target laws along the last axis: floats, or fractions for exact solutions.
    k : int or int array-like [...]
        Numbers of drafts, at least 1.  All leading axes broadcast.

    Returns
    -------
    SolutionRows
        α_k of all rows; plans and certificates on use.

    Raises
    ------
    InvalidDistributionError
        If a row is not a law, which names the row, or the laws do not fit together.
    InvalidDraftCountError
        If a k is not an integer of at least 1, or k does not broadcast with the laws.

    Examples
    --------
    >>> solve_rows([[[0.75, 0.25]], [[0.5, 0.5]]], [0.25, 0.75], k=[1, 2, 3])
    OTM-k solutions
      rows     (2, 3), n = 2 tokens
      k        1 to 3
      α        mean 0.794271, min 0.5, max 1
    """
    counts = as_draft_counts(to_host(k))
    draft, target = as_law_rows(p, q)
    alpha, _ = optimal_values(draft, target, counts)
    return SolutionRows(draft, target, np.broadcast_to(counts, alpha.shape), read_only(alpha))
