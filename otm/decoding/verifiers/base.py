"""Types of verifiers: functions that choose the accepted drafts and the token after them.

A verifier takes the root of a draft tree, the target's distribution after each node, and uniforms.
The output is the accepted drafts and one more token.  If the target continues the output, the text
has the target's distribution ([sun2023]_, Theorem 2; the printed theorem conditions on the number
of tokens, and this version is false).  Texts that are cut at an end token or a length limit also
have the target's distribution.

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
"""Function from a draft path to the target's distribution of the next token."""

Verifier = Callable[[DraftNode, TargetProbs, Randomness], Path]
"""Function from a draft tree, the target's distributions and uniforms to the output."""


def draw_token(probs: SparseProbs, uniforms: Randomness) -> int:
    """Draw a token, such as the bonus token after all drafts are accepted."""
    return locate(probs.tokens, probs.probabilities, uniforms(1)[0])
