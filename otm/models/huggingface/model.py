"""Language models of Hugging Face transformers, with their key–value caches."""

from __future__ import annotations

from typing import Any

import numpy as np

from otm._core.numbers import as_integer
from otm._core.optional import require
from otm.errors import InvalidInputError, InvalidParameterError
from otm.models.base import LanguageModel, Session
from otm.models.huggingface.session import CachedSession, RereadingSession, Sources, new_cache

LIMITS = "max_position_embeddings", "max_target_positions"
"""What configurations call the most tokens of a row."""


class HuggingFaceModel(LanguageModel):
    """A causal or encoder–decoder model of transformers, which is left as it is.

    Weights stay where they are, in their type: on any device or several, quantized, or sharded.
    Rows of equal lengths run as `generate` would run them.  Rows of different lengths are padded on
    the left if the model takes `position_ids`, and otherwise run length by length.

    Parameters
    ----------
    model : PreTrainedModel
        A model with a language modelling head, in evaluation mode, as `from_pretrained` gives it.
    tokenizer : PreTrainedTokenizerBase, optional
        Its tokenizer, for `check_same_vocabulary` alone.
    vocabulary : int, optional
        Number of tokens, if the model gives logits for more, which are then cut off: many models
        pad their vocabulary.
    source : array-like [S] or [B, S], or mapping, optional
        For an encoder–decoder model, and only for one, what it translates: tokens, or the arguments
        of its encoder as a tokenizer or feature extractor returns them, for all rows or for each of
        B rows.  Prompts are then what the decoder has written: to begin with, its start token.
    cache : bool, optional
        If false, all tokens of a row are read again in each step.  Slow; for models whose state
        cannot be rewound, such as Mamba, and to compare with.

    Raises
    ------
    InvalidParameterError
        If the model cannot be used in this way; the message says why and what to do.
    InvalidInputError
        If the source does not fit the model.
    MissingDependencyError
        If transformers is not installed.

    Examples
    --------
    ::

        target = HuggingFaceModel(AutoModelForCausalLM.from_pretrained("Qwen/Qwen3-8B"))
        draft = HuggingFaceModel(AutoModelForCausalLM.from_pretrained("Qwen/Qwen3-0.6B"))
        speculative(target, draft, [tokenizer("Once upon a time").input_ids])
    """

    def __init__(
        self,
        model: Any,
        *,
        tokenizer: Any = None,
        vocabulary: int | None = None,
        source: Any = None,
        cache: bool = True,
    ) -> None:
        _check_model(model)
        self.model = model
        self.tokenizer = tokenizer
        config = model.config.get_text_config(decoder=True)
        most = config.vocab_size
        size = most if vocabulary is None else vocabulary
        self.vocabulary = as_integer(size, "vocabulary", 1, most)
        _check_head(model, self.vocabulary)
        limits = (getattr(config, name, None) for name in LIMITS)
        self.context_length = next((limit for limit in limits if limit and limit > 0), None)
        self._sources = _as_sources(model, source)
        self._cached = cache
        if cache:
            new_cache(model)  # refuses models that have none

    @property
    def device(self) -> Any:
        """Where the model reads tokens, as a torch.device."""
        return self.model.get_input_embeddings().weight.device

    def start(self, rows: int) -> Session:
        """Open a session of so many rows, all of them empty.

        With B > 1 sources row b translates source b, and takes it along when it is kept.

        Parameters
        ----------
        rows : int
            Number of rows, at least 1.

        Returns
        -------
        Session
            Nothing is read yet.

        Raises
        ------
        InvalidInputError
            If there are several sources, but not one for each row.
        """
        count = 1 if self._sources is None else self._sources.count
        if count not in (1, rows):
            raise InvalidInputError(
                f"{rows} rows for {count} sources; start a row for each source, and repeat rows by "
                "`keep`"
            )
        owners = np.arange(rows) % count
        kind = CachedSession if self._cached else RereadingSession
        return kind(self.model, self._sources, owners, self.vocabulary, self.context_length)


def check_same_vocabulary(target: HuggingFaceModel, draft: HuggingFaceModel) -> None:
    """Refuse a draft model whose tokens are not those of the target.

    Parameters
    ----------
    target, draft : HuggingFaceModel
        Models; their tokenizers are compared if both have one.

    Raises
    ------
    InvalidInputError
        If the numbers of tokens differ, or a token has different ids.
    """
    if target.vocabulary != draft.vocabulary:
        fewer = min(target.vocabulary, draft.vocabulary)
        raise InvalidInputError(
            f"the target model has {target.vocabulary} tokens, the draft model "
            f"{draft.vocabulary}; if the two have one tokenizer, and those from {fewer} on are "
            f"mere padding, give vocabulary={fewer} to both, and otherwise another draft model"
        )
    if target.tokenizer is None or draft.tokenizer is None:
        return
    ids, others = ({i: t for t, i in x.tokenizer.get_vocab().items()} for x in (target, draft))
    for i in range(target.vocabulary):
        if ids.get(i) != others.get(i):
            raise InvalidInputError(
                f"token {i} is {ids.get(i)!r} to the target model and {others.get(i)!r} to the "
                "draft model; tokens must mean the same to both, so choose two models with one "
                "tokenizer"
            )


def check_loaded(model: Any, name: str) -> None:
    """Refuse what is no model of transformers, such as the name of one."""
    if not hasattr(model, "get_input_embeddings") or not hasattr(model, "config"):
        raise InvalidParameterError(
            f"the {name} is a {type(model).__name__}; give a loaded one, such as "
            "AutoModelForCausalLM.from_pretrained(name)"
        )


def _check_model(model: Any) -> None:
    require("transformers")
    check_loaded(model, "model")
    if model.get_output_embeddings() is None:
        raise InvalidParameterError(
            f"{type(model).__name__} has no language modelling head; load it by "
            "AutoModelForCausalLM or AutoModelForSeq2SeqLM"
        )
    if model.training:
        raise InvalidParameterError(
            f"the model ({type(model).__name__}) is in training mode, in which dropout makes its "
            "output random; call model.eval() first, of target and draft"
        )


def _check_head(model: Any, vocabulary: int) -> None:
    """Raise if the output layer has fewer scores than tokens, as a pruned one has."""
    name, head = type(model).__name__, model.get_output_embeddings()
    if hasattr(head, "pruned_lm_head"):
        raise InvalidParameterError(
            f"the output layer of this {name} scores {head.pruned_lm_head.out_features} of its "
            f"{vocabulary} tokens only: transformers pruned it in place, as its decoding with two "
            "tokenizers does; load the model anew (OTM does not change an assistant)"
        )
    scored = getattr(head, "out_features", vocabulary)
    if isinstance(scored, int) and scored < vocabulary:
        raise InvalidParameterError(
            f"the output layer of this {name} scores {scored} tokens, but its configuration says "
            f"{vocabulary}; load the model anew, or give vocabulary={scored} if these are its "
            "first tokens"
        )


def _as_sources(model: Any, source: Any) -> Sources | None:
    if not model.config.is_encoder_decoder:
        if source is not None:
            raise InvalidParameterError(
                f"{type(model).__name__} has no encoder for a source; give it as the prompt"
            )
        return None
    if source is None:
        raise InvalidParameterError(
            f"{type(model).__name__} is an encoder–decoder model; give what it translates as "
            "`source`, and as prompts its start token, model.config.decoder_start_token_id"
        )
    return Sources(model, source)
