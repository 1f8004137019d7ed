"""The largest values of a row, found without a sort or a partition of the row."""

from __future__ import annotations

from typing import Any

import numpy as np

from otm._core.probs.sparse import Tokens

GROUP = 32
"""Number of values per group in the search for the largest values."""


def near_largest(values: Any, count: int) -> tuple[Tokens, Any]:
    """Return few positions, ascending, with those of the largest values, and the largest value.

    Values are split into groups.  The threshold is the `count`-th largest of the groups' maxima, so
    at least `count` values reach it.
    """
    groups = values.size // GROUP
    if count > groups:
        return np.arange(values.size), values.max()
    whole = groups * GROUP
    of_groups = values[:whole].reshape(GROUP, groups).max(axis=0)
    highest = of_groups.max()
    if whole < values.size:
        # The maximum is NaN if any value is NaN.
        highest = np.maximum(highest, values[whole:].max())
    return np.flatnonzero(values >= np.partition(of_groups, -count)[-count]), highest
