"""What the verifiers refuse, for NumPy arrays and torch tensors alike.

To look at the numbers is a pass over all of them and, on a GPU, a wait for it; on a hot path the
verifiers are therefore told not to.
"""

from __future__ import annotations

from types import ModuleType
from typing import Any

import numpy as np

from otm.errors import (
    InvalidDistributionError,
    InvalidDraftsError,
    InvalidInputError,
    InvalidParameterError,
    InvalidUniformsError,
)

__all__ = ["check_chain", "check_temperature"]

SUM_TOLERANCE = {
    "float16": 1e-2,
    "bfloat16": 1e-2,
    "float32": 1e-4,
    "float64": 1e-6,
    "object": 0.0,  # fractions, NumPy only
}
"""Types of laws, and how far a law may sum from one."""

INTEGERS = {"int32", "int64"}
FLOATS = {"float16", "bfloat16", "float32", "float64"}
INFINITY = float("inf")


def check_chain(
    library: ModuleType,
    target: Any,
    draft: Any,
    tokens: Any,
    uniforms: Any,
    *,
    logits: bool = False,
    temperature: Any = 1.0,
) -> None:
    """Check all arguments of a verifier of chains.

    Parameters
    ----------
    library : module
        numpy or torch: whose arrays they must be.
    target, draft, tokens, uniforms
        The arguments of `verify_chain`, or for logits of `verify_chain_from_logits`.
    logits : bool, optional
        Whether target and draft hold logits and not probabilities.
    temperature : float or array [B], optional
        The temperature of the logits.

    Raises
    ------
    InvalidDistributionError, InvalidDraftsError, InvalidUniformsError, InvalidParameterError
        For the argument that is wrong; the first of these that is found.
    InvalidInputError
        If the arguments are not arrays of one library on one device.
    """
    kind = library.ndarray if library.__name__ == "numpy" else library.Tensor
    arrays = {"target": target, "draft": draft, "draft_tokens": tokens, "uniforms": uniforms}
    given = {name: array for name, array in arrays.items() if array is not None}
    for name, array in given.items():
        if not isinstance(array, kind):
            raise InvalidInputError(
                f"{name} is a {type(array).__name__}; this verifier takes {kind.__name__}s of "
                f"{library.__name__} (NumPy arrays go to otm.kernels.definition, tensors to "
                "otm.kernels.reference)"
            )
    if isinstance(temperature, kind):
        given["temperature"] = temperature
    devices = {name: str(getattr(array, "device", "cpu")) for name, array in given.items()}
    if len(set(devices.values())) > 1:
        raise InvalidInputError(f"the arguments are on different devices: {devices}; move them")

    _check_shapes(target, draft, tokens, uniforms)
    _check_types(target, draft, tokens, uniforms, logits=logits)
    batch, gamma = tokens.shape
    size = (target if draft is None else draft).shape[2]
    if batch == 0:
        return
    if gamma and not bool(((tokens >= -1) & (tokens < size)).all()):
        raise InvalidDraftsError(
            f"draft tokens must lie in [0, {size}), the draft model's vocabulary, or be −1 beyond "
            f"the end of a chain; given are {int(tokens.min())} to {int(tokens.max())}"
        )
    if not bool(((uniforms >= 0) & (uniforms < 1)).all()):
        raise InvalidUniformsError("every uniform must lie in [0, 1), which excludes NaN and 1")

    live = (tokens >= 0).cumprod(1) > 0
    if not logits:
        _check_laws(library, target[:, :1], None, "the target's first row")
        _check_laws(library, target[:, 1:], live, "the target's row after draft")
        if draft is not None:
            _check_laws(library, draft, live, "the law of draft")
            _check_possible(library, draft > 0, tokens, live)
        return
    heat = check_temperature(library, temperature, batch)
    _check_logits(target[:, :1], None, "the target's first row")
    _check_logits(target[:, 1:], live, "the target's row after draft")
    if draft is not None:
        live = live & (heat > 0)  # a greedy draft is one-hot, whatever its logits
        _check_logits(draft, live, "the logits of draft")
        _check_possible(library, draft > -INFINITY, tokens, live)


def _check_shapes(target: Any, draft: Any, tokens: Any, uniforms: Any) -> None:
    if tokens.ndim != 2:
        raise InvalidDraftsError(
            f"draft_tokens of shape {tuple(tokens.shape)}; the shape must be [B, γ]"
        )
    batch, gamma = tokens.shape
    if target.ndim != 3 or target.shape[:2] != (batch, gamma + 1) or target.shape[2] == 0:
        raise InvalidDistributionError(
            f"the target has shape {tuple(target.shape)}; for draft tokens of shape "
            f"{(batch, gamma)} it must be {(batch, gamma + 1)} and the vocabulary: one row more "
            "than drafts, for the bonus token"
        )
    size = target.shape[2]
    if draft is not None and (
        draft.ndim != 3 or draft.shape[:2] != (batch, gamma) or not 0 < draft.shape[2] <= size
    ):
        raise InvalidDistributionError(
            f"the draft has shape {tuple(draft.shape)}; it must be {(batch, gamma)} and a "
            f"vocabulary of at most the target's {size} tokens (cut off what the target lacks, "
            "before sampling from it)"
        )
    if tuple(uniforms.shape) != (batch, gamma + 2):
        raise InvalidUniformsError(
            f"uniforms of shape {tuple(uniforms.shape)}; draft tokens of shape {(batch, gamma)} "
            f"need {(batch, gamma + 2)}: a coin a draft, one for the residual, one for the bonus"
        )


