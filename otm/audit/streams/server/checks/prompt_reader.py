"""Read an answer as a prompt, so that a server lists its tokens without decoding them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from otm._core.listed_tokens import TOKEN_ID, is_unclear, token_name
from otm.audit.streams.server.answers import Completion, Prompt
from otm.audit.streams.server.checks.kept_answers import KeptAnswer
from otm.audit.streams.server.client import Client
from otm.audit.streams.server.distributions.references import token_ids


class PromptReader:
    """Reads the lists that a server returns if the text of an answer is a prompt."""

    def __init__(self, client: Client, prompts: Sequence[Prompt]) -> None:
        self.client, self.prompts = client, prompts
        self._starts: dict[int, Completion | None] = {}
        self.supported = True

    def start(self, prompt: int) -> tuple[str, ...]:
        """Return the tokens of a prompt; empty if the server does not return them."""
        if prompt not in self._starts and self.supported:
            self._starts[prompt] = found = self.client.prompt_lists(self.prompts[prompt])
            self.supported = found is not None
        found = self._starts.get(prompt)
        return () if found is None else found.tokens[:-1]

    def text(self, prompt: int, tokens: Sequence[str]) -> Prompt | None:
        """Append tokens to a prompt; None if the server may split the text differently."""
        known = self.prompts[prompt]
        start: Sequence[str] = [token_name(token) for token in known]
        if isinstance(known, str):
            start = self.start(prompt)
        whole = [*start, *tokens]
        if start and all(token.startswith(TOKEN_ID) for token in whole):
            return tuple(token_ids(Completion(tuple(whole), ())))
        if not isinstance(known, str) or any(map(is_unclear, tokens)):
            return None
        return known + "".join(tokens)

    def read(self, kept: KeptAnswer) -> tuple[int, tuple[Mapping[str, float], ...]] | None:
        """Return the number of the answer's first token in its whole text, and the text's lists."""
        start = self.start(kept.request.prompt)
        text = self.text(kept.request.prompt, kept.answer.tokens) if start else None
        found = None if text is None else self.client.prompt_lists(text)
        # A text may be split into other tokens than the answer's.
        if found is None or found.tokens[:-1] != start + kept.answer.tokens:
            return None
        return len(start), found.lists
