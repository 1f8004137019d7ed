"""Mistakes in stated parameters: their distributions, and the mistake to name.

A mistake changes the distribution of some tokens: a parameter has no effect or half of its stated
value, or it acts on some tokens alone, such as the bonus token of a step.  A server that updates
its parameters once a step misses the last tokens: penalties do not see them, and top-k, top-p or
min-p keep the tokens that were probable at an earlier place.
"""

from __future__ import annotations

import itertools
import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from otm.audit.streams.e_process import Bools, Floats
from otm.audit.streams.server.answers import Completion, Prompt
from otm.audit.streams.server.distributions.references import OwnLists, ProbsOf
from otm.audit.streams.server.distributions.token_probs import TINY, TokenProbs
from otm.audit.streams.server.evidence.suspects import (
    MISTAKEN,
    MOST_EXAMINED,
    SHARE,
    SampledToken,
)
from otm.audit.streams.server.request_parameters import ENDINGS, RequestParameters, scaled
from otm.decoding import SamplingParameters

SHARES = (0.3, 0.5, 0.7)
"""Shares of the tokens that a mistake may affect if it does not affect all of them."""

CLEAR = 2.0
"""Smallest difference of two log-likelihood gains that distinguishes two mistakes."""

LAGS = (1, 2)
"""Numbers of last tokens that penalties may miss in a step."""

LARGEST_RATIO = 20.0
"""Largest ratio of two probabilities, so that no single token decides."""

PENALTIES = ("repetition_penalty", "frequency_penalty", "presence_penalty")
TRUNCATION = ("top_k", "top_p", "min_p")

HALF = 0.5
"""Factor of a value that a server may use instead of the stated value."""

WITHOUT = "without effect"
OF_HALF = "of half its stated value"
ALONE = "on some tokens alone, such as the bonus token of a step"
LATE_PENALTIES = "penalties once a step, and not once a token: they miss the last tokens"
LATE_WINDOW = (
    "top-k, top-p or min-p once a step, and not once a token: they choose the tokens that are "
    "probable at an earlier place of the text"
)

EARLY_WINDOW = "top-p or min-p before the temperature, and not after it"


class Suspect(NamedTuple):
    """A mistake with its log-likelihood gain over the reference."""

    gain: float
    text: str


@dataclass(frozen=True)
class Stated:
    """The sampling and request parameters of a setting, and the names of omitted ones."""

    sampling: SamplingParameters
    request: RequestParameters
    omitted: Sequence[str] = ()

    def names(self) -> list[str]:
        """Return the names of parameters that change the distribution."""
        neutral = vars(SamplingParameters())
        changed = [name for name, value in vars(self.sampling).items() if value != neutral[name]]
        return changed + [name for name in self.request.stated if name not in ENDINGS]

    def describe(self, names: Sequence[str]) -> str:
        """Return the names with their values."""
        values = vars(self.sampling) | vars(self.request)
        default = " (the server's default, which requests leave out)"
        return ", ".join(
            f"{name} {values[name]}{default if name in self.omitted else ''}" for name in names
        )

    def scaled(self, names: Sequence[str], factor: float) -> Stated:
        """Multiply request parameters by a factor; with 0, all named parameters are neutral."""
        neutral = vars(SamplingParameters())
        changed = {name: neutral[name] for name in names if name in neutral}
        sampling, request = replace(self.sampling, **changed), scaled(self.request, names, factor)
        return replace(self, sampling=sampling, request=request)


class Mistake(NamedTuple):
    """Parameters that a server does not use as stated."""

    # Names of the parameters with another value; none if only the text before a token is another.
    names: tuple[str, ...]
    # Factor of the values that the server uses; 0 for parameters without effect.
    factor: float = 0.0
    # Numbers of last tokens that penalties, or the choice of the most probable tokens, miss.
    lags: tuple[int, ...] = (0,)
    # Whether top-k, top-p and min-p choose tokens for an earlier token of the text.
    late_window: bool = False
    # Whether top-p and min-p choose tokens before the temperature changes their probabilities.
    early_window: bool = False

    def rows(
        self, probs_of: ProbsOf, stated: Stated, prompt: Prompt, answer: Completion
    ) -> list[list[TokenProbs | None]]:
        """Return the distributions of the tokens of an answer for each lag."""
        if self.late_window or self.early_window:
            free = _rows(probs_of, stated.scaled(TRUNCATION, 0), prompt, answer)
            if self.late_window:
                rows = _rows(probs_of, stated, prompt, answer)
                return [[*map(_in_window, free, _late(rows, lag))] for lag in self.lags]
            early = replace(stated, sampling=replace(stated.sampling, temperature=1.0))
            windows = _rows(probs_of, early, prompt, answer)
            # If a list is too short for the window, the window has all tokens of the list.
            return [[_in_window(*pair) or pair[0] for pair in zip(free, windows, strict=True)]]
        used = stated.scaled(self.names, self.factor)
        return [probs_of(prompt, answer, used.sampling, used.request, lag) for lag in self.lags]


