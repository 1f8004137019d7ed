"""The stages by name, with their usual sizes; those that compare texts run only if named."""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

__all__ = ["STAGES", "Size", "Stage"]


class Size(NamedTuple):
    """Number of prompts of each kind, and of new tokens of each prompt."""

    prompts: int
    tokens: int


class Stage(NamedTuple):
    """A stage: a title, a function that measures, its usual size, and whether it is usual."""

    title: str
    measure: Callable[[Size], dict[str, Any]]
    size: Size
    is_usual: bool = True


def efficiency(size: Size, *, name: str) -> dict[str, Any]:
    from benchmarks.real.efficiency import efficiency
    from benchmarks.real.models import fast_type, load_real

    return efficiency(load_real(name, fast_type()), *size)


def speed(size: Size, *, name: str) -> dict[str, Any]:
    import torch

    from benchmarks.real.models import load_real
    from benchmarks.real.speed import speed

    return speed(load_real(name, torch.bfloat16), *size)


def outside(size: Size, *, name: str) -> dict[str, Any]:
    from benchmarks.real.models import fast_type, load_real
    from benchmarks.real.outside import outside

    return outside(load_real(name, fast_type()), size.tokens)


def iteration(size: Size) -> dict[str, Any]:
    import torch

    from benchmarks.real.iteration import iteration
    from benchmarks.real.models import load_real

    return iteration(load_real("SmolLM2", torch.float32), size.tokens)


def identities(size: Size, *, name: str) -> dict[str, Any]:
    import torch

    from benchmarks.real.identities import identities
    from benchmarks.real.models import load_real

    return identities(load_real(name, torch.float32), *size)


def rounding(size: Size, *, name: str) -> dict[str, Any]:
    import torch

    from benchmarks.real.models import load_real
    from benchmarks.real.rounding import rounding

    return rounding(load_real(name, torch.bfloat16), *size)


def pairs(size: Size, *, name: str) -> dict[str, Any]:
    import torch

    from benchmarks.real.models import load_real
    from benchmarks.real.pairs import pairs

    return pairs(load_real(name, torch.float32), texts=size.tokens)


def trees(size: Size, *, name: str) -> dict[str, Any]:
    import torch

    from benchmarks.real.models import load_real
    from benchmarks.real.trees import trees

    return trees(load_real(name, torch.float32), *size)


STAGES = {
    "efficiency-smollm2": Stage(
        "tokens a step of SmolLM2 by rule", partial(efficiency, name="SmolLM2"), Size(10, 32)
    ),
    "speed-smollm2": Stage(
        "tokens per second of SmolLM2 in bfloat16", partial(speed, name="SmolLM2"), Size(10, 40)
    ),
    "outside-smollm2": Stage(
        "time of a step outside of the models, SmolLM2",
        partial(outside, name="SmolLM2"),
        Size(1, 40),
    ),
    "iteration": Stage("a step with four chains on real text", iteration, Size(1, 96)),
    "efficiency-gemma": Stage(
        "tokens a step of Gemma by rule", partial(efficiency, name="Gemma"), Size(2, 24)
    ),
    "speed-gemma": Stage(
        "tokens per second of Gemma in bfloat16", partial(speed, name="Gemma"), Size(2, 48)
    ),
    "identities-smollm2": Stage(
        "greedy texts of SmolLM2 against generate",
        partial(identities, name="SmolLM2"),
        Size(5, 100),
        is_usual=False,
    ),
    "identities-gemma": Stage(
        "greedy texts of Gemma against generate",
        partial(identities, name="Gemma"),
        Size(5, 100),
        is_usual=False,
    ),
    "rounding-smollm2": Stage(
        "greedy texts of SmolLM2 in bfloat16, and what explains differences",
        partial(rounding, name="SmolLM2"),
        Size(2, 60),
        is_usual=False,
    ),
    "rounding-gemma": Stage(
        "greedy texts of Gemma in bfloat16, and what explains differences",
        partial(rounding, name="Gemma"),
        Size(1, 40),
        is_usual=False,
    ),
    "pairs-smollm2": Stage(
        "sampled texts of SmolLM2 against their exact distribution",
        partial(pairs, name="SmolLM2"),
        Size(1, 2_000),
        is_usual=False,
    ),
    "trees-smollm2": Stage(
        "tokens a step of SmolLM2 by trees of 32 drafts",
        partial(trees, name="SmolLM2"),
        Size(5, 32),
        is_usual=False,
    ),
}
