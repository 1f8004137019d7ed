"""Drafts from hidden states, when contexts are recorded instead of decoded."""

from collections.abc import Sequence

import numpy as np

from otm.decoding import Drafter, DraftNode, Randomness
from otm.models import HuggingFaceModel
from otm.models.base import common_length

__all__ = ["ReadFirst"]


class ReadFirst(Drafter):
    """A drafter whose target reads each context before the drafts, as a loop does.

    A loop reads every token of the context except the last one before it drafts.  A recording does
    not, and a draft model that reads the target's hidden states would lack them.
    """

    def __init__(self, target: HuggingFaceModel, drafter: Drafter) -> None:
        self.vocabulary, self.context_length = drafter.vocabulary, drafter.context_length
        self._drafter, self._session = drafter, target.start(1)
        self._known: tuple[int, ...] = ()

    @property
    def seconds(self) -> float:
        """Seconds in the models of the drafter."""
        return self._drafter.seconds

    def draft(
        self,
        contexts: Sequence[tuple[int, ...]],
        depths: Sequence[int],
        parents: Sequence[int] | None,
        uniforms: Sequence[Randomness],
    ) -> list[DraftNode]:
        """Draft for a batch of one sequence."""
        (context,) = contexts
        kept = common_length(context[:-1], self._known)
        if self._known:
            self._session.keep(np.zeros(1, np.int64), np.array([kept]))
        self._session.read(np.array([context[kept:-1]], dtype=np.int64))
        self._known = context[:-1]
        return self._drafter.draft(contexts, depths, parents, uniforms)
