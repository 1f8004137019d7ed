"""What the verifiers of several chains refuse, for NumPy arrays and torch tensors alike."""

from __future__ import annotations

from types import ModuleType
from typing import Any

from otm.errors import InvalidDraftsError, InvalidInputError, InvalidLawError, InvalidUniformsError
from otm.kernels.checks import check_chain

__all__ = ["check_drafts"]


def check_drafts(library: ModuleType, target: Any, draft: Any, tokens: Any, uniforms: Any) -> None:
    """Check all arguments of a verifier of K chains for each of B sequences.

    Chains are counted through in what is said about one: chain bK + c is chain c of sequence b.

    Parameters
    ----------
    library : module
        numpy or torch: whose arrays they must be.
    target, draft, tokens, uniforms
        The arguments of `verify_drafts`.

    Raises
    ------
    InvalidLawError, InvalidDraftsError, InvalidUniformsError
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
            raise InvalidLawError(
                f"the {name} has shape {tuple(array.shape)}; for draft tokens of shape "
                f"{(batch, count, gamma)} it must be {(batch, count, rows)} and the vocabulary"
            )
    needed = gamma * count + 2
    if tuple(uniforms.shape) != (batch, needed):
        raise InvalidUniformsError(
            f"uniforms of shape {tuple(uniforms.shape)}; draft tokens of shape "
            f"{(batch, count, gamma)} need {(batch, needed)}: a coin for each draft, one for the "
            "residual, one for the bonus"
        )
    if not bool(((uniforms >= 0) & (uniforms < 1)).all()):
        raise InvalidUniformsError("every uniform must lie in [0, 1), which excludes NaN and 1")
    chains = [array.reshape(batch * count, *array.shape[2:]) for array in (target, draft, tokens)]
    # the ranges of uniforms have been seen to; any two of a row stand in for those of a chain
    of_chains = uniforms[:, None, :1].repeat(count, 1) if library.__name__ == "numpy" else None
    if of_chains is None:
        of_chains = uniforms[:, None, :1].repeat_interleave(count, 1)
    of_chains = of_chains.reshape(batch * count, 1)
    wide = [of_chains] * (gamma + 2)
    check_chain(library, *chains, library.concatenate(wide, 1))