def _rows(
    probs_of: ProbsOf, stated: Stated, prompt: Prompt, answer: Completion
) -> Sequence[TokenProbs | None]:
    return probs_of(prompt, answer, stated.sampling, stated.request)


def _late(rows: Sequence[TokenProbs | None], lag: int) -> list[TokenProbs | None]:
    """Return the row of an earlier token for each token; the first tokens have none."""
    return [None] * min(lag, len(rows)) + [*rows[: max(len(rows) - lag, 0)]]


def _in_window(free: TokenProbs | None, window: TokenProbs | None) -> TokenProbs | None:
    """Restrict a row without truncation to the tokens of another row; None if they are unknown."""
    if free is None or window is None or window.rest or not window.rest_counts:
        return None
    kept = [place for place, token in enumerate(free.tokens) if token in window.places]
    if not kept:
        return None
    probs = free.probs[kept] / free.probs[kept].sum()
    unseen = window.unseen | {token for token in window.tokens if token not in free.places}
    return TokenProbs(tuple(free.tokens[place] for place in kept), probs, 0.0, True, unseen)


def mistakes_in(names: Sequence[str]) -> list[Mistake]:
    """List the mistakes: a server ignores one or several parameters, or penalties lag behind."""
    request = tuple(name for name in names if name not in vars(SamplingParameters()))
    processors = (*request, *(["min_p"] if "min_p" in names else []))
    groups = [*((name,) for name in names), request, processors, tuple(names)]
    found = [Mistake(group) for group in {frozenset(group): group for group in groups}.values()]
    found = [mistake for mistake in found if mistake.names]
    return found + ([Mistake((), lags=LAGS)] if {*PENALTIES}.intersection(names) else [])


def _more_mistakes(names: Sequence[str]) -> list[Mistake]:
    """List mistakes to name that need no bets, because other evidence finds them."""
    request = [name for name in names if name in (*PENALTIES, "logit_bias")]
    halved = [Mistake((name,), HALF) for name in request]
    late = [Mistake((), lags=LAGS, late_window=True)] if {*TRUNCATION}.intersection(names) else []
    early = {"temperature"} < {*names} & {"temperature", "top_p", "min_p"}
    return halved + late + ([Mistake((), early_window=True)] if early else [])


def find_parameter_suspect(
    sampled: Sequence[SampledToken], stated: Stated, probs_of: ProbsOf
) -> Suspect | None:
    """Return the mistake in stated parameters that best explains the tokens, if there is one."""
    names = stated.names()
    if not names or (isinstance(probs_of, OwnLists) and probs_of.processed):
        return None
    sampled = sampled[:MOST_EXAMINED]
    mistakes = mistakes_in(names) + _more_mistakes(names)
    gains: defaultdict[tuple[str, ...], dict[str, float]] = defaultdict(dict)
    first = np.array([each.place == 0 for each in sampled])
    for mistake, ratios in zip(mistakes, _ratios(sampled, stated, probs_of, mistakes), strict=True):
        gains[mistake.names] |= _gains(mistake, ratios, first)
    best = max(_suspect(found, stated.describe(which)) for which, found in gains.items())
    # Short lists hardly distinguish this mistake from a parameter without effect.
    early = gains[()].get(EARLY_WINDOW, -math.inf)
    if early > max(SHARE * best.gain, CLEAR) and EARLY_WINDOW != best.text:
        return best._replace(text=f"{best.text}, or {EARLY_WINDOW}")
    return best


def _gains(mistake: Mistake, ratios: Floats, first: Bools) -> dict[str, float]:
    """Return the gain of a mistake on all tokens, and on some tokens alone, by its description.

    Servers sample the `first` token of a text without drafts, like a bonus token.
    """
    everywhere, later = _gain(ratios, MISTAKEN), ratios[~first]
    if mistake.factor:
        return {OF_HALF: everywhere}
    if mistake.early_window:
        return {EARLY_WINDOW: everywhere}
    partial = max(_gain(part, share) for share in SHARES for part in (ratios, later))
    if (ratios[first] != 1).any():
        partial = max(partial, _gain(later, MISTAKEN))
    if mistake.late_window:
        return {LATE_WINDOW: max(everywhere, partial)}
    return {WITHOUT: everywhere, ALONE: partial} if mistake.names else {LATE_PENALTIES: partial}


