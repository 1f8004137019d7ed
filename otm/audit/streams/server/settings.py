"""Settings of an audit: sampling parameters, numbers of concurrent requests, and prompts."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from otm._core.display.text import shown
from otm._core.files.paths import (
    AnyPath,
    as_path,
    file_label,
    parse_json,
    read_json,
    read_whole,
)
from otm._core.numbers import as_integer, check_name
from otm.audit.streams.server.answers import Prompt
from otm.audit.streams.server.request_parameters import RequestParameters
from otm.decoding import SamplingParameters
from otm.decoding.generation_config import FILE
from otm.errors import InvalidInputError, InvalidParameterError

PROMPTS: tuple[Prompt, ...] = (
    "Once upon a time there was a",
    "The three most important things in life are",
    "def fibonacci(n):",
    "In 1969, the first",
    "Dear Sir or Madam, I am writing to",
    "1, 2, 3, 4,",
    "The weather today is",
    "Q: What is the capital of France? A:",
)
"""Default prompts."""

MOST_PROMPTS_BYTES = 2**22
"""Largest size of a file of prompts, in bytes."""


@dataclass(frozen=True)
class Setting:
    """Sampling parameters, and the number of concurrent requests."""

    parameters: SamplingParameters
    concurrency: int

    def __str__(self) -> str:
        values = vars(self.parameters)
        names = {"temperature": "temperature", "top_k": "top-k", "top_p": "top-p", "min_p": "min-p"}
        parts = [f"{text} {values[name]:g}" for name, text in names.items() if values[name]]
        return ", ".join([*parts, f"{self.concurrency} at a time"])


OMITTED = (
    *("temperature", "top_k", "top_p", "min_p"),
    *("presence_penalty", "frequency_penalty", "repetition_penalty", "repeat_penalty"),
)
"""Sampling parameters that requests may omit."""


def as_omitted(leave_out: Sequence[str]) -> tuple[str, ...]:
    """Check names of parameters that all requests omit; "all" stands for all of them."""
    if not isinstance(leave_out, Iterable):
        raise InvalidParameterError(
            f'leave_out = {shown(leave_out)}; give names of parameters, such as ("temperature",)'
        )
    names = [leave_out] if isinstance(leave_out, str) else list(leave_out)
    if "all" in names:
        return OMITTED
    return tuple(check_name("parameter to leave out", name, OMITTED) for name in names)


STATED_DEFAULTS = {
    "temperature": 1.0,
    "top_k": 0,
    "top_p": 1.0,
    "min_p": 0.0,
    "repetition_penalty": 1.0,
}
"""Default parameters that vLLM reads from a generation configuration, with their neutral values."""


def with_defaults(
    sampling: Sequence[SamplingParameters],
    request: RequestParameters,
    config: AnyPath | Mapping[str, Any],
    omitted: Collection[str],
) -> tuple[tuple[SamplingParameters, ...], RequestParameters]:
    """Set the omitted parameters to the values of a generation configuration.

    Missing values are neutral, and other entries of the configuration have no effect, as in vLLM.
    """
    if not isinstance(config, Mapping):
        place = as_path(config, "of a folder, or of a file generation_config.json")
        config = read_json(place / FILE if place.is_dir() else place)
    if not isinstance(config, Mapping):
        raise InvalidInputError(
            f"the generation configuration is {shown(config)}; it must be a JSON object"
        )
    used = {name: neutral for name, neutral in STATED_DEFAULTS.items() if name in omitted}
    if not used:
        raise InvalidInputError(
            "a generation configuration states the server's own values for omitted parameters; "
            "name these parameters with leave_out (--leave-out all)"
        )
    if not isinstance(config.get("do_sample"), bool | None):
        raise InvalidInputError(
            f"the generation configuration has do_sample = {shown(config['do_sample'])}; it must "
            "be true or false"
        )
    if config.get("do_sample") is False and "temperature" in used:
        raise InvalidInputError(
            "the generation configuration has do_sample = false, which some servers ignore; state "
            "the temperature that the server should use instead of this file"
        )
    values = {
        name: neutral if config.get(name) is None else config[name]
        for name, neutral in used.items()
    }
    stated = [
        name
        for name in used
        if name in request.stated
        or any(getattr(parameters, name, None) not in (None, used[name]) for parameters in sampling)
    ]
    if stated:
        raise InvalidInputError(
            f"{', '.join(stated)}: both stated and read from the generation configuration; state "
            "only parameters that requests do not omit"
        )
    repetition = values.pop("repetition_penalty", None)
    if repetition is not None:
        request = replace(request, repetition_penalty=repetition)
    # The value that keeps all tokens is None.
    changed: dict[str, Any] = {
        name: None if name != "temperature" and value == used[name] else value
        for name, value in values.items()
    }
    return tuple(dict.fromkeys(replace(each, **changed) for each in sampling)), request


def as_settings(
    sampling: Sequence[SamplingParameters], concurrency: Sequence[int], omitted: Sequence[str] = ()
) -> tuple[Setting, ...]:
    """Combine all sampling parameters with all numbers of concurrent requests.

    Requests omit the `omitted` parameters, so these must have the same value in all settings.
    """
    for parameters in sampling:
        if not isinstance(parameters, SamplingParameters):
            raise InvalidParameterError(
                f"`sampling` contains {shown(parameters)}; it must contain SamplingParameters"
            )
        if parameters.temperature == 0:
            raise InvalidParameterError(
                f"`sampling` contains {parameters}; the temperature must be above 0 (greedy texts "
                "are compared separately)"
            )
    for name in {"temperature", "top_k", "top_p", "min_p"}.intersection(omitted):
        if len({getattr(parameters, name) for parameters in sampling}) > 1:
            raise InvalidParameterError(
                f"`sampling` has several values of {name}, but requests omit {name}; give only "
                "the value that the server should use"
            )
    counts = [as_integer(count, "concurrency", 1, 256) for count in concurrency]
    found = tuple(Setting(parameters, count) for parameters in sampling for count in counts)
    if not found or len(set(found)) < len(found):
        raise InvalidParameterError(
            "`sampling` and `concurrency` must not be empty and must not repeat an entry"
        )
    return found


def as_prompts(prompts: Sequence[Any] | None, *, chat: bool, ids: bool) -> tuple[Prompt, ...]:
    """Check prompts: texts, or token ids, which chats do not support and a local model needs."""
    if prompts is None:
        if ids:
            raise InvalidInputError(
                "there are no prompts; with a model, give lists of token ids from its tokenizer"
            )
        return PROMPTS
    if isinstance(prompts, str) or not len(prompts):
        raise InvalidInputError("`prompts` must be a list of texts, or of lists of token ids")
    found: list[Prompt] = []
    for prompt in prompts:
        if isinstance(prompt, str):
            if ids or not prompt:
                form = "a list of token ids" if ids else "a text"
                raise InvalidInputError(f"the prompt {shown(prompt)} must be {form}, not empty")
            # Half of a surrogate pair cannot be encoded.
            if prompt.encode(errors="ignore").decode() != prompt:
                raise InvalidInputError(f"the prompt {shown(prompt)} is not valid Unicode")
            found.append(prompt)
            continue
        try:
            tokens = tuple(as_integer(token, "a token of a prompt", 0) for token in prompt)
        except TypeError:
            raise InvalidInputError(f"the prompt {shown(prompt)} is not a text or a list") from None
        if chat or not tokens:
            form = "a text" if chat else "a list of token ids"
            raise InvalidInputError(f"the prompt {shown(prompt)} must be {form}, not empty")
        found.append(tokens)
    return tuple(found)


def read_prompts(path: AnyPath) -> list[Any]:
    """Read a file with one prompt per line: a text, or token ids as a JSON list."""
    text = read_whole(path, MOST_PROMPTS_BYTES, "prompts")
    lines = [line for line in text.split(b"\n") if line.strip()]
    prompts: list[Any] = []
    for number, line in enumerate(lines, 1):
        if line.startswith((b"[", b'"')):
            prompts.append(parse_json(line, f"line {number} of {file_label(path)}"))
            continue
        try:
            prompts.append(line.decode("utf-8").rstrip("\r"))
        except UnicodeDecodeError:
            raise InvalidInputError(f"line {number} of {file_label(path)} is not UTF-8") from None
    return prompts


def as_text(prompt: Prompt) -> str:
    """Format a prompt for people."""
    return shown(prompt if isinstance(prompt, str) else json.dumps(list(prompt)))
