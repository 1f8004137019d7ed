"""Properties of torch functions: which draw, which read values, and their effect on noise."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from types import FunctionType
from typing import Any

import numpy as np
import torch
from torch import Tensor

from otm.audit.intercept.races import Form

DRAW_NOTHING = {"softmax", "log_softmax", "relu", "pad"}
"""Python functions of torch without a random operation."""

MAKES_NOISE = {"rand", "rand_like", "uniform_"}

SAME_ARGS = {*MAKES_NOISE, "exponential_", "bernoulli", "bernoulli_", "multinomial"}
"""Random functions with the same arguments as their torch operations."""

OTHER_ARGS = {"input", "out", "from", "to", "requires_grad"}
"""Arguments of random functions that the torch operations rename, change or do not have."""

READS = ("numpy", "tolist", "__array__", "__dlpack__", "data_ptr")
"""Functions that read a tensor and are not operations."""

NO_VALUES = ("shape", "ndim", "dtype", "device", "layout", "requires_grad", "is_cuda")
"""Attributes that are independent of the values of a tensor."""

OVERWRITES = (
    "exponential_", "uniform_", "rand_like", "empty_like", "zeros_like", "ones_like",
)  # fmt: skip
"""Operations that do not read the values of their argument."""

COPIES = (
    "clone", "detach", "alias", "view", "_unsafe_view", "unsqueeze", "squeeze", "_to_copy",
    "select", "slice",
)  # fmt: skip
"""Operations that copy all noise, or return another view of it."""

OPERATIONS = ("add", "sub", "rsub", "mul", "div")

WINNERS = {
    "argmax": ("self", "dim", "keepdim"),
    "argmin": ("self", "dim", "keepdim"),
    "max": ("self", "dim", "keepdim"),
    "min": ("self", "dim", "keepdim"),
    "topk": ("self", "k", "dim", "largest", "sorted"),
}


def is_transforming() -> bool:
    """Whether `torch.vmap` or another transform of functions is active."""
    return torch._C._functorch.peek_interpreter_stack() is not None


@cache
def is_draw(func: Any) -> bool:
    """Whether a torch function draws random numbers by an operation with the same arguments."""
    name = getattr(func, "__name__", "")
    return name in SAME_ARGS and any(func is getattr(each, name, None) for each in (torch, Tensor))


@cache
def reads_values(func: Any) -> bool:
    """Whether a function that is not an operation reads the values of a tensor."""
    name = getattr(func, "__name__", "")
    return name in READS or (name == "__get__" and func.__self__.__name__ not in NO_VALUES)


@cache
def draws_nothing(func: Any) -> bool:
    """Whether a function of torch is certain to contain no random operation."""
    name = getattr(func, "__name__", "")
    written_in_python = isinstance(func, FunctionType) and func.__module__ != "torch._tensor"
    if written_in_python or not name:
        return name in DRAW_NOTHING
    packet = None if name.startswith("__") else getattr(torch.ops.aten, name, None)
    if packet is None:
        # Functions that are not operations.
        return name.startswith("_") or hasattr(Tensor, name)
    schemas = torch._C._jit_get_schemas_for_operator(f"aten::{name}")
    overloads = (getattr(packet, each.overload_name or "default", None) for each in schemas)
    return not any(each is not None and name_and_randomness(each)[1] for each in overloads)


@cache
def name_and_randomness(func: Any) -> tuple[str, bool]:
    """Return the name of an operation, and whether it is random."""
    random = torch.Tag.nondeterministic_seeded in func.tags
    return func._schema.name.removeprefix("aten::"), random


def iter_leaves(values: Any) -> Iterator[Any]:
    """Yield the arguments, and the items of lists, tuples and dictionaries among them."""
    if not isinstance(values, list | tuple | dict):
        yield values
        return
    for each in values.values() if isinstance(values, dict) else values:
        yield from iter_leaves(each)


def may_be_noise(result: Tensor, bounds: Any) -> bool:
    """Whether uniforms may be noise: rows of two or more, between 0 and 1."""
    unit = tuple(bounds[:2]) in {(), (0,), (0, 1)}
    return unit and result.dim() > 0 and result.shape[-1] > 1


def form_after(  # noqa: PLR0911 - one return for each kind of operation
    name: str, form: Form, place: int, args: Any, options: dict[str, Any]
) -> Form | None:
    """Return the form of noise after an operation; None if the result has no form."""
    if name in COPIES:
        return form
    numbers = [_number(each) for each in args]
    if name in {"softmax", "log_softmax"}:
        return form.then("softmax") if args[1] in {-1, len(form.part.shape) - 1} else None
    if name in {"clamp", "clamp_min", "clamp_max"}:
        names = {"clamp": ("min", "max"), "clamp_min": ("min",), "clamp_max": ("max",)}[name]
        bounds = dict(zip(names, numbers[1:], strict=False)) | options
        low, high = bounds.get("min"), bounds.get("max")
        kept = form if low is None else form.then("above", low)
        return kept if high is None or kept is None else kept.then("below", high)
    if options or len(args) > 2:
        return None
    if len(args) == 1:
        return form.then(name)
    if name == "pow":
        return form.then("reciprocal") if place == 0 and np.all(numbers[1] == -1) else None
    if place == 1:
        reverse = {"add": "add", "mul": "mul", "sub": "rsub", "div": "rdiv", "rsub": "sub"}
        return form.then(reverse[name], numbers[0]) if name in reverse else None
    return form.then(name, numbers[1]) if name in OPERATIONS else None


def _number(value: Any) -> Any:
    return value.double().cpu().numpy() if isinstance(value, Tensor) else value
