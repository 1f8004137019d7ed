"""Lists of log-probabilities from the servers of two models, in the JSON of OpenAI's interface.

A completion has `choices[].logprobs.tokens` and `top_logprobs`, an object from tokens to
log-probabilities at each position. A chat has `choices[].logprobs.content[]`, where each entry has
a token and a list `top_logprobs`. Servers list the most probable tokens, and always the sampled
token too.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from otm._core.display.text import shown
from otm._core.files.lines import lines_of
from otm._core.files.paths import file_label, file_size, parse_json, read_json
from otm._core.listed_tokens import IMPOSSIBLE, TOKEN_ID, is_unclear
from otm._core.numbers import is_real, whole
from otm.errors import InvalidInputError

BY_ID = re.compile(TOKEN_ID + "([0-9]{1,18})")
"""A token name that consists of an id."""

MOST_SUM = 1.02
"""Largest sum of the probabilities of a list; rounding to two decimals may add 1 %."""


class Token(NamedTuple):
    """A token as a server names it; an id or text that the server omits is None."""

    id: int | None
    text: bytes | None


Listed = list[tuple[Token, float]]


class Choice(NamedTuple):
    """One text: the token at each position, and each position's list, or None if unknown."""

    tokens: list[Token]
    lists: list[Listed | None]


class Position(NamedTuple):
    """The lists of both models after the same text, as log-probabilities by token."""

    response: int
    where: str
    draft: dict[int, float]
    target: dict[int, float]


def match_positions(draft: Path, target: Path) -> tuple[list[Position], int]:
    """Match two files of responses position by position; also count skipped positions.

    A position is skipped if a model has no list there, such as at the first token of a prompt. A
    position is also skipped if two tokens of a list have the same name.
    """
    of_draft, of_target = list(_responses(draft)), list(_responses(target))
    if len(of_draft) != len(of_target):
        raise InvalidInputError(
            f"{file_label(draft)} has {len(of_draft)} responses and {file_label(target)} "
            f"{len(of_target)}; give the responses of both models to the same requests, in order"
        )
    choices = [choice for response in (*of_draft, *of_target) for choice in response]
    named = [token for choice in choices for lists in choice.lists for token, _ in lists or ()]
    by_id = [token.id is not None for token in named]
    if not all(by_id) and any(token.id is not None and token.text is None for token in named):
        raise InvalidInputError(
            f"{file_label(draft)} and {file_label(target)} name some tokens by ids and others "
            "by texts; send both servers the same options"
        )
    positions: list[Position] = []
    left_out = 0
    for number, (first, second) in enumerate(zip(of_draft, of_target, strict=True)):
        where = f"response {number} of {file_label(draft)} and {file_label(target)}"
        if len(first) != len(second):
            raise InvalidInputError(
                f"{where}: {len(first)} and {len(second)} choices; the responses of both models "
                "must have the same number of choices"
            )
        for c, pair in enumerate(zip(first, second, strict=True)):
            _check_same_text(*pair, where)
            for i, lists in enumerate(zip(pair[0].lists, pair[1].lists, strict=True)):
                both = _by_token(lists, all(by_id))
                if both is None:
                    left_out += 1
                else:
                    place = f"position {i} of choice {c} of {where}"
                    positions.append(Position(number, place, *both))
    if not positions:
        raise InvalidInputError(
            f"{file_label(draft)} and {file_label(target)} have no position with lists of both "
            f"models and a different name for each token ({left_out} are skipped); request "
            "log-probabilities of at least 2 tokens"
        )
    return positions, left_out


def _responses(path: Path) -> Iterator[list[Choice]]:
    """Yield the choices of each response in a file: one response, a list, or one per line."""
    if path.suffix.lower() == ".jsonl":
        lines = lines_of(path, 0, file_size(path))
        parsed = [parse_json(line, f"a line of {file_label(path)}") for _, line in lines]
    else:
        content = read_json(path)
        parsed = content if isinstance(content, list) else [content]
    alone = True
    for number, response in enumerate(parsed):
        where = f"response {number} of {file_label(path)}"
        try:
            choices = [_choice(choice["logprobs"]) for choice in response["choices"]]
        except (LookupError, TypeError, ValueError, AttributeError):
            raise InvalidInputError(
                f"{where} has no lists of log-probabilities: {shown(response)}; it must be a "
                "response of /v1/completions or /v1/chat/completions to a request for "
                "log-probabilities ("
                '"logprobs": 5, or for chats "logprobs": true and "top_logprobs": 5)'
            ) from None
        for choice in choices:
            for listed in choice.lists:
                if listed and (total := math.fsum(math.exp(log) for _, log in listed)) > MOST_SUM:
                    raise InvalidInputError(
                        f"{where} has a list whose probabilities sum to {total:.6g}; they must sum "
                        "to at most 1: give log-probabilities instead of scores"
                    )
        alone = alone and all(
            len(listed) == 1 and listed[0][0] == token
            for choice in choices
            for token, listed in zip(choice.tokens, choice.lists, strict=True)
            if listed
        )
        yield [
            Choice(tokens, list(map(_most_probable, tokens, lists))) for tokens, lists in choices
        ]
    if alone:
        raise InvalidInputError(
            f"{file_label(path)} lists no tokens except the sampled ones; request "
            'log-probabilities of at least 2 tokens ("logprobs": 2)'
        )


