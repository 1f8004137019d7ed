"""Recognize mistakes of loops with their own drafts, such as n-grams, from single tokens.

The audit does not know the drafts of a loop that drafts by itself.  Suppose that the draft is
always x, and that the loop samples again from the target t if its sample differs from x.  In such
a loop, each token z has probability (1 − t(x)) t(z), and x has an additional probability t(x).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from otm.audit.observe.observation import Observation

SECOND_SAMPLE = "second sample after a mismatch"
"""Name of the known bug that this module recognizes."""

CLOSE = 1e-9
"""Tolerance for rounding."""

LEAST = 2
"""Smallest number of prefixes that must have exactly the distribution of the mistake."""


def samples_twice(observations: Sequence[Observation]) -> bool:
    """Return whether each wrong token has the mistake's distribution, or a mix with the target."""
    exact = 0
    for seen in observations:
        for here in seen.prefixes():
            if here.off <= seen.error + CLOSE:
                continue
            target = here.target_probs.astype(np.float64)
            off = here.output_probs.astype(np.float64) - target
            x = int(off.argmax())
            more = target[x] * ((np.arange(target.size) == x) - target)
            close = CLOSE + seen.error / float(here.probability)
            if not (more[x] > 0 and off[x] <= more[x] + close):
                return False
            if (abs(off - off[x] / more[x] * more) > close).any():
                return False
            exact += bool(off[x] >= more[x] - close)
    return exact >= LEAST
