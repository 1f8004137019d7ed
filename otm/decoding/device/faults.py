"""Faults that the device notes in a step, for the host to raise once it has the numbers."""

from __future__ import annotations

from typing import Any

import numpy as np

from otm.errors import InvalidDistributionError

BAD_DRAFT, BAD_TARGET = 1, 2
"""Fault bits of a sequence: scores of draft or target model gave no valid distribution."""


def check_faults(faults: Any) -> None:
    """Raise if a sequence has a fault, before any result of the step is stored."""
    wrong = np.flatnonzero(faults)
    if wrong.size:
        b = int(wrong[0])
        model = "draft model" if faults[b] & BAD_DRAFT else "target model"
        raise InvalidDistributionError(
            f"sequence {b} of the batch: the logits of the {model} have NaN, +∞ or only −∞, or "
            "its probabilities are below 0 or do not sum to one; at least one logit must be "
            "finite, and all others must be finite or −∞"
        )
