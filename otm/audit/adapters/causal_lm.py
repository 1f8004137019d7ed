"""A transformers model that reads its logits from a table, with masks, positions and a cache.

The model's cache has the tokens as keys and their positions as values.  Therefore a loop
that crops, reorders or repeats the cache changes the tokens that the model has read.  The model
raises an error for arguments that it does not support.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, lru_cache, wraps
from typing import Any

import numpy as np
import numpy.typing as npt

from otm._core.display.text import shown
from otm._core.optional import require
from otm.errors import InvalidParameterError
from otm.models.base import StatelessModel

LARGEST_TOKEN = 2**24
"""Upper limit of tokens, because the cache stores them as float32."""

KEPT_ROWS = 4096
"""Largest number of rows of logits in the cache of a model."""


@lru_cache(maxsize=256)
def causal_lm(model: StatelessModel) -> Any:
    """Turn a model of the audit into a transformers model, for loops that need such models.

    Parameters
    ----------
    model : StatelessModel
        Target or draft model that `otm.audit.loop` passes to a loop.

    Returns
    -------
    PreTrainedModel
        A model in float32 on the CPU; always the same object for the same argument.  Call the model
        like any transformers model, with `input_ids` [B, T] for any number of rows,
        `attention_mask` [B, T + length of the cache], `position_ids`, `past_key_values` (a
        `DynamicCache`), `use_cache`, `cache_position`, `logits_to_keep` and `return_dict`.  Masked
        tokens do not belong to the context.

    Raises
    ------
    MissingDependencyError
        If transformers is not installed.

    Notes
    -----
    A call raises `InvalidParameterError` for arguments that the model does not support, such as
    `inputs_embeds`, a mask with four dimensions, or a static cache.  Positions raise
    `InvalidParameterError` unless they count the unmasked tokens of their row, up to a constant.

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
    return _model_class()(model)


@cache
def _model_class() -> Any:
    import torch
    from transformers import DynamicCache, GenerationMixin, PretrainedConfig, PreTrainedModel
    from transformers.modeling_outputs import CausalLMOutputWithPast

    class Unread(DynamicCache):  # type: ignore[misc]
        """Cache of one call, created on first access: few loops use it, and creating it is slow."""

        def __init__(self, tokens: Any, positions: Any) -> None:
            self.__dict__["_first"] = tokens, positions

        def __getattr__(self, name: str) -> Any:
            first = self.__dict__.pop("_first", None)
            if first is None:
                raise AttributeError(name)
            super().__init__()
            self.update(*map(_as_keys, first), 0)
            return getattr(self, name)

    class TableForCausalLM(PreTrainedModel, GenerationMixin):  # type: ignore[misc]
        """Model that looks up its logits; its cache has tokens as keys and positions as values."""

        config_class = PretrainedConfig
        main_input_name = "input_ids"

        def __init__(self, table: StatelessModel) -> None:
            super().__init__(
                PretrainedConfig(
                    vocab_size=table.vocabulary,
                    num_hidden_layers=1,
                    hidden_size=1,
                    num_attention_heads=1,
                    is_encoder_decoder=False,
                )
            )
            # transformers reads the device and the dtype from this parameter.
            self.place = torch.nn.Parameter(torch.zeros(1))
            self.table = table
            self.row = lru_cache(maxsize=KEPT_ROWS)(self._logits)
            self.eval()

        def _logits(self, context: tuple[int, ...]) -> npt.NDArray[np.float32]:
            """Return the logits [V] after a context."""
            # Impossible tokens have the logit log 0.
            with np.errstate(divide="ignore"):
                return np.log(np.asarray(self.table.probs(context), dtype=np.float32))

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
            _reject_unsupported(others)
            _check_tokens(input_ids)
            batch, new = input_ids.shape
            past = _length_of(past_key_values, batch)
            if cache_position is not None and cache_position.tolist() != [*range(past, past + new)]:
                raise _error(
                    f"cache_position = {cache_position.tolist()} for {new} tokens after {past} "
                    "tokens of the cache; new tokens must follow them, so leave cache_position "
                    f"out or start it at {past}"
                )
            mask = _mask(attention_mask, batch, past + new)
            held, tokens = past_key_values, input_ids
            positions = _positions(position_ids, batch, past, new)
            # Models of transformers return a cache by default.
            if held is None:
                held = None if use_cache is False else Unread(tokens, positions)
            else:
                keys, values = held.update(_as_keys(tokens), _as_keys(positions), 0)
                if keys.shape[2] != past + new:
                    raise _error(
                        f"past_key_values is a {type(held).__name__} that returns {keys.shape[2]} "
                        f"of {past + new} tokens; give a DynamicCache"
                    )
                tokens, positions = keys[:, 0, :, 0].long(), values[:, 0, :, 0].long()
            if position_ids is not None or past or mask is not None:
                _check_positions(positions, mask)
            rows = [
                self._rows_after(
                    tokens[i].tolist(), None if mask is None else mask[i].tolist(), new
                )
                for i in range(batch)
            ]
            logits = torch.from_numpy(np.array(rows))
            if not isinstance(logits_to_keep, int):
                logits = logits[:, logits_to_keep]
            elif logits_to_keep:
                logits = logits[:, -logits_to_keep:]
            held = None if use_cache is False else held
            if return_dict is False:
                return (logits,) if held is None else (logits, held)
            return CausalLMOutputWithPast(logits=logits, past_key_values=held)

        def _rows_after(
            self, tokens: list[int], mask: list[bool] | None, new: int
        ) -> list[npt.NDArray[np.float32]]:
            """Return the logits [V] after each new token of a row, given its unmasked tokens."""
            ends = range(len(tokens) - new + 1, len(tokens) + 1)
            if mask is None:
                read, counts = tuple(tokens), list(ends)
            else:
                read = tuple(token for token, real in zip(tokens, mask, strict=True) if real)
                counts = [sum(mask[:end]) for end in ends]
            if not 0 <= min(read, default=0) <= max(read, default=0) < self.table.vocabulary:
                wrong = next(x for x in read if not 0 <= x < self.table.vocabulary)
                raise _error(
                    f"input_ids has the unmasked token {wrong}; tokens must be 0 to "
                    f"{self.table.vocabulary - 1}"
                )
            return [self.row(read[:count]) for count in counts]

    return TableForCausalLM


