"""Joint laws of drafts that come from one law p."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from otm._core.arithmetic import Law, is_exact, read_only
from otm._core.distribution import as_law
from otm.drafts.base import DraftDistribution

__all__ = ["OneLaw"]


@dataclass(frozen=True, eq=False)
class OneLaw(DraftDistribution):
    """Drafts that are drawn from one law p in some way, each token with p > 0 among them.

    Parameters
    ----------
    law : array-like [n]
        The law p; held normalised and read-only.
    """

    law: Law

    def __post_init__(self) -> None:
        object.__setattr__(self, "law", as_law(self.law, "draft"))

    @property
    def n(self) -> int:
        """Size of the vocabulary."""
        return self.law.size

    @property
    def exact(self) -> bool:
        """Whether the law is given in fractions."""
        return is_exact(self.law)

    @cached_property
    def draftable(self) -> npt.NDArray[np.bool_]:
        """Whether each token has p > 0: array [n]."""
        return read_only(np.asarray(self.law > 0, dtype=np.bool_))
