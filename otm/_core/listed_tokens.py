"""Conventions for tokens in the lists of log-probabilities that OpenAI-compatible servers send."""

from __future__ import annotations

from functools import lru_cache

TOKEN_ID = "token_id:"
"""Prefix of a token id in vLLM's lists, if the request asks for ids."""

UNCLEAR = "\ufffd"
"""Replacement character, which servers send for tokens that are only part of a character."""

IMPOSSIBLE = -9_999.0
"""Log-probability that servers send for probability 0, and for tokens outside the top list."""


def is_unclear(token: str) -> bool:
    """Return whether a string may stand for several tokens, such as parts of a character."""
    return not token or UNCLEAR in token


@lru_cache(maxsize=2**18)
def token_name(token: int) -> str:
    """Return the string of a token id; all lists share the object, which saves memory."""
    return f"{TOKEN_ID}{token}"
