"""What several tests of the audit need."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from otm.audit.intercept.interception import Generators, replaced_generators
from otm.decoding.draft_tree import Randomness


def drawn(weights: Any, uniform: Any) -> int:
    """Place a uniform among weights."""
    cdf = np.cumsum(weights)
    return int(np.searchsorted(cdf, uniform * cdf[-1], side="right"))


@contextmanager
def drawing_from(source: Randomness) -> Iterator[Generators]:
    """Let global generators draw from a source, but for those that are seeded meanwhile."""
    with replaced_generators() as generators:
        generators.begin(source)
        yield generators
        generators.end()
