"""Checks of what a selection is given: drafts and uniforms."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt

from otm.errors import InvalidDraftsError, InvalidInputError, InvalidUniformsError
from otm.problem import MembershipProblem

__all__ = ["Drafts", "Uniforms", "check_drafts", "check_uniforms"]

Drafts = npt.NDArray[np.int64]
Uniforms = npt.NDArray[Any]


def check_drafts(problem: MembershipProblem, drafts: npt.ArrayLike) -> Drafts:
    """Return drafts [..., k] as an integer array.

    Raises
    ------
    InvalidDraftsError
        If they have a wrong shape or type, lie outside the vocabulary, or have probability zero
        under the draft law.
    """
    array = _as_array(drafts, "the drafts", InvalidDraftsError)
    if array.ndim == 0 or array.shape[-1] != problem.k:
        raise InvalidDraftsError(
            f"drafts of shape {array.shape}; the last axis must hold the k = {problem.k} drafts of "
            "one selection"
        )
    if array.dtype.kind not in "iu":
        raise InvalidDraftsError(
            f"drafts of type {array.dtype}; draft tokens must be integers in [0, {problem.n})"
        )
    if array.size and not (0 <= array.min() and array.max() < problem.n):
        bad = array[(array < 0) | (array >= problem.n)].flat[0]
        raise InvalidDraftsError(
            f"draft token {bad}; draft tokens must be integers in [0, {problem.n})"
        )
    array = array.astype(np.int64, copy=False)
    possible = problem.draft[array] > 0
    if not possible.all():
        raise InvalidDraftsError(
            f"draft token {array[~possible].flat[0]} has probability 0 under the draft law, so it "
            "cannot have been drawn from it; pass the law that the drafts were really sampled from"
        )
    return array


def check_uniforms(uniforms: npt.ArrayLike, shape: tuple[int, ...], exact: bool) -> Uniforms:
    """Return uniforms of a given shape as float64, or as fractions for an exact plan.

    Raises
    ------
    InvalidUniformsError
        If they have another shape or do not all lie in [0, 1).
    """
    array = _as_array(uniforms, "the uniforms", InvalidUniformsError)
    if array.shape != shape:
        raise InvalidUniformsError(
            f"uniforms of shape {array.shape}; these drafts need uniforms of shape {shape}, "
            "the last axis with plan.uniforms_per_selection of them"
        )
    try:
        valid = array.dtype.kind in "fiuO" and bool(((array >= 0) & (array < 1)).all())
    except TypeError:  # objects that are no numbers
        valid = False
    if not valid:
        raise InvalidUniformsError("every uniform must be a number in [0, 1); NaN and 1 are not")
    if not exact:
        return array.astype(np.float64, copy=False)
    fractions = np.empty(array.size, dtype=object)
    fractions[:] = [
        Fraction(u) if isinstance(u, float | int) else u for u in array.ravel().tolist()
    ]
    return fractions.reshape(shape)


def _as_array(values: Any, name: str, error: type[InvalidInputError]) -> npt.NDArray[Any]:
    try:
        return np.asarray(values)
    except (RuntimeError, TypeError, ValueError) as reason:
        raise error(f"{name} are not array-like ({reason}); give an array") from reason
