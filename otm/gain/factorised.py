"""The best drafts of a model that does not see what it has drafted before.

Heads, diffusion and n-grams of several distances draft all tokens of a step at once: the i-th from
one distribution d, whatever the tokens before it.  The target's distribution T(·|y) depends on
these, y.  With weights w(y), the probability that they are y and accepted, the i-th is accepted
with probability

    Σ_y w(y) Σ_v min(d(v), T(v|y)),

which is concave in d.  It gains Pr_w(T(v|y) > d(v)) from more mass at v, and is largest where that
is the same for all v: d(v) is a quantile of T(v|y) over y, of one level for all v, at which the
quantiles sum to one (docs/theory/factorised.md, Theorem 21.1).  The marginal, from which sampled
drafts are drawn, is the mean of T(v|y) in its place.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from otm._core.arithmetic import Probs, is_exact, zeros
from otm._core.checks import as_array
from otm._core.display.text import shown
from otm._core.numbers import is_real
from otm._core.probs.distribution import as_probs, to_floats
from otm.errors import InvalidInputError


def common_draft(target_probs: Any, weights: Any = None) -> Probs:
    """Find the one distribution to draft from at several contexts that is accepted most.

    Parameters
    ----------
    target_probs : array-like [N, V]
        The target's distribution at each context.
    weights : array-like [N], optional
        How likely each context is, up to a factor; equally likely ones if left out.

    Returns
    -------
    array [V]
        The distribution d with the largest Σ_n w_n Σ_v min(d(v), T_n(v)); of several the one that
        gives most to the first tokens.  In fractions if the rows are.

    Raises
    ------
    InvalidDistributionError
        If a row is no distribution.
    InvalidInputError
        If there is no row, or the weights are not as many, negative or all zero.

    Examples
    --------
    One context is a little likelier than the other; its mean serves neither:

    >>> rows, weights = [[0.9, 0.1], [0.1, 0.9]], [0.6, 0.4]
    >>> common_draft(rows, weights)
    array([0.9, 0.1])
    >>> for d in (common_draft(rows, weights), np.average(rows, 0, weights)):
    ...     print(np.average(np.minimum(d, rows).sum(1), weights=weights).round(3))
    0.68
    0.616
    """
    rows = _as_rows(target_probs)
    w = _as_weights(weights, rows)
    order = np.argsort(-rows, axis=0, kind="stable")
    sizes = np.take_along_axis(rows, order, 0)
    # between the j-th largest of a token and the next, as many contexts as j gain from more mass
    lengths = sizes.copy()
    lengths[:-1] -= sizes[1:]
    gains = np.cumsum(w[order], axis=0)
    flat = np.argsort(-gains.T.ravel(), kind="stable")  # tokens first, in their order
    taken = lengths.T.ravel()[flat]
    ends = np.cumsum(taken)
    last = int(np.searchsorted(ends, 1 + 0 * ends[-1])) if ends[-1] >= 1 else flat.size - 1
    if ends[last] > 1:
        taken[last] -= ends[last] - 1
    draft = zeros(rows.shape[1], rows)
    np.add.at(draft, flat[: last + 1] // len(rows), taken[: last + 1])
    return draft if is_exact(draft) else draft / draft.sum()


def factorised_draft(target_probs: Any, tokens: Any) -> list[Probs]:
    """Find the distributions to draft each token of a step from, without the tokens before it.

    The first is the target's own; each later one is `common_draft` of what the target has after
    texts that it drew itself, weighted by the probability that chain verification gets so far.

    Parameters
    ----------
    target_probs : array-like [N, L, V]
        The target's distribution for each token of N texts that it drew after one context.
    tokens : int array-like [N, L]
        The texts.

    Returns
    -------
    list of L arrays [V]
        A distribution for each token.

    Raises
    ------
    InvalidDistributionError
        If a row is no distribution.
    InvalidInputError
        If these are no rows and texts of one length, or a text has a token of probability 0.

    Notes
    -----
    Each depth is the best after those before it, not all together: an earlier one that gives up
    some of its own acceptance for later ones could gain more.

    Examples
    --------
    The second token follows from the first, which is 0 more often than not:

    >>> after = {0: [0.8, 0.2], 1: [0.2, 0.8]}
    >>> texts = [[0, 0]] * 6 + [[1, 1]] * 4
    >>> rows = [[[0.6, 0.4], after[first]] for first, _ in texts]
    >>> [d.round(3).tolist() for d in factorised_draft(rows, texts)]
    [[0.6, 0.4], [0.8, 0.2]]
    """
    ids = as_array(tokens, "tokens", InvalidInputError)
    rows = as_array(target_probs, "distributions", InvalidInputError)
    if rows.ndim != 3 or ids.shape != rows.shape[:2] or not rows.size or ids.dtype.kind not in "iu":
        raise InvalidInputError(
            f"distributions of shape {rows.shape} for tokens of shape {ids.shape}; give "
            "[N, L, V] and whole numbers [N, L]"
        )
    if ids.min() < 0 or ids.max() >= rows.shape[2]:
        raise InvalidInputError(f"tokens must be from 0 to {rows.shape[2] - 1}")
    drafts = []
    weights = zeros(len(rows), rows[0, 0]) + 1
    for i in range(rows.shape[1]):
        here, drawn = _as_rows(rows[:, i]), ids[:, i]
        of_target = here[np.arange(len(here)), drawn]
        if not (of_target > 0).all():
            raise InvalidInputError(
                "a text has a token that its distribution cannot give; draw texts from these"
            )
        drafts.append(common_draft(here, weights if weights.any() else None))
        ratios = drafts[-1][drawn] / of_target
        weights = weights * np.minimum(ratios, 1 + 0 * ratios)
    return drafts


def _as_rows(values: Any) -> npt.NDArray[Any]:
    """Check distributions [N, V], of one kind of number."""
    given = as_array(values, "distributions", InvalidInputError)
    if given.ndim != 2 or not given.size:
        raise InvalidInputError(
            f"distributions of shape {given.shape}; give an array [N, V], a row for each context"
        )
    rows = [as_probs(row, f"row {n}") for n, row in enumerate(given)]
    if not all(map(is_exact, rows)):
        rows = list(map(to_floats, rows))
    return np.stack(rows)


def _as_weights(weights: Any, rows: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Check weights [N], and divide them by the largest."""
    if weights is None:
        return zeros(len(rows), rows[0]) + 1
    given = as_array(weights, "weights", InvalidInputError)
    if given.dtype.kind not in "fiu" and not (given.size and all(map(is_real, given.flat))):
        raise InvalidInputError(f"weights {shown(weights)}; give numbers")
    floats = given.astype(np.float64)
    if given.shape != rows.shape[:1] or not (np.isfinite(floats) & (floats >= 0)).all():
        raise InvalidInputError(
            f"weights {shown(weights)} for {len(rows)} contexts; give a finite one of at least 0 "
            "for each"
        )
    if not floats.any():
        raise InvalidInputError("all weights are 0; one context must count")
    scaled: npt.NDArray[Any] = given / given.max()
    return scaled
