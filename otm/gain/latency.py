"""Cost of a step: times of both models, by number of tokens and number of rows.

Leviathan et al. (2023) and SpecTr ([sun2023]_, section 7) assume that the target verifies all
drafts in the time of one token. This assumption holds if reading the weights dominates the time.
SpecTr's appendix E tests the assumption; this module measures the times of your own models.

References
----------
.. [sun2023] Sun et al., "SpecTr: Fast Speculative Decoding via Optimal Transport", NeurIPS 2023.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from otm._core.display.reprs import ShortRepr
from otm._core.display.text import shown
from otm._core.numbers import as_positive
from otm.decoding.policies import as_gamma
from otm.errors import InvalidInputError, InvalidParameterError
from otm.gain.parameters import LARGEST_GAMMA, as_costs, in_unit_interval


@dataclass(frozen=True)
class Latency(ShortRepr):
    """Times of both models on a grid of token counts and row counts, in any unit.

    Between grid points, times are interpolated linearly. Outside the grid, times are unknown.

    Parameters
    ----------
    rows : sequence of int
        Numbers of rows, ascending from 1: K chains are K rows.
    tokens : sequence of int
        Numbers of tokens that the target reads in each row, ascending from 1: γ + 1 for γ drafts.
    draft : sequence of float
        Time in which the draft model reads one token per row, for each number of rows.
    target : sequence of sequences of float
        Time of the target, for each number of tokens and then each number of rows.
    overhead, autoregressive_overhead : float, optional
        Time of a step outside the models, with drafts and without drafts.
    hit_rate : float, optional
        Share of steps whose drafts were prepared during the step before, as set by `overlapped`.
        None if the draft model always waits for the target.
    prepared : int, optional
        Number of continuations that are prepared for each chain.

    Raises
    ------
    InvalidInputError
        If a grid does not ascend from 1, or the times do not have its shape.
    InvalidParameterError
        If a time is negative, a time of the target is not above 0, the hit rate is not in [0, 1],
        or the number of prepared continuations is not an integer of at least 1.

    Examples
    --------
    The entries of a table can be read from JSON, and `dataclasses.asdict` returns them:

    >>> import json
    >>> text = '{"rows": [1, 8], "tokens": [1, 9], "draft": [1, 1.5], '
    >>> text += '"target": [[10, 11], [12, 20]]}'
    >>> latency = Latency(**json.loads(text))
    >>> latency.step_time(gamma=8, k=1), latency.step_time(gamma=8, k=8)
    (20.0, 32.0)
    >>> latency.speedup(3.0, gamma=8, k=1), latency.speedup(4.0, gamma=8, k=8)
    (1.5, 1.25)
    """

    rows: Sequence[int]
    tokens: Sequence[int]
    draft: Sequence[float]
    target: Sequence[Sequence[float]]
    overhead: float = 0.0
    autoregressive_overhead: float = 0.0
    hit_rate: float | None = None
    prepared: int = 1

    def __post_init__(self) -> None:
        for name, grid in (("rows", self.rows), ("tokens", self.tokens)):
            counts = [as_positive(count, name) for count in _as_grid(grid, name)]
            if counts[:1] != [1] or any(a >= b for a, b in itertools.pairwise(counts)):
                raise InvalidInputError(
                    f"{name} = {shown(grid)}; the numbers must ascend and start with 1, because "
                    "decoding without drafts reads one token in one row"
                )
        shapes = as_costs(self.draft, "draft").shape, as_costs(self.target, "target").shape
        rows, tokens = len(self.rows), len(self.tokens)
        if shapes != ((rows,), (tokens, rows)):
            raise InvalidInputError(
                f"times of shapes {shapes[0]} for the draft and {shapes[1]} for the target; with "
                f"{rows} numbers of rows and {tokens} numbers of tokens, the shapes must be "
                f"{(rows,)} and {(tokens, rows)}"
            )
        as_costs(self.overhead, "overhead")
        as_costs(self.autoregressive_overhead, "autoregressive_overhead")
        if not min(time for times in self.target for time in times) > 0:
            raise InvalidParameterError(
                f"target = {shown(self.target)}; each time of the target must be above 0"
            )
        if self.hit_rate is not None:
            in_unit_interval(self.hit_rate, "hit_rate")
        as_positive(self.prepared, "prepared")

    @classmethod
    def constant(cls, cost: float) -> Latency:
        """Return costs as in [leviathan2023]_, Theorem 3.8: c per draft, 1 per target call.

        Parameters
        ----------
        cost : float
            Time c of a draft model call divided by the time of a target call, at least 0.

        Returns
        -------
        Latency
            Times in units of the target's time for one token, for all numbers of drafts and chains.

        Raises
        ------
        InvalidParameterError
            If c is not a number of at least 0.

        References
        ----------
        .. [leviathan2023] Leviathan, Kalman and Matias, "Fast Inference from Transformers via
           Speculative Decoding", ICML 2023.

        Examples
        --------
        >>> from otm.gain import walltime_improvement
        >>> latency = Latency.constant(0.125)
        >>> latency.speedup(1.75, gamma=2, k=1), walltime_improvement(0.5, gamma=2, cost=0.125)
        (1.4, 1.4)
        """
        as_costs(cost, "cost")
        grid = (1, LARGEST_GAMMA)
        return cls(grid, grid, (cost, cost), ((1.0, 1.0), (1.0, 1.0)))

    @property
    def is_constant(self) -> bool:
        """Whether both models take the same time for any K and γ, as from `constant`.

        With such times, more chains would cost nothing, and the largest K would always be fastest.
        So constant times do not show which K is best.

        Examples
        --------
        >>> Latency.constant(0.125).is_constant
        True
        """
        return len(set(self.draft)) == len({time for row in self.target for time in row}) == 1

    @property
    def autoregressive_time(self) -> float:
        """Time t(1, 1) of a token without drafts."""
        return float(self.target[0][0])

    def step_time(self, gamma: int, k: int) -> float:
        """Return the time γ t_draft(K) + t(γ + 1, K) + overhead of a step with K chains.

        A real step may take less time, because one row suffices for the first drafts of all chains.
        With a hit rate η and F prepared continuations (`overlapped`), the time is
        max(γ t_draft(K F), t(γ + 1, K)) + (1 − η) γ t_draft(K) + overhead.

        Parameters
        ----------
        gamma : int
            Number of drafts γ of a chain, at least 0.
        k : int
            Number of chains K, at least 1.

        Returns
        -------
        float
            Time in the unit of the table.

        Raises
        ------
        InvalidInputError
            If the table has no time for γ or K.
        InvalidParameterError
            If γ or K is not an integer in its range.
        """
        tokens, rows = as_gamma(gamma) + 1, as_positive(k, "k")
        most = self.rows[-1] // self.prepared
        if rows > most or tokens > self.tokens[-1]:
            raise InvalidInputError(
                f"γ = {gamma} and K = {k}; the table has times up to γ = {self.tokens[-1] - 1} "
                f"and K = {most}: measure more, or give smaller γ and K (reports use up to 8 by "
                "default)"
            )
        waiting, ahead = (
            gamma * float(np.interp(rows * count, self.rows, self.draft))
            for count in (1, self.prepared)
        )
        by_tokens = [np.interp(rows, self.rows, times) for times in self.target]
        return self._time(waiting, ahead, float(np.interp(tokens, self.tokens, by_tokens)))

    def tree_time(self, widths: Sequence[int]) -> float:
        """Return the time of a step with a tree, which the target reads in one row.

        The draft model drafts level by level, with a row for each node of the level above.

        Parameters
        ----------
        widths : sequence of int
            Number of nodes of each level, from the first drafts on.

        Returns
        -------
        float
            Time in the unit of the table.

        Raises
        ------
        InvalidInputError
            If the table has no time for the number of nodes, or for the rows of a level.
        InvalidParameterError
            If a width is not an integer of at least 1.

        Examples
        --------
        >>> latency = Latency((1, 4), (1, 9), (1, 1.75), ((10, 11), (12, 20)))
        >>> latency.tree_time([2, 4])  # draft calls of 1 and 2 rows; 7 tokens of the target
        13.75
        """
        levels = [as_positive(width, "a width") for width in widths]
        reads = [1, *levels[:-1]][: len(levels)]
        rows, nodes, most = max(reads, default=1), sum(levels), self.rows[-1] // self.prepared
        if rows > most or nodes + 1 > self.tokens[-1]:
            raise InvalidInputError(
                f"a tree of {nodes} nodes and levels of up to {rows} rows; the table has "
                f"times up to {self.tokens[-1] - 1} nodes and {most} rows: measure more"
            )
        waiting, ahead = (
            float(np.interp(np.multiply(reads, count), self.rows, self.draft).sum())
            for count in (1, self.prepared)
        )
        by_tokens = [times[0] for times in self.target]
        return self._time(waiting, ahead, float(np.interp(nodes + 1, self.tokens, by_tokens)))

    def _time(self, waiting: float, ahead: float, verifying: float) -> float:
        """Return the time of a step from those of drafting, of preparing, and of the target."""
        if self.hit_rate is None:
            return waiting + verifying + self.overhead
        return max(ahead, verifying) + (1 - self.hit_rate) * waiting + self.overhead

    def overlapped(self, hit_rate: float, prepared: int = 1) -> Latency:
        """Return the times of steps in which the draft model drafts while the target verifies.

        The two models run on different devices.  While the target verifies, the draft model
        prepares drafts that continue F outcomes of each chain.  If the outcome was prepared, the
        next call of the target starts at once, otherwise it waits for new drafts.  The result can
        be passed to `recommend`, which then finds the fastest setup with overlapped drafting.

        Parameters
        ----------
        hit_rate : float
            Share of steps whose outcome was prepared, as from `mean_hit_rate`.
        prepared : int, optional
            Number F of continuations that are prepared for each chain.

        Returns
        -------
        Latency
            The same table with the hit rate, for up to 1/F of its rows.

        Raises
        ------
        InvalidParameterError
            If the hit rate is not in [0, 1], or F is not an integer of at least 1.

        Notes
        -----
        The prepared drafts must be accepted as often as the others.  Theorem 25.6 of
        docs/theory/prepared.md is the formula for constant times.

        Examples
        --------
        >>> latency = Latency.constant(0.125)
        >>> latency.overlapped(0.5).speedup(2.5, gamma=4, k=1), latency.speedup(2.5, gamma=4, k=1)
        (2.0, 1.6666666666666667)
        """
        return replace(self, hit_rate=hit_rate, prepared=prepared)

    def under_load(self, requests: int) -> Latency:
        """Return the times of one step of a batch of requests, by the chains K of each request.

        A step of B requests with K chains is a step with B K rows.  The result can be passed to
        `recommend`, which then finds the fastest setup at this load.

        Parameters
        ----------
        requests : int
            Number B of requests that the server decodes together.

        Returns
        -------
        Latency
            The table for up to K chains with B K rows in this table.

        Raises
        ------
        InvalidInputError
            If this table has no time for B rows.
        InvalidParameterError
            If B is not an integer of at least 1.

        Examples
        --------
        >>> latency = Latency((1, 8), (1, 5), (0.1, 0.1), ((1, 1), (1.25, 3)))
        >>> [latency.under_load(b).speedup(2.5, gamma=4, k=1) > 1 for b in (1, 8)]
        [True, False]
        """
        count = as_positive(requests, "requests")
        if count > self.rows[-1]:
            raise InvalidInputError(
                f"{count} requests; the table has times up to {self.rows[-1]} rows: measure more"
            )
        # the integers on both sides of each grid point, so that no integer K loses a bend
        sides = {side for rows in self.rows for side in (rows // count, -(-rows // count))}
        chains = sorted({1, *(k for k in sides if 1 <= k <= self.rows[-1] // count)})
        at = [count * k for k in chains]
        return replace(
            self,
            rows=tuple(chains),
            draft=np.interp(at, self.rows, self.draft).tolist(),
            target=[np.interp(at, self.rows, times).tolist() for times in self.target],
        )

    def speedup(self, block_efficiency: float, gamma: int, k: int) -> float:
        """Return the speed relative to decoding without drafts, for a block efficiency.

        Parameters
        ----------
        block_efficiency : float
            Mean number of tokens per step.
        gamma, k : int
            K chains of γ drafts.

        Returns
        -------
        float
            Speed without a unit; above 1 if drafting pays.

        Raises
        ------
        InvalidInputError
            If the table has no time for γ or K.
        InvalidParameterError
            If γ or K is not an integer in its range.
        """
        alone = self.autoregressive_time + self.autoregressive_overhead
        return block_efficiency * alone / self.step_time(gamma, k)


def as_latency(latency: object) -> Latency:
    """Return a latency table; raise if it is something else."""
    if not isinstance(latency, Latency):
        raise InvalidInputError(
            f"the latency is a {type(latency).__name__}; give a Latency, such as from "
            "`measure_latency`"
        )
    return latency


def _as_grid(grid: Any, name: str) -> Any:
    """Return the numbers of a grid; raise unless they are a sequence."""
    if not isinstance(grid, Sequence | np.ndarray) or isinstance(grid, str):
        raise InvalidParameterError(f"{name} = {shown(grid)}; give integers, such as [1, 8]")
    return grid
