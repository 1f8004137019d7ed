"""What a step costs: how long both models take for so many tokens in so many rows.

Leviathan et al. (2023) and SpecTr ([sun2023]_, section 7) assume that the target verifies all
drafts in the time of one token.  That holds where reading the weights takes the time, and SpecTr's
appendix E measures how far; here it is measured on one's own models.

References
----------
.. [sun2023] Sun et al., "SpecTr: Fast Speculative Decoding via Optimal Transport", NeurIPS 2023.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from otm._core.display.reprs import Brief
from otm._core.display.text import shown
from otm._core.files.paths import AnyPath, file_label, read_json
from otm._core.numbers import as_positive
from otm._core.tensors import to_host
from otm.decoding.checks import check_length, check_models
from otm.decoding.policies import as_gamma
from otm.errors import InvalidInputError, InvalidParameterError
from otm.gain.parameters import LARGEST_GAMMA, as_costs
from otm.models.base import LanguageModel, Session


@dataclass(frozen=True)
class Latency(Brief):
    """Times of both models, for grids of numbers of tokens and of rows, in any unit.

    Between the points of the grids times are interpolated linearly; outside they are not known.

    Parameters
    ----------
    rows : sequence of int
        Numbers of rows, ascending from 1: K chains are K rows.
    tokens : sequence of int
        Numbers of tokens that the target reads in each row, ascending from 1: γ + 1 for γ drafts.
    draft : sequence of float
        For each number of rows the time in which the draft model reads one token in each.
    target : sequence of sequences of float
        For each number of tokens, and there for each number of rows, the time of the target.
    overhead, autoregressive_overhead : float, optional
        Time of a step outside of the models, with drafts and without.

    Raises
    ------
    InvalidInputError
        If the numbers do not ascend from 1, or the times are not as many.
    InvalidParameterError
        If a time is negative, or the target's for one token in one row is not above 0.

    Examples
    --------
    A table from elsewhere is given by its entries, and written by `dataclasses.asdict`:

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

    def __post_init__(self) -> None:
        for name, grid in (("rows", self.rows), ("tokens", self.tokens)):
            counts = [as_positive(count, name) for count in grid]
            if counts[:1] != [1] or any(a >= b for a, b in itertools.pairwise(counts)):
                raise InvalidInputError(
                    f"{name} = {shown(grid)}; the numbers must ascend from 1, for which decoding "
                    "without drafts is known"
                )
        shapes = as_costs(self.draft, "draft").shape, as_costs(self.target, "target").shape
        rows, tokens = len(self.rows), len(self.tokens)
        if shapes != ((rows,), (tokens, rows)):
            raise InvalidInputError(
                f"times of shapes {shapes[0]} for the draft and {shapes[1]} for the target; {rows} "
                f"numbers of rows and {tokens} of tokens need {(rows,)} and {(tokens, rows)}"
            )
        as_costs(self.overhead, "overhead")
        as_costs(self.autoregressive_overhead, "autoregressive_overhead")
        if not self.autoregressive_time > 0:
            raise InvalidParameterError(
                f"the target takes {self.autoregressive_time} for one token in one row; it must be "
                "above 0"
            )

    @classmethod
    def constant(cls, cost: float) -> Latency:
        """Return what [leviathan2023]_, Theorem 3.8, assumes: c a draft, 1 for the target.

        Parameters
        ----------
        cost : float
            Time c of a call of the draft model over that of the target, at least 0.

        Returns
        -------
        Latency
            In units of the target's time for one token, for all numbers of drafts and chains.

        Raises
        ------
        InvalidParameterError
            If c is not such a number.

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
        """Whether a call of either model takes the same time for any K and γ, as for `constant`.

        More chains would then cost nothing, and the largest K win: such costs do not decide on K.

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
        """Time γ t_draft(K) + t(γ + 1, K) + overhead of a step with K chains of γ drafts.

        The first level of drafts is the same row for all chains, and may take less.

        Parameters
        ----------
        gamma : int
            Number of drafts γ of a chain, at least 0.
        k : int
            Number of chains K, at least 1.

        Returns
        -------
        float
            In the unit of the table.

        Raises
        ------
        InvalidInputError
            If the table does not reach so far.
        InvalidParameterError
            If γ or K is not such a number.
        """
        tokens, rows = as_gamma(gamma) + 1, as_positive(k, "k")
        if rows > self.rows[-1] or tokens > self.tokens[-1]:
            raise InvalidInputError(
                f"γ = {gamma} and K = {k}; times are known for at most γ = {self.tokens[-1] - 1} "
                f"and K = {self.rows[-1]}: measure more, or ask for no more (reports go up to 8 of "
                "both if nothing else is said)"
            )
        draft = np.interp(rows, self.rows, self.draft)
        by_tokens = [np.interp(rows, self.rows, times) for times in self.target]
        return float(gamma * draft + np.interp(tokens, self.tokens, by_tokens) + self.overhead)

    def speedup(self, block_efficiency: float, gamma: int, k: int) -> float:
        """Speed over decoding without drafts, of steps that add so many tokens on average.

        Parameters
        ----------
        block_efficiency : float
            Block efficiency, the mean number of tokens of a step.
        gamma, k : int
            K chains of γ drafts.

        Returns
        -------
        float
            Without a unit; above 1 where drafting pays.

        Raises
        ------
        InvalidInputError
            If the table does not reach so far.
        InvalidParameterError
            If γ or K is not such a number.
        """
        alone = self.autoregressive_time + self.autoregressive_overhead
        return block_efficiency * alone / self.step_time(gamma, k)


