"""Which rules have kernels, on which backends, and where they are."""

from __future__ import annotations

import sys
from collections.abc import Collection
from importlib import import_module
from typing import Any, NamedTuple

import numpy as np

from otm.errors import InvalidInputError
from otm.kernels.checks import check_name

__all__ = ["BACKENDS", "RULES", "Rule", "choose_backend", "load", "names", "uniforms_per_position"]

BACKENDS = ("numpy", "torch", "triton")
"""Each a folder; numpy is the definition, and the others make its decisions."""


class Rule(NamedTuple):
    """A rule that has kernels."""

    file: str  # in the folder of each of its backends
    several: bool  # several chains for a sequence, or one
    backends: tuple[str, ...] = BACKENDS


RULES = {
    "chain": Rule("chain", several=False),
    "block": Rule("block", several=False),
    "grid k-Seq": Rule("k_seq", several=True),
    "levels": Rule("levels", several=True),
}


def names(*, several: bool, backend: str = "numpy") -> list[str]:
    """List the rules for several chains of a sequence, or for one, that a backend has."""
    return [
        name for name, rule in RULES.items() if rule.several == several and backend in rule.backends
    ]


def load(rule: str, backend: str) -> Any:
    """Import the module of a rule and a backend, with `verify` and, in Triton, from logits too."""
    return import_module(f"otm.kernels.{backend}.{RULES[rule].file}")


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
