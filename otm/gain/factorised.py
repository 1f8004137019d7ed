"""Optimal drafts for a model that does not see its earlier drafts.

Heads, diffusion models and n-grams over several distances draft all tokens of a step at once. Token
i comes from one distribution d that does not depend on the earlier tokens y, while the target's
distribution T(·|y) depends on y. Let w(y) be the probability that y is drafted and accepted. Then
token i is accepted with probability

    Σ_y w(y) Σ_v min(d(v), T(v|y)),

which is concave in d. The derivative of this sum with respect to d(v) is Pr_w(T(v|y) > d(v)). At
the maximum, the derivative with respect to d(v) is equal for all v. So d(v) is a quantile of T(v|y)
over y, and all v share the level at which these quantiles sum to one (docs/theory/factorised.md,
Theorem 21.1). Usual drafters sample from the marginal, which has the mean of T(v|y) in place of the
quantile.
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
    """Find the one draft distribution with the highest acceptance over several contexts.

    Parameters
    ----------
    target_probs : array-like [N, V]
        The target's distribution at each context.
    weights : array-like [N], optional
        Probability of each context, up to a common factor; equal if omitted.

    Returns
    -------
    array [V]
        The distribution d with the largest Σ_n w_n Σ_v min(d(v), T_n(v)). If several distributions
        are optimal, the result prefers tokens with lower ids. The result has fractions if the rows
        have fractions.

    Raises
    ------
    InvalidDistributionError
        If a row is not a distribution.
    InvalidInputError
        If there are no rows, or the weights are negative, all zero, or not one per row.

    Examples
    --------
    The first context is slightly more probable. The mean of the two rows is accepted less often:

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
    # an interval between the j-th and (j+1)-th largest probability of a token gains j contexts
    lengths = sizes.copy()
    lengths[:-1] -= sizes[1:]
    gains = np.cumsum(w[order], axis=0)
    # a stable sort keeps the order of the tokens among equal gains
    flat = np.argsort(-gains.T.ravel(), kind="stable")
    taken = lengths.T.ravel()[flat]
    ends = np.cumsum(taken)
    last = int(np.searchsorted(ends, 1 + 0 * ends[-1])) if ends[-1] >= 1 else flat.size - 1
    if ends[last] > 1:
        taken[last] -= ends[last] - 1
    draft = zeros(rows.shape[1], rows)
    np.add.at(draft, flat[: last + 1] // len(rows), taken[: last + 1])
    return draft if is_exact(draft) else draft / draft.sum()


def factorised_draft(target_probs: Any, tokens: Any) -> list[Probs]:
    """For each token of a step, find a draft distribution that ignores the step's earlier tokens.

    The first distribution is the target's own. Each later distribution is the `common_draft` of the
    target's distributions after texts that the target sampled. The weight of a text is the
    probability that chain verification reaches it.

    Parameters
    ----------
    target_probs : array-like [N, L, V]
        The target's distribution for each token of N texts, which it sampled after one context.
    tokens : int array-like [N, L]
        The texts.

    Returns
    -------
    list of L arrays [V]
        One distribution per token of the step.

    Raises
    ------
    InvalidDistributionError
        If a row is not a distribution.
    InvalidInputError
        If the shapes are not [N, L, V] and [N, L], or a text has a token of probability 0.

    Notes
    -----
    The distribution of each depth is optimal, given the distributions of the earlier depths. The
    distributions may not be optimal jointly: a lower acceptance at an earlier depth could raise the
    acceptance at later depths by more.

    Examples
    --------
    The second token follows from the first, which is 0 in six of ten texts:

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
            "[N, L, V] and integers [N, L]"
        )
    if ids.min() < 0 or ids.max() >= rows.shape[2]:
        raise InvalidInputError(f"tokens must be from 0 to {rows.shape[2] - 1}")
    drafts = []
    weights = zeros(len(rows), rows[0, 0]) + 1
    for i in range(rows.shape[1]):
        here, sampled = _as_rows(rows[:, i]), ids[:, i]
        of_target = here[np.arange(len(here)), sampled]
        if not (of_target > 0).all():
            raise InvalidInputError(
                "a text has a token with probability 0; sample texts from these distributions"
            )
        drafts.append(common_draft(here, weights if weights.any() else None))
        ratios = drafts[-1][sampled] / of_target
        weights = weights * np.minimum(ratios, 1 + 0 * ratios)
    return drafts


def _as_rows(values: Any) -> npt.NDArray[Any]:
    """Check distributions [N, V], and convert them to one kind of number."""
    given = as_array(values, "distributions", InvalidInputError)
    if given.ndim != 2 or not given.size:
        raise InvalidInputError(
            f"distributions of shape {given.shape}; give an array [N, V], one row per context"
        )
    rows = [as_probs(row, f"row {n}") for n, row in enumerate(given)]
    if not all(map(is_exact, rows)):
        rows = list(map(to_floats, rows))
    return np.stack(rows)


def _as_weights(weights: Any, rows: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Check weights [N], and divide them by the largest weight."""
    if weights is None:
        return zeros(len(rows), rows[0]) + 1
    given = as_array(weights, "weights", InvalidInputError)
    if given.dtype.kind not in "fiu" and not (given.size and all(map(is_real, given.flat))):
        raise InvalidInputError(f"weights {shown(weights)}; give numbers")
    floats = given.astype(np.float64)
    if given.shape != rows.shape[:1] or not (np.isfinite(floats) & (floats >= 0)).all():
        raise InvalidInputError(
            f"weights {shown(weights)} for {len(rows)} contexts; give one finite number of at "
            "least 0 per context"
        )
    if not floats.any():
        raise InvalidInputError("all weights are 0; give at least one positive weight")
    scaled: npt.NDArray[Any] = given / given.max()
    return scaled
