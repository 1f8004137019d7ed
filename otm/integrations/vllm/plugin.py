"""The vLLM functions that OTM replaces, their replacements, and a check of the vLLM version."""

from __future__ import annotations

import inspect
import logging
import os
from collections.abc import Callable, Iterator
from functools import partial
from importlib import import_module
from typing import Any, NamedTuple

from otm._core.optional import require
from otm.errors import UnknownMethodError, UnsupportedVersionError
from otm.kernels.registry import backend_of_environment

VARIABLE = "OTM_VLLM"
"""Environment variable that names the rule."""

RULES = ("chain", "block")
"""Rules for single chains, the only drafts of vLLM."""

# vLLM shows only messages of its own loggers.
log = logging.getLogger("vllm.plugins.otm")


class Replaced(NamedTuple):
    """A vLLM function, and the module of `otm.integrations.vllm` that replaces it."""

    module: str
    name: str
    parameters: tuple[str, ...]
    ours: str
    takes_rule: bool = True


REPLACED = (
    Replaced(
        "vllm.v1.sample.rejection_sampler",
        "rejection_sample",
        (
            *("draft_token_ids", "num_draft_tokens", "max_spec_len", "cu_num_draft_tokens"),
            *("draft_probs", "target_logits", "bonus_token_ids", "sampling_metadata"),
            *("synthetic_mode", "synthetic_conditional_rates", "use_fp64_gumbel"),
        ),
        "runner_v1",
    ),
    Replaced(
        "vllm.v1.sample.rejection_sampler",
        "apply_sampling_constraints",
        ("logits", "cu_num_draft_tokens", "sampling_metadata"),
        "runner_v1",
        takes_rule=False,
    ),
    Replaced(
        "vllm.v1.worker.gpu.spec_decode.rejection_sampler",
        "rejection_sample",
        (
            *("target_logits", "draft_logits", "draft_sampled", "cu_num_logits", "pos"),
            *("idx_mapping", "expanded_idx_mapping", "expanded_local_pos", "temperature", "seed"),
            *("num_speculative_steps", "synthetic_conditional_rates", "use_fp64"),
            *("use_block_verification", "contexts", "watermarking", "watermarking_skip_mask"),
            "watermark_key",
        ),
        "runner_v2",
    ),
)
"""Replaced functions of vLLM 0.32: runner V1 on CPUs and GPUs, and runner V2 on GPUs."""


def register() -> None:
    """Let OTM verify the drafts of vLLM, if the environment variable `OTM_VLLM` is set.

    With `OTM_VLLM=chain`, drafts are verified by [leviathan2023]_, Algorithm 1, and with
    `OTM_VLLM=block` by [sun2024block]_, Algorithm 2, instead of by vLLM's own rejection sampler.
    If the variable is unset, the function changes nothing and does not import vLLM.  vLLM calls
    this function by itself if OTM is installed.  `OTM_BACKEND` selects the backend, as for
    `otm.kernels.verify_probs`.

    Raises
    ------
    UnknownMethodError
        If a variable names an unknown rule or backend.
    UnsupportedVersionError
        If the functions of this vLLM differ from those that OTM replaces.
    MissingDependencyError
        If vLLM or torch is not installed.

    References
    ----------
    .. [leviathan2023] Leviathan, Kalman and Matias, "Fast Inference from Transformers via
       Speculative Decoding", ICML 2023.
    .. [sun2024block] Sun et al., "Block Verification Accelerates Speculative Decoding", 2024.

    Examples
    --------
    >>> from otm.integrations.vllm import register
    >>> register()  # changes nothing, because OTM_VLLM is not set
    """
    rule = os.environ.get(VARIABLE, "")
    if not rule:
        return
    if rule not in RULES:
        raise UnknownMethodError(
            f"{VARIABLE}={rule!r}; give one of {', '.join(RULES)}, or unset it"
        )
    backend = backend_of_environment()
    require("vllm")
    modules = [(replaced, import_module(replaced.module)) for replaced in REPLACED]
    for replaced, module in modules:
        check(replaced, getattr(module, replaced.name, None))
    for replaced, module in modules:
        setattr(module, replaced.name, ours(replaced, rule))
    log.info("OTM verifies drafts by the rule %r, on the backend %r.", rule, backend)


def check(replaced: Replaced, function: Any) -> None:
    """Raise unless a function has the parameters that OTM expects.

    OTM's replacement passes this check too; its extra parameter `rule` is keyword-only.
    """
    actual = tuple(positional(function)) if callable(function) else None
    if actual != replaced.parameters:
        what = "is missing" if actual is None else f"has the parameters {', '.join(actual)}"
        raise UnsupportedVersionError(
            f"{replaced.module}.{replaced.name} {what}; OTM needs the function of vLLM 0.32, with "
            f"the parameters {', '.join(replaced.parameters)}: install this version, or unset "
            f"{VARIABLE}"
        )


def positional(function: Callable[..., Any]) -> Iterator[str]:
    """Yield the names of the parameters that accept positional arguments."""
    for name, parameter in inspect.signature(function).parameters.items():
        if parameter.kind is not parameter.KEYWORD_ONLY:
            yield name


def ours(replaced: Replaced, rule: str) -> Callable[..., Any]:
    """Return OTM's replacement of a vLLM function, with the same parameters."""
    module = import_module(f"otm.integrations.vllm.{replaced.ours}")
    function: Callable[..., Any] = getattr(module, replaced.name)
    return partial(function, rule=rule) if replaced.takes_rule else function
