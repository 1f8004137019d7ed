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
"""Maximum number of tokens in one copy."""


class PromptLookup(Drafter):
    """Find the last tokens of the context earlier in it, and draft the tokens that followed them.

    This is the "approximation model that simply copies tokens from the context in case we find a
    matching prefix" ([leviathan2023]_, section 3.6), known as prompt lookup.  The drafter uses the
    longest match of at most `max_ngram` tokens; among several longest matches, the latest.  Without
    a match, the drafter drafts no tokens.

    A copy that reaches the end of the context continues with its own tokens.  So a copy of a
    repetitive text has any length that is needed, up to 1024 tokens.

    Parameters
    ----------
    max_ngram : int, optional
        Maximum length of a match, at least 1.

    Raises
    ------
    InvalidParameterError
        If `max_ngram` is not an integer of at least 1.

    Notes
    -----
    Drafts are deterministic: each distribution puts all mass on one token, and no uniform is used.
    A draft x is accepted with the target's probability of x.  If the target model returns
    fractions, the probability 1.0 of a draft is read as a fraction, and the loop stays exact.

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

    seconds: float = 0.0

    def __init__(self, max_ngram: int = 3) -> None:
        self.max_ngram = as_positive(max_ngram, "max_ngram")

    def draft(
        self,
        contexts: Sequence[Context],
        depths: Sequence[int],
        parents: Sequence[int] | None,
        uniforms: Sequence[Randomness],
    ) -> list[DraftNode]:
        """Draft one chain for every sequence of a batch; without a match, a tree without drafts."""
        start = time.perf_counter()
        roots = []
        for context, depth in zip(contexts, depths, strict=True):
            roots.append(node := DraftNode())
            for token in self._copy(context, depth):
                point_mass = SparseProbs.from_support(np.array([token]), np.ones(1))
                node = extend(node, point_mass, token)
        self.seconds += time.perf_counter() - start
        return roots

    @property
    def suits_device(self) -> bool:
        """Whether the drafts cost nothing to move to a device; copies have no distributions."""
        return type(self) is PromptLookup

    def _copy(self, context: Context, depth: int) -> list[int]:
        """Return `depth` copied tokens, at most `LONGEST_COPY`; without a match, an empty list."""
        ids = np.array(context, dtype=np.int64)
        ends = _match_ends(ids, self.max_ngram)
        if ends.size == 0:
            return []
        # Repeat the tokens from the match to the end of the context as often as necessary.
        copied: list[int] = np.resize(ids[ends[-1] + 1 :], min(depth, LONGEST_COPY)).tolist()
        return copied


def _match_ends(ids: npt.NDArray[np.int64], max_ngram: int) -> npt.NDArray[np.int64]:
    """Return the end indices of the longest matches with the last tokens, in ascending order."""
    ends = np.flatnonzero(ids[:-1] == ids[-1])
    for length in range(2, max_ngram + 1):
        longer = ends[ends >= length - 1]
        longer = longer[ids[longer - (length - 1)] == ids[-length]] if longer.size else longer
        if longer.size == 0:
            break
        ends = longer
    return ends
