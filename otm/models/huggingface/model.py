"""Language models of Hugging Face transformers, with their key–value caches."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np

from otm._core.numbers import as_integer
from otm._core.optional import require
from otm.errors import InvalidInputError, InvalidParameterError
from otm.models.base import LanguageModel, Session
from otm.models.huggingface.session import CachedSession, RereadingSession, new_cache
from otm.models.huggingface.sources import Sources
from otm.models.huggingface.states import StateMemory
from otm.models.huggingface.trees import reads_trees

LIMITS = "max_position_embeddings", "max_target_positions"
"""Names in model configurations for the largest number of tokens of a row."""


class HuggingFaceModel(LanguageModel):
    """A causal or encoder–decoder model of transformers; the model itself is not changed.

    The weights keep their type and device; they can be quantized, or sharded over devices.  Rows of
    equal lengths run as in `generate`.  Rows of different lengths are padded on the left if the
    model accepts `position_ids`; otherwise the rows of each length run separately.

    Parameters
    ----------
    model : PreTrainedModel
        A model with a language modelling head, in evaluation mode, as from `from_pretrained`.
    tokenizer : PreTrainedTokenizerBase, optional
        Tokenizer of the model; only `check_same_vocabulary` uses it.
    vocabulary : int, optional
        Number of tokens, if the model has more logits than tokens; many models pad their
        vocabulary.  The additional logits are dropped.
    source : array-like [S] or [B, S], or mapping, optional
        Input of the encoder; required for an encoder–decoder model, and not allowed for others.
        Give tokens, or the output of a tokenizer or feature extractor, for all rows or for each of
        B rows.  If there is a source, prompts are decoder tokens and begin with the decoder's start
        token.
    cache : bool, optional
        If False, each step reads all tokens of a row again, which is slow.  Use False for a
        baseline, or for models whose state cannot be rewound, such as Mamba.

    Raises
    ------
    InvalidParameterError
        If the model cannot be used; the message gives the reason and a remedy.
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
        self._memory: StateMemory | None = None
        if cache:
            # This raises for models without a usable cache.
            new_cache(model)

    @property
    def device(self) -> Any:
        """Device of the model's input tokens, as a torch.device."""
        return self.model.get_input_embeddings().weight.device

    @property
    def reads_trees(self) -> bool:
        """Whether sessions read a tree of tokens at once; the first use tests this with tokens.

        Models with sliding windows, without `position_ids` or without a cache do not.
        """
        if not self._cached or self._sources is not None:
            return False
        return reads_trees(self.model, partial(HuggingFaceModel.start, self, 1))

    def start(self, rows: int) -> Session:
        """Open a session with a number of empty rows.

        With B > 1 sources, row b belongs to source b, and rows made from it keep this source.

        Parameters
        ----------
        rows : int
            Number of rows, at least 1.

        Returns
        -------
        Session
            A session whose rows have no tokens.

        Raises
        ------
        InvalidInputError
            If there are several sources, and their number is not the number of rows.
        """
        count = 1 if self._sources is None else self._sources.count
        if count not in (1, rows):
            raise InvalidInputError(
                f"{rows} rows for {count} sources; start with one row for each source, and repeat "
                "rows with `keep`"
            )
        owners = np.arange(rows) % count
        kind = CachedSession if self._cached else RereadingSession
        session = kind(self.model, self._sources, owners, self.vocabulary, self.context_length)
        if self._memory is not None and isinstance(session, CachedSession):
            session.states = self._memory.open(rows)
        return session

    def remember_states(self, layers: Sequence[int]) -> StateMemory:
        """Let sessions that start later hold the hidden states of the tokens that they read.

        Parameters
        ----------
        layers : sequence of int
            Indices into `hidden_states` of the model's output: 0 is the embedding, and the last one
            is the input of the output layer.

        Returns
        -------
        StateMemory
            The states that open sessions hold.  Its method `of` finds them by their tokens.

        Raises
        ------
        InvalidParameterError
            If the model has no such layer, has an encoder or no cache, or remembers other layers.
        """
        count = self.model.config.get_text_config(decoder=True).num_hidden_layers
        wanted = tuple(as_integer(layer, "a layer", 0, count) for layer in layers)
        if self._sources is not None or not self._cached:
            raise InvalidParameterError(
                "only a causal model with a cache remembers hidden states; give such a target"
            )
        if self._memory is not None and self._memory.layers != wanted:
            raise InvalidParameterError(
                f"the target remembers the states of layers {self._memory.layers}, and a draft "
                f"reads {wanted}; make a second HuggingFaceModel of the target for this draft"
            )
        self._memory = self._memory or StateMemory(wanted)
        return self._memory