def _choice(logprobs: Any) -> Choice:
    """Parse tokens and lists; raise KeyError, TypeError or ValueError if a part is missing."""
    if "content" in logprobs:
        places = logprobs["content"]
        tokens = [_token(place["token"], place) for place in places]
        pairs = [
            [(_token(top["token"], top), top) for top in place["top_logprobs"]] for place in places
        ]
        lists: list[Listed | None] = [
            [(token, _number(top["logprob"])) for token, top in listed] for listed in pairs
        ]
        return Choice(tokens, lists)
    tokens = [_token(text, {}) for text in logprobs["tokens"]]
    lists = [
        None if tops is None else [(_token(text, {}), _number(log)) for text, log in tops.items()]
        for tops in logprobs["top_logprobs"]
    ]
    if len(tokens) != len(lists):
        raise ValueError
    return Choice(tokens, lists)


def _token(name: Any, entry: Any) -> Token:
    """Make a token from its name, and from its id and bytes if the server sends them."""
    if not isinstance(name, str):
        raise TypeError
    by_id = BY_ID.fullmatch(name)
    if by_id:
        return Token(int(by_id[1]), None)
    number, raw = whole(entry.get("id")), entry.get("bytes")
    # bytes(5) would make five zero bytes, so only lists are converted
    if isinstance(raw, list) and raw:
        return Token(number, bytes(raw))
    return Token(number, None if is_unclear(name) else name.encode("utf-8", "surrogatepass"))


def _number(log: Any) -> float:
    """Return a log-probability; raise ValueError on other values."""
    if not is_real(log) or log > 1e-6:
        raise ValueError
    # a softmax in float32 may round above 1
    return min(float(log), 0.0)


def _most_probable(sampled: Token, listed: Listed | None) -> Listed | None:
    """Drop the sampled token if it is the least probable, because the server may have added it.

    Without its least probable token, a list still has the most probable tokens.
    """
    kept = [(token, log) for token, log in listed or () if log > IMPOSSIBLE]
    if len(kept) > 1:
        least = min(log for _, log in kept)
        kept = [entry for entry in kept if entry != (sampled, least)]
    return kept or None


def _check_same_text(draft: Choice, target: Choice, where: str) -> None:
    """Raise unless both texts are equal; their last tokens may differ."""
    advice = (
        "lists can be compared only after the same text: let both servers read one text, with "
        '"echo": true and "max_tokens": 0, or cut both texts where they differ'
    )
    if len(draft.tokens) != len(target.tokens):
        raise InvalidInputError(
            f"{where}: texts of {len(draft.tokens)} and {len(target.tokens)} tokens; {advice}"
        )
    for i, (one, other) in enumerate(zip(draft.tokens[:-1], target.tokens[:-1], strict=True)):
        by_id = one.id is not None and other.id is not None
        if one.id != other.id if by_id else one.text != other.text:
            raise InvalidInputError(f"{where}: the texts differ at token {i}; {advice}")


def _by_token(
    lists: Sequence[Listed | None], by_id: bool
) -> tuple[dict[int, float], dict[int, float]] | None:
    """Return both models' log-probabilities by token; None if a token has no unique name."""
    numbers: dict[int | bytes, int] = {}
    parsed = []
    for listed in lists:
        names = [token.id if by_id else token.text for token, _ in listed or ()]
        if not names or None in names or len(set(names)) < len(names):
            return None
        keys = [
            name if isinstance(name, int) else numbers.setdefault(name, len(numbers))
            for name in names
            if name is not None
        ]
        parsed.append(dict(zip(keys, (log for _, log in listed or ()), strict=True)))
    return parsed[0], parsed[1]
