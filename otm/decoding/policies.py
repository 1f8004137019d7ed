"""How many drafts a step asks for."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any

from otm.decoding.trace import Step
from otm.errors import InvalidParameterError

__all__ = ["GammaPolicy", "as_gamma", "as_policy"]

GammaPolicy = Callable[[Sequence[Step]], int]
"""From the last steps of a sequence to the most drafts γ ≥ 0 of a path in the next one.

It may look at nothing else, so that decoding stays lossless: what it chooses depends on tokens that
are already output, and not on those that will be drafted.
"""


def as_policy(gamma: int | GammaPolicy) -> GammaPolicy:
    """Return a policy, that of a fixed γ for a number."""
    if callable(gamma):
        return gamma
    fixed = as_gamma(gamma)
    return lambda steps: fixed


def as_gamma(value: Any) -> int:
    """Return a number of drafts γ, an integer of at least 0."""
    try:
        gamma = -1 if isinstance(value, bool) else operator.index(value)
    except TypeError:
        gamma = -1
    if gamma < 0:
        raise InvalidParameterError(
            f"γ = {value!r:.60}; it must be an integer of at least 0 (0 decodes without drafts), "
            "or a policy: a function from the steps so far to such a number"
        )
    return gamma
