"""The distribution of a sampled token, as far as a list of log-probabilities gives it.

A server lists the likeliest N tokens, usually before temperature and truncation, and the sampled
one.  What is compared must not depend on the sampled token, so only tokens strictly above the N-th
largest value are used: these are the same whichever was sampled, and whatever ties there are.  Of a
list before the temperature, the distribution given that the token is on the list is known at every
temperature; other tokens then do not count.  Their total probability is known where the whole
distribution is: at temperature 1, or after top-k of fewer tokens.

Several tokens may share one string, such as halves of characters, and a list of strings may then be
shorter.  `_listed_strings` says which of its strings are used.
"""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import NamedTuple

import numpy as np

from otm._core.listed_tokens import IMPOSSIBLE, TOKEN_ID, is_unclear
from otm.audit.streams.server.evidence import CLASSES, FAMILIES, Floats
from otm.decoding import SamplingParameters
from otm.errors import EndpointError

END = re.compile(r"<[^<>]+>|<\|.+\|>|\[\|[^\[\]]+\|\]|\[[A-Z_]+\]")
"""Strings of end tokens, which servers leave out of their answers."""

ROUNDING = 1e-3
"""A list is whole if its probabilities lack at most this of 1."""

EXCESS = 0.02
"""The probabilities of a list may exceed 1 by this: logarithms in bfloat16 are up to 0.8 % off."""

TINY = 1e-300
"""Smallest probability whose logarithm is taken."""

CLOSE = 1e-4
"""A sum of probabilities this near to top-p may be on either side of it."""


@dataclass(frozen=True, eq=False)
class Law:
    """The distribution of a token: of some tokens each, likeliest first, and of the rest."""

    tokens: tuple[str, ...]
    probs: Floats  # [n]; they and the rest sum to 1
    rest: float  # of all other tokens together
    rest_counts: bool  # False: given that it is none of the others
    unseen: frozenset[str]  # tokens that do not count if they come

    @cached_property
    def places(self) -> dict[str, int]:
        """Rank of each token."""
        return {token: place for place, token in enumerate(self.tokens)}

    @cached_property
    def classes(self) -> tuple[list[int], list[int]]:
        """Class of each token in both families."""
        return merged_classes(self.tokens)

    @cached_property
    def merged_probs(self) -> Floats:
        """Probabilities of the classes [F, C]: `merged_here(self)`, but faster."""
        merged = np.zeros((FAMILIES, CLASSES))
        ranked = self.probs[: CLASSES - 1]
        merged[0, : ranked.size] = ranked
        merged[0, -1] = self.probs[CLASSES - 1 :].sum()
        merged[1] = np.bincount(self.classes[1], self.probs, CLASSES)
        merged[:, -1] += self.rest
        return merged

    @cached_property
    def entropy(self) -> float:
        """Entropy in bits, where all other tokens are one."""
        bits = -float(self.probs @ np.log2(np.maximum(self.probs, TINY)))
        return max(bits - self.rest * math.log2(max(self.rest, TINY)), 0.0)

    @cached_property
    def greedy_distance(self) -> float:
        """TV to greedy decoding, which always takes the likeliest token."""
        return 1.0 - float(self.probs.max(initial=0.0))

    def of(self, token: str) -> float | None:
        """Probability of a token, 0 for the rest; None if it does not count."""
        place = self.places.get(token)
        if place is not None:
            return float(self.probs[place])
        return 0.0 if self.rest_counts and token not in self.unseen else None

    def merged(self, token: str) -> Floats:
        """Class of a token minus the distribution of the classes: [F, C], of a sum of 0."""
        deviations = -self.merged_probs
        place = self.places.get(token)
        for family, classes in enumerate(self.classes):
            deviations[family, -1 if place is None else classes[place]] += 1
        return deviations

    def merged_here(self, other: Law) -> Floats:
        """Merge another distribution into the classes of this one: [F, C]."""
        merged = np.zeros((FAMILIES, CLASSES))
        places = [self.places.get(token, -1) for token in other.tokens]
        for family, classes in enumerate(self.classes):
            into = [classes[place] if place >= 0 else CLASSES - 1 for place in places]
            merged[family] = np.bincount(into, other.probs, CLASSES)
            merged[family, -1] += other.rest
        return merged

    def distance(self, other: Law) -> float:
        """Lower bound on the TV to another distribution, for any tokens in the rests of both."""
        if other is self:
            return 0.0
        pairs = [(place, other.places.get(token, -1)) for token, place in self.places.items()]
        own, theirs = np.array([pair for pair in pairs if pair[1] >= 0], dtype=int).reshape(-1, 2).T
        one, two = self.probs[own], other.probs[theirs]
        # the rest of one distribution may have the tokens that only the other one lists
        apart = (1 - float(one.sum()), 1 - float(two.sum()), self.rest + other.rest)
        return max(1 - float(np.minimum(one, two).sum()) - min(apart), 0.0)


