"""Check whether a seed gives the same text alone, beside other requests, and in another order.

Few servers promise this, so the result does not affect the verdict.  A sampled token may change if
rounding changes its distribution.  Let F and G be the cumulative distributions before and after
rounding.  A sampler that compares a uniform with cumulative probabilities takes another token with
probability at most 2 Σ |F(x) − G(x)|, because each token has two ends.  A sampler that adds noise
to each logit does so with probability at most twice the total variation distance.  The texts are
identical up to ties if the number of differences is plausible under the larger bound.  Rounding may
exchange two unlisted tokens more often, so these differences do not count.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from otm.audit.streams.server.answers import Completion, Prompt
from otm.audit.streams.server.blocks import PLAIN
from otm.audit.streams.server.checks.greedy_texts import MOST_PROMPTS, first_difference
from otm.audit.streams.server.client import Client
from otm.audit.streams.server.settings import as_text
from otm.audit.streams.server.simultaneous import ask_in_threads
from otm.decoding import SamplingParameters
from otm.errors import EndpointError

IDENTICAL = "identical"
UP_TO_TIES = "identical up to ties"
NOT_IDENTICAL = "not identical"

SEED = 20_231_115
"""Seed of the texts that are requested repeatedly."""

PLAUSIBLE = 1e-3
"""Smallest probability at which differences are explained by rounding."""

CHANCE = 1e-6
"""Largest probability of equal texts at which a shared seed is named."""

NEIGHBOURS = (1, 2, None)
"""Differences of the seeds of simultaneous requests for the same text; None for no seed."""

APART = 100
"""Difference of the seeds of other blocks."""


@dataclass(frozen=True)
class SeededTexts:
    """Numbers of texts of the same seed and of equal ones; they do not affect the verdict."""

    same: int
    texts: int
    # Description of the first difference.
    first: str = ""
    # "identical", "identical up to ties" or "not identical".
    verdict: str = IDENTICAL
    # Known mistake that explains the differences; empty if there is none.
    cause: str = ""

    def __str__(self) -> str:
        """Write the verdict and its numbers on one line."""
        more = "".join(f"; {each}" for each in (self.cause, self.first) if each)
        return f"{self.verdict}, {self.same} of {self.texts} the same{more}"


def accepts(client: Client, prompt: Prompt, temperature: float, seed: int | None) -> bool:
    """Whether a server accepts a temperature and a seed."""
    try:
        client.sample(prompt, SamplingParameters(temperature=temperature), 1, seed)
    except EndpointError:
        return False
    return True


@dataclass(eq=False)
class _Tally:
    """Differences between texts with the same seed, and equal texts with other seeds."""

    texts: int = 0
    # Prompts and places of all differences.
    places: list[tuple[Prompt, int]] = field(default_factory=list)
    # Number of differences that count, of those among them without other requests, and the
    # expected number from rounding.
    counted: int = 0
    alone: int = 0
    expected: float = 0.0
    # Log-probabilities of texts that are equal to a simultaneous text with another seed.
    equal: list[float] = field(default_factory=list)
    # Whether the first such text also occurs with another seed and without other requests.
    constant: bool = False

    def compare(self, prompt: Prompt, first: Completion, other: Completion, *, alone: bool) -> None:
        """Compare two texts with the same seed."""
        self.texts += 1
        place = first_difference(first, other)
        end = len(first.tokens) if place is None else place + 1
        pairs = zip(first.lists[:end], other.lists[:end], strict=False)
        self.expected += sum(_flip_probability(*pair) for pair in pairs)
        if place is not None:
            self.places.append((prompt, place))
            counts = _counts(first, other, place)
            self.counted += counts
            self.alone += counts and alone

    def result(self, tries: int) -> SeededTexts:
        """Judge the differences, and name the mistake that explains them."""
        verdict, cause = IDENTICAL, ""
        if self.places:
            plausible = _poisson_tail(self.counted, self.expected) >= PLAUSIBLE
            verdict = UP_TO_TIES if plausible else NOT_IDENTICAL
        chance = math.fsum(self.equal) + math.log(math.comb(tries, len(self.equal)))
        if self.equal and chance < math.log(CHANCE):
            verdict = verdict if self.constant else NOT_IDENTICAL
            why = "the server did not sample" if self.constant else "requests shared a seed"
            cause = (
                f"{len(self.equal)} texts are equal to a simultaneous text with another seed or "
                f"without a seed, as if {why}"
            )
        elif verdict == NOT_IDENTICAL and self.alone:
            cause = "the texts differ without other requests too, as if the seed were ignored"
        elif verdict == NOT_IDENTICAL:
            cause = "the texts differ only beside other requests, which change the random numbers"
        first = ""
        if self.places:
            first = f"after {as_text(self.places[0][0])} token {self.places[0][1]} differs"
        return SeededTexts(self.texts - len(self.places), self.texts, first, verdict, cause)


def repeat_seeds(client: Client, prompts: Sequence[Prompt], tokens: int) -> SeededTexts | None:
    """Request each text alone, again, and in two orders of eight simultaneous requests."""
    # At an unknown temperature, lists do not give the probability of a text.
    known = "temperature" not in client.access.leave_out
    tally = _Tally()
    tried = prompts[:MOST_PROMPTS]
    try:
        for number, prompt in enumerate(tried):
            first, again = (client.sample(prompt, PLAIN, tokens, SEED) for _ in range(2))
            tally.compare(prompt, first, again, alone=True)
            for last in (False, True):
                other, *neighbours = _beside(client, prompts, number, tokens, last=last)
                tally.compare(prompt, first, other, alone=False)
                texts = [other.tokens]
                for text in neighbours if known else ():
                    if text.tokens in texts:
                        tally.equal.append(_log_prob(text))
                        if len(tally.equal) == 1:
                            alone = client.sample(prompt, PLAIN, tokens, SEED + APART)
                            tally.constant = alone.tokens == text.tokens
                    texts.append(text.tokens)
    except EndpointError:
        # A server may reject a seed.
        return None
    return tally.result(2 * len(tried) * len(NEIGHBOURS))


def _beside(
    client: Client, prompts: Sequence[Prompt], number: int, tokens: int, *, last: bool
) -> list[Completion]:
    """Request a text beside seven others; return it, and those with the same prompt."""
    prompt, shift = prompts[number], APART if last else 0
    seeds = [SEED, *(None if each is None else SEED + shift + each for each in NEIGHBOURS)]
    asks = [functools.partial(client.sample, prompt, PLAIN, tokens, seed) for seed in seeds]
    for i, temperature in enumerate((0.5, 1.0, 1.5, 0.7)):
        other = prompts[(number + 1 + i) % len(prompts)]
        parameters = SamplingParameters(temperature=temperature)
        seed = None if i % 2 else SEED + shift + len(seeds) + i
        asks.append(functools.partial(client.sample, other, parameters, max(tokens - i, 1), seed))
    answers, error = ask_in_threads(asks[::-1] if last else asks)
    if error is not None:
        raise error
    return (answers[::-1] if last else answers)[: len(seeds)]


def _counts(first: Completion, other: Completion, place: int) -> bool:
    """Whether a difference counts: a token is on the other list, or rounding cannot explain it."""
    if place >= min(len(first.lists), len(other.lists)):
        return True
    one, two = first.lists[place], other.lists[place]
    listed = first.tokens[place] in two or other.tokens[place] in one
    return listed or (bool(one and two) and _flip_probability(one, two) == 0)


def _flip_probability(one: Mapping[str, float], other: Mapping[str, float]) -> float:
    """Estimate the probability that the same random numbers give two tokens for two lists."""
    common = [token for token in one if token in other]
    if not common:
        return 0.0
    apart = np.array([math.exp(one[token]) - math.exp(other[token]) for token in common])
    by_name = sorted(range(len(common)), key=lambda i: (len(common[i]), common[i]))
    by_rank = sorted(range(len(common)), key=lambda i: -one[common[i]])
    orders = [np.abs(np.cumsum(apart[order])).sum() for order in (by_name, by_rank)]
    # Random numbers may be compared with sums of probabilities, where each token has two ends, or
    # with each probability.
    return min(1.0, float(max(*(2 * each for each in orders), np.abs(apart).sum())))


def _log_prob(text: Completion) -> float:
    """Return the log-probability of a text from its lists."""
    pairs = zip(text.tokens, text.lists, strict=True)
    return math.fsum(min(entries.get(token, 0.0), 0.0) for token, entries in pairs)


def _poisson_tail(count: int, mean: float) -> float:
    """Return the probability of at least `count` events of a Poisson distribution."""
    terms = (math.exp(-mean) * mean**k / math.factorial(k) for k in range(count))
    return max(1.0 - math.fsum(terms), 0.0)
