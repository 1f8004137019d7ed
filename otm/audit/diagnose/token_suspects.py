"""What the next token of a step is distributed as under known mistakes, from its rows alone.

Token by token, given that the tokens before were output: t are the target's rows, d the draft's.
The tests hold each against the known bug of the same name, run along all its paths.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

import numpy as np

from otm.audit.diagnose.known_bugs import KNOWN_BUGS
from otm.audit.evidence import Diagnosis
from otm.audit.streams.recorded.steps import Floats

OfRows = Callable[["Rows"], Floats]
"""From rows to the distributions of the tokens: array [m, U]."""


def total(rows: Floats) -> Floats:
    """Sum each row: array [m, 1]."""
    return np.asarray(rows.sum(axis=-1, keepdims=True))


def one_hot(rows: Floats) -> Floats:
    """Put everything on the likeliest token of each row."""
    hot = np.zeros_like(rows)
    np.put_along_axis(hot, rows.argmax(axis=-1)[:, None], 1, axis=-1)
    return hot


def power(rows: Floats, exponent: float) -> Floats:
    """Return the distributions at another temperature, 1/exponent of it."""
    weights = (rows / rows.max(axis=-1, keepdims=True)) ** exponent
    return np.asarray(weights / total(weights))


def divided(weights: Floats, otherwise: Floats) -> Floats:
    """Normalise weights; rows that are all zero become others."""
    sums = total(weights)
    return np.where(sums > 0, weights / np.where(sums > 0, sums, 1), otherwise)


def ratio(t: Floats, d: Floats) -> Floats:
    """Return acceptance probabilities min(1, t/d)."""
    return np.divide(t, d, out=np.ones_like(t), where=d > t)


def replaced(accepted: Floats, last: Floats) -> Floats:
    """Accept these masses, and draw from `last` with the rest."""
    return np.asarray(accepted + np.maximum(1 - total(accepted), 0) * last)


@dataclass(eq=False)
class Rows:
    """Rows of both models, and what several suspects need of them."""

    t: Floats  # [m, U]: of the target
    d: Floats  # [m, U]: of the draft

    def __post_init__(self) -> None:
        self.both = np.minimum(self.t, self.d)
        self.residual = divided(self.t - self.both, self.t)
        self.ratio = ratio(self.t, self.d)

    def by_test(self, accepts: Floats) -> Floats:
        """Accept token x with probability accepts(x), and draw from the residual otherwise."""
        return replaced(self.d * accepts, self.residual)

    def drawn(self, drafts: Floats) -> Floats:
        """Draw drafts from another distribution than the one stated."""
        return replaced(drafts * self.ratio, self.residual)


def _not_normalised(rows: Rows) -> Floats:
    last = rows.t - rows.both
    last[:, -1] += rows.both.sum(axis=-1)  # what is missing from one
    return replaced(rows.both, last)


def _softmax(rows: Rows) -> Floats:
    weights = np.exp(rows.residual)
    return replaced(rows.both, weights / total(weights))


def _noise_is_coin(rows: Rows) -> Floats:
    """Accept if the uniform that drew x, in its part of the distribution function, is below t/d."""
    end = rows.d.cumsum(axis=-1)
    below = np.divide(rows.t, rows.d, out=np.zeros_like(rows.t), where=rows.d > 0)
    accepted = np.clip(np.minimum(end, below) - (end - rows.d), 0, rows.d)
    return replaced(accepted, rows.residual)


def _swapped(rows: Rows) -> Floats:
    other = divided(rows.d - rows.both, rows.d)
    return replaced(rows.d * ratio(rows.d, rows.t), other)


def _uniform(rows: Rows) -> Floats:
    stated = Rows(rows.t, np.full_like(rows.d, 1 / rows.d.shape[-1]))
    return stated.drawn(rows.d)


IN_PLACE_OF_A_DRAFT: dict[str, OfRows] = {
    "every draft accepted": lambda rows: rows.d,
    "no residual": lambda rows: replaced(rows.both, rows.t),
    "residual not clamped": lambda rows: replaced(rows.both, divided(abs(rows.t - rows.d), rows.t)),
    "likeliest token of the residual": lambda rows: replaced(rows.both, one_hot(rows.residual)),
    "residual not normalised": _not_normalised,
    "softmax of the residual": _softmax,
    "draft and target swapped": _swapped,
    "ratio to the largest probability": lambda rows: rows.by_test(
        rows.t / rows.t.max(axis=-1, keepdims=True)
    ),
    "equal tokens pass": lambda rows: rows.by_test(1 - (1 - rows.t) * (1 - rows.ratio)),
    "constant coins": lambda rows: rows.by_test((rows.d < 2 * rows.t).astype(np.float64)),
    "draft's noise is the coin": _noise_is_coin,
    "draft law taken as uniform": _uniform,
    "greedy drafts reported as softmax": lambda rows: rows.drawn(one_hot(rows.d)),
    "temperature of the drafts alone": lambda rows: rows.drawn(power(rows.d, 2)),
}
"""By the name of the known bug; only the first is none of them."""

ANYWHERE: dict[str, Callable[[Floats], Floats]] = {
    "temperature not applied to the target": lambda t: power(t, 2),
    "target at twice the temperature": lambda t: power(t, 0.5),
    "likeliest token of the target": one_hot,
}
"""From the target's rows [m, U] alone: also where there are no drafts."""

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


def suspected(target: Floats, draft: Floats | None, drafts: int) -> Floats:
    """Return the distributions of tokens along drafts under each suspect: [m, S, U].

    Target rows [m, U] and draft rows [g, U], which may be more or unknown.  A suspect that does
    nothing wrong at a place has the target's row there.
    """
    length = len(target)
    held = 0 if draft is None else min(len(draft), length)
    of_all = np.repeat(target[:, None], len(SUSPECTS), axis=1)
    if draft is not None and held:
        rows = Rows(target[:held], draft[:held])
        for place, of_rows in enumerate(IN_PLACE_OF_A_DRAFT.values()):
            of_all[:held, place] = of_rows(rows)
    for place, of_row in enumerate(ANYWHERE.values(), len(IN_PLACE_OF_A_DRAFT)):
        of_all[:, place] = of_row(target)
    if 0 < drafts < length:  # the token behind all drafts
        of_all[drafts, -1] = target[drafts - 1]
    return of_all


@cache
def diagnosis_of(name: str) -> Diagnosis:
    """Say what a suspect is, in the words of the known bug."""
    for bug in KNOWN_BUGS:
        if bug.name == name:
            return Diagnosis(name, bug.mistake, bug.summary, tuple(bug.threads))
    return Diagnosis(name, *OTHER[name], ())
