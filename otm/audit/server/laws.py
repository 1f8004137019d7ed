"""What a list of log-probabilities says about the token that is sampled.

A server lists the likeliest N tokens, mostly before temperature and truncation, and adds the
sampled one if it is not among them.  What is compared must not depend on the sampled token, so only
tokens strictly above the N-th largest value are used: these are the same whichever was added, and
whatever ties there are.  Of a list before the temperature, the distribution given that the token is
on the list is known at every temperature; other tokens then do not count.  What they are together
is known where the whole distribution is: at temperature 1, or after top-k of fewer tokens.
"""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np

from otm.audit.server.client import IMPOSSIBLE, TOKEN_ID, UNCLEAR
from otm.audit.server.evidence import CLASSES, FAMILIES, Floats
from otm.decoding import SamplingParameters
from otm.errors import EndpointError

END = re.compile(r"|<[^<>]+>|<\|.+\|>")
"""Strings of end tokens, which servers leave out of their answers; also an empty string."""

ROUNDING = 1e-3
"""Probabilities of a list may sum to as much more than 1."""

NOTHING = 1e-5
"""A list of all tokens may lack as much of 1."""

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

    def of(self, token: str) -> float | None:
        """Probability of a token, 0 for the rest; None if it does not count."""
        if token in self.tokens:
            return float(self.probs[self.tokens.index(token)])
        return 0.0 if self.rest_counts and token not in self.unseen else None

    def merged(self, token: str) -> Floats:
        """Class of a token minus the distribution of the classes: [F, C], of a sum of 0."""
        deviations = np.zeros((FAMILIES, CLASSES))
        for family, classes in enumerate(merged_classes(self.tokens)):
            np.subtract.at(deviations[family], classes, self.probs)
            deviations[family, -1] -= self.rest
            place = self.tokens.index(token) if token in self.tokens else -1
            deviations[family, classes[place] if place >= 0 else -1] += 1
        return deviations


def merged_classes(tokens: tuple[str, ...]) -> tuple[list[int], list[int]]:
    """Classes of listed tokens, by rank and by what they are; the last class has the rest."""
    last = CLASSES - 1
    return [min(rank, last) for rank in range(len(tokens))], [bucket(token) for token in tokens]


@lru_cache(maxsize=2**18)
def bucket(token: str) -> int:
    """Bucket of a token, fixed for ever: one of all but the last class."""
    digest = hashlib.sha256(token.encode("utf-8", "surrogatepass")).digest()
    return int.from_bytes(digest[:4], "big") % (CLASSES - 1)


def law_from_list(
    entries: Mapping[str, float],
    listed: int,
    parameters: SamplingParameters,
    *,
    processed: bool = False,
) -> Law | None:
    """Distribution that a list of N log-probabilities gives; None if it says nothing.

    `processed` lists are after temperature and truncation.
    """
    by_id = all(token.startswith(TOKEN_ID) for token in entries)
    keys = [key for key in entries if by_id or UNCLEAR not in key]
    logs = np.array([entries[key] for key in keys], dtype=float)
    total = float(np.exp(logs).sum())
    if not total <= 1 + ROUNDING:
        raise EndpointError(
            f"the server's log-probabilities are of no distribution: those of a list sum to "
            f"{total:.6g}; they should sum to at most 1"
        )
    # strings may stand for two tokens, so that a list is shorter than it should be
    enough = listed if by_id else listed // 2 + 1
    if len(keys) >= enough:
        kept = logs > np.sort(logs)[-enough]
    elif total > 1 - ROUNDING:  # the whole vocabulary, or all that truncation leaves
        kept = logs > IMPOSSIBLE
    elif len(entries) < enough:
        raise EndpointError(
            f"the server lists {len(entries)} log-probabilities where {listed} were asked for; "
            "ask for no more than it gives (`logprobs`)"
        )
    else:
        return None
    law = _law(
        [key for key, keep in zip(keys, kept, strict=True) if keep],
        logs[kept],
        SamplingParameters() if processed else parameters,
        whole=bool(kept.all()),
    )
    return law if by_id or law is None else _without_ends(law)


def law_from_logits(logits: Floats, parameters: SamplingParameters) -> Law | None:
    """Distribution of a model that is known wholly; tokens are written by their ids."""
    logs = logits - logits.max()
    logs = logs - np.log(np.exp(logs).sum())
    order = np.argsort(-logs, kind="stable")
    tokens = [f"{TOKEN_ID}{token}" for token in order]
    return _law(tokens, logs[order], parameters, whole=True)


def _law(tokens: list[str], logs: Floats, parameters: SamplingParameters, *, whole: bool) -> Law:
    """Adjust listed log-probabilities by sampling parameters, as far as they are known to act.

    Of tokens at the edge of top-k or top-p it is not known whether they stay: they do not count.
    """
    order = sorted(range(len(tokens)), key=lambda i: (-logs[i], tokens[i]))
    logs = logs[order]
    tokens = [tokens[i] for i in order]
    weights = np.exp((logs - logs.max(initial=-np.inf)) / parameters.temperature)
    top_k, top_p = parameters.top_k, parameters.top_p
    sure, out = np.ones((2, len(tokens)), dtype=bool)
    out[:] = False
    rest: float | None = 0.0 if whole else None  # None: not known
    if not whole and parameters.temperature == 1 and top_k is None and tokens:
        rest = max(math.exp(-logs[0]) - float(weights.sum()), 0.0)
    if top_k is not None and top_k < len(tokens):
        # servers differ in which of equal tokens they keep
        sure, out, rest = logs > logs[top_k], logs < logs[top_k], 0.0
        if logs[top_k - 1] > logs[top_k]:
            out = ~sure
    if top_p is not None and top_p < 1:
        least = float(weights[sure].sum()) + (rest or 0.0)
        most = math.inf if rest is None else float(weights[~out].sum()) + rest
        kept = np.where(out, 0, weights)
        before = np.concatenate([[0.0], np.cumsum(kept)])  # of each token, and of the rest
        sure &= before[:-1] / least < top_p - CLOSE
        beyond = before / most > top_p + CLOSE
        out |= beyond[:-1]
        if rest:
            rest = 0.0 if beyond[-1] else None
        sure[:1] = True
    total = float(weights[sure].sum()) + (rest or 0.0)
    return Law(
        tuple(token for token, stays in zip(tokens, sure, strict=True) if stays),
        weights[sure] / (total or 1.0),
        (rest or 0.0) / (total or 1.0),
        rest is not None,
        frozenset(token for token, out_of in zip(tokens, sure | out, strict=True) if not out_of),
    )


def _without_ends(law: Law) -> Law:
    """Leave out end tokens: servers that write strings do not return them."""
    stays = np.array([not END.fullmatch(token) for token in law.tokens], dtype=bool)
    if stays.all():
        return replace(law, unseen=law.unseen | {""})
    total = float(law.probs[stays].sum()) + law.rest
    return Law(
        tuple(token for token, stay in zip(law.tokens, stays, strict=True) if stay),
        law.probs[stays] / (total or 1.0),
        law.rest / (total or 1.0),
        law.rest_counts and total > 0,
        law.unseen | {t for t, stay in zip(law.tokens, stays, strict=True) if not stay} | {""},
    )
