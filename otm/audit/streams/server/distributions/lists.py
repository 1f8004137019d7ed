"""Compute the distribution of a token from a list of log-probabilities.

A server lists the N most probable tokens, usually before temperature and truncation, and the
sampled token.  The comparison must not depend on the sampled token.  Therefore only tokens strictly
above the N-th largest value are used: these are the same for every sampled token, even with ties
(docs/theory/server-audit.md, Lemma 16.3).  A list before the temperature determines, at every
temperature, the distribution given that the token is on the list; other tokens do not count.  The
total probability of the other tokens is known if the whole distribution is known: at temperature 1,
or after top-k with fewer tokens than the list.

Several tokens may have the same string, for example incomplete characters; a list of strings may
then have fewer entries than tokens.  `_used_strings` determines which strings of a list are used.

Penalties and biases add known numbers to the logits of a few known tokens (`_with_changes`).  So,
without truncation, the distribution given that the token is on the list is still exact.  Top-k,
top-p and min-p need the most probable tokens after the change.  These are the listed tokens above
the largest value that any unlisted token may have after the change; other tokens do not count,
unless truncation certainly removes them.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from otm._core.listed_tokens import IMPOSSIBLE, TOKEN_ID, is_unclear, token_name
from otm.audit.streams.e_process import Bools, Floats
from otm.audit.streams.server.distributions.token_probs import TokenProbs
from otm.decoding import SamplingParameters
from otm.errors import EndpointError

END_TOKEN = re.compile(r"<[^<>]+>|<\|.+\|>|\[\|[^\[\]]+\|\]|\[[A-Z_]+\]")
"""Pattern of end tokens, which servers omit from their answers."""

WHOLE_LIST_GAP = 1e-3
"""Largest missing probability of a list that counts as complete."""

LARGEST_EXCESS = 0.02
"""Allowed excess of a list's total probability over 1; logs in bfloat16 are up to 0.8 % off."""

EDGE_MARGIN = 1e-4
"""Margin around top-p and min-p: values within it may be above or below the threshold."""

LISTED_MASS = 0.95
"""Total probability of the tokens that the distribution of a local model lists."""

LEAST_LISTED = 32
"""Smallest number of these tokens."""

CHANGED_MARGIN = 1e-4
"""Margin between two changed logits; closer logits may be in either order on the server."""


class UsedEntries(NamedTuple):
    """The entries of a list that determine probabilities."""

    tokens: list[str]
    logs: Floats
    # Whether these are all tokens.
    whole: bool
    # Whether the other tokens have a known total probability and count as one class.
    rest_counts: bool
    # Number of the most probable tokens that may share a string with another token.
    hidden: int
    # Tokens that do not count.
    dropped: frozenset[str]
    # Whether the probabilities of all tokens, including unused ones, sum to 1.
    normalized: bool = True
    # Largest difference between two values whose order is unknown.
    slack: float = 0.0
    # Tokens whose logits were changed.
    changed: frozenset[str] = frozenset()


def probs_from_list(
    entries: Mapping[str, float],
    listed: int,
    parameters: SamplingParameters,
    token: str,
    *,
    processed: bool = False,
    chat: bool = False,
    error: float = 0.0,
    changes: Mapping[str, float] | None = None,
) -> TokenProbs | None:
    """Return a distribution from N log-probabilities; None if the position does not count.

    The list contains the sampled `token`.  In `processed` lists, temperature and truncation are
    already applied; `error` is the largest rounding error of a log-probability.  `changes` are
    numbers that the server adds to the logits of some token ids.
    """
    if token not in entries:
        return None
    logs = np.fromiter(entries.values(), float, len(entries))
    total = float(np.exp(logs).sum())
    if not total <= (1 + LARGEST_EXCESS) * math.exp(error):
        raise EndpointError(
            f"the server's log-probabilities do not belong to a distribution: the probabilities of "
            f"one list sum to {total:.6g}; they must sum to at most 1"
        )
    parameters = SamplingParameters() if processed else parameters
    by_id = all(key.startswith(TOKEN_ID) for key in entries)
    used = (
        _used_ids(entries, listed, token, whole=total > (1 - WHOLE_LIST_GAP) * math.exp(-error))
        if by_id
        else _used_strings(entries, listed, token, chat=chat, flat=parameters.temperature > 1)
    )
    if used is None or (
        used.hidden and (parameters.top_p not in (None, 1) or parameters.min_p is not None)
    ):
        return None
    if changes and by_id:
        floor = IMPOSSIBLE if used.whole else min(sorted(logs)[-listed:])
        used = _with_changes(used, changes, floor, parameters, error)
    row = _adjusted(used, parameters, error)
    if row.rest > 0 and not used.rest_counts:
        row = row.without_rest()
    row = row if by_id else row.without(used.dropped)
    return row if row.tokens or row.rest_counts else None


