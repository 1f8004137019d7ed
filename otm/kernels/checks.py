"""Checks of the arguments of a verification, for NumPy arrays and torch tensors alike.

The checks read all rows once, or twice for probabilities, and on a GPU they wait for the result.
Fast loops therefore skip the checks with `validate=False`.  A row is checked by its sum and its
smallest or largest number, because NaN and ∞ propagate to these numbers.
"""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal
from functools import cache
from types import ModuleType
from typing import Any

import numpy as np
import numpy.typing as npt

from otm._core.display.text import shown
from otm._core.numbers import is_real
from otm._core.probs.distribution import sum_tolerance
from otm._core.tensors import is_masked, masked_fault, to_host
from otm.errors import (
    InvalidDistributionError,
    InvalidDraftsError,
    InvalidInputError,
    InvalidParameterError,
    InvalidUniformsError,
)
from otm.kernels.common.arrays import array_module
from otm.kernels.layout import Chains, Layout, check_counted, packed_layout, padded_layout
from otm.kernels.registry import uniforms_per_position
from otm.kernels.sparse_drafts import SparseDrafts
from otm.rules import Rule, named

INTEGERS = {"int32", "int64"}
FLOATS = {"float16", "bfloat16", "float32", "float64"}
INFINITY = float("inf")


def check_arguments(chains: Chains, rule: str | Rule = "chain", *, logits: bool) -> None:
    """Check all arguments of a verification by a rule; the target is an array or a tensor.

    Messages number the chains of all sequences: chain c of sequence b is number bK + c.
    """
    target, draft, tokens, uniforms, temperature, offsets, counted, _ = chains
    library = array_module(target)
    several, packed = named(rule, "kernel").several, offsets is not None
    sparse = isinstance(draft, SparseDrafts)
    arrays = {"target": target, "draft": draft, "draft_tokens": tokens, "uniforms": uniforms}
    if sparse:
        arrays |= {"draft": draft.probs, "the list of draft tokens": draft.tokens}
    elif draft is None and not several:
        del arrays["draft"]
    further = {"offsets": offsets, "counted": counted}
    arrays |= {name: array for name, array in further.items() if array is not None}
    check_arrays(library, arrays, temperature)

    _check_shapes(target, draft, tokens, several=several, offsets=offsets)
    coins = uniforms_per_position(rule, tokens.shape[1] if several else 1)
    batch, gamma = len(tokens), tokens.shape[-1]
    if packed:
        batch, gamma = len(offsets) - 1, max((*uniforms.shape, 2, 2)[1] - 2, 0) // coins
    needed = (batch, gamma * coins + 2)
    if tuple(uniforms.shape) != needed:
        raise InvalidUniformsError(
            f"uniforms have shape {tuple(uniforms.shape)}; for draft tokens of shape "
            f"{tuple(tokens.shape)} this rule needs {needed}: {coins} for each position, one for "
            "the recovered token and one for the bonus token"
        )
    whole = [tokens, draft.tokens if sparse else tokens, offsets if packed else tokens]
    check_types(target, draft.probs if sparse else draft, whole, uniforms, logits=logits)
    check_uniforms(uniforms)
    temperatures = check_temperature(library, temperature, batch) if logits else None
    layout = packed_layout(tokens, offsets, gamma) if packed else padded_layout(tokens)
    if layout.drafts.shape[0]:
        _check_numbers(library, target, draft, tokens, layout=layout, temperatures=temperatures)
    if counted is not None:
        check_counted(tokens, counted, several)


def check_uniforms(uniforms: Any) -> None:
    """Raise if a uniform lies outside [0, 1)."""
    values = to_host(uniforms)
    if values.dtype == object and any(isinstance(u, Decimal) for u in values.ravel().tolist()):
        raise InvalidUniformsError(
            "uniforms are of type Decimal, which cannot be multiplied by fractions; give fractions"
        )
    try:
        inside = bool(((values >= 0) & (values < 1)).all())
    except TypeError:  # objects that do not compare with numbers
        inside = False
    if not inside:
        raise InvalidUniformsError(
            "every uniform must be a number in [0, 1), which excludes NaN and 1"
        )


