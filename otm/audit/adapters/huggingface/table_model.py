"""A transformers model that reads its logits from a table, with masks, positions and a cache.

The model's cache has the tokens as keys and their positions as values.  Therefore a loop
that crops, reorders or repeats the cache changes the tokens that the model has read.  A loop with a
wrong mask or wrong positions gets wrong logits, as from any model.  The model raises an error for
arguments that it does not support.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, lru_cache, wraps
from typing import Any

import numpy as np
import numpy.typing as npt

from otm._core.numbers import check_name
from otm._core.optional import require
from otm.audit.adapters.huggingface.caches import (
    ALL,
    RECURRENT,
    ROTATING,
    Context,
    contexts_of_row,
    layer_of,
)
from otm.audit.adapters.huggingface.inputs import (
    as_keys,
    check_tokens,
    check_vocabulary,
    error,
    length_of,
    read_mask,
    read_positions,
    reject_unsupported,
)
from otm.models.base import StatelessModel

KEPT_ROWS = 4096
"""Largest number of rows of logits in the cache of a model."""

LEAST_WINDOW = 2
"""Smallest window of a rotating cache; a window of one token needs no cache."""


@lru_cache(maxsize=256)
def causal_lm(model: StatelessModel, *, cache: str = ALL, positions: str = "relative") -> Any:
    """Turn a model of the audit into a transformers model, for loops that need such models.

    Parameters
    ----------
    model : StatelessModel
        Target or draft model that `otm.audit.loop` or `otm.audit.loops` passes to a loop.
    cache : str, optional
        "keys and values": the cache has all tokens, and `crop` removes the last ones.
        "recurrent": the cache is one state for each row, as in Mamba; `crop` changes its length but
        not the state.  "rotating": the cache has the last tokens of a window, which is as long as
        the longest context of the table; `crop` does not restore older tokens.  A loop that rewinds
        the last two kinds must copy the cache beforehand (`copy.deepcopy`).
    positions : str, optional
        "relative": only differences of positions count, as in Llama.  "absolute": the first
        unmasked token must have position 0, as in GPT-2.  A recurrent model ignores positions.

    Returns
    -------
    PreTrainedModel
        A model in float32 on the CPU; always the same object for the same arguments.  Call the
        model like any transformers model, with `input_ids` [B, T] for any number of rows,
        `attention_mask` [B, T + length of the cache], `position_ids`, `past_key_values` (a
        `DynamicCache`), `use_cache`, `cache_position`, `logits_to_keep` and `return_dict`.  The
        context is the unmasked tokens in the order of their positions.

    Raises
    ------
    MissingDependencyError
        If transformers is not installed.
    UnknownMethodError
        If `cache` or `positions` is not one of the names above.

    Notes
    -----
    If the positions of a row do not number its unmasked tokens in turn, or a rotating cache has
    lost a token of the window, the logits are wrong.  With the models of `otm.audit.loops` a
    special token is then certain; with other models the right row is shifted by one token.  A call
    raises `InvalidParameterError` for arguments that the model does not support, such as
    `inputs_embeds`, a mask with four dimensions, or a static cache.

    Examples
    --------
    >>> import torch
    >>> from otm.models import TableModel
    >>> lm = causal_lm(TableModel({(): [0.25, 0.75], (1,): [0.5, 0.5]}))
    >>> output = lm(torch.tensor([[0, 1]]))
    >>> output.logits.softmax(-1)
    tensor([[[0.2500, 0.7500],
             [0.5000, 0.5000]]])
    >>> lm(torch.tensor([[0]]), past_key_values=output.past_key_values).logits.softmax(-1)
    tensor([[[0.2500, 0.7500]]])
    """
    require("transformers")
    check_name("cache", cache, (ALL, RECURRENT, ROTATING))
    check_name("kind of positions", positions, ("relative", "absolute"))
    return _model_class()(model, cache, positions == "absolute")


@cache
def _model_class() -> Any:
    import torch
    from transformers import DynamicCache, GenerationMixin, PretrainedConfig, PreTrainedModel
    from transformers.modeling_outputs import CausalLMOutputWithPast

    class Unread(DynamicCache):  # type: ignore[misc]
        """Cache of one call, created on first access: few loops use it, and creating it is slow."""

        def __init__(self, tokens: Any, positions: Any, layer: Any) -> None:
            self.__dict__["_first"] = tokens, positions, layer

        def __getattr__(self, name: str) -> Any:
            first = self.__dict__.pop("_first", None)
            if first is None:
                raise AttributeError(name)
            super().__init__()
            _append(self, *first)
            return getattr(self, name)

    class TableForCausalLM(PreTrainedModel, GenerationMixin):  # type: ignore[misc]
        """Model that looks up its logits; its cache has tokens as keys and positions as values."""

        config_class = PretrainedConfig
        main_input_name = "input_ids"

        def __init__(self, table: StatelessModel, kind: str, absolute: bool) -> None:
            super().__init__(
                PretrainedConfig(
                    vocab_size=table.vocabulary,
                    num_hidden_layers=1,
                    hidden_size=1,
                    num_attention_heads=1,
                    is_encoder_decoder=False,
                    pad_token_id=getattr(table, "pad", None),
                )
            )
            # transformers reads the device and the dtype from this parameter.
            self.place = torch.nn.Parameter(torch.zeros(1))
            self.table = table
            self.row = lru_cache(maxsize=KEPT_ROWS)(self._logits)
            self.kind, self.absolute = kind, absolute
            longest = int(getattr(table, "longest_context", getattr(table, "order", 0)))
            self.window = max(longest, LEAST_WINDOW) if kind == ROTATING else None
            self.layer = layer_of(kind, self.window or 0)
            self.eval()

        def _logits(self, context: tuple[int, ...], fault: str) -> npt.NDArray[np.float32]:
            """Return the logits [V] after a context; those of another row if there is a fault."""
            wrong = getattr(self.table, "wrong_row", None)
            if fault and wrong is not None:
                row = wrong(fault)
            else:
                row = np.roll(self.table.probs(context), bool(fault))
            # Impossible tokens have the logit log 0.
            with np.errstate(divide="ignore"):
                return np.log(np.asarray(row, dtype=np.float32))

        @_drawing_nothing
        def forward(  # noqa: PLR0917 - the order of arguments in transformers
            self,
            input_ids: Any = None,
            attention_mask: Any = None,
            position_ids: Any = None,
            past_key_values: Any = None,
            use_cache: bool | None = None,
            cache_position: Any = None,
            logits_to_keep: Any = 0,
            return_dict: bool | None = None,
            **others: Any,
        ) -> Any:
            """Compute logits after new tokens that follow the tokens of the cache."""
            logits_to_keep = others.pop("num_logits_to_keep", None) or logits_to_keep
            reject_unsupported(others)
            check_tokens(input_ids)
            batch, new = input_ids.shape
            past = length_of(past_key_values, batch)
            if cache_position is not None and cache_position.tolist() != [*range(past, past + new)]:
                raise error(
                    f"cache_position = {cache_position.tolist()} for {new} tokens after {past} "
                    "tokens of the cache; new tokens must follow them, so leave cache_position "
                    f"out or start it at {past}"
                )
            mask = read_mask(attention_mask, batch, past + new)
            check_vocabulary(input_ids, mask, self.table.vocabulary)
            held, tokens = past_key_values, input_ids
            positions = read_positions(position_ids, batch, past, new)
            if self.kind == RECURRENT and mask is not None:
                # The state does not read masked tokens, and later masks cannot change the state.
                tokens = torch.where(mask[:, past:], tokens, -1)
            # Models of transformers return a cache by default.
            if held is None:
                held = None if use_cache is False else Unread(tokens, positions, self.layer)
            else:
                tokens, positions = _append(held, tokens, positions, self.layer)
                if self.kind == ALL and tokens.shape[1] != past + new:
                    raise error(
                        f"past_key_values is a {type(held).__name__} that returns "
                        f"{tokens.shape[1]} of {past + new} tokens; give a DynamicCache"
                    )
            read = tokens.tolist(), positions.tolist(), mask, past + new, new
            rows = [[self.row(*each) for each in contexts] for contexts in self._contexts(*read)]
            logits = torch.from_numpy(np.array(rows))
            if not isinstance(logits_to_keep, int):
                logits = logits[:, logits_to_keep]
            elif logits_to_keep:
                logits = logits[:, -logits_to_keep:]
            held = None if use_cache is False else held
            if return_dict is False:
                return (logits,) if held is None else (logits, held)
            return CausalLMOutputWithPast(logits=logits, past_key_values=held)

        def _contexts(
            self, tokens: list[list[int]], positions: list[Any], mask: Any, length: int, new: int
        ) -> list[list[Context]]:
            """Return the context of each new token of each row."""
            if self.kind == RECURRENT:
                masks: Any = [[token >= 0 for token in row] for row in tokens]
                positions = [None] * len(tokens)
            elif mask is None:
                masks = [[True] * length if self.window else None] * len(tokens)
            else:
                masks = mask.tolist()
            return [
                [*contexts_of_row(*row, new, window=self.window, absolute=self.absolute)]
                for row in zip(tokens, positions, masks, strict=True)
            ]

    return TableForCausalLM


def _append(held: Any, tokens: Any, positions: Any, layer: Any) -> tuple[Any, Any]:
    """Append tokens to a cache, with their positions; return those that the model now reads."""
    if layer is not None and not any(hasattr(each, "count") for each in held.layers):
        held.layers = [layer()]
    keys, values = held.update(as_keys(tokens), as_keys(positions), 0)
    return keys[:, 0, :, 0].long(), values[:, 0, :, 0].long()


def _drawing_nothing(method: Callable[..., Any]) -> Callable[..., Any]:
    """Hide a method from the audit, which inspects each torch operation for random draws."""
    import torch

    @wraps(method)
    def run(*arguments: Any, **options: Any) -> Any:
        with torch._C.DisableTorchFunction():
            return method(*arguments, **options)

    return run