def _drawing_nothing(method: Callable[..., Any]) -> Callable[..., Any]:
    """Hide a method from the audit, which inspects each torch operation for random draws."""
    import torch

    @wraps(method)
    def run(*arguments: Any, **options: Any) -> Any:
        with torch._C.DisableTorchFunction():
            return method(*arguments, **options)

    return run


def _as_keys(numbers: Any) -> Any:
    """Reshape numbers [B, T] to the shape of a cache's keys [B, heads, T, size]."""
    return numbers[:, None, :, None].float()


def _error(text: str) -> InvalidParameterError:
    return InvalidParameterError(f"causal_lm: {text}")


def _reject_unsupported(arguments: dict[str, Any]) -> None:
    """Raise for arguments that the model would ignore, unless they are None or False."""
    for name, value in arguments.items():
        if value is not None and value is not False:
            raise _error(
                f"models of the audit do not support {name}; leave it out, or write your own "
                "adapter"
            )


def _check_tokens(input_ids: Any) -> None:
    import torch

    if not isinstance(input_ids, torch.Tensor) or input_ids.dim() != 2 or not input_ids.numel():
        description = tuple(input_ids.shape) if hasattr(input_ids, "shape") else shown(input_ids)
        raise _error(
            f"input_ids is {description}; it must be a tensor [B, T] of tokens, with B, T ≥ 1"
        )
    if input_ids.is_floating_point() or max(map(max, input_ids.tolist())) >= LARGEST_TOKEN:
        raise _error(f"input_ids must contain integers below {LARGEST_TOKEN:,}")


def _length_of(held: Any, batch: int) -> int:
    """Count the tokens of a cache, which must be a `DynamicCache` with `batch` rows."""
    from transformers import DynamicCache

    if held is None:
        return 0
    if not isinstance(held, DynamicCache):
        raise _error(
            f"past_key_values is a {type(held).__name__}; give a DynamicCache, or None at first"
        )
    length = int(held.get_seq_length())
    keys = held.layers[0].keys if length else None
    if keys is not None and keys.shape[0] != batch:
        raise _error(
            f"input_ids has {batch} rows, but past_key_values has {keys.shape[0]}; they must agree"
        )
    return length


def _positions(position_ids: Any, batch: int, past: int, new: int) -> Any:
    """Return the positions [B, T] of the new tokens: the argument, or those after the cache."""
    import torch

    if position_ids is None:
        return torch.arange(past, past + new).expand(batch, new)
    if tuple(position_ids.shape) not in {(new,), (1, new), (batch, new)}:
        raise _error(
            f"position_ids has shape {tuple(position_ids.shape)}; it must have the shape of "
            f"input_ids, [{batch}, {new}]"
        )
    return position_ids.expand(batch, new)


def _mask(attention_mask: Any, batch: int, length: int) -> Any:
    """Convert a mask [B, past + T] to booleans; return None if it masks no token."""
    if attention_mask is None:
        return None
    shape = tuple(attention_mask.shape) if hasattr(attention_mask, "shape") else None
    if shape != (batch, length):
        what = f"has shape {shape}" if shape is not None else f"is {shown(attention_mask)}"
        raise _error(
            f"attention_mask {what}; it must have shape [{batch}, {length}], for the tokens of the "
            "cache and of input_ids"
        )
    if ((attention_mask != 0) & (attention_mask != 1)).any():
        raise _error("attention_mask must be 1 for tokens that are read, and 0 for others")
    mask = attention_mask.bool()
    return None if bool(mask.all()) else mask


def _check_positions(positions: Any, mask: Any) -> None:
    """Raise if the positions of a row do not count its unmasked tokens."""
    for i, row in enumerate(positions.tolist()):
        read = (
            row
            if mask is None
            else [x for x, real in zip(row, mask[i].tolist(), strict=True) if real]
        )
        if read and read != [*range(read[0], read[0] + len(read))]:
            raise _error(
                f"row {i} has positions {read[:12]} where attention_mask is 1, cache included; "
                "each must be one more than the last: give position_ids that count the unmasked "
                "tokens, or leave them out if no token is masked"
            )
