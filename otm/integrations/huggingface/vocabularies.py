"""An assistant with another tokenizer than the target."""

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
"""Rules that need no probabilities of drafts."""


class OtherVocabulary:
    """What the tokens of target and assistant spell, and what goes from one to the other."""

    def __init__(self, tokenizers: Any, match: str) -> None:
        if not isinstance(tokenizers, tuple | list) or len(tokenizers) != 2:
            raise InvalidInputError(
                "tokenizers must be two: (that of the target, that of the assistant)"
            )
        self._target, self._draft = map(Spelling.of, tokenizers)
        self._by_text = match == "strings"

    def drafter(
        self, assistant: LanguageModel, vocabulary: int, sampling: SamplingParameters
    ) -> Drafter | LanguageModel:
        """Return what drafts strings, or the model of shared tokens for a target of so many."""
        if self._by_text:
            return StringDrafter(assistant, self._draft, self._target, sampling, vocabulary)
        return IntersectionModel(assistant, self._draft, self._target, vocabulary)


def check_match(match: str, rule: object, k: Branching) -> None:
    """Refuse a way to draft that there is not, or that the rule does not take."""
    check_name("match", match, ("tokens", "strings"))
    if match == "strings" and (rule not in BY_TEXT or k != 1):
        raise InvalidParameterError(
            "match='strings' drafts one chain without probabilities; give k=1 and a rule that "
            f"needs none: {', '.join(BY_TEXT)}"
        )
