"""The functions that verify drafts: how many of them are accepted, and the token after them.

A verifier takes the root of a tree of drafts, the target's distribution after each node, and
uniforms.  It returns the accepted drafts and one token more.  Continued by the target, the output
has the target's distribution ([sun2023]_, Theorem 2; as printed it conditions on the number of
tokens, and is then false).  So does the part of it up to an end token or a limit of the
length.

References
----------
.. [sun2023] Sun et al., "SpecTr: Fast Speculative Decoding via Optimal Transport", NeurIPS 2023.
"""

from __future__ import annotations

from collections.abc import Callable

from otm._core.probs.sampling import locate
from otm._core.probs.sparse import SparseProbs
from otm.decoding.draft_tree import DraftNode, Randomness
from otm.decoding.reading import Path

TargetProbs = Callable[[Path], SparseProbs]
"""The target's distribution of the token that follows a path of drafts."""

Verifier = Callable[[DraftNode, TargetProbs, Randomness], Path]
"""From a tree of drafts, the target's distributions and uniforms to the output."""


def drawn_from(probs: SparseProbs, uniforms: Randomness) -> int:
    """Draw a token, such as the bonus token that follows when all drafts are accepted."""
    return locate(probs.tokens, probs.probabilities, uniforms(1)[0])
