"""Whether each text of a mixed block has the length that its own request states.

A server that mixes up simultaneous requests may use the length of another one.  More tokens than
requested are certainly wrong.  Fewer tokens with finish_reason "length" may have filled the
context; they are wrong if another text after the same prompt is longer.  One missing token may be
an end token that the server omits, so it shows nothing.
"""

from __future__ import annotations

from collections import defaultdict

from otm._core.listed_tokens import TOKEN_ID
from otm.audit.streams.server.answers import Completion
from otm.audit.streams.server.evidence.endings import EndingViolation, violation_of

WRONG_LENGTH = "wrong number of tokens in a block of different requests"


class LengthCheck:
    """Check the lengths of all texts of an audit."""

    def __init__(self) -> None:
        self.violation: EndingViolation | None = None
        # The first text of each prompt that is too short unless the context is full, and the
        # length of the longest text.
        self._short: dict[str, EndingViolation] = {}
        self._longest: defaultdict[str, int] = defaultdict(int)

    def add(self, prompt: str, answer: Completion, requested: int) -> None:
        """Check the text of a request for a number of tokens, if the server returned ids."""
        number, ending = len(answer.tokens), answer.ending
        # The audit itself splits texts without an ending into tokens.
        if ending is None or not all(token.startswith(TOKEN_ID) for token in answer.tokens):
            return
        why = f"the text has {number} tokens, but its request states max_tokens {requested}"
        self._longest[prompt] = max(self._longest[prompt], number)
        found = violation_of(WRONG_LENGTH, prompt, answer, why)
        omits = ending.sampled is not None and ending.sampled > number
        if ending.finish_reason == "length" and number < requested - 1 and not omits:
            self._short.setdefault(prompt, found)
        short = self._short.get(prompt)
        if short is not None and len(short.tokens) == self._longest[prompt]:
            short = None
        self.violation = self.violation or (found if number > requested else short)
