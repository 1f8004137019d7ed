"""Run the calls of a model's own `generate` with OTM, including calls inside other code."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

from otm.errors import InvalidParameterError
from otm.integrations.huggingface.arguments import check_own_drafts
from otm.integrations.huggingface.drafting import LOOKUP, prompt_lookup
from otm.integrations.huggingface.generate import AssistedDecoding
from otm.integrations.huggingface.vocabularies import check_match
from otm.models.huggingface.model import check_loaded


def patch_generate(
    model: Any, assistant: Any = None, **options: Any
) -> AbstractContextManager[Any]:
    """Run the assisted calls of ``model.generate(...)`` with OTM, including calls in other code.

    Use the context manager in a `with` statement; on exit, the model has its own `generate` again.

    Parameters
    ----------
    model : PreTrainedModel
        The target model.
    assistant : PreTrainedModel, LanguageModel, Drafter or callable, optional
        The source of the drafts of calls without `assistant_model`, as for `AssistedDecoding`.  If
        `assistant` is None, calls without `assistant_model` and `prompt_lookup_num_tokens` run
        unchanged, but raise an error if transformers would draft itself (`assistant_early_exit`,
        `use_mtp`).
    **options
        Parameters of `AssistedDecoding`.

    Returns
    -------
    context manager
        Yields the patched model.

    Raises
    ------
    InvalidInputError, ProblemTooLargeError
        As for `AssistedDecoding`, either immediately or in a call.

    Notes
    -----
    A call with `prompt_lookup_num_tokens` drafts by `PromptLookup`: this number is γ, and
    `max_matching_ngram_size` (2 by default) the longest match.  The call may have several prompts
    or `num_return_sequences`, which prompt lookup of transformers rejects.

    Patches may be nested, and the innermost patch decodes.  Patches may exit in any order.

    Examples
    --------
    ::

        with patch_generate(target, k=8, gamma=5):
            target.generate(**inputs, assistant_model=draft, do_sample=True, max_new_tokens=100)
        with patch_generate(target):
            target.generate(**inputs, prompt_lookup_num_tokens=10, max_new_tokens=100)
    """
    check_loaded(model, "model")
    try:
        # Raise for wrong options immediately.  Tokenizers may still come with a call.
        known = {name: value for name, value in options.items() if name != "match"}
        decoding = AssistedDecoding(model if assistant is None else assistant, **known)
        shape = options.get("k"), options.get("nodes")
        check_match(options.get("match", "tokens"), decoding.rule, *shape)
    except TypeError as reason:
        raise InvalidParameterError(f"{reason}; see the parameters of AssistedDecoding") from reason
    return _patched(model, assistant, options)


@contextmanager
def _patched(model: Any, assistant: Any, options: dict[str, Any]) -> Iterator[Any]:
    own_generate = vars(model).get("generate")
    original = model.generate
    left = False

    @functools.wraps(original)
    def generate(*args: Any, **kwargs: Any) -> Any:
        # An exited patch may still be below a patch that exits later, for example in threads.
        if left:
            return original(*args, **kwargs)
        args, kwargs = _by_name(original, args, kwargs)
        drafting = kwargs.get("assistant_model")
        drafting = assistant if drafting is None else drafting
        # An inner patch has already chosen the decoding loop.
        if isinstance(kwargs.get("custom_generate"), AssistedDecoding):
            return original(*args, **kwargs)
        setting = functools.partial(_setting, model, kwargs)
        more: dict[str, Any] = {}
        if (lookup := prompt_lookup(setting)) is not None:
            if drafting is not None:
                raise InvalidParameterError(
                    f"{LOOKUP} and an assistant; a call has one source of drafts, so remove one"
                )
            drafting, more["gamma"] = lookup
            # A value of None takes precedence over the value in a configuration.
            kwargs[LOOKUP] = None
        if drafting is None:
            check_own_drafts(setting)
            return original(*args, **kwargs)
        _check_call(kwargs, setting)
        kwargs.pop("assistant_model", None)
        if (draft_tokenizer := kwargs.pop("assistant_tokenizer", None)) is not None:
            more["tokenizers"] = kwargs.get("tokenizer"), draft_tokenizer
        decoding = AssistedDecoding(drafting, **options | more)
        return original(*args, custom_generate=decoding, **_with_stop_strings(kwargs, setting))

    model.generate = generate
    try:
        yield model
    finally:
        left = True
        generate.restored = own_generate  # type: ignore[attr-defined]
        # Remove all exited patches from the top, down to the first active patch.
        while "restored" in getattr(top := vars(model).get("generate"), "__dict__", ()):
            del model.generate
            if top.restored is not None:
                model.generate = top.restored


def _by_name(
    function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Turn positional arguments into keyword arguments: one of them may be `assistant_model`."""
    parameters = [*inspect.signature(function).parameters.values()]
    names = [each.name for each in parameters if each.kind is each.POSITIONAL_OR_KEYWORD]
    if names != [each.name for each in parameters[: len(names)]] or len(args) > len(names):
        return args, kwargs
    named = dict(zip(names, args, strict=False))
    if named.keys() & kwargs.keys():
        # The original function raises for a repeated argument.
        return args, kwargs
    return (), named | kwargs


def _setting(model: Any, kwargs: dict[str, Any], name: str) -> Any:
    """Return a generation parameter as `generate` resolves it: from the call, or from the model."""
    if name in kwargs:
        return kwargs[name]
    value = getattr(kwargs.get("generation_config"), name, None)
    return getattr(model.generation_config, name, None) if value is None else value


def _check_call(kwargs: dict[str, Any], setting: Callable[[str], Any]) -> None:
    """Raise for arguments of an assisted call that `generate` would ignore or process itself."""
    for name in "custom_generate", "synced_gpus":
        if kwargs.get(name):
            raise InvalidParameterError(f"a patched model does not accept {name}; remove it")
    check_own_drafts(setting)
    if setting("cache_implementation") == "paged":
        raise InvalidParameterError(
            "cache_implementation='paged' runs transformers' continuous batching, which has no "
            "drafts; remove it, or decode without an assistant"
        )
    if setting("token_healing"):
        raise InvalidParameterError(
            "token_healing=True is not possible with drafts; remove it, and call "
            "model.heal_tokens(input_ids, tokenizer) first"
        )


def _with_stop_strings(kwargs: dict[str, Any], setting: Callable[[str], Any]) -> dict[str, Any]:
    """Turn stop strings into a criterion; `generate` gives custom loops no tokenizer for them."""
    tokenizer, strings = kwargs.pop("tokenizer", None), setting("stop_strings")
    if tokenizer is None or strings is None:
        return kwargs
    from transformers import StoppingCriteriaList, StopStringCriteria

    criterion = StopStringCriteria(stop_strings=strings, tokenizer=tokenizer)
    criteria = kwargs.get("stopping_criteria") or []
    # A value of None takes precedence over stop strings in a configuration.
    more = {"stop_strings": None, "stopping_criteria": StoppingCriteriaList([*criteria, criterion])}
    return kwargs | more
