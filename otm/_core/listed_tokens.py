"""How servers write the tokens of their lists of log-probabilities, by OpenAI's interface."""

from __future__ import annotations

TOKEN_ID = "token_id:"
"""How vLLM writes a token by its id, if it is asked to."""

UNCLEAR = "\ufffd"
"""String by which servers write half a character: the same for different tokens."""

IMPOSSIBLE = -9_999.0
"""What servers write for the logarithm of 0, and for tokens that are not among the most likely."""


def is_unclear(token: str) -> bool:
    """Whether a string may stand for several tokens, as half a character does."""
    return not token or UNCLEAR in token
