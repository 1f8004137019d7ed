"""Checks of the arguments of the decoding loops, before any model runs."""

from __future__ import annotations

import inspect
from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from otm._core.checks import as_array, check_uniforms
from otm._core.display.text import shown
from otm._core.numbers import as_integer, as_positive, check_name, whole
from otm._core.rule import BACKENDS
from otm.decoding.draft_tree import DraftNode, Randomness
from otm.decoding.drafters.base import Drafter
from otm.decoding.reading import Context, Path
from otm.errors import InvalidDraftsError, InvalidInputError, InvalidParameterError
from otm.kernels.registry import AUTO
from otm.models.base import LanguageModel


def as_prompts(prompts: Any, vocabulary: int) -> tuple[Context, ...]:
    """Return prompts as tuples of token ids; raise if a prompt is empty or invalid."""
    try:
        rows = [as_array(prompt, "the prompts", InvalidInputError) for prompt in prompts]
    except Exception as reason:
        # A foreign object may raise any error.
        raise InvalidInputError(
            f"the prompts are a {type(prompts).__name__} that does not contain rows of tokens "
            f"({shown(reason)}); give a sequence of sequences of token ids"
        ) from reason
    if not rows:
        raise InvalidInputError("there is no prompt; give at least one")
    for b, row in enumerate(rows):
        advice = "each prompt must be a sequence of token ids; pass a single prompt as [prompt]"
        check_tokens(row, f"prompt {b}", vocabulary, advice)
        if row.size == 0:
            raise InvalidInputError(
                f"prompt {b} is empty; a model needs at least one token to continue, such as its "
                "token for the beginning of a text"
            )
    return tuple(tuple(row.tolist()) for row in rows)


def check_tokens(row: npt.NDArray[Any], name: str, vocabulary: int, advice: str) -> None:
    """Raise unless an array is one row of token ids of the target model."""
    if row.ndim != 1 or (row.size and row.dtype.kind not in "iu"):
        raise InvalidInputError(
            f"{name} is an array of type {row.dtype} and shape {row.shape}; {advice}"
        )
    wrong = row[(row < 0) | (row >= vocabulary)]
    if wrong.size:
        raise InvalidInputError(
            f"{name} has token {wrong[0]}; the target model has tokens 0 to {vocabulary - 1}"
        )


def as_end(end: Any, vocabulary: int) -> frozenset[int]:
    """Return the set of tokens that end a sequence."""
    candidates = () if end is None else end if isinstance(end, Collection) else (end,)
    tokens = [token for token in map(whole, candidates) if token is not None]
    if len(tokens) < len(candidates) or not all(0 <= token < vocabulary for token in tokens):
        raise InvalidParameterError(
            f"eos_token_id = {shown(end)}; it must be a token of the target model, 0 to "
            f"{vocabulary - 1}, a collection of such tokens, or None"
        )
    return frozenset(tokens)


def as_sources(seed: Any, uniforms: Any, count: int) -> list[Randomness]:
    """Return a source of uniforms for each sequence."""
    if uniforms is None:
        entropy = None if seed is None else as_integer(seed, "seed", 0, advice="or None")
        children = np.random.SeedSequence(entropy).spawn(count)
        return [np.random.default_rng(child).random for child in children]
    if seed is not None:
        raise InvalidParameterError("`seed` and `uniforms` exclude each other; give only one")
    sources = list(uniforms) if isinstance(uniforms, Sequence) else []
    if len(sources) != count or not all(map(callable, sources)):
        raise InvalidParameterError(
            f"uniforms = {shown(uniforms)}; give one function for each of the {count} prompts, "
            "from a number m to m uniforms, such as `rng.random`"
        )
    return [partial(_checked_uniforms, source) for source in sources]


def _checked_uniforms(source: Randomness, m: int) -> npt.NDArray[Any]:
    """Draw m uniforms from the caller's source, and check them."""
    uniforms: Any = source(m)
    exact = isinstance(uniforms, np.ndarray) and uniforms.dtype == object
    return check_uniforms(uniforms, (m,), exact, f"the loop needs {m}: return an array ({m},)")


def as_device_backend(backend: str) -> str:
    """Check the name of a backend for a device, where all arrays are tensors."""
    return check_name("backend", backend, (AUTO, *(x for x in BACKENDS if x != "numpy")))


def check_options(options: Mapping[str, Any], known: Iterable[str]) -> None:
    """Raise if an option is unknown, or a function option is not callable."""
    unknown = sorted(set(options) - set(known))
    if unknown:
        raise InvalidParameterError(
            f"there is no option {unknown[0]!r}; the options are {', '.join(known)}; pass "
            "temperature, top_k, top_p and min_p as sampling=SamplingParameters(…)"
        )
    stop = options.get("stop")
    if stop is not None and not callable(stop):
        raise InvalidParameterError(
            f"stop = {shown(stop)}; give a function of the new tokens that returns whether to stop"
        )
    check_processor(options.get("logits_processor"))


