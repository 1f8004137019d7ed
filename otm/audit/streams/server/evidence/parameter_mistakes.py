"""Mistakes in stated parameters: evidence from bets on them, and the mistake to name.

A mistake changes the distribution of some tokens: a parameter has no effect, it acts on some tokens
alone, such as the bonus token of a step, or penalties miss the last tokens, because they are
updated once a step.

Let p be the stated and q the mistaken distribution of a token, both given that the token counts
under both.  The mean of 1 − w + w q/p under p is at most 1, so the product over tokens is an
e-value for each mistake and share w.  If p is wrong by at most r in total variation, the mean
exceeds 1 by at most w r (max q/p − min q/p), so each factor is divided by 1 plus this number.
Ratios are capped at `LARGEST_RATIO`, which makes the mean smaller.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from otm.audit.streams.e_process import Bools, EProcess, Floats
from otm.audit.streams.server.answers import Completion, Prompt
from otm.audit.streams.server.distributions.references import OwnLists, ProbsOf
from otm.audit.streams.server.distributions.token_probs import TINY, TokenProbs
from otm.audit.streams.server.evidence.suspects import MISTAKEN, MOST_EXAMINED, SampledToken
from otm.audit.streams.server.request_parameters import ENDINGS, RequestParameters, without
from otm.decoding import SamplingParameters

SHARES = (0.3, 0.5, 0.7)
"""Shares of the tokens that a mistake may affect if it does not affect all of them."""

CLEAR = 1.5
"""Smallest difference of two log-likelihood gains that distinguishes two mistakes."""

LAGS = (1, 2)
"""Numbers of last tokens that penalties may miss in a step."""

LARGEST_RATIO = 20.0
"""Largest ratio of two probabilities, so that no single token decides."""

PENALTIES = ("repetition_penalty", "frequency_penalty", "presence_penalty")


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

    def without(self, names: Sequence[str]) -> Stated:
        """Return the parameters, with some of them set to their neutral values."""
        neutral = vars(SamplingParameters())
        changed = {name: neutral[name] for name in names if name in neutral}
        sampling = replace(self.sampling, **changed)
        return replace(self, sampling=sampling, request=without(self.request, names))


class Mistake(NamedTuple):
    """Parameters with a mistake; `lags` are numbers of last tokens that penalties miss."""

    # Names of the parameters without effect; none for penalties that miss tokens.
    names: tuple[str, ...]
    lags: tuple[int, ...] = (0,)

    def rows(
        self, probs_of: ProbsOf, stated: Stated, prompt: Prompt, answer: Completion
    ) -> list[list[TokenProbs | None]]:
        """Return the distributions of the tokens of an answer for each lag."""
        used = stated.without(self.names)
        return [probs_of(prompt, answer, used.sampling, used.request, lag) for lag in self.lags]


def mistakes_in(names: Sequence[str]) -> list[Mistake]:
    """List the mistakes: a server ignores one or several parameters, or penalties lag behind."""
    request = tuple(name for name in names if name not in vars(SamplingParameters()))
    processors = (*request, *(["min_p"] if "min_p" in names else []))
    groups = [*((name,) for name in names), request, processors, tuple(names)]
    found = [Mistake(group) for group in {frozenset(group): group for group in groups}.values()]
    found = [mistake for mistake in found if mistake.names]
    return found + ([Mistake((), LAGS)] if {*PENALTIES}.intersection(names) else [])


class ParameterBets(EProcess):
    """Evidence from bets that the server makes one of the mistakes in the request parameters."""

    def __init__(
        self, request: RequestParameters, sampling: Sequence[SamplingParameters], probs_of: ProbsOf
    ) -> None:
        self._request, self._probs_of = request, probs_of
        names = Stated(SamplingParameters(), request).names()
        # The sets of mistakes must not differ between settings.
        if any(parameters.min_p for parameters in sampling):
            names.append("min_p")
        self._mistakes = mistakes_in(names)
        self._shares = np.array((SHARES[0], SHARES[2], MISTAKEN))
        # Largest error r of a distribution.
        self.drift = 0.0
        super().__init__(np.ones(len(self._mistakes) * self._shares.size))

    def add(self, prompt: Prompt, answer: Completion, parameters: SamplingParameters) -> None:
        """Add the tokens of an answer, whose rows are the stated distributions."""
        stated = Stated(parameters, self._request)
        factors = np.zeros((len(self._mistakes), self._shares.size))
        for number, mistake in enumerate(self._mistakes):
            mistaken = mistake.rows(self._probs_of, stated, prompt, answer)
            for place, (token, row) in enumerate(zip(answer.tokens, answer.rows, strict=True)):
                others = [rows[place] for rows in mistaken]
                if all(other is row for other in others):
                    continue
                found = np.mean([ratio(row, other, token) for other in others], axis=0)
                value, low, high = found.tolist()
                factors[number] += np.log1p(self._shares * (value - 1))
                factors[number] -= np.log1p(self._shares * self.drift * (high - low))
        self.bet(factors.ravel())


def find_parameter_suspect(
    sampled: Sequence[SampledToken], stated: Stated, probs_of: ProbsOf
) -> Suspect | None:
    """Return the mistake in stated parameters that best explains the tokens, if there is one."""
    names = stated.names()
    if not names or (isinstance(probs_of, OwnLists) and probs_of.processed):
        return None
    sampled = sampled[:MOST_EXAMINED]
    first = np.array([each.place == 0 for each in sampled])
    return max(
        suspect
        for mistake in mistakes_in(names)
        for suspect in _explain(mistake, _ratios(sampled, stated, probs_of, mistake), first, stated)
    )


def _explain(mistake: Mistake, ratios: Floats, first: Bools, stated: Stated) -> Iterator[Suspect]:
    """Yield the mistake on all tokens, or on some tokens alone.

    Servers sample the `first` token of a text without drafts, like a bonus token.
    """
    later = ratios[~first]
    partial = max(_gain(part, share) for share in SHARES for part in (ratios, later))
    if (ratios[first] != 1).any():
        partial = max(partial, _gain(later, MISTAKEN))
    if not mistake.names:
        what = stated.describe([name for name in PENALTIES if name in stated.names()])
        yield Suspect(
            partial,
            f"penalties once a step, and not once a token: {what}; they miss the last tokens of "
            "the text",
        )
        return
    what = stated.describe(mistake.names)
    everywhere = _gain(ratios, MISTAKEN)
    # The gain on some tokens is the largest of several, so it must be clearer.
    if partial < everywhere + 2 * CLEAR:
        alone = " or only on some tokens" if partial > everywhere - CLEAR else ""
        yield Suspect(
            max(everywhere, partial),
            f"a parameter without effect{alone}: {what}; the tokens fit a request without it",
        )
    else:
        yield Suspect(
            partial,
            f"a parameter on some tokens alone, such as the bonus token of a step: {what}",
        )


def _gain(ratios: Floats, share: float) -> float:
    """Return the log-likelihood gain if a mistake affects a share of the tokens."""
    return float(np.log1p(share * (ratios - 1)).sum())


def _ratios(
    sampled: Sequence[SampledToken], stated: Stated, probs_of: ProbsOf, mistake: Mistake
) -> Floats:
    """Return the mean ratio of the mistaken to the stated probability of each token."""
    known: dict[int, list[list[TokenProbs | None]]] = {}
    means = []
    for each in sampled:
        if id(each.answer) not in known:
            known[id(each.answer)] = mistake.rows(probs_of, stated, each.prompt, each.answer)
        others = [rows[each.place] for rows in known[id(each.answer)]]
        means.append(math.fsum(ratio(each.row, row, each.token)[0] for row in others) / len(others))
    return np.array(means)


def ratio(
    right: TokenProbs | None, wrong: TokenProbs | None, token: str
) -> tuple[float, float, float]:
    """Return the ratio of two probabilities of a token, and its range over all tokens.

    Both probabilities are given that the token counts under both distributions; the ratio of a
    token that does not is 1.  Tokens that a distribution does not list singly are merged.
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
    ratios = np.minimum(others / np.maximum(ones, TINY), LARGEST_RATIO)
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
