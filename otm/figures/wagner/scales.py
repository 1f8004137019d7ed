"""How the sigmoid's scales change what is accepted and how far the output is from the target."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from otm.figures.table import Cell, Table
from otm.figures.wagner.outputs import (
    SOFTMAX,
    Array,
    Outputs,
    distance,
    logits_at_contexts,
    outputs,
    weights,
)
from otm.gain.paired_means import clustered_mean

POWERS = (1, 2, 3, 4, 5)
"""The paper has 1, 3, 4 and 5."""

SINGLE, HALF = "float32", "float16"
ALL_ACCEPTED = "all accepted"
"""The limit of large scales, in the place of a scale."""
NO_LAW = "no law"
"""The state of a row whose weights are not finite."""

QUANTITIES = ("acceptance", "TV", "TV after")


def scales(names: Sequence[str], prompts: int, tokens: int, seed: int) -> Table:
    """Compute acceptance and distances, means over contexts with intervals over prompts.

    Parameters
    ----------
    names : sequence of str
        Draft models of this package.
    prompts, tokens, seed : int
        The contexts, see `logits_at_contexts`.

    Returns
    -------
    Table
        One row for each pair, type and scale.  Where there is no law, there are no numbers.
    """
    logits, clusters = logits_at_contexts(("target", *names), prompts, tokens, seed)
    exact = weights(logits["target"], SOFTMAX, "float64")
    rows: list[tuple[Cell, ...]] = []
    tried: tuple[float | str, ...] = (SOFTMAX, *(10.0**power for power in POWERS))
    for name in names:
        drawn = weights(logits[name], SOFTMAX, "float64")
        for dtype in (SINGLE, HALF):
            for scale in tried:
                used = (weights(logits[model], scale, dtype) for model in ("target", name))
                numbers = _means(outputs(drawn, *used), exact, clusters)
                rows.append((name, dtype, name_of(scale), *numbers))
        certain = np.ones(len(exact))
        limit = Outputs(certain, certain, drawn, np.full_like(exact, 1 / exact.shape[1]))
        rows.append((name, SINGLE, ALL_ACCEPTED, *_means(limit, exact, clusters)))
    names_of = (f"{quantity}{end}" for quantity in QUANTITIES for end in ("", " low", " high"))
    return Table(("draft", "type", "scale", "state", *names_of), tuple(rows))


def _means(found: Outputs, exact: Array, clusters: npt.NDArray[np.int64]) -> list[Cell]:
    """State, and mean and interval of each quantity."""
    if not (np.isfinite(found.law).all() and np.isfinite(found.after).all()):
        return [NO_LAW, *[""] * (3 * len(QUANTITIES))]
    series = (found.accepted, distance(found.law, exact), distance(found.after, exact))
    return ["law", *(float(x) for values in series for x in clustered_mean(values, clusters))]


def name_of(scale: float | str) -> str:
    """Name scales as in the table.

    Examples
    --------
    >>> name_of(1000.0), name_of(SOFTMAX)
    ('±10^3', 'softmax')
    """
    return scale if isinstance(scale, str) else f"±10^{round(math.log10(scale))}"


def shown_scale(name: str) -> str:
    """Write the name of scales as in print."""
    return f"$\\pm 10^{name[-1]}$" if name.startswith("±") else name
