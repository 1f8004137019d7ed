"""Tables of the times of steps: measured with two models, or read from a file."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterable
from typing import Any

import numpy as np
import numpy.typing as npt

from otm._core.files.paths import AnyPath, file_label, read_json
from otm._core.numbers import as_positive
from otm._core.tensors import to_host
from otm.decoding.checks import check_length, check_models
from otm.decoding.policies import as_gamma
from otm.errors import InvalidInputError
from otm.gain.latency import Latency
from otm.models.base import LanguageModel, Session


def measure_latency(
    target: LanguageModel,
    draft: LanguageModel,
    prompt_length: int,
    gammas: Iterable[int],
    ks: Iterable[int],
    *,
    requests: Iterable[int] = (1,),
    repeats: int = 20,
    overhead: float = 0.0,
    autoregressive_overhead: float = 0.0,
) -> Latency:
    """Measure the times of two models after a prompt.

    All shapes are timed in turn, many times, so that a slow phase of the machine affects all shapes
    alike. The time of a shape is the median over its runs; the first run is discarded. If a larger
    shape has a shorter time, the smaller shape gets this time too. Otherwise a time that is too
    long, above all for decoding without drafts, could suggest a gain that does not exist.

    Each run times one `append` to a session, until its first scores are ready, and the `keep` that
    removes the appended tokens, as in a step.

    Parameters
    ----------
    target, draft : LanguageModel
        The two models.
    prompt_length : int
        Number of tokens in every row before the timed tokens, at least 1.
    gammas, ks : iterable of int
        Numbers of drafts γ and of chains K. γ = 0 and K = 1 are always measured.
    requests : iterable of int, optional
        Numbers B of requests that a server decodes together, for `Latency.under_load`: B K rows are
        measured for each B and K.  All rows have the same prompt.
    repeats : int, optional
        Number of timed runs per shape.
    overhead, autoregressive_overhead : float, optional
        Seconds of a step outside the models, with drafts and without drafts, such as
        `Generation.seconds.other` divided by the number of steps.

    Returns
    -------
    Latency
        Times in seconds.

    Raises
    ------
    InvalidInputError
        If the prompt with its drafts is too long for a model.
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
    chains = {1, *(as_positive(k, "k") for k in ks)}
    loads = {1, *(as_positive(b, "requests") for b in requests)}
    rows = tuple(sorted({b * k for b, k in itertools.product(loads, chains)}))
    tokens = tuple(sorted({1, *(as_gamma(gamma) + 1 for gamma in gammas)}))
    length, times = as_positive(prompt_length, "prompt_length"), as_positive(repeats, "repeats")
    check_length(target, draft, length, tokens[-1], "γ + 1")
    timers = [_Timer(draft, length, count) for count in rows]
    target_timers = [_Timer(target, length, count) for count in rows]
    shapes = [(timer, 1) for timer in timers]
    shapes += [(timer, count) for count in tokens for timer in target_timers]
    runs = [[timer(count) for timer, count in shapes] for _ in range(times + 1)][1:]
    medians = np.median(runs, axis=0)
    of_draft = _least_over_larger(medians[: len(rows)])
    of_target = _least_over_larger(medians[len(rows) :].reshape(-1, len(rows)))
    return Latency(
        rows, tokens, of_draft.tolist(), of_target.tolist(), overhead, autoregressive_overhead
    )


def _least_over_larger(times: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Lower each time to the smallest time among shapes with at least as many tokens and rows."""
    for axis in range(times.ndim):
        times = np.flip(np.minimum.accumulate(np.flip(times, axis), axis), axis)
    return times


class _Timer:
    """A callable that times new tokens in a session whose rows have already read a prompt."""

    def __init__(self, model: LanguageModel, length: int, rows: int) -> None:
        self._vocabulary = model.vocabulary
        self._rng = np.random.default_rng(0)
        # all rows continue row 0, as chains continue the accepted chain
        self._rows, self._lengths = np.zeros(rows, dtype=np.int64), np.full(rows, length)
        self._session: Session = model.start(rows)
        self._session.read(self._tokens(length))

    def __call__(self, count: int) -> float:
        tokens = self._tokens(count)
        start = time.perf_counter()
        scores: Any = self._session.append(tokens)
        # wait for the device, which may still compute
        np.asarray(to_host(scores[-1, -1, :1]))
        self._session.keep(self._rows, self._lengths)
        return time.perf_counter() - start

    def _tokens(self, count: int) -> npt.NDArray[np.int64]:
        return self._rng.integers(0, self._vocabulary, (self._rows.size, count))


def read_latency(path: AnyPath) -> Latency:
    """Read a latency table from JSON: the arguments of `Latency`, or a number c.

    The number c is the draft model's time per token divided by the target's, for any number of rows
    or tokens (`Latency.constant`).

    Parameters
    ----------
    path : str or Path
        The file.

    Returns
    -------
    Latency
        The table, with times in the unit of the file.

    Raises
    ------
    InvalidInputError
        If the file does not contain a latency table.

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
            f"{file_label(path)} is not a latency table: {error!s:.200}; give a number, the draft "
            "model's time per token divided by the target's, or an object with draft, rows, target "
            "and tokens"
        ) from None
