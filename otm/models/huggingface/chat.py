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
    messages = [{"role": "user", "content": message}]
    text = tokenizer.apply_chat_template(messages, add_generation_prompt=True, tokenize=False)
    # the template already has the special tokens
    tokens: list[int] = tokenizer(text, add_special_tokens=False, verbose=False).input_ids
    return tokens


def end_tokens(model: Any, tokenizer: Any) -> set[int]:
    """Return the tokens that end an answer: those of the model, and the tokenizer's."""
    of_model = getattr(model.generation_config, "eos_token_id", None)
    several = of_model if isinstance(of_model, list) else [of_model]
    return {token for token in (*several, tokenizer.eos_token_id) if token is not None}
