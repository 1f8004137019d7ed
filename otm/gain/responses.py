"""Lists of log-probabilities in the JSON of OpenAI's interface, from the servers of two models.

A completion has `choices[].logprobs.tokens` and `top_logprobs`, an object from tokens to
log-probabilities at each position.  A chat has `choices[].logprobs.content[]`, each with a token
and a list `top_logprobs`.  Servers add the token that was sampled to the most likely ones.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from otm._core.files.lines import lines_of
from otm._core.files.paths import file_label, file_size, parse_json, read_json
from otm._core.numbers import is_real, whole
from otm._core.text import shown
from otm.errors import InvalidInputError

TOKEN_ID = re.compile(r"token_id:([0-9]{1,18})")
"""How vLLM writes a token by its id, if it is told to."""

UNKNOWN = -9999.0
"""What OpenAI writes for a token that is not among the most likely ones."""

UNCLEAR = "\ufffd"
"""Stands for bytes that are no whole character, and so for many tokens."""


class Token(NamedTuple):
    """A token as a server names it; what it does not tell is None."""

    id: int | None
    text: bytes | None


Listed = list[tuple[Token, float]]


class Choice(NamedTuple):
    """One text: the token at each position, and the most likely ones there, None if not known."""

    tokens: list[Token]
    lists: list[Listed | None]


class Position(NamedTuple):
    """The lists of both models after the same text, by token."""

    response: int
    where: str
    draft: dict[int, float]
    target: dict[int, float]


def positions_of(draft: Path, target: Path) -> tuple[list[Position], int]:
    """Match two files of responses position by position; also count positions that are left out.

    These have no list of one model, such as the first of a prompt, or a list in which two tokens
    cannot be told apart.
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
            f"{file_label(draft)} and {file_label(target)} name tokens by ids and by texts; ask "
            "both servers in the same way"
        )
    positions: list[Position] = []
    left_out = 0
    for number, (first, second) in enumerate(zip(of_draft, of_target, strict=True)):
        where = f"response {number} of {file_label(draft)} and {file_label(target)}"
        if len(first) != len(second):
            raise InvalidInputError(
                f"{where}: {len(first)} choices and {len(second)}; give as many of both"
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
            f"models in which tokens can be told apart ({left_out} are left out); ask for "
            "log-probabilities of at least 2 tokens"
        )
    return positions, left_out


def _responses(path: Path) -> Iterator[list[Choice]]:
    """Read the choices of each response: a file of one, of a list, or of one a line."""
    if path.suffix.lower() == ".jsonl":
        lines = lines_of(path, 0, file_size(path))
        found = [parse_json(line, f"a line of {file_label(path)}") for _, line in lines]
    else:
        content = read_json(path)
        found = content if isinstance(content, list) else [content]
    alone = True
    for number, response in enumerate(found):
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
        alone = alone and all(
            len(listed) == 1 and listed[0][0] == token
            for choice in choices
            for token, listed in zip(choice.tokens, choice.lists, strict=True)
            if listed
        )
        yield [Choice(tokens, list(map(_most_likely, tokens, lists))) for tokens, lists in choices]
    if alone:
        raise InvalidInputError(
            f"{file_label(path)} lists the sampled tokens alone, or nothing; ask for "
            'log-probabilities of at least 2 tokens ("logprobs": 2)'
        )


def _choice(logprobs: Any) -> Choice:
    """Read tokens and lists as a server sent them; KeyError and the like where there are none."""
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
    """Read a token by its name, and by id and bytes where a server sends these."""
    if not isinstance(name, str):
        raise TypeError
    by_id = TOKEN_ID.fullmatch(name)
    if by_id:
        return Token(int(by_id[1]), None)
    number, raw = whole(entry.get("id")), entry.get("bytes")
    if isinstance(raw, list) and raw:  # a number would make as many zeros
        return Token(number, bytes(raw))
    unclear = not name or UNCLEAR in name
    return Token(number, None if unclear else name.encode("utf-8", "surrogatepass"))


def _number(log: Any) -> float:
    if not is_real(log) or log > 1e-6:
        raise ValueError
    return min(float(log), 0.0)  # a softmax in float32 may round above 1


def _most_likely(sampled: Token, listed: Listed | None) -> Listed | None:
    """Leave out what may not be among the most likely: the sampled token, if none is less likely.

    Without its least likely token a list of the most likely is still one.
    """
    kept = [(token, log) for token, log in listed or () if log > UNKNOWN]
    if len(kept) > 1:
        least = min(log for _, log in kept)
        kept = [entry for entry in kept if entry != (sampled, least)]
    return kept or None


def _check_same_text(draft: Choice, target: Choice, where: str) -> None:
    """Refuse lists that do not follow the same text; the last tokens may differ."""
    advice = (
        "lists can be compared after the same text only: let both servers read one text, as "
        '"echo": true with "max_tokens": 0 does, or cut both where they part'
    )
    if len(draft.tokens) != len(target.tokens):
        raise InvalidInputError(
            f"{where}: texts of {len(draft.tokens)} and {len(target.tokens)} tokens; {advice}"
        )
    for i, (one, other) in enumerate(zip(draft.tokens[:-1], target.tokens[:-1], strict=True)):
        by_id = one.id is not None and other.id is not None
        if one.id != other.id if by_id else one.text != other.text:
            raise InvalidInputError(f"{where}: the texts part at token {i}; {advice}")


def _by_token(
    lists: Sequence[Listed | None], by_id: bool
) -> tuple[dict[int, float], dict[int, float]] | None:
    """Log-probabilities of both models by token; None if tokens are not known or not apart."""
    numbers: dict[int | bytes, int] = {}
    found = []
    for listed in lists:
        names = [token.id if by_id else token.text for token, _ in listed or ()]
        if not names or None in names or len(set(names)) < len(names):
            return None
        keys = [
            name if isinstance(name, int) else numbers.setdefault(name, len(numbers))
            for name in names
            if name is not None
        ]
        found.append(dict(zip(keys, (log for _, log in listed or ()), strict=True)))
    return found[0], found[1]