def _check_types(target: Any, draft: Any, tokens: Any, uniforms: Any, *, logits: bool) -> None:
    allowed = FLOATS if logits else set(SUM_TOLERANCE)
    given = {_type(array) for array in (target, draft) if array is not None}
    if not given <= allowed or ("object" in given and len(given) > 1):
        raise InvalidDistributionError(
            f"the laws are given as {', '.join(sorted(given))}; allowed are "
            f"{', '.join(sorted(FLOATS))}, and fractions if both are and the arrays are NumPy's"
        )
    if _type(tokens) not in INTEGERS:
        raise InvalidDraftsError(
            f"draft_tokens of type {_type(tokens)}; allowed are {', '.join(sorted(INTEGERS))}"
        )
    if _type(uniforms) != "float64" and given != {"object"}:
        raise InvalidUniformsError(
            f"uniforms of type {_type(uniforms)}; they must be drawn as float64: 24 bits are too "
            "few to locate a token in a large vocabulary"
        )


def check_temperature(library: ModuleType, temperature: Any, batch: int) -> Any:
    """Check the temperatures, and return them as a number or as an array [B, 1]."""
    number = isinstance(temperature, int | float) and not isinstance(temperature, bool)
    if not number and type(temperature).__module__.partition(".")[0] != library.__name__:
        raise InvalidParameterError(
            f"a temperature of type {type(temperature).__name__}; give a number, or an array of "
            f"{library.__name__} with one for each of the {batch} sequences"
        )
    try:
        heat = library.asarray(float(temperature) if number else temperature)
    except OverflowError:  # an integer beyond all floats
        heat = library.asarray(INFINITY)
    if not _type(heat).startswith(("float", "bfloat", "int", "uint")):
        raise InvalidParameterError(
            f"temperatures of type {_type(heat)}; they must be floats or integers"
        )
    if tuple(heat.shape) not in ((), (batch,)):
        raise InvalidParameterError(
            f"temperatures of shape {tuple(heat.shape)}; give one number, or one for each of the "
            f"{batch} sequences"
        )
    if not bool(((heat >= 0) & (heat < INFINITY)).all()):
        raise InvalidParameterError("every temperature must be a finite number of at least 0")
    return heat[:, None] if heat.ndim else float(heat)


def _check_laws(library: ModuleType, rows: Any, used: Any, name: str) -> None:
    """Refuse rows [B, R, V] that are used but no laws."""
    _refuse(~((rows >= 0) & (rows < INFINITY)).all(-1), used, name, "holds NaN, ∞ or less than 0")
    given = _type(rows)
    with np.errstate(invalid="ignore"):  # in rows that are not used
        total = rows.sum(-1) if given == "object" else rows.sum(-1, dtype=library.float64)
        wrong = abs(total - 1) > SUM_TOLERANCE[given]
    _refuse(
        wrong,
        used,
        name,
        f"does not sum to one within {SUM_TOLERANCE[given]:g}, the tolerance of {given} (logits go "
        "to verify_chain_from_logits)",
    )


def _check_logits(rows: Any, used: Any, name: str) -> None:
    """Refuse rows [B, R, V] of logits that are used but have no softmax."""
    _refuse(~(rows < INFINITY).all(-1), used, name, "holds NaN or +∞")
    _refuse((rows == -INFINITY).all(-1), used, name, "is −∞ everywhere")


def _check_possible(library: ModuleType, possible: Any, tokens: Any, live: Any) -> None:
    """Refuse drafts that their law cannot give: possible [B, γ, V'], tokens and live [B, γ]."""
    chains, steps = library.arange(tokens.shape[0])[:, None], library.arange(tokens.shape[1])
    wrong = live & ~possible[chains, steps, tokens.clip(0)]
    if bool(wrong.any()):
        chain, step = _first(wrong)
        raise InvalidDraftsError(
            f"draft {step} of chain {chain} is token {int(tokens[chain, step])}, which has "
            "probability 0 under its draft law and cannot have been drawn from it; pass the laws "
            "that the drafts were really sampled from"
        )


def _refuse(wrong: Any, used: Any, name: str, what: str) -> None:
    if used is not None:
        wrong = wrong & used
    if bool(wrong.any()):
        chain, step = _first(wrong)
        raise InvalidDistributionError(f"{name}, number {step} of chain {chain}, {what}")


def _first(wrong: Any) -> tuple[int, int]:
    chain, step = divmod(wrong.reshape(-1).tolist().index(True), wrong.shape[1])
    return chain, step


def _type(array: Any) -> str:
    return str(array.dtype).removeprefix("torch.")
