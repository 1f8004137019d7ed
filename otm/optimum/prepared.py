"""Drafting while the target verifies: the best rules for prepared continuations.

A draft X has the distribution d, and the output Y must have the target's distribution t.  While the
target verifies X, the draft model prepares continuations of X followed by a few likely tokens, and
also continuations of likely replacements of X.  The outcome is a hit if X is rejected and its
replacement Y was prepared; the next step then needs no time for drafting ([kumar2026]_).

A rule can trade acceptance for hits.  The theorems are in docs/theory/prepared.md.

.. [kumar2026] Kumar, Dao and May, "Speculative Speculative Decoding", 2026.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from otm._core.arithmetic import Number, Probs, as_number, is_exact, zeros
from otm._core.checks import as_array
from otm._core.probs.distribution import as_probs_pair
from otm.errors import InvalidInputError, ProblemTooLargeError
from otm.optimum.replacement_flow import largest_flow

LARGEST_PREPARED = 50_000
"""Limit on the number of pairs of a rejected draft and a prepared replacement."""

LARGEST_TABLE = 2**24
"""Limit on the number of entries of a table of replacements."""


class Outcome(NamedTuple):
    """Probabilities of the two good outcomes of one verified draft.

    Attributes
    ----------
    acceptance : float or Fraction
        Probability that the output is the draft.
    hits : float or Fraction
        Probability that the output is not the draft, and was prepared.

    Examples
    --------
    >>> Outcome(acceptance=0.5, hits=0.25).acceptance
    0.5
    """

    acceptance: Number
    hits: Number


def prepared_corners(draft: Any, target: Any, prepared: Any) -> list[Outcome]:
    """Compute the trade between acceptance and hits, if one set serves all rejected drafts.

    The outcomes of lossless rules form a convex set.  Its frontier runs through at most three
    corners.  If a hit is worth λ accepted drafts, the first corner is best for λ ≤ 1, the second
    for 1 ≤ λ ≤ 2, and the last for λ ≥ 2 (docs/theory/prepared.md).

    Parameters
    ----------
    draft, target : array-like [n]
        Distribution d of the draft, and distribution t that the output must have.
    prepared : int array-like [F]
        The prepared tokens.  The continuation of the draft itself is never a hit.

    Returns
    -------
    list of Outcome
        The corners in order of decreasing acceptance.

    Raises
    ------
    InvalidDistributionError
        If an argument is not a distribution.
    InvalidInputError
        If a prepared token is not in the vocabulary.

    Examples
    --------
    A usual rule accepts half of the drafts.  A rule that rejects every prepared token gets more
    hits:

    >>> from fractions import Fraction as F
    >>> d, t = [F(1, 2), F(1, 4), F(1, 4), F(0)], [F(1, 4), F(1, 4), F(1, 4), F(1, 4)]
    >>> for outcome in prepared_corners(d, t, [0, 1]):
    ...     print(*outcome)
    3/4 0
    1/4 1/2
    """
    p, q = as_probs_pair(draft, target)
    inside = _as_set(prepared, p.size)
    least = np.minimum(p, q)
    usual = Outcome(as_number(least.sum()), as_number(np.maximum(q - p, 0 * q)[inside].sum()))
    none = 0 * usual.acceptance
    if not inside.any():
        return [usual]
    outside = as_number(least[~inside].sum()) if not inside.all() else none
    together = as_number((p + q)[inside].max())
    # X or Y is this token so often that it cannot be rejected whenever it is drafted
    forced = max(none, together - 1 + outside)
    given_up = min(forced, outside)
    mass = as_number(q[inside].sum())
    corners = [usual, Outcome(outside + forced, mass - forced)]
    corners.append(Outcome(outside + forced - 2 * given_up, mass - forced + given_up))
    return [x for i, x in enumerate(corners) if i == 0 or x.hits > corners[i - 1].hits]


def most_hits(draft: Any, target: Any, prepared: Any) -> Number:
    """Compute the most hits of any lossless rule with the largest acceptance.

    Usual rules draw the replacement from the residual max(t − d, 0), for every rejected draft.  If
    each draft has its own prepared tokens, a replacement that depends on the rejected draft has
    more hits.  No rule is better if a hit is worth at most half an accepted draft.

    Parameters
    ----------
    draft, target : array-like [n]
        Distribution d of the draft, and distribution t that the output must have.
    prepared : int array-like [F] or [n, F]
        The prepared tokens: one set, or the set of each rejected draft.  −1 pads a row.

    Returns
    -------
    float or Fraction
        Probability of a hit.

    Raises
    ------
    InvalidDistributionError
        If an argument is not a distribution.
    InvalidInputError
        If a prepared token is not in the vocabulary, or the shape of `prepared` is wrong.
    ProblemTooLargeError
        If there are more than 50,000 pairs of a rejected draft and its prepared token.

    Examples
    --------
    Draft 0 or 1 is rejected, and 2 or 3 replaces it.  One prepared token is enough for each draft:

    >>> d, t = [0.5, 0.5, 0, 0], [0.25, 0.25, 0.25, 0.25]
    >>> most_hits(d, t, [2]), most_hits(d, t, [[2], [3], [-1], [-1]])
    (0.25, 0.5)
    """
    p, q = as_probs_pair(draft, target)
    return as_number(sum(_hits(p, q, prepared).values(), 0 * p[0]))


def replacements(draft: Any, target: Any, prepared: Any) -> Probs:
    """Compute the distribution of the replacement of each rejected draft, with the most hits.

    A rule that accepts x with probability min(1, t(x)/d(x)), and otherwise draws Y from row x, is
    lossless and has the hits of `most_hits`.

    Parameters
    ----------
    draft, target, prepared
        As for `most_hits`.

    Returns
    -------
    array [n, n]
        Row x is the distribution of the replacement of x.  Rows of drafts that are never rejected
        are the residual distribution; if no draft is ever rejected, all rows are zero.

    Raises
    ------
    InvalidDistributionError, InvalidInputError
        As for `most_hits`.
    ProblemTooLargeError
        As for `most_hits`, and if n² exceeds 2^24.

    Examples
    --------
    >>> replacements([0.5, 0.5, 0, 0], [0.25] * 4, [[2], [3], [-1], [-1]])[:2]
    array([[0., 0., 1., 0.],
           [0., 0., 0., 1.]])
    """
    p, q = as_probs_pair(draft, target)
    if p.size**2 > LARGEST_TABLE:
        raise ProblemTooLargeError(
            f"a table of replacements of {p.size:,} tokens has more than {LARGEST_TABLE:,} "
            "entries; give distributions of fewer tokens"
        )
    flow = _hits(p, q, prepared)
    excess, residual = np.maximum(p - q, 0 * p), np.maximum(q - p, 0 * q)
    joint = zeros((p.size, p.size), p)
    for (rejected, token), amount in flow.items():
        joint[rejected, token] = amount
    # a part of the rejections has no hit, and takes the part of the residual that is left
    unserved, left = excess - joint.sum(1), residual - joint.sum(0)
    rest = unserved.sum()
    if rest > 0:
        joint += np.outer(np.maximum(unserved, 0 * p), np.maximum(left, 0 * p)) / rest
    sums, mass = joint.sum(1), residual.sum()
    usual = residual / mass if mass > 0 else residual
    return np.stack([
        row / row_sum if row_sum > 0 else usual for row, row_sum in zip(joint, sums, strict=True)
    ])  # fmt: skip


def _hits(p: Probs, q: Probs, prepared: Any) -> dict[tuple[int, int], Any]:
    """Find the largest flow from rejected drafts to their prepared replacements."""
    sets = _as_sets(prepared, p.size)
    excess, residual = np.maximum(p - q, 0 * p), np.maximum(q - p, 0 * q)
    edges = {}
    for x in np.flatnonzero(excess > 0).tolist():
        row = sets[0 if len(sets) == 1 else x]
        edges[x] = [y for y in dict.fromkeys(row.tolist()) if y >= 0 and residual[y] > 0]
    if sum(map(len, edges.values())) > LARGEST_PREPARED:
        raise ProblemTooLargeError(
            f"more than {LARGEST_PREPARED:,} pairs of a rejected draft and a prepared token; "
            "prepare fewer tokens, or give the distributions of likely tokens only"
        )
    return largest_flow(
        {x: excess[x] if is_exact(p) else float(excess[x]) for x in edges},
        {y: residual[y] for row in edges.values() for y in row},
        edges,
    )


def _as_sets(prepared: Any, n: int) -> npt.NDArray[np.int64]:
    """Check sets of prepared tokens: array [1, F] or [n, F]."""
    array = as_array(prepared, "prepared tokens", InvalidInputError)
    if array.size == 0:
        return np.full((1, 1), -1)
    sets = array[None] if array.ndim == 1 else array
    if array.dtype.kind not in "iu" or sets.ndim != 2 or (array.ndim == 2 and len(sets) != n):
        raise InvalidInputError(
            f"prepared tokens of shape {array.shape} and type {array.dtype}; give integers [F], "
            f"or one row for each of the {n} tokens, [{n}, F]"
        )
    if sets.min() < -1 or sets.max() >= n:
        raise InvalidInputError(
            f"prepared tokens from {sets.min()} to {sets.max()}; they must be from 0 to {n - 1}, "
            "and −1 pads a row"
        )
    return sets.astype(np.int64)


def _as_set(prepared: Any, n: int) -> npt.NDArray[np.bool_]:
    """Check one set of prepared tokens, and return it as a mask [n]."""
    sets = _as_sets(prepared, n)
    if len(sets) > 1:
        raise InvalidInputError(
            f"prepared tokens of shape {sets.shape}; the corners are known for one set [F] that "
            "serves all drafts. Use `most_hits` for a set per draft"
        )
    inside = np.zeros(n, dtype=np.bool_)
    inside[sets[0][sets[0] >= 0]] = True
    return inside