def _suspect(gains: Mapping[str, float], what: str) -> Suspect:
    """Name the effect that explains the tokens best, and others that explain them almost as well.

    The gain on some tokens alone is the largest of several, so it must be clearly larger than
    that of parameters without effect.
    """
    best = max(gains, key=gains.__getitem__)
    if not what:
        return Suspect(gains[best], best)
    named = [each for each, gain in gains.items() if gain > gains[best] - 2 * CLEAR]
    if gains[WITHOUT] > gains[best] - CLEAR:
        named = [WITHOUT]
    return Suspect(max(gains[each] for each in named), f"a parameter {' or '.join(named)}: {what}")


def _gain(ratios: Floats, share: float) -> float:
    """Return the log-likelihood gain if a mistake affects a share of the tokens."""
    return float(np.log1p(share * (ratios - 1)).sum())


def _ratios(
    sampled: Sequence[SampledToken],
    stated: Stated,
    probs_of: ProbsOf,
    mistakes: Sequence[Mistake],
) -> Floats:
    """Return the mean ratio of the mistaken to the stated probability: by mistake and token."""
    means: list[list[float]] = [[] for _ in mistakes]
    for _, group in itertools.groupby(sampled, key=lambda each: id(each.answer)):
        tokens = list(group)
        for mistake, found in zip(mistakes, means, strict=True):
            rows = mistake.rows(probs_of, stated, tokens[0].prompt, tokens[0].answer)
            for each in tokens:
                some = [ratio(each.row, row[each.place], each.token)[0] for row in rows]
                found.append(math.fsum(some) / len(some))
    return np.array(means)


def ratio(
    right: TokenProbs | None,
    wrong: TokenProbs | None,
    token: str,
    largest: float = LARGEST_RATIO,
) -> tuple[float, float, float]:
    """Return the ratio of two probabilities of a token, and its range over all tokens.

    Both probabilities are given that the token counts under both distributions; the ratio of a
    token that does not is 1.  Tokens that a distribution does not list singly are merged.  Ratios
    above `largest` are replaced by it.
    """
    if right is None or wrong is None:
        return 1.0, 1.0, 1.0
    names, ones, others = _singly(right, wrong)
    unknown = [right.places[name] for name in wrong.unseen if name in right.places]
    left = (
        max(1.0 - float(ones.sum() + right.probs[unknown].sum()), 0.0),
        max(1.0 - float(others.sum()), 0.0),
    )
    merged = right.rest_counts and wrong.rest_counts
    if merged:
        names, ones, others = [*names, ""], np.append(ones, left[0]), np.append(others, left[1])
    totals = float(ones.sum()), float(others.sum())
    if not all(totals):
        return 1.0, 1.0, 1.0
    ones, others = ones / totals[0], others / totals[1]
    ratios = np.minimum(others / np.maximum(ones, TINY), largest)
    ratios[ones == others] = 1.0
    places = {name: place for place, name in enumerate(names)}
    hidden = token in right.unseen or not merged
    hidden |= token in wrong.unseen and token in right.places
    place = places.get(token, None if hidden else len(names) - 1)
    value = 1.0 if place is None else float(ratios[place])
    return value, min(float(ratios.min()), 1.0), max(float(ratios.max()), 1.0)


def _singly(right: TokenProbs, wrong: TokenProbs) -> tuple[list[str], Floats, Floats]:
    """Return the tokens whose probabilities both distributions state, and these probabilities.

    A distribution without residual mass states the probability 0 of all tokens that it does not
    list, except those that do not count.
    """
    names = [name for name in right.tokens if name in wrong.places]
    ones = right.probs[[right.places[name] for name in names]]
    others = wrong.probs[[wrong.places[name] for name in names]]
    for one, other in ((right, wrong), (wrong, right)):
        if len(one.tokens) > len(names) and other.rest_counts and other.rest == 0:
            alone = [
                name for name in one.tokens if name not in other.places and name not in other.unseen
            ]
            masses, zeros = one.probs[[one.places[name] for name in alone]], np.zeros(len(alone))
            names = [*names, *alone]
            ones = np.append(ones, masses if one is right else zeros)
            others = np.append(others, zeros if one is right else masses)
    return names, ones, others
