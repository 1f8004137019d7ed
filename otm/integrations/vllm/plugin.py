"""Which functions of vLLM are replaced, by what, and the check that they are those that we know."""

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
"""Rules for the drafts of one chain, which is what vLLM drafts."""

log = logging.getLogger("vllm.plugins.otm")  # vLLM shows what its own loggers say


class Replaced(NamedTuple):
    """A function of vLLM, and ours for it: `otm.integrations.vllm.{ours}` has one of its name."""

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
"""What vLLM 0.32 has: runner V1 on CPUs and GPUs, and runner V2 on GPUs."""


def register() -> None:
    """Let OTM verify the drafts of vLLM, if the environment asks for it.

    `OTM_VLLM=chain` verifies by [leviathan2023]_, Algorithm 1, and `OTM_VLLM=block` by
    [sun2024block]_, Algorithm 2, in place of vLLM's own rejection sampling.  Unset, nothing is
    changed and nothing of vLLM imported.  vLLM calls this by itself where OTM is installed.
    `OTM_BACKEND` names the backend, as for `otm.kernels.verify_probs`.

    Raises
    ------
    UnknownMethodError
        If a variable names no such rule, or no such backend.
    UnsupportedVersionError
        If this vLLM has other functions than those that are to be replaced.
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
    >>> register()  # OTM_VLLM is not set
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
    found = [(replaced, import_module(replaced.module)) for replaced in REPLACED]
    for replaced, module in found:
        check(replaced, getattr(module, replaced.name, None))
    for replaced, module in found:
        setattr(module, replaced.name, ours(replaced, rule))
    log.info("OTM verifies drafts by the rule %r, on the backend %r.", rule, backend)


def check(replaced: Replaced, function: Any) -> None:
    """Refuse to replace a function that is not the one we know.

    Ours, which may be there already, has the rule besides, by name alone.
    """
    there = tuple(positional(function)) if callable(function) else None
    if there != replaced.parameters:
        what = "is missing" if there is None else f"takes {', '.join(there)}"
        raise UnsupportedVersionError(
            f"{replaced.module}.{replaced.name} {what}; OTM knows the one of vLLM 0.32, which "
            f"takes {', '.join(replaced.parameters)}: install that, or unset {VARIABLE}"
        )


def positional(function: Callable[..., Any]) -> Iterator[str]:
    """Names of the parameters that may be given by place."""
    for name, parameter in inspect.signature(function).parameters.items():
        if parameter.kind is not parameter.KEYWORD_ONLY:
            yield name


def ours(replaced: Replaced, rule: str) -> Callable[..., Any]:
    """Our function for one of vLLM's, with the same parameters."""
    module = import_module(f"otm.integrations.vllm.{replaced.ours}")
    function: Callable[..., Any] = getattr(module, replaced.name)
    return partial(function, rule=rule) if replaced.takes_rule else function
