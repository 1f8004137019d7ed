"""Assistants whose tokenizer differs from the target's."""

from __future__ import annotations

from typing import Any

from otm._core.numbers import check_name
from otm.decoding.drafters.base import Branching, Drafter
from otm.decoding.drafters.strings import StringDrafter
from otm.decoding.sampling_parameters import SamplingParameters
from otm.errors import InvalidInputError, InvalidParameterError
from otm.models.base import LanguageModel
from otm.models.vocabularies.intersection import IntersectionModel
from otm.models.vocabularies.spelling import Spelling

BY_TEXT = "target-only", "list coupling"
"""Rules that need no draft probabilities."""


class OtherVocabulary:
    """Token texts of target and assistant, and how assistant drafts become tokens of the target."""

    def __init__(self, tokenizers: Any, match: str) -> None:
        if not isinstance(tokenizers, tuple | list) or len(tokenizers) != 2:
            raise InvalidInputError(
                "tokenizers must be a pair: the target's tokenizer and the assistant's"
            )
        self._target, self._draft = map(Spelling.of, tokenizers)
        # Whether drafts are strings, in one chain without probabilities.
        self.by_text = match == "strings"

    def drafter(
        self, assistant: LanguageModel, vocabulary: int, sampling: SamplingParameters
    ) -> Drafter | LanguageModel:
        """Return a drafter of strings, or a model of the tokens that both vocabularies share.

        `vocabulary` is the number of tokens of the target.
        """
        if self.by_text:
            return StringDrafter(assistant, self._draft, self._target, sampling, vocabulary)
        return IntersectionModel(assistant, self._draft, self._target, vocabulary)


def check_match(match: str, rule: object, k: Branching | None, nodes: int | None) -> None:
    """Raise if `match` is unknown, or its drafts do not suit the rule and the shape of drafts."""
    check_name("match", match, ("tokens", "strings"))
    if match == "strings" and (rule not in BY_TEXT or k not in (None, 1) or nodes is not None):
        raise InvalidParameterError(
            "match='strings' drafts one chain without probabilities; set k=1 and a rule that needs "
            f"no draft probabilities ({', '.join(BY_TEXT)}), and remove nodes"
        )
