"""Drafts that all come from one distribution p."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Self

import numpy as np
import numpy.typing as npt

from otm._core.arithmetic import Law, is_exact, read_only
from otm._core.distribution import as_law, to_exact
from otm._core.sparse import Tokens
from otm.drafts.base import DraftDistribution


@dataclass(frozen=True, eq=False)
class SingleDistribution(DraftDistribution):
    """Drafts drawn from one distribution p in some way, each token with p > 0 among them."""

    probs: Law  # [n], the distribution p; held normalised and read-only
    # [n], token ids of the entries of p, ascending; 0 to n − 1 if left out
    tokens: Tokens | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        object.__setattr__(self, "probs", as_law(self.probs, "draft"))
        self._check_tokens()

    @property
    def n(self) -> int:
        """Number of tokens."""
        return self.probs.size

    @property
    def exact(self) -> bool:
        """Whether the probabilities are given in fractions."""
        return is_exact(self.probs)

    @cached_property
    def draftable(self) -> npt.NDArray[np.bool_]:
        """Whether each token has p > 0: array [n]."""
        return read_only(np.asarray(self.probs > 0, dtype=np.bool_))

    def to_exact(self) -> Self:
        """Return the same distribution in fractions."""
        return replace(self, probs=to_exact(self.probs))

    def to_floats(self) -> Self:
        """Return the same distribution in float64."""
        return replace(self, probs=self.probs.astype(np.float64))