def merged_classes(tokens: tuple[str, ...]) -> tuple[list[int], list[int]]:
    """Classes of listed tokens, by rank and by what they are; the last class has the rest."""
    last = CLASSES - 1
    return [min(rank, last) for rank in range(len(tokens))], [bucket(token) for token in tokens]


@lru_cache(maxsize=2**18)
def bucket(token: str) -> int:
    """Bucket of a token, fixed for ever: one of all but the last class."""
    digest = hashlib.sha256(token.encode("utf-8", "surrogatepass")).digest()
    return int.from_bytes(digest[:4], "big") % (CLASSES - 1)


class Listed(NamedTuple):
    """The entries of a list that are used."""

    tokens: list[str]
    logs: Floats
    whole: bool  # whether these are all tokens
    rest_counts: bool  # whether the other tokens are known as one class
    hidden: int  # how many of the likeliest tokens may share the string of another
    dropped: frozenset[str]  # tokens that do not count


def law_from_list(
    entries: Mapping[str, float],
    listed: int,
    parameters: SamplingParameters,
    token: str,
    *,
    processed: bool = False,
    chat: bool = False,
    error: float = 0.0,
) -> Law | None:
    """Return the distribution that a list of N log-probabilities gives; None if it does not count.

    The list has the sampled `token`.  `processed` lists are after temperature and truncation;
    `error` is how far a log-probability may be rounded.
    """
    if token not in entries:
        return None
    logs = np.fromiter(entries.values(), float, len(entries))
    total = float(np.exp(logs).sum())
    if not total <= (1 + EXCESS) * math.exp(error):
        raise EndpointError(
            f"the server's log-probabilities do not belong to a distribution: the probabilities of "
            f"a list sum to {total:.6g}; they should sum to at most 1"
        )
    parameters = SamplingParameters() if processed else parameters
    by_id = all(key.startswith(TOKEN_ID) for key in entries)
    found = (
        _listed_ids(entries, listed, token, whole=total > (1 - ROUNDING) * math.exp(-error))
        if by_id
        else _listed_strings(entries, listed, token, chat=chat, flat=parameters.temperature > 1)
    )
    if found is None or (found.hidden and parameters.top_p not in (None, 1)):
        return None
    law = _law(found, parameters, error)
    if law.rest > 0 and not found.rest_counts:
        law = _without_rest(law)
    law = law if by_id else _without(law, found.dropped)
    return law if law.tokens or law.rest_counts else None


def _listed_ids(entries: Mapping[str, float], listed: int, token: str, *, whole: bool) -> Listed:
    """Use the token ids above the N-th largest, or all of them if there are no others."""
    tokens, logs = list(entries), np.fromiter(entries.values(), float, len(entries))
    if len(tokens) >= listed:
        kept = logs > np.sort(logs)[-listed]
    elif whole:
        kept = logs > IMPOSSIBLE
    else:
        # the sampled token may have been added to the list
        given = len(entries) - (entries[token] <= min(entries.values()))
        raise EndpointError(
            f"the server lists {len(entries)} log-probabilities where {listed} were asked for; "
            f"ask for no more than it gives, with --logprobs {max(given, 2)}"
        )
    names = [name for name, keep in zip(tokens, kept, strict=True) if keep]
    return Listed(names, logs[kept], bool(kept.all()), True, 0, frozenset())


def _listed_strings(
    entries: Mapping[str, float], listed: int, token: str, *, chat: bool, flat: bool
) -> Listed | None:
    """Use the strings above the lowest of the likeliest; None if that one is not known.

    The likeliest N tokens have n strings.  If the sampled token is the lowest of the list, it may
    be the lowest of the n strings or an addition to them: such a place does not count, and the
    lowest of the n strings never counts.  If n = N, no string stands for two tokens.  A list of
    N + 1 then says that the sampled token is an addition, so all other tokens count as one class;
    chats may cut the list to N.  Half a character on the list may stand for several tokens, so the
    rest is unknown too.  A list is whole if its tokens without the addition have all the
    probability; a temperature above 1 (`flat`) may make much of tokens that are not listed.
    """
    lowest = min(entries.values())
    added = entries[token] <= lowest and len(entries) > listed
    apart = added and not chat
    likeliest = {key: log for key, log in entries.items() if not (apart and key == token)}
    halves = {key for key in likeliest if is_unclear(key)}
    total = math.fsum(math.exp(log) for key, log in entries.items() if not (added and key == token))
    whole = total > 1 - ROUNDING and not halves and not flat
    rest_counts = len(likeliest) >= listed and not chat and not halves
    dropped = halves | {key for key in likeliest if END.fullmatch(key)}
    if not whole:
        if entries[token] <= lowest and not (apart and rest_counts):
            return None
        bottom = min(likeliest.values(), default=0.0)
        dropped |= {key for key, log in likeliest.items() if log <= bottom}
    else:
        likeliest = {key: log for key, log in entries.items() if log > IMPOSSIBLE}
    logs = np.array(list(likeliest.values()), dtype=float)
    hidden = 0 if whole else max(listed - len(likeliest), 0)
    return Listed(list(likeliest), logs, whole, rest_counts, hidden, frozenset(dropped))


