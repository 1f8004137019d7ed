"""Mistakes of loops that draft by themselves, such as by n-grams, told by the law of a token.

Their drafts are not those of the draft model, and which ones they are is not known.  But if a
certain draft x is replaced by another sample of the target t wherever a sample differs from it, the
next token is z with probability (1 − t(x)) t(z), and x with t(x) more.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from otm.audit.observe.observation import Observation

SECOND_SAMPLE = "second sample after a mismatch"
"""Name of the known bug."""

CLOSE = 1e-9
"""Differences up to this are rounding."""

LEAST = 2
"""Prefixes that must have exactly that law."""


def samples_twice(observations: Sequence[Observation]) -> bool:
    """Whether each wrong token has this law for some x, or is at times not drafted at all."""
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
