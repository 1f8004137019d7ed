"""Prompt lookup: drafts that are copied from the context.

References
----------
.. [leviathan2023] Leviathan, Kalman and Matias, "Fast Inference from Transformers via Speculative
   Decoding", ICML 2023.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from otm._core.numbers import as_positive
from otm._core.probs.sparse import SparseProbs
from otm.decoding.draft_tree import DraftNode, Randomness, extend
from otm.decoding.drafters.base import Drafter
from otm.decoding.reading import Context

LONGEST_COPY = 2**10
"""Most tokens that are copied at once."""


class PromptLookup(Drafter):
    """Draft what came after the latest earlier occurrence of the last tokens.

    The "approximation model that simply copies tokens from the context in case we find a matching
    prefix" ([leviathan2023]_, section 3.6), known as prompt lookup.  As many of the last tokens as
    possible are to match, at most `max_ngram` of them; of several places with the longest match the
    latest counts.  Without any there is no draft.

    A copy that reaches the end of the context goes on with what it has copied itself, so that a
    text that repeats itself is drafted at any length, up to 1024 tokens at once.

    Parameters
    ----------
    max_ngram : int, optional
        Most tokens to match, at least 1.

    Raises
    ------
    InvalidParameterError
        If it is no such number.

    Notes
    -----
    Drafts are certain: their distributions give all mass to one token, so that a draft x is
    accepted with the probability that the target gives it, and no uniform is used.  Such a 1.0 is
    read as a fraction where the target model gives fractions, and the loop stays exact.

    References
    ----------
    .. [leviathan2023] Leviathan, Kalman and Matias, "Fast Inference from Transformers via
       Speculative Decoding", ICML 2023.

    Examples
    --------
    >>> context = (5, 1, 2, 3, 9, 2, 8, 1, 2)
    >>> for max_ngram in (1, 2):
    ...     [root] = PromptLookup(max_ngram).draft([context], [3], [0], [np.random.random])
    ...     print(root.leaf_paths())
    [(8, 1, 2)]
    [(3, 9, 2)]
    """

    seconds: float = 0.0  # spent on looking up so far

    def __init__(self, max_ngram: int = 3) -> None:
        self.max_ngram = as_positive(max_ngram, "max_ngram")

    def draft(
        self,
        contexts: Sequence[Context],
        depths: Sequence[int],
        parents: Sequence[int] | None,
        uniforms: Sequence[Randomness],
    ) -> list[DraftNode]:
        """Draft one chain for every sequence of a batch, or none."""
        begun = time.perf_counter()
        roots = []
        for context, depth in zip(contexts, depths, strict=True):
            roots.append(node := DraftNode())
            for token in self._copy(context, depth):
                certain = SparseProbs.from_support(np.array([token]), np.ones(1))
                node = extend(node, certain, token)
        self.seconds += time.perf_counter() - begun
        return roots

    @property
    def suits_device(self) -> bool:
        """Whether its drafts cost nothing to bring to a device: they have no distributions."""
        return type(self) is PromptLookup

    def _copy(self, context: Context, depth: int) -> list[int]:
        """Return `depth` tokens, fewer above the limit, or none at all."""
        ids = np.array(context, dtype=np.int64)
        ends = _ends_of_matches(ids, self.max_ngram)
        if ends.size == 0:
            return []
        # cyclically: what follows the match up to the end of the context, then its copy
        copied: list[int] = np.resize(ids[ends[-1] + 1 :], min(depth, LONGEST_COPY)).tolist()
        return copied


def _ends_of_matches(ids: npt.NDArray[np.int64], max_ngram: int) -> npt.NDArray[np.int64]:
    """Places before the last where the longest match with the last tokens ends, ascending."""
    ends = np.flatnonzero(ids[:-1] == ids[-1])
    for length in range(2, max_ngram + 1):
        longer = ends[ends >= length - 1]
        longer = longer[ids[longer - (length - 1)] == ids[-length]] if longer.size else longer
        if longer.size == 0:
            break
        ends = longer
    return ends
