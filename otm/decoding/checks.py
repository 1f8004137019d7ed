"""What the loops refuse, before any model is run."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from otm._core.checks import check_uniforms
from otm._core.numbers import as_integer, whole
from otm._core.tensors import to_host
from otm._core.text import shown
from otm.decoding.drafting import Drafter, DraftNode, Randomness
from otm.decoding.reading import Context, Path
from otm.decoding.sampling_parameters import SamplingParameters
from otm.errors import InvalidDraftsError, InvalidInputError, InvalidParameterError
from otm.models.base import LanguageModel


def as_prompts(prompts: Any, vocabulary: int) -> tuple[Context, ...]:
    """Return prompts as tuples of tokens, at least one in each."""
    try:
        rows = [np.asarray(to_host(prompt)) for prompt in prompts]
    except Exception as reason:  # whatever foreign objects raise when asked for their entries
        raise InvalidInputError(
            f"the prompts are a {type(prompts).__name__} that does not hold rows of tokens "
            f"({shown(reason)}); give a sequence of sequences of token ids"
        ) from reason
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


def as_end(end: Any, vocabulary: int) -> frozenset[int]:
    """Return the tokens that end a sequence."""
    given = () if end is None else end if isinstance(end, Collection) else (end,)
    tokens = [token for token in map(whole, given) if token is not None]
    if len(tokens) < len(given) or not all(0 <= token < vocabulary for token in tokens):
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
        raise InvalidParameterError("both `seed` and `uniforms` are given; give one of them")
    sources = list(uniforms) if isinstance(uniforms, Sequence) else []
    if len(sources) != count or not all(map(callable, sources)):
        raise InvalidParameterError(
            f"uniforms = {shown(uniforms)}; give one function for each of the {count} prompts, "
            "which takes a number m and returns m uniforms, such as `rng.random`"
        )
    return [partial(_taken, source) for source in sources]


def _taken(source: Randomness, m: int) -> npt.NDArray[Any]:
    """Take uniforms from somebody's source."""
    given: Any = source(m)
    exact = isinstance(given, np.ndarray) and given.dtype == object
    return check_uniforms(given, (m,), exact, f"{m} were asked for: give an array ({m},)")


def as_sampling(sampling: object) -> SamplingParameters:
    """Return how to sample, from the laws as they are if nothing is said."""
    if not isinstance(sampling, SamplingParameters | None):
        raise InvalidParameterError(
            f"sampling = {shown(sampling)}; give a SamplingParameters, such as "
            "SamplingParameters(temperature=0.7)"
        )
    return sampling or SamplingParameters()


def as_stop(stop: Any) -> Any:
    """Return the user's own function that ends sequences, or None."""
    if stop is not None and not callable(stop):
        raise InvalidParameterError(
            f"stop = {shown(stop)}; give a function of the new tokens that returns whether to stop"
        )
    return stop


def check_options(options: Iterable[str], known: Iterable[str]) -> None:
    """Refuse options that do not exist."""
    unknown = sorted(set(options) - set(known))
    if unknown:
        raise InvalidParameterError(
            f"there is no option {unknown[0]!r}; there are {', '.join(known)}, and temperature, "
            "top_k, top_p and min_p belong to sampling=SamplingParameters(…)"
        )


def check_models(target: Any, drafter: Any) -> None:
    """Refuse what is no model or no drafter, and a drafter for another vocabulary."""
    if not isinstance(target, LanguageModel):
        raise InvalidInputError(
            f"the target is a {type(target).__name__}; give a LanguageModel, such as "
            "HuggingFaceModel(model)"
        )
    if drafter is None:
        return
    if not isinstance(drafter, Drafter | LanguageModel):
        raise InvalidInputError(
            f"the drafter is a {type(drafter).__name__}; give a Drafter or, where one is made of "
            "it, a LanguageModel"
        )
    if drafter.vocabulary not in (None, target.vocabulary):
        raise InvalidInputError(
            f"the draft model has a vocabulary of {drafter.vocabulary} tokens, the target model "
            f"one of {target.vocabulary}; tokens must mean the same to both, so choose two models "
            "with one tokenizer"
        )


def check_room(
    target: LanguageModel,
    drafter: Drafter | LanguageModel | None,
    prompts: Sequence[Context],
    limit: int,
) -> None:
    """Refuse contexts that will not fit the models."""
    rooms = {"target": target.context_length}
    if drafter is not None:
        rooms["draft"] = drafter.context_length
    longest = max(map(len, prompts))
    for name, room in rooms.items():
        if room is not None and longest + limit > room:
            raise InvalidInputError(
                f"a prompt of {longest} tokens and max_tokens = {shown(limit)} new ones do not fit "
                f"the {name} model, which takes {room} tokens; shorten the prompt, or let "
                f"max_tokens be at most {max(room - longest, 0)}"
            )


def as_paths(trees: Any, depths: Sequence[int], vocabulary: int) -> list[list[Path]]:
    """Return the paths of drafts to be judged, if a drafter was allowed to draft them.

    That the laws can have given them is checked by who judges them.
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
                    f"the drafter returned a path of {len(path)} drafts where it was asked for at "
                    f"most {depth}"
                )
            if path and not (min(path) >= 0 and max(path) < vocabulary):
                raise InvalidDraftsError(
                    f"the drafter returned drafts {path}; the target model has tokens 0 to "
                    f"{vocabulary - 1}"
                )
        found.append(paths)
    return found


def check_outputs(outputs: Sequence[Path]) -> None:
    """Refuse a verifier that outputs nothing, with which decoding would never end."""
    if not all(outputs):
        raise InvalidDraftsError(
            "the verifier returned no token; it must return the accepted drafts and one token more"
        )