def law_from_logits(logits: Floats, parameters: SamplingParameters) -> Law | None:
    """Distribution of a model that is known wholly; tokens are written by their ids."""
    logs = logits - logits.max()
    logs = logs - np.log(np.exp(logs).sum())
    order = np.argsort(-logs, kind="stable")
    tokens = [f"{TOKEN_ID}{token}" for token in order]
    return _law(Listed(tokens, logs[order], True, True, 0, frozenset()), parameters, 0.0)


def _law(listed: Listed, parameters: SamplingParameters, error: float) -> Law:
    """Adjust listed log-probabilities by sampling parameters, as far as they are known to act.

    Of tokens at the edge of top-k or top-p it is not known whether they stay: they do not count.
    Servers differ in which of equal tokens they keep, and `error` hides which are equal.
    """
    pairs = sorted(zip((-listed.logs).tolist(), listed.tokens, strict=True))
    tokens, whole = [token for _, token in pairs], listed.whole
    logs = -np.array([log for log, _ in pairs])
    weights = np.exp((logs - logs.max(initial=-np.inf)) / parameters.temperature)
    top_k, top_p = parameters.top_k, parameters.top_p
    sure, out = np.ones((2, len(tokens)), dtype=bool)
    out[:] = False
    rest: float | None = 0.0 if whole else None  # None: not known
    if not whole and parameters.temperature == 1 and top_k is None and tokens:
        rest = max(math.exp(-logs[0]) - float(weights.sum()), 0.0)
    if top_k is not None and top_k < len(tokens):
        sure, out, rest = logs > logs[top_k], logs < logs[top_k], 0.0
        if logs[top_k - 1] > logs[top_k]:
            out = ~sure
    if top_k is not None and listed.hidden:
        sure = sure & (np.arange(len(tokens)) < top_k - listed.hidden)
    if top_p is not None and top_p < 1 and tokens:
        close = CLOSE + error / min(parameters.temperature, 1.0)
        least = float(weights[sure].sum()) + (rest or 0.0)
        most = math.inf if rest is None else float(weights[~out].sum()) + rest
        before = np.append(0.0, np.cumsum(np.where(out, 0, weights)))  # of each token and the rest
        low, high, bottom, alone = before[:-1], before[:-1], before[-1], True
        falls = logs[1:] - logs[:-1] < -2 * error
        if not falls.all():  # of each token, that of the first and of the last one equal to it
            new = np.append(True, falls)
            starts = np.flatnonzero(new)
            group = np.cumsum(new) - 1
            low, high = low[starts[group]], high[np.append(starts[1:], len(tokens))[group] - 1]
            bottom, alone = low[-1] if error else bottom, starts.size > 1 and starts[1] == 1
        sure &= high < least * (top_p - close)
        out |= low > most * (top_p + close)
        if rest:
            rest = 0.0 if bottom > most * (top_p + close) else None
        sure[0] |= alone  # the likeliest always stays
    total = float(weights[sure].sum()) + (rest or 0.0)
    return Law(
        tuple(token for token, stays in zip(tokens, sure, strict=True) if stays),
        weights[sure] / (total or 1.0),
        (rest or 0.0) / (total or 1.0),
        rest is not None,
        frozenset(token for token, out_of in zip(tokens, sure | out, strict=True) if not out_of),
    )


def _without_rest(law: Law) -> Law:
    """Condition on the tokens that have a probability each."""
    total = float(law.probs.sum())
    return replace(law, probs=law.probs / (total or 1.0), rest=0.0, rest_counts=False)


def _without(law: Law, dropped: Collection[str]) -> Law:
    """Leave out tokens that do not count."""
    stays = np.array([token not in dropped for token in law.tokens], dtype=bool)
    total = float(law.probs[stays].sum()) + law.rest
    return Law(
        tuple(token for token, stay in zip(law.tokens, stays, strict=True) if stay),
        law.probs[stays] / (total or 1.0),
        law.rest / (total or 1.0),
        law.rest_counts and total > 0,
        law.unseen | frozenset(dropped),
    )
