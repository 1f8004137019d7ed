"""What the loops refuse, before any model is run."""

from __future__ import annotations

import operator
from collections.abc import Collection, Sequence
from typing import Any

import numpy as np

from otm.decoding.drafting import Drafter, Randomness
from otm.decoding.models.base import LanguageModel
from otm.decoding.reading import Context
from otm.errors import InvalidInputError, InvalidParameterError
from otm.tensors import to_host

__all__ = ["as_end", "as_limit", "as_prompts", "as_sources", "check_models"]


def as_prompts(prompts: Any, vocabulary: int) -> tuple[Context, ...]:
    """Return prompts as tuples of tokens, at least one in each."""
    try:
        rows = [np.asarray(to_host(prompt)) for prompt in prompts]
    except TypeError:
        raise InvalidInputError(
            f"the prompts are a {type(prompts).__name__}; give a sequence of sequences of tokens"
        ) from None
    if not rows:
        raise InvalidInputError("there is no prompt; give at least one")
    for b, row in enumerate(rows):
        if row.ndim != 1 or (row.size and row.dtype.kind not in "iu"):
            raise InvalidInputError(
                f"prompt {b} is an array of type {row.dtype} and shape {row.shape}; each prompt "
                "must be a sequence of token ids, and a single one is given as [prompt]"
            )
        if row.size == 0:
            raise InvalidInputError(
                f"prompt {b} is empty; a model needs a token to go on from, such as its token for "
                "the beginning of a text"
            )
        wrong = row[(row < 0) | (row >= vocabulary)]
        if wrong.size:
            raise InvalidInputError(
                f"prompt {b} has token {wrong[0]}; the target model has tokens 0 to "
                f"{vocabulary - 1}"
            )
    return tuple(tuple(row.tolist()) for row in rows)


def as_limit(max_tokens: Any) -> int:
    """Return the most new tokens of a sequence."""
    try:
        limit = 0 if isinstance(max_tokens, bool) else operator.index(max_tokens)
    except TypeError:
        limit = 0
    if limit < 1:
        raise InvalidParameterError(
            f"max_tokens = {max_tokens!r:.60}; it must be an integer of at least 1"
        )
    return limit


def as_end(end: Any, vocabulary: int) -> frozenset[int]:
    """Return the tokens that end a sequence."""
    given = () if end is None else end if isinstance(end, Collection) else (end,)
    try:
        tokens = [-1 if isinstance(token, bool) else operator.index(token) for token in given]
    except TypeError:
        tokens = [-1]
    if not all(0 <= token < vocabulary for token in tokens):
        raise InvalidParameterError(
            f"end = {end!r:.60}; it must be a token of the target model, 0 to {vocabulary - 1}, a "
            "collection of such tokens, or None"
        )
    return frozenset(tokens)


def as_sources(seed: Any, uniforms: Any, count: int) -> list[Randomness]:
    """Return a source of uniforms for each sequence."""
    if uniforms is None:
        try:
            children = np.random.SeedSequence(seed).spawn(count)
        except (TypeError, ValueError):
            raise InvalidParameterError(
                f"seed = {seed!r:.60}; it must be an integer of at least 0, or None"
            ) from None
        return [np.random.default_rng(child).random for child in children]
    if seed is not None:
        raise InvalidParameterError("both `seed` and `uniforms` are given; give one of them")
    sources = list(uniforms) if isinstance(uniforms, Sequence) else []
    if len(sources) != count or not all(map(callable, sources)):
        raise InvalidParameterError(
            f"uniforms = {uniforms!r:.60}; give one function for each of the {count} prompts, "
            "which takes a number m and returns m uniforms, such as `rng.random`"
        )
    return sources


def check_models(
    target: LanguageModel, drafter: Drafter | None, prompts: Sequence[Context], limit: int
) -> None:
    """Refuse a drafter for another vocabulary, and contexts that will not fit the models."""
    if drafter is not None and drafter.vocabulary not in (None, target.vocabulary):
        raise InvalidInputError(
            f"the draft model has a vocabulary of {drafter.vocabulary} tokens, the target model "
            f"one of {target.vocabulary}; tokens must mean the same to both, so choose two models "
            "with one tokenizer"
        )
    rooms = {"target": target.context_length}
    if drafter is not None:
        rooms["draft"] = drafter.context_length
    longest = max(map(len, prompts))
    for name, room in rooms.items():
        if room is not None and longest + limit > room:
            raise InvalidInputError(
                f"a prompt of {longest} tokens and max_tokens = {limit} new ones do not fit the "
                f"{name} model, which takes {room} tokens; shorten the prompt, or let max_tokens "
                f"be at most {max(room - longest, 0)}"
            )
