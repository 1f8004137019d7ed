"""How functions take their arguments, and their randomness among these."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from otm._core.optional import require
from otm._core.text import shown
from otm.errors import InvalidParameterError

RANDOMNESS = ("uniforms", "rng", "generator", "seed")
"""Names of a parameter by which a function takes randomness; without one it draws for itself."""


def parameters_of(function: Callable[..., Any]) -> dict[str, inspect.Parameter]:
    """Read the parameters of a function; refuse one whose parameters cannot be read."""
    try:
        return dict(inspect.signature(function).parameters)
    except (TypeError, ValueError):
        raise InvalidParameterError(
            f"the parameters of {shown(function)} cannot be read; wrap it into a function"
        ) from None


def required(function: Callable[..., Any]) -> int:
    """Count the parameters that must be given."""
    kinds = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    needed = (p for p in parameters_of(function).values() if p.kind not in kinds)
    return sum(p.default is inspect.Parameter.empty for p in needed)


def randomness_of(function: Callable[..., Any], before: int) -> str | None:
    """Name of the parameter by which a function takes randomness, after `before` others."""
    parameters = parameters_of(function)
    found = [name for name in RANDOMNESS if name in parameters]
    if any(parameters[name].kind is inspect.Parameter.POSITIONAL_ONLY for name in found):
        raise InvalidParameterError(
            f"a verifier with the parameters ({', '.join(parameters)}), which takes {found[0]} by "
            "position alone; it must take it by name"
        )
    if required(function) > before + len(found) or len(found) > 1 or len(parameters) < before:
        raise InvalidParameterError(
            f"a verifier with the parameters ({', '.join(parameters)}); it must take {before} "
            f"arguments, then at most one of {', '.join(RANDOMNESS)}; bind others beforehand"
        )
    return found[0] if found else None


def torch_generator(seed: int) -> Any:
    """Make a generator of torch, on the CPU."""
    return require("torch").Generator().manual_seed(seed)