def check_arrays(library: ModuleType, arrays: dict[str, Any], temperature: Any) -> None:
    """Raise unless all arrays are dense arrays of one library on one device."""
    kind = np.ndarray if library is np else library.Tensor
    for name, array in arrays.items():
        if fault := masked_fault(array):
            raise InvalidInputError(f"{name} is {fault}")
        # Arithmetic on a masked array creates new masks.
        if not isinstance(array, kind) or is_masked(array):
            one_hot = " (a rule for several chains needs the distributions of the drafts)"
            raise InvalidInputError(
                f"{name} is a {type(array).__name__}; like the target, it must be a "
                f"{kind.__name__} of {library.__name__}{one_hot if array is None else ''}"
            )
    if fault := masked_fault(temperature):
        raise InvalidInputError(f"the temperature is {fault}")
    if isinstance(temperature, kind):
        arrays["temperature"] = temperature
    devices = {name: str(getattr(array, "device", "cpu")) for name, array in arrays.items()}
    if len(set(devices.values())) > 1:
        raise InvalidInputError(f"the arguments are on different devices: {devices}; move them")
    for name, array in arrays.items():
        if kind is not np.ndarray and (
            array.is_meta or array.is_nested or array.layout != library.strided
        ):
            raise InvalidInputError(
                f"{name} is a tensor of layout {array.layout}{' (nested)' * array.is_nested} on "
                f"device {array.device}; give a dense tensor with data; .to_dense() converts a "
                "sparse tensor"
            )