def read_latency(path: AnyPath) -> Latency:
    """Read a latency table from JSON: the arguments of `Latency`, or a number c.

    A number is the time of the draft model for one token over that of the target, whatever the
    number of rows or tokens (`Latency.constant`).

    Parameters
    ----------
    path : str or Path
        The file.

    Returns
    -------
    Latency
        In the unit of the table.

    Raises
    ------
    InvalidInputError
        If it is no such table.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = (Path(folder) / "latency.json").write_text("0.125")
    ...     read_latency(Path(folder) / "latency.json").step_time(gamma=2, k=1)
    1.25
    """
    table: Any = read_json(path)
    try:
        return Latency(**table) if isinstance(table, dict) else Latency.constant(table)
    except (InvalidInputError, TypeError, ValueError, OverflowError) as error:
        raise InvalidInputError(
            f"{file_label(path)} is no table of latencies: {error!s:.200}; give a number, the time "
            "of the draft model over that of the target, or an object with draft, rows, target, "
            "tokens"
        ) from None


def measure_latency(
    target: LanguageModel,
    draft: LanguageModel,
    prompt_length: int,
    gammas: Iterable[int],
    ks: Iterable[int],
    *,
    repeats: int = 20,
    overhead: float = 0.0,
    autoregressive_overhead: float = 0.0,
) -> Latency:
    """Measure how long two models take behind a prompt.

    All shapes are timed in turn, again and again, so that whatever slows the machine down for a
    while slows all of them; of the times of a shape the median is taken, after one that is thrown
    away.  A shape is taken to need no more time than any larger one, so that a time that is too
    long, above all that of decoding without drafts, cannot feign a gain.

    What is timed is one `append` to a session, up to the first of its scores, and the `keep` that
    takes it back, as in a step.

    Parameters
    ----------
    target, draft : LanguageModel
        The two models.
    prompt_length : int
        Number of tokens that every row has before, at least 1.
    gammas, ks : iterable of int
        Numbers of drafts γ and of chains K; 0 and 1 are measured in any case.
    repeats : int, optional
        How often each shape is timed.
    overhead, autoregressive_overhead : float, optional
        Seconds of a step outside of the models, with drafts and without, such as
        `Generation.seconds.other` over the number of steps.

    Returns
    -------
    Latency
        In seconds.

    Raises
    ------
    InvalidInputError
        If prompt and drafts do not fit a model.
    InvalidParameterError
        If a number is outside its range.

    Examples
    --------
    >>> from otm.models import TableModel
    >>> model = TableModel({(): [0.5, 0.5]})
    >>> latency = measure_latency(model, model, 16, gammas=[2, 4], ks=[8], repeats=1)
    >>> latency.tokens, latency.rows
    ((1, 3, 5), (1, 8))
    """
    check_models(target, draft, LanguageModel)
    rows = tuple(sorted({1, *(as_positive(k, "k") for k in ks)}))
    tokens = tuple(sorted({1, *(as_gamma(gamma) + 1 for gamma in gammas)}))
    length, times = as_positive(prompt_length, "prompt_length"), as_positive(repeats, "repeats")
    check_length(target, draft, length, tokens[-1], "γ + 1")
    timers = [_Timer(draft, length, count) for count in rows]
    target_timers = [_Timer(target, length, count) for count in rows]
    shapes = [(timer, 1) for timer in timers]
    shapes += [(timer, count) for count in tokens for timer in target_timers]
    runs = [[timer(count) for timer, count in shapes] for _ in range(times + 1)][1:]
    medians = np.median(runs, axis=0)
    of_draft = _least_of_larger(medians[: len(rows)])
    of_target = _least_of_larger(medians[len(rows) :].reshape(-1, len(rows)))
    return Latency(
        rows, tokens, of_draft.tolist(), of_target.tolist(), overhead, autoregressive_overhead
    )


def _least_of_larger(times: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Least time of each shape and all that have no fewer tokens and no fewer rows."""
    for axis in range(times.ndim):
        times = np.flip(np.minimum.accumulate(np.flip(times, axis), axis), axis)
    return times


class _Timer:
    """A session of rows that have read a prompt, timed on the tokens behind it."""

    def __init__(self, model: LanguageModel, length: int, rows: int) -> None:
        self._vocabulary = model.vocabulary
        self._rng = np.random.default_rng(0)
        # all go on behind one row, as chains do behind the one that was accepted
        self._rows, self._lengths = np.zeros(rows, dtype=np.int64), np.full(rows, length)
        self._session: Session = model.start(rows)
        self._session.read(self._tokens(length))

    def __call__(self, count: int) -> float:
        tokens = self._tokens(count)
        begun = time.perf_counter()
        scores: Any = self._session.append(tokens)
        np.asarray(to_host(scores[-1, -1, :1]))  # a device may still be at work before this
        self._session.keep(self._rows, self._lengths)
        return time.perf_counter() - begun

    def _tokens(self, count: int) -> npt.NDArray[np.int64]:
        return self._rng.integers(0, self._vocabulary, (self._rows.size, count))