def _used_ids(entries: Mapping[str, float], listed: int, token: str, *, whole: bool) -> UsedEntries:
    """Use the token ids above the N-th largest, or all ids if the list is complete."""
    tokens, logs = list(entries), np.fromiter(entries.values(), float, len(entries))
    if len(tokens) >= listed:
        kept = logs > np.sort(logs)[-listed]
    elif whole:
        kept = logs > IMPOSSIBLE
    else:
        # The sampled token may have been added to the list.
        length = len(entries) - (entries[token] <= min(entries.values()))
        raise EndpointError(
            f"the server lists {len(entries)} log-probabilities instead of {listed}; request no "
            f"more than it lists, with --logprobs {max(length, 2)}"
        )
    names = [name for name, keep in zip(tokens, kept, strict=True) if keep]
    return UsedEntries(names, logs[kept], bool(kept.all()), True, 0, frozenset())


def _used_strings(
    entries: Mapping[str, float], listed: int, token: str, *, chat: bool, flat: bool
) -> UsedEntries | None:
    """Use the strings above the lowest of the N most probable; None if the lowest is unknown.

    The N most probable tokens have n strings.  If the sampled token is the lowest of the list, it
    may be the lowest of the n strings or an addition to them, so this position does not count.  The
    lowest of the n strings never counts.  If n = N, each string is one token.  A list of N + 1
    strings shows that the sampled token is an addition, so all other tokens count as one class;
    chats may cut the list to N.  An incomplete character on the list may be several tokens, so the
    residual mass is unknown too.  A list is complete if its tokens, without an added sampled token,
    have the total probability 1; a temperature above 1 (`flat`) may increase the probability of
    unlisted tokens too much.
    """
    lowest = min(entries.values())
    added = entries[token] <= lowest and len(entries) > listed
    apart = added and not chat
    top = {key: log for key, log in entries.items() if not (apart and key == token)}
    halves = {key for key in top if is_unclear(key)}
    total = math.fsum(math.exp(log) for key, log in entries.items() if not (added and key == token))
    whole = total > 1 - WHOLE_LIST_GAP and not halves and not flat
    rest_counts = len(top) >= listed and not chat and not halves
    dropped = halves | {key for key in top if END_TOKEN.fullmatch(key)}
    if not whole:
        if entries[token] <= lowest and not (apart and rest_counts):
            return None
        bottom = min(top.values(), default=0.0)
        dropped |= {key for key, log in top.items() if log <= bottom}
    else:
        top = {key: log for key, log in entries.items() if log > IMPOSSIBLE}
    logs = np.array(list(top.values()), dtype=float)
    hidden = 0 if whole else max(listed - len(top), 0)
    return UsedEntries(list(top), logs, whole, rest_counts, hidden, frozenset(dropped))


def _with_changes(
    used: UsedEntries,
    changes: Mapping[str, float],
    floor: float,
    parameters: SamplingParameters,
    error: float,
) -> UsedEntries:
    """Add numbers to log-probabilities of token ids; no other token has more than `floor`.

    The sum of all probabilities is known if no changed token is missing from the list.
    """
    added = np.array([changes.get(token, 0.0) for token in used.tokens])
    logs = np.maximum(used.logs + added, IMPOSSIBLE)
    missing = [] if used.whole else [changes[token] for token in {*changes}.difference(used.tokens)]
    others = 0.0 if used.whole else max(1.0 - float(np.exp(used.logs).sum()), 0.0)
    tokens, slack = used.tokens, CHANGED_MARGIN + 2 * error
    total = others + float(np.exp(logs).sum())
    if not used.whole and _truncates(parameters):
        kept = logs > floor + max([0.0, *missing]) + slack
        logs = logs[kept]
        tokens = [token for token, keep in zip(tokens, kept, strict=True) if keep]
    logs = logs - math.log(total or 1.0)
    return used._replace(
        tokens=tokens,
        logs=logs,
        normalized=not missing,
        slack=slack,
        changed=frozenset(changes),
    )


def _truncates(parameters: SamplingParameters) -> bool:
    """Whether top-k, top-p or min-p excludes tokens."""
    top_p, min_p = parameters.top_p, parameters.min_p
    return parameters.top_k is not None or (top_p or 1) < 1 or (min_p or 0) > 0


def probs_from_logits(
    logits: Floats, parameters: SamplingParameters, changed: Sequence[int] = ()
) -> TokenProbs:
    """Return the distribution of a local model, whose tokens are represented by their ids.

    `changed` are the tokens whose logits a penalty or a bias changed.  Without truncation, only the
    most probable tokens are listed: an audit keeps thousands of distributions.
    """
    logs = logits - logits.max()
    logs = np.maximum(logs - np.log(np.exp(logs).sum()), IMPOSSIBLE)
    order = np.argsort(-logs, kind="stable")
    used = UsedEntries([], logs[order], True, True, 0, frozenset())
    weights, sure, out, _ = _truncated(used, parameters, 0.0)
    listed, probs = order[sure], weights[sure] / (float(weights[sure].sum()) or 1.0)
    if sure.all():
        count = max(int((np.cumsum(probs) - probs < LISTED_MASS).sum()), LEAST_LISTED)
        # Copies, because views would keep all tokens in memory.
        listed, probs = listed[:count].copy(), probs[:count].copy()
    return TokenProbs(
        tuple(map(token_name, listed.tolist())),
        probs,
        max(1.0 - float(probs.sum()), 0.0) if probs.size < sure.sum() else 0.0,
        True,
        frozenset(map(token_name, order[~(sure | out)].tolist())),
        frozenset(map(token_name, changed)),
    )


