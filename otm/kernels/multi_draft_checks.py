"""What the verifiers of several chains refuse, for NumPy arrays and torch tensors alike."""

from __future__ import annotations

from types import ModuleType
from typing import Any

from otm._core.numbers import check_name
from otm.errors import (
    InvalidDistributionError,
    InvalidDraftsError,
    InvalidInputError,
    InvalidUniformsError,
)
from otm.kernels.checks import check_chain, check_temperature

__all__ = ["RULES", "check_drafts", "coins_of"]

RULES = {"k-seq": (1, 0), "levels": (2, 1)}
"""Uniforms that a rule takes at a position: for each chain, and for all of them."""


def coins_of(rule: str, count: int) -> int:
    """Count the uniforms that a rule takes at a position of K chains."""
    check_name("rule", rule, RULES)
    for_each, for_all = RULES[rule]
    return for_each * count + for_all


def check_drafts(
    library: ModuleType,
    target: Any,
    draft: Any,
    tokens: Any,
    uniforms: Any,
    *,
    rule: str = "k-seq",
    logits: bool = False,
    temperature: Any = 1.0,
) -> None:
    """Check all arguments of a verifier of K chains for each of B sequences.

    Chains are counted through in what is said about one: chain bK + c is chain c of sequence b.

    Parameters
    ----------
    library : module
        numpy or torch: whose arrays they must be.
    target, draft, tokens, uniforms, rule
        The arguments of `verify_drafts`, or for logits of `verify_drafts_from_logits`.
    logits : bool, optional
        Whether target and draft hold logits and not probabilities.
    temperature : float or array [B], optional
        The temperature of the logits, for each sequence.

    Raises
    ------
    InvalidDistributionError, InvalidDraftsError, InvalidUniformsError, InvalidParameterError
        For the argument that is wrong; the first of these that is found.
    InvalidInputError
        If the arguments are not arrays of one library on one device.
    """
    kind = library.ndarray if library.__name__ == "numpy" else library.Tensor
    given = {"target": target, "draft": draft, "draft_tokens": tokens, "uniforms": uniforms}
    for name, array in given.items():
        if not isinstance(array, kind):
            raise InvalidInputError(
                f"{name} is a {type(array).__name__}; this verifier takes {kind.__name__}s of "
                f"{library.__name__} (several chains must have been drawn from laws: there is no "
                "one-hot form)"
            )
    if tokens.ndim != 3 or tokens.shape[1] == 0:
        raise InvalidDraftsError(
            f"draft_tokens of shape {tuple(tokens.shape)}; the shape must be [B, K, γ] with K ≥ 1"
        )
    batch, count, gamma = tokens.shape
    for name, array, rows in (("target", target, gamma + 1), ("draft", draft, gamma)):
        if array.ndim != 4 or tuple(array.shape[:3]) != (batch, count, rows):
            raise InvalidDistributionError(
                f"the {name} has shape {tuple(array.shape)}; for draft tokens of shape "
                f"{(batch, count, gamma)} it must be {(batch, count, rows)} and the vocabulary"
            )
    needed = gamma * coins_of(rule, count) + 2
    if tuple(uniforms.shape) != (batch, needed):
        raise InvalidUniformsError(
            f"uniforms of shape {tuple(uniforms.shape)}; draft tokens of shape "
            f"{(batch, count, gamma)} need {(batch, needed)} by the rule {rule!r}: its coins for "
            "each position, one for the residual, one for the bonus"
        )
    if not bool(((uniforms >= 0) & (uniforms < 1)).all()):
        raise InvalidUniformsError("every uniform must lie in [0, 1), which excludes NaN and 1")
    # for each chain the uniforms of its sequence stand in, as many as one chain takes
    owners = library.arange(batch * count) // count
    target, draft, tokens = (
        x.reshape(batch * count, *x.shape[2:]) for x in (target, draft, tokens)
    )
    if logits:
        check_temperature(library, temperature, batch)
        if isinstance(temperature, kind) and temperature.ndim:
            temperature = temperature[owners]
    coins = uniforms[owners, : gamma + 2]
    check_chain(library, target, draft, tokens, coins, logits=logits, temperature=temperature)