def check_processor(processor: Any) -> None:
    """Raise if a logits processor is not a function of three arguments."""
    if processor is None:
        return
    said = f"logits_processor = {shown(processor)}"
    form = (
        "a function of token ids [M, L], scores [M, V] and prompt indices [M] that returns scores"
    )
    if not callable(processor):
        raise InvalidParameterError(f"{said}; give {form}")
    try:
        signature = inspect.signature(processor)
    except (TypeError, ValueError):  # Python does not know the arguments of all functions
        return
    try:
        signature.bind(None, None, None)
    except TypeError:
        raise InvalidParameterError(
            f"{said} does not take three arguments; give {form}, such as lambda tokens, scores, _: "
            "processor(tokens, scores) for a processor of transformers"
        ) from None


def as_flag(value: Any, name: str) -> bool:
    """Return a boolean option; raise on other values."""
    if not isinstance(value, bool | np.bool_):
        raise InvalidParameterError(f"{name} = {shown(value)}; it must be True or False")
    return bool(value)


def check_models(target: Any, drafter: Any, kind: type = Drafter) -> None:
    """Raise unless target and drafter have the right types and the same vocabulary."""
    if not isinstance(target, LanguageModel):
        raise InvalidInputError(
            f"the target is a {type(target).__name__}; give a LanguageModel, such as "
            "HuggingFaceModel(model)"
        )
    if drafter is not None:
        check_draft(drafter, kind)
        check_vocabularies(drafter, "draft model", target, "target model")


def check_vocabularies(drafter: Any, drafting: str, model: Any, verifying: str) -> None:
    """Raise unless the drafter has the vocabulary of the model that scores its drafts."""
    if drafter.vocabulary not in (None, model.vocabulary):
        raise InvalidInputError(
            f"the {drafting} has a vocabulary of {drafter.vocabulary} tokens, the {verifying} one "
            f"of {model.vocabulary}; both must use the same tokens, so choose two models with the "
            "same tokenizer"
        )


def check_draft(draft: Any, *kinds: type) -> None:
    """Raise unless `draft` is an instance of one of the types `kinds`."""
    if not isinstance(draft, kinds):
        allowed = " or a ".join(kind.__name__ for kind in kinds)
        name, example = "draft", ""
        if kinds == (Drafter,):
            name, example = "drafter", ", such as ModelDrafter(model)"
        raise InvalidInputError(
            f"the {name} is a {type(draft).__name__}; give a {allowed}{example}"
        )


def check_task(
    target: Any, drafter: Any, prompts: Any, max_tokens: Any, kind: type = Drafter
) -> tuple[tuple[Context, ...], int]:
    """Return prompts and the maximum number of new tokens, after checking them with the models."""
    check_models(target, drafter, kind)
    contexts = as_prompts(prompts, target.vocabulary)
    limit = as_positive(max_tokens, "max_tokens")
    check_length(target, drafter, max(map(len, contexts)), limit, "max_tokens")
    return contexts, limit


def check_length(target: Any, drafter: Any, length: int, more: int, name: str) -> None:
    """Raise if a context and `more` new tokens exceed the context length of a model.

    `name` is the parameter that sets `more`; the message asks for a smaller value.
    """
    for part, model in {"target": target, "draft": drafter}.items():
        most = getattr(model, "context_length", None)  # None without a drafter
        if most is not None and length + more > most:
            raise InvalidInputError(
                f"a context of {length} tokens and {shown(more)} more do not fit the {part} model, "
                f"whose limit is {most} tokens; shorten the context, or set {name} to at most "
                f"{max(most - length, 0)}"
            )


def as_paths(trees: Any, depths: Sequence[int], vocabulary: int) -> list[list[Path]]:
    """Return the paths of each draft tree; raise if they exceed their depth or the vocabulary.

    The verifier checks that `draft_probs` can produce the drafts.
    """
    if not isinstance(trees, Sequence) or len(trees) != len(depths):
        raise InvalidDraftsError(
            f"the drafter returned {shown(trees)}; it must return a DraftNode for each of "
            f"{len(depths)} sequences"
        )
    found = []
    for tree, depth in zip(trees, depths, strict=True):
        if not isinstance(tree, DraftNode) or tree.path:
            raise InvalidDraftsError(
                f"the drafter returned {shown(tree)} for a sequence; it must return the root of a "
                "tree, a DraftNode with the path ()"
            )
        paths = tree.leaf_paths()
        for path in paths:
            if len(path) > depth:
                raise InvalidDraftsError(
                    f"the drafter returned a path of {len(path)} drafts where at most {depth} "
                    "are allowed"
                )
            is_whole = all(isinstance(token, int | np.integer) for token in path)
            if path and not (is_whole and min(path) >= 0 and max(path) < vocabulary):
                raise InvalidDraftsError(
                    f"the drafter returned drafts {path}; the target model has tokens 0 to "
                    f"{vocabulary - 1}"
                )
        found.append(paths)
    return found
