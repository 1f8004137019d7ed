"""What the next token of a step is distributed as under known mistakes, from its rows alone.

Token by token, given that the tokens before were output: t is the target's row, d the draft's.  The
tests hold each against the known bug of the same name, run along all its paths.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import numpy as np

from otm.audit.known_bugs import KNOWN_BUGS
from otm.audit.recorded_steps import Floats
from otm.audit.report import Diagnosis

OfRows = Callable[[Floats, Floats], Floats]
"""From the target's row t [U] and the draft's d [U] to the distribution of the token [U]."""


def one_hot(row: Floats) -> Floats:
    """Put everything on the likeliest token."""
    hot = np.zeros_like(row)
    hot[row.argmax()] = 1
    return hot


def power(row: Floats, exponent: float) -> Floats:
    """Return the distribution at another temperature, 1/exponent of it."""
    weights = (row / row.max()) ** exponent
    return np.asarray(weights / weights.sum())


def residual(t: Floats, d: Floats) -> Floats:
    """Residual distribution, or t where none is left."""
    rest = np.maximum(t - d, 0)
    total = rest.sum()
    return np.asarray(rest / total) if total > 0 else t


def replaced(accepted: Floats, last: Floats) -> Floats:
    """Accept these masses, and draw from `last` with the rest."""
    return np.asarray(accepted + max(1 - float(accepted.sum()), 0) * last)


def by_test(t: Floats, d: Floats, accepts: Floats, drawn: Floats | None = None) -> Floats:
    """Accept token x with probability accepts(x), and draw from the residual otherwise."""
    return replaced((d if drawn is None else drawn) * accepts, residual(t, d))


def ratio(t: Floats, d: Floats) -> Floats:
    """Return acceptance probabilities min(1, t/d)."""
    return np.divide(t, d, out=np.ones_like(t), where=d > t)


def _not_normalised(t: Floats, d: Floats) -> Floats:
    accepted = np.minimum(t, d)
    last = np.maximum(t - d, 0)
    last[-1] += accepted.sum()  # what is missing from one
    return replaced(accepted, last)


def _softmax(t: Floats, d: Floats) -> Floats:
    weights = np.exp(residual(t, d))
    return replaced(np.minimum(t, d), weights / weights.sum())


def _noise_is_coin(t: Floats, d: Floats) -> Floats:
    """Accept if the uniform that drew x, in its part of the distribution function, is below t/d."""
    end = d.cumsum()
    with np.errstate(divide="ignore", invalid="ignore"):
        below = np.where(d > 0, t / d, 0)
    return replaced(np.clip(np.minimum(end, below) - (end - d), 0, d), residual(t, d))


def _largest_ratio(t: Floats, d: Floats) -> Floats:
    return by_test(t, d, t / t.max())


IN_PLACE_OF_A_DRAFT: dict[str, OfRows] = {
    "every draft accepted": lambda t, d: d,
    "no residual": lambda t, d: replaced(np.minimum(t, d), t),
    "residual not clamped": lambda t, d: replaced(
        np.minimum(t, d), abs(t - d) / s if (s := abs(t - d).sum()) else t
    ),
    "likeliest token of the residual": lambda t, d: replaced(
        np.minimum(t, d), one_hot(residual(t, d))
    ),
    "residual not normalised": _not_normalised,
    "softmax of the residual": _softmax,
    "draft and target swapped": lambda t, d: replaced(d * ratio(d, t), residual(d, t)),
    "ratio to the largest probability": _largest_ratio,
    "equal tokens pass": lambda t, d: by_test(t, d, 1 - (1 - t) * (1 - ratio(t, d))),
    "constant coins": lambda t, d: by_test(t, d, (d < 2 * t).astype(np.float64)),
    "draft's noise is the coin": _noise_is_coin,
    "draft law taken as uniform": lambda t, d: by_test(
        t, np.full_like(t, 1 / t.size), ratio(t, np.full_like(t, 1 / t.size)), d
    ),
    "greedy drafts reported as softmax": lambda t, d: by_test(t, d, ratio(t, d), one_hot(d)),
    "temperature of the drafts alone": lambda t, d: by_test(t, d, ratio(t, d), power(d, 2)),
}
"""By the name of the known bug; only the first is none of them."""

ANYWHERE: dict[str, Callable[[Floats], Floats]] = {
    "temperature not applied to the target": lambda t: power(t, 2),
    "target at twice the temperature": lambda t: power(t, 0.5),
    "likeliest token of the target": one_hot,
}
"""From the target's row alone: also where there are no drafts."""

BONUS = "bonus of the row before"

SUSPECTS = (*IN_PLACE_OF_A_DRAFT, *ANYWHERE, BONUS)

OTHER = {
    "every draft accepted": (
        "lossy acceptance",
        "Every draft is accepted, whatever the target's probability.",
    ),
    "target at twice the temperature": (
        "one-sided temperature",
        "The output is flatter than the rows: as they are at twice the temperature.",
    ),
    "likeliest token of the target": (
        "greedy output",
        "The output is the likeliest token of the target.",
    ),
}

OF_DRAFTS: dict[str, Callable[[Floats], Floats]] = {
    "greedy drafts": one_hot,
    "drafts at half the temperature": lambda d: power(d, 2),
    "drafts at twice the temperature": lambda d: power(d, 0.5),
}
"""How drafts are drawn, where they are not drawn from their rows."""


def suspected(t: Floats, d: Floats | None, before: Floats | None) -> Floats:
    """Distributions of the token under each suspect, t where it does nothing wrong: [S, U].

    Without d the token is behind all drafts, and `before` is the row of the last of them.
    """
    rows = [t if d is None else of_rows(t, d) for of_rows in IN_PLACE_OF_A_DRAFT.values()]
    rows += [of_row(t) for of_row in ANYWHERE.values()]
    rows.append(t if d is not None or before is None else before)
    return np.array(rows)


@cache
def diagnosis_of(name: str) -> Diagnosis:
    """Say what a suspect is, in the words of the known bug."""
    for bug in KNOWN_BUGS:
        if bug.name == name:
            return Diagnosis(name, bug.mistake, bug.summary, tuple(bug.threads))
    return Diagnosis(name, *OTHER[name], ())