def _check_numbers(
    library: ModuleType, target: Any, draft: Any, tokens: Any, *, layout: Layout, temperatures: Any
) -> None:
    """Raise for invalid rows and drafts; `temperatures` [B] is None for probabilities.

    Each chain is checked as if it were a separate sequence.
    """
    drafts, sparse = layout.drafts, isinstance(draft, SparseDrafts)
    chains, gamma = drafts.shape
    size = (target if draft is None or sparse else draft).shape[-1]
    if gamma and not ((drafts >= -1) & (drafts < size)).all():
        raise InvalidDraftsError(
            f"draft tokens must lie in [0, {size}), the draft model's vocabulary, or be −1 after "
            f"the end of a chain; these range from {drafts.min()} to {drafts.max()}"
        )
    live = np.logical_and.accumulate(drafts >= 0, axis=1)
    logits = temperatures is not None
    faults = faults_of_logits if logits else faults_of_probs
    used = np.concatenate([np.ones((chains, 1), bool), live], axis=1)
    names = [f"the target's row after draft, number {i}" for i in range(gamma)]
    names = ["the target's first row, number 0", *names]
    _raise_first_fault(faults(library, target), used, layout.target_rows, names)
    if draft is None or not live.any():
        return
    # At temperature 0 a draft is one-hot, so its logits are not used.
    if logits:
        live = live & (temperatures.repeat(chains // len(temperatures))[:, None] > 0)
    logits = logits and not sparse
    name = "the logits of draft" if logits else "the distribution of draft"
    draft_faults = _faults_of_lists(draft, size) if sparse else faults(library, draft)
    _raise_first_fault(
        draft_faults, live, layout.draft_rows, [f"{name}, number {i}" for i in range(gamma)]
    )
    if sparse:
        here = to_host(draft.tokens) == to_host(tokens)[..., None]
        drafted = np.where(here, to_host(draft.probs), 0).sum(-1)
    else:
        column = library.asarray(tokens, dtype=library.int64).clip(0)[..., None]
        at = np.take_along_axis if library is np else library.take_along_dim
        drafted = to_host(at(draft, column, -1))
    drafted = drafted.ravel()[layout.draft_rows]
    wrong = live & ~(drafted > (-INFINITY if logits else 0))
    if wrong.any():
        chain, step = _first(wrong)
        raise InvalidDraftsError(
            f"draft {step} of chain {chain} is token {drafts[chain, step]}, which has "
            "probability 0 and cannot have been sampled; pass the distributions that the drafts "
            "were sampled from"
        )


def _check_shapes(target: Any, draft: Any, tokens: Any, *, several: bool, offsets: Any) -> None:
    """Raise for shapes that do not fit the shape of the draft tokens."""
    packed = offsets is not None
    if packed and (several or offsets.ndim != 1 or len(offsets) == 0):
        raise InvalidDraftsError(
            f"offsets have shape {tuple(offsets.shape)}; give [B + 1] to a rule for one chain, and "
            "no offsets to a rule for several chains, which takes [B, K, γ] padded with −1"
        )
    if tokens.ndim != (1 if packed else 2 + several) or (several and tokens.shape[1] == 0):
        takes = "several chains takes [B, K, γ] with K ≥ 1" if several else "one chain takes [B, γ]"
        raise InvalidDraftsError(
            f"draft_tokens have shape {tuple(tokens.shape)}; a rule for {takes}, or [N] with "
            "offsets"
        )
    *leading, gamma = tokens.shape
    size = target.shape[-1] if target.ndim else 0
    rows = (gamma + len(offsets) - 1,) if packed else (*leading, gamma + 1)
    if tuple(target.shape[:-1]) != rows or size == 0:
        raise InvalidDistributionError(
            f"the target has shape {tuple(target.shape)}; for draft tokens of shape "
            f"{tuple(tokens.shape)} it must be {rows} and the vocabulary: each chain has a row for "
            "every draft and one for the bonus token"
        )
    if isinstance(draft, SparseDrafts):
        lists = tuple(draft.tokens.shape)
        if (
            lists != tuple(draft.probs.shape)
            or lists[:-1] != tuple(tokens.shape)
            or 0 in lists[-1:]
        ):
            raise InvalidDistributionError(
                f"sparse drafts have tokens of shape {lists} and probabilities of shape "
                f"{tuple(draft.probs.shape)}; both must have shape {tuple(tokens.shape)} followed "
                "by the number of listed tokens, at least 1"
            )
    elif draft is not None and (
        draft.ndim != target.ndim
        or tuple(draft.shape[:-1]) != tuple(tokens.shape)
        or not 0 < draft.shape[-1] <= size
    ):
        raise InvalidDistributionError(
            f"the draft has shape {tuple(draft.shape)}; it must be {tuple(tokens.shape)} and a "
            f"vocabulary of at most the target's {size} tokens (before sampling, remove the tokens "
            "that the target does not have)"
        )


def check_types(
    target: Any, draft: Any, tokens: Sequence[Any], uniforms: Any, *, logits: bool
) -> None:
    """Raise for types that are not allowed or do not fit each other."""
    allowed = FLOATS if logits else FLOATS | {"object"}  # only NumPy has fractions
    types = {_type(array) for array in (target, draft) if array is not None}
    if not types <= allowed or ("object" in types and len(types) > 1):
        raise InvalidDistributionError(
            f"target and draft are of type {', '.join(sorted(types))}; allowed are "
            f"{', '.join(sorted(FLOATS))}, and fractions in NumPy arrays if both are fractions"
        )
    exact = "object" in types
    entries = (x for rows in (target, draft) if exact and rows is not None for x in rows.flat)
    for entry in entries:
        if not is_real(entry):
            raise InvalidDistributionError(
                f"target and draft contain {shown(entry)}; arrays of objects must contain fractions"
            )
    wrong = {_type(array) for array in tokens} - INTEGERS
    if wrong:
        raise InvalidDraftsError(
            f"tokens or offsets are of type {', '.join(sorted(wrong))}; allowed are "
            f"{', '.join(sorted(INTEGERS))}"
        )
    if _type(uniforms) != "float64" and not exact:
        raise InvalidUniformsError(
            f"uniforms are of type {_type(uniforms)}; draw them as float64: 24 bits cannot locate "
            "a token in a large vocabulary"
        )


def check_temperature(library: ModuleType, temperature: Any, batch: int) -> Any:
    """Check the temperatures, and return them as an array [B]."""
    number = is_real(temperature)
    if not number and type(temperature).__module__.partition(".")[0] != library.__name__:
        raise InvalidParameterError(
            f"the temperature is of type {type(temperature).__name__}; give a number, or an array "
            f"of {library.__name__} with one number for each of the {batch} sequences"
        )
    try:
        values = library.asarray(float(temperature) if number else temperature)
    except OverflowError:  # an integer larger than all floats
        values = library.asarray(INFINITY)
    if not _type(values).startswith(("float", "bfloat", "int", "uint")):
        raise InvalidParameterError(
            f"temperatures are of type {_type(values)}; they must be floats or integers"
        )
    if tuple(values.shape) not in ((), (batch,)):
        raise InvalidParameterError(
            f"temperatures have shape {tuple(values.shape)}; give one number, or one for each of "
            f"the {batch} sequences"
        )
    values = to_host(values)
    if not ((values >= 0) & (values < INFINITY)).all():
        raise InvalidParameterError("every temperature must be a finite number of at least 0")
    return np.broadcast_to(values, (batch,))


Faults = list[tuple[npt.NDArray[np.bool_], str]]
"""Pairs of a mask of invalid rows [...] and the reason why they are invalid."""


def faults_of_probs(library: ModuleType, rows: Any, kind: str = "") -> Faults:
    """Find rows [..., V] that are not distributions; return the invalid rows with the reasons.

    A sum may differ from one by the tolerance of the type `kind`, by default the type of the rows.
    """
    kind = kind or _type(rows)
    remedy = "(logits go to verify_logits)"
    wide = library.float64 if _type(rows) == "float64" else library.float32
    with np.errstate(invalid="ignore", over="ignore"):  # unused rows may contain NaN
        least = _over_tokens("min", rows)
        total = to_host(rows.sum(-1) if kind == "object" else rows.sum(-1, dtype=wide))
        none = ~((least >= 0) & (total < INFINITY))
        allowed = 0.0 if kind == "object" else sum_tolerance(kind, rows.shape[-1])
        off = ~(abs(total - 1) <= allowed)
    tolerance = f"{allowed:g}, the tolerance of {kind}"
    return [
        (none, f"holds NaN, ∞ or less than 0 {remedy}"),
        (off, f"does not sum to one within {tolerance} {remedy}"),
    ]


def _faults_of_lists(draft: SparseDrafts[Any], size: int) -> Faults:
    """Find lists [..., m] that are not distributions on tokens below `size`."""
    tokens = to_host(draft.tokens)
    ordered = np.sort(tokens, axis=-1)
    twice = ((ordered[..., 1:] == ordered[..., :-1]) & (ordered[..., 1:] >= 0)).any(-1)
    outside = ((tokens < -1) | (tokens >= size)).any(-1)
    listed = np.where(tokens < 0, 0, to_host(draft.probs))
    return [
        (outside, f"lists tokens outside [0, {size}) that are not −1, for padding"),
        (twice, "lists a token twice"),
        *faults_of_probs(np, listed, _type(draft.probs)),
    ]


def faults_of_logits(library: ModuleType, rows: Any) -> Faults:
    """Find rows [..., V] of logits that have no softmax."""
    largest = _over_tokens("max", rows)
    return [(~(largest < INFINITY), "holds NaN or +∞"), (largest == -INFINITY, "is −∞ everywhere")]


def _over_tokens(name: str, rows: Any) -> npt.NDArray[Any]:
    """Return the "min" or "max" of each row [..., V], or NaN if the row contains one."""
    reduce = getattr(rows, name if isinstance(rows, np.ndarray) else f"a{name}")
    with np.errstate(invalid="ignore"):
        reduced: npt.NDArray[Any] = to_host(reduce(-1))
    return reduced


def _raise_first_fault(
    faults: Faults, used: npt.NDArray[np.bool_], places: npt.NDArray[Any], names: Sequence[str]
) -> None:
    """Raise for the first row that is both invalid and used; `places` [C, R] index all rows."""
    for wrong, what in faults:
        faulty = wrong.ravel()[places] & used
        if faulty.any():
            chain, step = _first(faulty)
            raise InvalidDistributionError(f"{names[step]} of chain {chain}, {what}")


def _first(wrong: npt.NDArray[np.bool_]) -> tuple[int, int]:
    chain, step = divmod(int(wrong.argmax()), wrong.shape[1])
    return chain, step


def _type(array: Any) -> str:
    return _name(array.dtype)


@cache
def _name(dtype: Any) -> str:
    """Return the name of a type; it is cached because NumPy converts types to names slowly."""
    return str(dtype).removeprefix("torch.")