def _adjusted(used: UsedEntries, parameters: SamplingParameters, error: float) -> TokenProbs:
    """Apply sampling parameters to listed log-probabilities."""
    pairs = sorted(zip((-used.logs).tolist(), used.tokens, strict=True))
    tokens = [token for _, token in pairs]
    used = used._replace(logs=-np.array([log for log, _ in pairs]))
    weights, sure, out, rest = _truncated(used, parameters, error)
    total = float(weights[sure].sum()) + (rest or 0.0)
    return TokenProbs(
        tuple(token for token, stays in zip(tokens, sure, strict=True) if stays),
        weights[sure] / (total or 1.0),
        (rest or 0.0) / (total or 1.0),
        rest is not None,
        frozenset(token for token, out_of in zip(tokens, sure | out, strict=True) if not out_of),
        used.changed,
    )


class Truncated(NamedTuple):
    """Weights of tokens after the sampling parameters, and which tokens certainly stay or go."""

    weights: Floats
    sure: Bools
    out: Bools
    # Weight of all unlisted tokens; None if it is unknown.
    rest: float | None


def _truncated(used: UsedEntries, parameters: SamplingParameters, error: float) -> Truncated:
    """Apply sampling parameters to log-probabilities in descending order.

    Min-p acts before top-k and top-p, as in vLLM.  Tokens at the edge of min-p, top-k or top-p
    neither stay nor go, so they do not count: servers choose differently among equal tokens, and
    `error` hides which tokens are equal.
    """
    logs, whole = used.logs, used.whole
    weights = np.exp((logs - logs.max(initial=-np.inf)) / parameters.temperature)
    top_k, top_p, min_p = parameters.top_k, parameters.top_p, parameters.min_p
    sure, out = np.ones(logs.size, dtype=bool), np.zeros(logs.size, dtype=bool)
    rest: float | None = 0.0 if whole else None
    known = used.normalized and parameters.temperature == 1 and top_k is None
    if not whole and known and logs.size:
        rest = max(math.exp(-logs[0]) - float(weights.sum()), 0.0)
    if min_p and logs.size:
        # The weights are relative to the largest one; the most probable token always stays.
        inexact = 2 * error + used.slack
        close = EDGE_MARGIN + inexact / min(parameters.temperature, 1.0)
        sure, out = weights > min_p * (1 + close), weights < min_p * (1 - close)
        sure[0] |= logs.size == 1 or logs[0] - logs[1] > inexact
        rest = 0.0 if whole or out.any() else None
    if top_k is not None and top_k < logs.size:
        sure &= logs > logs[top_k] + used.slack
        out |= logs < logs[top_k - 1] - used.slack
        rest = 0.0
    if top_k is not None and used.hidden:
        sure = sure & (np.arange(logs.size) < top_k - used.hidden)
    if top_p is not None and top_p < 1 and logs.size:
        close = EDGE_MARGIN + error / min(parameters.temperature, 1.0)
        least = float(weights[sure].sum()) + (rest or 0.0)
        others = _largest_rest(used, weights, parameters, error) if rest is None else rest
        most = float(weights[~out].sum()) + others
        # Mass before each token, and before the unlisted tokens.
        before = np.append(0.0, np.cumsum(np.where(out, 0, weights)))
        low, high, bottom, alone = before[:-1], before[:-1], before[-1], True
        inexact = 2 * error + used.slack
        falls = logs[1:] - logs[:-1] < -inexact
        if not falls.all():
            # Use the mass before the first and before the last of several equal tokens.
            new = np.append(True, falls)
            starts = np.flatnonzero(new)
            group = np.cumsum(new) - 1
            low, high = low[starts[group]], high[np.append(starts[1:], logs.size)[group] - 1]
            bottom, alone = low[-1] if inexact else bottom, starts.size > 1 and starts[1] == 1
        sure &= high < least * (top_p - close)
        out |= low > most * (top_p + close)
        if rest != 0:
            rest = 0.0 if bottom > most * (top_p + close) else None
        # The most probable token always stays.
        sure[0] |= alone
    return Truncated(weights, sure, out, rest)


def _largest_rest(
    used: UsedEntries, weights: Floats, parameters: SamplingParameters, error: float
) -> float:
    """Return an upper bound on the weight of the unlisted tokens.

    Let m be their total probability, and p the smallest listed one, which is not exceeded by any
    unlisted one.  At a temperature T ≤ 1 their powers 1/T sum to at most (m / p) p^(1/T).
    """
    if not used.normalized or parameters.temperature > 1:
        return math.inf
    mass = max(1.0 - float(np.exp(used.logs).sum()), 0.0) + error
    return mass / math.exp(used.logs[-1]) * float(weights[-1])
