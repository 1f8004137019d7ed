"""Prompts of an instruct model, written through the chat template of its tokenizer."""

from __future__ import annotations

from typing import Any

from otm.errors import InvalidParameterError


def has_template(tokenizer: Any) -> bool:
    """Return whether a tokenizer has a chat template."""
    return bool(getattr(tokenizer, "chat_template", None))


def uses_template(tokenizer: Any, chat: bool | None) -> bool:
    """Return whether prompts go through the template: by default, if the tokenizer has one."""
    if chat and not has_template(tokenizer):
        raise InvalidParameterError(
            "chat = True, and the target's tokenizer has no chat template; omit `chat` (--chat), "
            "or give an instruct model"
        )
    return has_template(tokenizer) if chat is None else chat


def chat_tokens(tokenizer: Any, message: str) -> list[int]:
    """Return the tokens of a user's message in the template, up to the start of the answer."""
    return _tokens(tokenizer, _in_template(tokenizer, message))


def tokens_around(tokenizer: Any) -> tuple[list[int], list[int]]:
    """Return the tokens of the template before, and after, a user's message."""
    mark = "\N{OBJECT REPLACEMENT CHARACTER}"
    before, after = _in_template(tokenizer, mark).split(mark)
    return _tokens(tokenizer, before), _tokens(tokenizer, after)


def _in_template(tokenizer: Any, message: str) -> str:
    """Return a user's message in the template, up to the start of the answer."""
    messages = [{"role": "user", "content": message}]
    text: str = tokenizer.apply_chat_template(messages, add_generation_prompt=True, tokenize=False)
    return text


def _tokens(tokenizer: Any, text: str) -> list[int]:
    """Return the tokens of a text in the template, which already has the special tokens."""
    tokens: list[int] = tokenizer(text, add_special_tokens=False, verbose=False).input_ids
    return tokens


def end_tokens(model: Any, tokenizer: Any) -> set[int]:
    """Return the tokens that end an answer: those of the model, and the tokenizer's."""
    of_model = getattr(model.generation_config, "eos_token_id", None)
    several = of_model if isinstance(of_model, list) else [of_model]
    return {token for token in (*several, tokenizer.eos_token_id) if token is not None}
