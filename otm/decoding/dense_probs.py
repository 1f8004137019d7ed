"""From logits to laws over the whole vocabulary, in rows, for NumPy and torch alike."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from otm._core.checks import as_array, name_row
from otm._core.tensors import is_tensor, to_host
from otm.errors import InvalidDistributionError


def dense_probs(
    logits: Any,
    temperature: float,
    top_k: int | None = None,
    top_p: float | None = None,
    min_p: float | None = None,
) -> Any:
    """Probs of `SamplingParameters` in float64, from logits of any type: [..., V] → [..., V].

    A tensor gives a tensor on its device, without gradient.
    """
    xp, scores = _as_float64(logits)
    highest = xp.amax(scores, -1, keepdims=True)  # NaN if the row has one
    _check_rows(highest)
    if temperature == 0:
        largest = scores == highest
        first = largest & (xp.cumsum(largest, -1) == 1)
        return first * xp.ones_like(highest)

    def weigh(scores: Any) -> Any:
        """Laws times what makes their largest entry 1: subtracted first, nothing overflows."""
        with np.errstate(over="ignore"):  # to −∞, which is a weight of zero
            return xp.exp((scores - highest) / temperature)

    weights = weigh(scores)
    if top_k is not None or top_p is not None:
        weights = weights * _most_likely(xp, scores, weigh, top_k, top_p)
    if min_p is not None:
        weights = weights * (weights >= min_p)  # the largest weight is 1
    return weights / weights.sum(-1)[..., None]


def _most_likely(
    xp: Any, scores: Any, weigh: Callable[[Any], Any], top_k: int | None, top_p: float | None
) -> Any:
    """Which tokens top-k and then top-p leave, as booleans.

    Logits are ranked, not weights, which tie where they are rounded or zero.  Top-p adds from the
    least likely token on, so that p near 1 is decided by the small sums.
    """
    ascending = xp.sort(scores) if xp is np else xp.sort(scores).values
    weights = weigh(ascending)
    if top_k is not None:
        weights[..., : max(weights.shape[-1] - top_k, 0)] = 0
    tail = xp.cumsum(weights, -1)  # mass of a token and of all that are less likely
    kept = tail > (1 - (1.0 if top_p is None else top_p)) * tail[..., -1:]
    kept[..., -1] = True  # also where p is lost in 1 − p
    least = xp.amin(xp.where(kept, ascending, xp.inf), -1, keepdims=True)
    above, ties = scores > least, scores == least
    places = (kept.sum(-1) - above.sum(-1))[..., None]
    return above | (ties & (xp.cumsum(ties, -1) <= places))


def _as_float64(logits: Any) -> tuple[Any, Any]:
    """Return the library that these logits belong to, and the logits in float64.

    What is used of the two libraries has the same names and meanings in both, except for `sort`.
    """
    xp: Any = np
    if is_tensor(logits):
        import torch

        xp = torch
        scores = logits.detach()
        number = not scores.is_complex() and scores.dtype != torch.bool
    else:
        scores = as_array(logits, "the logits", InvalidDistributionError)
        number = scores.dtype.kind in "fiu"
    if not number or scores.ndim == 0 or scores.shape[-1] == 0:
        raise InvalidDistributionError(
            f"logits of type {scores.dtype} and shape {tuple(scores.shape)}; they must be real "
            "numbers, one for each token along the last axis"
        )
    with np.errstate(over="ignore"):  # to infinity, which is refused by its row
        return xp, scores.astype(np.float64) if xp is np else scores.double()


def _check_rows(highest: Any) -> None:
    """Refuse a row whose largest logit [..., 1] is not finite."""
    largest = to_host(highest)[..., 0]
    if np.isfinite(largest).all():
        return
    row = tuple(int(i) for i in np.argwhere(~np.isfinite(largest))[0])
    found = {-np.inf: "nothing but −∞", np.inf: "+∞"}.get(float(largest[row]), "NaN")
    raise InvalidDistributionError(
        f"{name_row(row)}the logits have {found}; a law needs a finite logit, and beside it only "
        "finite ones and −∞"
    )
