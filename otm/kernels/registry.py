"""From the name of a rule to its kernels, and which backend fits the arrays."""

from __future__ import annotations

import sys
from collections.abc import Collection
from importlib import import_module
from typing import Any

import numpy as np

from otm._core.numbers import check_name
from otm.errors import InvalidInputError
from otm.rules import BACKENDS, named


def load(rule: str, backend: str) -> Any:
    """Import the module of a rule and a backend, with `verify` and, in Triton, from logits too."""
    return import_module(f"otm.kernels.{backend}.{named(rule, 'kernel').kernel}")


def uniforms_per_position(rule: str, chains: int = 1) -> int:
    """Count the uniforms that a rule takes at each position, of so many chains.

    A sequence takes two more: for the recovered token and for the bonus token.
    """
    count: int = load(rule, "numpy").uniforms_per_position(chains)
    return count


def choose_backend(target: Any, backend: str, backends: Collection[str] = BACKENDS) -> str:
    """Return the backend, chosen if it is "auto"; refuse one that is for other arrays."""
    check_name("backend", backend, ("auto", *backends))
    torch = sys.modules.get("torch")  # whoever has a tensor has loaded it
    is_tensor = torch is not None and isinstance(target, torch.Tensor)
    if not is_tensor and not isinstance(target, np.ndarray):
        raise InvalidInputError(
            f"the target is a {type(target).__name__}; give NumPy arrays or torch tensors"
        )
    fits = [name for name in backends if is_tensor != (name == "numpy")]
    if backend == "auto" and fits:
        if is_tensor and target.is_cuda and "triton" in fits:
            from otm.kernels.triton.runtime import compiles  # loads Triton, which takes a second

            return "triton" if compiles() else fits[0]
        return fits[0]
    if backend not in fits:
        raise InvalidInputError(
            f"backend {backend!r} cannot work on a {type(target).__name__}: 'numpy' takes NumPy "
            f"arrays, 'torch' and 'triton' take tensors; here there are {', '.join(backends)}"
        )
    return backend