def check_same_vocabulary(target: HuggingFaceModel, draft: HuggingFaceModel) -> None:
    """Raise unless the draft model and the target model have the same vocabulary.

    Parameters
    ----------
    target, draft : HuggingFaceModel
        The models to compare; their tokenizers are also compared if both have one.

    Raises
    ------
    InvalidInputError
        If the numbers of tokens differ, or a token has different ids.
    """
    if target.vocabulary != draft.vocabulary:
        fewer = min(target.vocabulary, draft.vocabulary)
        raise InvalidInputError(
            f"the target model has {target.vocabulary} tokens, but the draft model has "
            f"{draft.vocabulary}.  If both have the same tokenizer and tokens from {fewer} on are "
            f"padding, give vocabulary={fewer} to both; otherwise choose another draft model"
        )
    if target.tokenizer is None or draft.tokenizer is None:
        return
    ids, others = ({i: t for t, i in x.tokenizer.get_vocab().items()} for x in (target, draft))
    for i in range(target.vocabulary):
        if ids.get(i) != others.get(i):
            raise InvalidInputError(
                f"token {i} is {ids.get(i)!r} for the target model and {others.get(i)!r} for the "
                "draft model; choose two models with the same tokenizer"
            )


def check_loaded(model: Any, name: str, others: str = "") -> None:
    """Raise unless the argument is a loaded model of transformers; a name is not enough.

    The error message ends with `others`, which names other possible arguments.
    """
    if not hasattr(model, "get_input_embeddings") or not hasattr(model, "config"):
        raise InvalidParameterError(
            f"the {name} is a {type(model).__name__}; give a loaded model, such as "
            f"AutoModelForCausalLM.from_pretrained(name){others}"
        )


def _check_model(model: Any) -> None:
    require("transformers")
    check_loaded(model, "model")
    if model.get_output_embeddings() is None:
        raise InvalidParameterError(
            f"{type(model).__name__} has no language modelling head; load it with "
            "AutoModelForCausalLM or AutoModelForSeq2SeqLM"
        )
    if model.training:
        raise InvalidParameterError(
            f"the model ({type(model).__name__}) is in training mode, so dropout makes its output "
            "random; call eval() on target and draft first"
        )


def _check_head(model: Any, vocabulary: int) -> None:
    """Raise if the output layer has fewer logits than the model has tokens."""
    name, head = type(model).__name__, model.get_output_embeddings()
    if hasattr(head, "pruned_lm_head"):
        raise InvalidParameterError(
            f"the output layer of this {name} scores only {head.pruned_lm_head.out_features} of "
            f"{vocabulary} tokens.  Assisted decoding of transformers with two tokenizers pruned "
            "it in place; load the model again (OTM does not change an assistant)"
        )
    scored = getattr(head, "out_features", vocabulary)
    if isinstance(scored, int) and scored < vocabulary:
        raise InvalidParameterError(
            f"the output layer of this {name} scores {scored} tokens, but its configuration says "
            f"{vocabulary}; load the model again, or give vocabulary={scored} if these are the "
            "first tokens"
        )


def _as_sources(model: Any, source: Any) -> Sources | None:
    if not model.config.is_encoder_decoder:
        if source is not None:
            raise InvalidParameterError(
                f"{type(model).__name__} has no encoder; give the source as the prompt"
            )
        return None
    if source is None:
        raise InvalidParameterError(
            f"{type(model).__name__} is an encoder–decoder model; give the encoder's input as "
            "`source`, and model.config.decoder_start_token_id as the start of prompts"
        )
    return Sources(model, source)
