"""Times of models for several tokens in several rows, relative to one shape of the target."""

import time
from typing import Any

import numpy as np

from otm.models import LanguageModel

__all__ = ["relative_latencies"]

LENGTHS = (4, 8)
BATCHES = (1, 2, 4, 8)


def relative_latencies(
    models: dict[str, LanguageModel], prompt: int, runs: int
) -> list[dict[str, Any]]:
    """Return mean and standard deviation over runs, relative to the first model and shape.

    All shapes take turns.  A run is one `append` after a prompt of `prompt` tokens, and the `keep`
    that removes these tokens again.
    """
    timers = {
        (name, length, batch): _Timer(model, prompt, batch, length)
        for name, model in models.items()
        for length in LENGTHS
        for batch in BATCHES
    }
    times = np.array([[timer() for timer in timers.values()] for _ in range(runs + 1)][1:])
    unit = times[:, 0].mean()
    rows = []
    for (name, length, batch), column in zip(timers, times.T, strict=True):
        row = {
            "model": name,
            "length": length,
            "batch": batch,
            "mean": float(column.mean() / unit),
            "deviation": float(column.std(ddof=1) / unit),
            "median_ms": float(1e3 * np.median(column)),
            "runs": runs,
        }
        rows.append(row)
        print("   ", {k: round(v, 2) if isinstance(v, float) else v for k, v in row.items()})
    return rows


class _Timer:
    """A session that has read a prompt, and the tokens to read after it."""

    def __init__(self, model: LanguageModel, prompt: int, batch: int, length: int) -> None:
        rng = np.random.default_rng(0)
        self._new = rng.integers(0, model.vocabulary, (batch, length))
        self._rows, self._kept = np.arange(batch), np.full(batch, prompt)
        self._session = model.start(batch)
        self._session.read(rng.integers(0, model.vocabulary, (batch, prompt)))

    def __call__(self) -> float:
        begun = time.perf_counter()
        self._session.append(self._new)
        self._session.keep(self._rows, self._kept)
        return time.perf_counter() - begun
