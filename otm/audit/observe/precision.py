"""The precision with which breakpoints of a verifier are searched."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from otm.testing.symbolic import MAX_UNIFORMS

Floats: TypeAlias = npt.NDArray[np.float64]

LARGEST = 1 - 2.0**-24
"""The largest uniform that float32 holds."""


@dataclass(frozen=True, eq=False)
class Precision:
    """Precision of a search for breakpoints."""

    grid: Floats  # where a uniform is put first
    # random values of the later uniforms among which a breakpoint must show; more if they miss
    # some; besides them stand both edges: drafts show where all coins are 0, which accept them
    probes: tuple[int, ...]
    resolution: float  # how closely a breakpoint is located
    tries: int  # random runs that are made twice
    checks: int  # random runs that the pieces must predict
    batch: int  # most runs between two looks at the time

    @property
    def unseen(self) -> float:
        """Share of all runs in which an event is missed with probability 10^−3."""
        return float(1 - 1e-3 ** (1 / self.checks))


FINE = Precision(
    np.append(np.arange(8) / 8, LARGEST), (2, 8, 32), 2.0**-34, MAX_UNIFORMS, 400, 2**20
)

COARSE = Precision(np.array([0, LARGEST]), (1, 4), 2.0**-16, 4, 64, 16)
"""For code that takes hundredths of a second and more for a run."""


@dataclass(frozen=True)
class ProbeSettings:
    """Settings of the search for the breakpoints of one uniform."""

    number: int  # of random values of the later uniforms
    few: bool = False  # whether as few runs as can be are made: what a coin decides shows after it
    merged: bool = False  # whether cells are one piece where all looks see the same
