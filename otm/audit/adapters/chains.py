"""Adapter of functions that verify several chains of drafts at once."""

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
"""A pair with three tokens and few continuations, so that two chains can differ in all drafts."""


class chains(chain):
    """Audit a verifier f(target_probs, draft_probs, draft_tokens, uniforms) of several chains.

    Parameters
    ----------
    function : callable
        Function of the target probabilities [K, γ + 1, V], the draft probabilities [K, γ, V], the
        draft tokens [K, γ] of K independent chains, and uniforms [K γ + 2].  The function returns
        the accepted drafts of one chain and one more token, as for `chain`; its randomness may be
        another parameter, as for `chain`.  Chains with a common prefix have the same rows along
        this prefix.
    name, uniforms, convert : optional
        As for `chain`; `uniforms` is a function of the number K γ of drafts.

    Raises
    ------
    InvalidParameterError
        If the function has other parameters, or they cannot be read.
    MissingDependencyError
        If the function has a parameter `generator`, and torch is not installed.

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
