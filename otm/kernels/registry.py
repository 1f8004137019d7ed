"""Choice of the backend that fits the arrays, and the number of uniforms that a rule needs."""

from __future__ import annotations

import os
import sys
from collections.abc import Collection
from typing import Any

import numpy as np

from otm._core.numbers import check_name
from otm._core.rule import BACKENDS
from otm.errors import InvalidInputError
from otm.rules import Rule, named

VARIABLE = "OTM_BACKEND"
"""Environment variable that names the backend for tensors if no argument does."""

AUTO = "auto"


def uniforms_per_position(rule: str | Rule, chains: int = 1) -> int:
    """Count the uniforms that a rule needs at each position for this number of chains.

    Each sequence needs two additional uniforms: for the recovered token and for the bonus token.
    """
    definition = named(rule, "kernel").load_kernel("numpy")
    count: int = definition.uniforms_per_position(chains)
    return count


def backend_of_environment() -> str:
    """Return the backend that the environment variable names, or "auto" if it is not set."""
    named_there = os.environ.get(VARIABLE) or AUTO
    advice = f"the name comes from the environment variable {VARIABLE}"
    return check_name("backend", named_there, (AUTO, *BACKENDS), advice=advice)


def choose_backend(target: Any, backend: str, backends: Collection[str] = BACKENDS) -> str:
    """Return the backend for the arrays; raise if the named backend cannot process them.

    The argument takes precedence over the environment variable.  If this function returns "auto", a
    self-check decides between Triton and torch.  NumPy arrays always use the backend "numpy".
    """
    check_name("backend", backend, (AUTO, *backends))
    # Any caller that has a tensor has already imported torch.
    torch = sys.modules.get("torch")
    is_tensor = torch is not None and isinstance(target, torch.Tensor)
    if not is_tensor and not isinstance(target, np.ndarray):
        raise InvalidInputError(
            f"the target is a {type(target).__name__}; give NumPy arrays or torch tensors"
        )
    fits = [name for name in backends if is_tensor != (name == "numpy")]
    source = ""
    if backend == AUTO:
        backend = backend_of_environment()
        if fits and (backend == AUTO or not is_tensor):
            return AUTO if "triton" in fits and suits_triton(target) else fits[0]
        source = f" (of the environment variable {VARIABLE})" if backend != AUTO else ""
    if backend not in fits:
        raise InvalidInputError(
            f"backend {backend!r}{source} cannot process a {type(target).__name__}: 'numpy' takes "
            "NumPy arrays, 'torch' and 'triton' take tensors; this function has the backends "
            f"{', '.join(backends)}"
        )
    return backend


def suits_triton(target: Any) -> bool:
    """Whether Triton's kernels can be the fastest backend for a tensor."""
    if not target.is_cuda:
        return False
    from otm.kernels.common.runtime import compiles  # importing Triton takes a second

    return compiles()
