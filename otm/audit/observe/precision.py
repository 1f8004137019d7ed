"""Precision of the search for breakpoints of a verifier."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from otm.testing.symbolic import MAX_UNIFORMS

Floats: TypeAlias = npt.NDArray[np.float64]

LARGEST = 1 - 2.0**-24
"""The largest uniform in float32."""


@dataclass(frozen=True, eq=False)
class Precision:
    """Precision of a search for breakpoints."""

    # First values of a uniform.
    grid: Floats
    # Numbers of random values of the later uniforms in which breakpoints must show; the next number
    # is used if some are missed.  Both ends are tried too: at coins of 0, which accept all drafts,
    # the drafts show.
    probes: tuple[int, ...]
    # Largest width of an interval around a breakpoint.
    resolution: float
    # Number of random runs that are repeated.
    tries: int
    # Number of random runs that the pieces must predict.
    checks: int
    # Largest number of runs between two checks of the time.
    batch: int

    @property
    def unseen(self) -> float:
        """Share of all runs below which an event is missed with probability above 10^−3."""
        return float(1 - 1e-3 ** (1 / self.checks))


FINE = Precision(
    np.append(np.arange(8) / 8, LARGEST), (2, 8, 32), 2.0**-34, MAX_UNIFORMS, 400, 2**20
)

COARSE = Precision(np.array([0, LARGEST]), (1, 4), 2.0**-16, 4, 64, 16)
"""Precision for code that needs hundredths of a second or more for a run."""


@dataclass(frozen=True)
class ProbeSettings:
    """Settings of the search for the breakpoints of one uniform."""

    # Number of random values of the later uniforms.
    number: int
    # Whether to make as few runs as possible, because the later cells show the coin's decisions.
    few: bool = False
    # Whether to merge cells with the same outcomes in all probes into one piece.
    merged: bool = False
