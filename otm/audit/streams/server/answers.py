"""Read answers of an OpenAI-compatible server: sampled tokens with lists of log-probabilities.

Every list contains the sampled token.  If a server lists only the most probable tokens, the sampled
token is added with its own log-probability.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import numpy as np

from otm._core.display.text import shown
from otm._core.listed_tokens import IMPOSSIBLE, UNCLEAR, is_unclear, token_name
from otm._core.numbers import whole
from otm.audit.streams.server.distributions.token_probs import TokenProbs
from otm.errors import EndpointError

Prompt: TypeAlias = str | tuple[int, ...]
"""A prompt: a text or token ids."""

SPACES = "▁ĠĊ \t\n"
"""Characters in which two spellings of one token may differ."""

MOST_LISTED = 1_000
"""Longest list of log-probabilities that is read."""

MOST_SURPLUS = 3
"""Allowed number of tokens beyond the request; a server may add them to complete a character."""

MARGIN = 1e-3
"""Largest rounding error of a log-probability."""


class Encoded(tuple[int, ...]):
    """Token ids of a text; a server that accepts no ids gets the text."""

    text: str

    @classmethod
    def of(cls, text: str, tokenizer: Any) -> Encoded:
        """Encode a prompt in the same way as a server that accepts no token ids."""
        prompt = cls(tokenizer(text).input_ids)
        prompt.text = text
        return prompt


@dataclass(frozen=True)
class Ending:
    """The text of an answer, and why it ended there, in the words of the server."""

    text: str
    finish_reason: str | None
    # Stop string or end token, if the server names it, as vLLM and SGLang do.
    stop_reason: str | int | None = None
    # Number of sampled tokens that the server states.
    sampled: int | None = None


@dataclass(frozen=True)
class Completion:
    """The tokens that a server sampled, and its list of log-probabilities for each token."""

    tokens: tuple[str, ...]
    # For each token: log-probabilities by token.
    lists: tuple[dict[str, float], ...]
    # For each token: its distribution, or None if the token does not count.  Empty for pairs of
    # servers.
    rows: tuple[TokenProbs | None, ...] = ()
    # None if the answer has no text.
    ending: Ending | None = None
    # Log-probability of each sampled token, stated apart from the list; None if it is missing.
    own: tuple[float | None, ...] = ()


def read_completion(
    answer: Any,
    tokens: int,
    *,
    chat: bool,
    listed: int,
    same_spelling: bool,
) -> Completion:
    """Read an answer; raise unless it is a sampled text with its log-probabilities.

    With `same_spelling`, raise if a sampled token is spelled differently from the tokens of its
    list.
    """
    completion = _read_lists(answer, chat=chat)
    surplus = len(completion.tokens) - tokens
    if surplus > (MOST_SURPLUS if any(map(is_unclear, completion.tokens)) else 0):
        raise EndpointError(
            f"the server returned {len(completion.tokens)} tokens instead of {tokens}; it must "
            "obey `max_tokens`"
        )
    longest = max(map(len, completion.lists), default=0)
    if longest > listed + 1:
        raise EndpointError(
            f"the server lists {longest} log-probabilities instead of {listed}; request the number "
            "that it lists, with --logprobs NUMBER"
        )
    if same_spelling and completion.tokens and not any(completion.lists):
        raise EndpointError(
            "the server's lists of log-probabilities are empty; request shorter lists with "
            "--logprobs 5, or compare with a second server (--reference) or a model (--model)"
        )
    completion = Completion(
        completion.tokens[:tokens], completion.lists[:tokens], own=completion.own[:tokens]
    )
    completion = _with_sampled(completion, same_spelling=same_spelling)
    return replace(completion, ending=_ending(answer))


def _ending(answer: Any) -> Ending | None:
    """Read the text of an answer and why it ended; None if there is no text."""
    choice, usage = answer["choices"][0], answer.get("usage")
    text = choice.get("text")
    if text is None and isinstance(message := choice.get("message"), dict):
        text = message.get("content")
    stop = choice.get("stop_reason", choice.get("matched_stop"))
    sampled = usage.get("completion_tokens") if isinstance(usage, dict) else None
    return ending_from([text, choice.get("finish_reason"), stop, sampled])


def ending_from(parts: Any) -> Ending | None:
    """Check the text of an answer and its reasons; None if the text is not a string."""
    text, finish, stop, sampled = parts
    if not isinstance(text, str):
        return None
    return Ending(
        text,
        finish if isinstance(finish, str) else None,
        stop if isinstance(stop, str) else whole(stop),
        whole(sampled),
    )


def read_prompt(answer: Any) -> Completion:
    """Read an answer that begins with the tokens of the prompt, with their lists."""
    return _with_sampled(_read_lists(answer, chat=False), same_spelling=False)


def _read_lists(answer: Any, *, chat: bool) -> Completion:
    """Read tokens, lists, and the log-probabilities beside the lists."""
    try:
        logprobs = answer["choices"][0]["logprobs"]
        names, lists, own = _from_chat(logprobs) if chat else _from_lists(logprobs)
        completion = completion_from(names, lists)
        return replace(completion, own=tuple(_log_prob(each) for each in own))
    except (LookupError, TypeError, AttributeError, ValueError, OverflowError):
        hint = "" if chat else "; if the server accepts only chats, use --chat"
        raise EndpointError(
            f"the server's answer has no log-probabilities in the format of OpenAI's interface: "
            f"{shown(answer)}; the server must return `logprobs`, for which some servers need an "
            f"option, such as --logits_all true of llama-cpp-python{hint}"
        ) from None


def read_text(answer: Any, tokens: int, tokenizer: Any) -> Completion:
    """Read a text as tokens of its tokenizer, with an end token if the text stopped.

    If a character is incomplete, drop this character, all text after it, and the token before it,
    which may contain a part of the character.
    """
    try:
        text, why = answer["choices"][0]["text"], answer["choices"][0]["finish_reason"]
        whole, cut, _ = text.partition(UNCLEAR)
        ids = tokenizer(whole, add_special_tokens=False).input_ids[:tokens]
    except (LookupError, TypeError, ValueError, AttributeError):
        raise EndpointError(f"the server's answer has no text: {shown(answer)}") from None
    if cut:
        ids = ids[:-1]
    elif why == "stop" and len(ids) < tokens and tokenizer.eos_token_id is not None:
        ids = [*ids, tokenizer.eos_token_id]
    return Completion(tuple(token_name(token) for token in ids), ({},) * len(ids))


def completion_from(tokens: Any, lists: Sequence[Iterable[tuple[Any, Any]]]) -> Completion:
    """Check tokens and lists of pairs, and merge equal strings; raise ValueError if invalid."""
    if len(tokens) != len(lists) or not all(isinstance(token, str) for token in tokens):
        raise ValueError
    merged = []
    for pairs in lists:
        entries: dict[str, float] = {}
        for token, log in pairs:
            if not isinstance(token, str) or len(entries) > MOST_LISTED:
                raise ValueError
            value = log if type(log) is float and IMPOSSIBLE <= log <= 0 else _log_prob(log)
            # Some servers write null for minus infinity.
            value = IMPOSSIBLE if value is None else value
            before = entries.get(token)
            entries[token] = value if before is None else float(np.logaddexp(before, value))
        merged.append(entries)
    return Completion(tuple(tokens), tuple(merged))


def _log_prob(log: Any) -> float | None:
    """Check a log-probability; return None for None, and raise ValueError if it is invalid."""
    if log is None:
        return None
    if isinstance(log, bool) or not isinstance(log, int | float):
        raise ValueError
    if not log <= MARGIN or math.isnan(log):
        raise ValueError
    return max(min(float(log), 0.0), IMPOSSIBLE)


def _from_lists(logprobs: Any) -> tuple[Any, list[Any], list[Any]]:
    """Read the lists of `/v1/completions`."""
    tokens, lists = logprobs["tokens"], logprobs["top_logprobs"]
    own = logprobs.get("token_logprobs") or [None] * len(tokens)
    # A missing list is an empty list, whose position does not count.
    pairs = [() if entries is None else entries.items() for entries in lists]
    return tokens, pairs, own[: len(tokens)]


def _from_chat(logprobs: Any) -> tuple[list[Any], list[Any], list[Any]]:
    """Read the lists of `/v1/chat/completions`."""
    places = logprobs["content"]
    lists = [[(_name(top), top["logprob"]) for top in at["top_logprobs"]] for at in places]
    return [_name(at) for at in places], lists, [at.get("logprob") for at in places]


def _name(entry: Any) -> Any:
    """Return the string of a token, or its bytes if it is an incomplete character."""
    token, raw = entry["token"], entry.get("bytes")
    if not isinstance(token, str) or not is_unclear(token) or not isinstance(raw, list) or not raw:
        return token
    encoded = bytes(raw)
    return token if encoded == token.encode() else f"bytes:{encoded.hex()}"


def _with_sampled(completion: Completion, *, same_spelling: bool) -> Completion:
    """Add the sampled token to each list that has only the most probable tokens."""
    lists, own = [], completion.own
    for place, (token, entries) in enumerate(zip(completion.tokens, completion.lists, strict=True)):
        log = own[place] if place < len(own) else None
        if token in entries or not entries:
            lists.append(entries)
            continue
        if same_spelling:
            _check_spelling(token, log, entries)
        added = IMPOSSIBLE if log is None else min(log, *entries.values())
        lists.append({**entries, token: added})
    return replace(completion, lists=tuple(lists))


def _check_spelling(token: str, log: float | None, entries: dict[str, float]) -> None:
    """Raise if a sampled token is missing from its list.

    The token should be on the list if it is more probable than a listed token, or if the list has
    it with another spelling.
    """
    plain = token.strip(SPACES)
    alike = [key for key in entries if plain and key.strip(SPACES) == plain]
    if not alike if log is None else log <= min(entries.values()) + MARGIN:
        return
    example = (alike or list(entries))[0]
    raise EndpointError(
        f"the sampled token {shown(token)} is not in its own list, which has tokens such as "
        f"{shown(example)}: the server spells sampled and listed tokens differently, so that they "
        "cannot be compared; let it return token ids (`return_tokens_as_token_ids`), or compare "
        "with a second server (--reference) or a model (--model)"
    )
