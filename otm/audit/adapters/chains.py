"""Adapters of functions that verify several chains of drafts at once."""

from __future__ import annotations

from typing import Any

import numpy as np

from otm._core.arithmetic import Probs
from otm.audit.adapters.base import Instance
from otm.audit.adapters.drafts import chain_probs, draw_chain
from otm.audit.adapters.functions import chain
from otm.audit.instances import pair
from otm.decoding.draft_tree import Randomness
from otm.decoding.reading import Path

PAIRS_OF_CHAINS = pair(
    {(): [1, 4, 5], (1,): [3, 0, 1], (2,): [0, 2, 3], (0, 0): [2, 5, 0]},
    {(): [5, 2, 3], (1,): [1, 0, 3], (2,): [1, 4, 0], (0, 0): [3, 1, 0]},
    gamma=2,
    k=2,
)
"""Three tokens, and few ways to go on: then also the second drafts of two chains can be tried."""


class chains(chain):
    """Audit a verifier f(target_probs, draft_probs, draft_tokens, uniforms) of several chains.

    Parameters
    ----------
    function : callable
        Takes the target's probabilities [K, γ + 1, V], the draft's [K, γ, V], the drafts [K, γ] of
        K independent chains, and uniforms [K γ + 2]; returns the accepted drafts of one chain and
        one token more, as for `chain`; its randomness as there.  Chains that begin with the same
        tokens have the same rows so far.
    name, uniforms, convert : optional
        As for `chain`, `uniforms` from the number K γ of drafts to the number of uniforms.

    Raises
    ------
    InvalidParameterError
        If the parameters of the function are not these, or cannot be read.
    MissingDependencyError
        If the function takes a `generator`, and torch is not installed.

    Examples
    --------
    >>> from otm.audit import lossless
    >>> def first_alone(target_probs, draft_probs, draft_tokens, uniforms):
    ...     return [*draft_tokens[0], 0]
    >>> lossless(chains(first_alone), examples=0).verdict
    'not lossless'
    """

    several = True
    more = (PAIRS_OF_CHAINS,)

    def drafted(self, instance: Instance, source: Randomness) -> tuple[Path, ...]:
        """Draw independent chains."""
        return tuple(draw_chain(instance, source) for _ in range(instance.k))

    def _rows(self, instance: Instance, drafts: Any, exact: bool) -> tuple[Probs, Probs]:
        rows = [chain_probs(instance, each, exact) for each in drafts]
        target, draft = (np.array(part) for part in zip(*rows, strict=True))
        return target, draft
