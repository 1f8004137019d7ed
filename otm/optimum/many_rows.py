"""The optimal acceptance α_k of many pairs of distributions at once.

Each result equals that of `otm.optimum.cut.optimal_value`, bit for bit.  A loop over pairs would
be slower: here short rows share the overhead of NumPy calls, and each pair is sorted only once for
all numbers of drafts.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from otm._core.arithmetic import (
    Probs,
    at_least_once,
    is_exact,
    running_parts,
    split_parts,
    sum_excess,
)
from otm._core.checks import Counts, as_draft_counts, broadcast_counts
from otm._core.probs.distribution import as_probs_rows
from otm._core.ratios.bins import RatioBins, by_ratio, in_bins
from otm._core.ratios.keys import ratio_of
from otm.errors import InvalidDistributionError
from otm.optimum.cut import cut_in_bins

BLOCK = 2**15
"""Number of array entries in a block, which fits in the cache; a longer row is one block."""


def optimal_values(draft: Probs, target: Probs, k: npt.ArrayLike) -> Probs:
    """Compute the optimal acceptance probabilities α_k of many pairs.

    The distributions [..., n] must be normalised, and k at least 1.  All leading axes broadcast.
    Along axes that only k has, the distributions are neither copied nor sorted again.
    """
    return _by_blocks(draft, target, np.asarray(k, dtype=np.int64), lambda *leading: leading)


def alpha_rows(p: Any, q: Any, k: Any) -> Probs:
    """Check rows of distributions and compute α_k: `as_probs_rows`, then `optimal_values`."""
    counts = as_draft_counts(k)
    if _are_float_rows(p, q):
        # Each block is checked and normalised while it is in cache: a normalised copy of all rows
        # can take longer than all other steps together.
        try:
            return _by_blocks(p, q, counts, partial(as_probs_rows, keep=False))
        except InvalidDistributionError:
            pass  # The message counts rows within a block; the check below names the right row.
    return optimal_values(*as_probs_rows(p, q), counts)


def _are_float_rows(p: Any, q: Any) -> bool:
    """Whether both arguments are float arrays with matching shapes and can be checked in blocks."""
    if not all(
        isinstance(probs, np.ndarray) and probs.dtype.kind == "f" and probs.ndim for probs in (p, q)
    ):
        return False
    try:
        np.broadcast_shapes(p.shape, q.shape)
    except ValueError:
        return False
    return bool(p.shape[-1] == q.shape[-1] > 0)


def _by_blocks(
    draft: Probs,
    target: Probs,
    counts: Counts,
    prepare: Callable[[Probs, Probs], tuple[Probs, Probs]],
) -> Probs:
    """Compute `optimal_values` of arrays [..., n] in blocks [R, n], each passed to `prepare`."""
    leading = np.broadcast_shapes(draft.shape[:-1], target.shape[:-1])
    shape = broadcast_counts(leading, counts)
    axes, rows, columns = probs_axes(leading, shape)
    by_row = np.broadcast_to(counts, shape).transpose(axes).reshape(rows, columns)
    values = np.empty((rows, columns), dtype=object if is_exact(draft) else np.float64)

    leading = leading or (1,)  # One pair of distributions is one row.
    draft, target = (
        np.broadcast_to(probs, (*leading, probs.shape[-1])) for probs in (draft, target)
    )
    step = max(1, BLOCK // draft.shape[-1])
    for start in range(0, rows, step):
        block = slice(start, min(start + step, rows))
        if len(leading) == 1:  # A slice needs no copy.
            places: Any = block
        else:
            places = np.unravel_index(np.arange(start, block.stop), leading)
        _fill(values[block], *prepare(draft[places], target[places]), by_row[block])

    apart = [shape[axis] for axis in axes]
    return np.moveaxis(values.reshape(apart), range(len(axes)), axes)


def probs_axes(leading: tuple[int, ...], shape: tuple[int, ...]) -> tuple[list[int], int, int]:
    """Sort axes: first those along which the distributions change, then those of k alone.

    `leading` is the leading shape of the distributions, `shape` its broadcast with the shape of k.
    Return the axes in this order, the number of rows (product of the first kind of axes) and the
    number of columns (product of the second kind).
    """
    sizes = (1,) * (len(shape) - len(leading)) + leading
    axes = sorted(range(len(shape)), key=lambda axis: sizes[axis] == 1)
    columns = math.prod(shape[axis] for axis in axes if sizes[axis] == 1)
    return axes, math.prod(leading), columns


def _fill(values: Probs, draft: Probs, target: Probs, k: Counts) -> None:
    """Write α_k of distributions [R, n] and draft counts [R, K] into values [R, K]."""
    if in_bins(draft[0]):
        for row, counts in enumerate(k.tolist()):
            bins = RatioBins.of(draft[row], target[row])
            # Each k starts from fresh bins: a split for another k may change the last digit.
            values[row] = [cut_in_bins(bins, count)[0] for count in counts]
        return
    excess = sum_excess(split_parts(np.array((draft, target))))
    possible = draft > 0
    support = np.count_nonzero(possible, axis=1)
    # Group rows by their number of draftable tokens, which alone may be in a cut.
    for m, chosen in _groups(support):
        p, q = draft[chosen], target[chosen]
        if m < p.shape[1]:
            inside = np.flatnonzero(possible[chosen])
            p, q = (probs.take(inside).reshape(-1, m) for probs in (p, q))
        _, parts, sizes = by_ratio(ratio_of(p, q), split_parts(np.array((p, q))))
        first = np.cumsum(sizes) - sizes
        rows = np.arange(len(k))[chosen]
        # Within a group, group rows by their number of distinct ratios.
        for size, alike in _groups(sizes):
            bins = first[alike, None] + np.arange(size)
            some = rows[alike]
            values[some] = _scan(parts.take(bins, axis=-1), excess[:, some], k[some])


def _groups(sizes: Counts) -> Iterator[tuple[int, Any]]:
    """Yield each size with an index of its rows; if all sizes are equal, a slice avoids a copy."""
    if sizes.min() == sizes.max():
        yield int(sizes[0]), slice(None)
        return
    for size in np.unique(sizes).tolist():
        yield size, np.flatnonzero(sizes == size)


def _scan(parts: Probs, excess: Probs, k: Counts) -> Probs:
    """Compute the minima over j of Q_j + 1 − P_j^k: parts [2, 2, R, m] of `RatioBins` → [R, K]."""
    target_below = running_parts(parts[:, 1], excess[1])
    draft_above = running_parts(parts[:, 0, :, ::-1], excess[0])[:, ::-1]
    values = np.empty(k.shape, dtype=draft_above.dtype)
    # Long rows take one k at a time, in log2(k) steps each.  Short rows take several k at once, in
    # as many steps as the largest k needs.
    step = max(1, BLOCK // draft_above.size)
    for start in range(0, k.shape[1], step):
        columns = slice(start, start + step)
        some_above = _at_least_once(draft_above[:, None], k[:, columns, None])
        values[:, columns] = (target_below[:, None] + some_above).min(axis=-1)
    return np.asarray(np.minimum(values, 0 * values + 1))


def _at_least_once(mass: Probs, k: Counts) -> Probs:
    """Compute 1 − (1 − mass)^k for an array of k, with the same roundings as `at_least_once`.

    All k share the steps for the binary digits of the largest k; for a smaller k, the value stays 0
    in the steps before its own leading digit.
    """
    if k.min() == k.max():
        return np.broadcast_to(at_least_once(mass, int(k.flat[0])), np.broadcast(mass, k).shape)
    hit: Probs = 0 * (mass * k)
    for place in reversed(range(int(k.max()).bit_length())):
        hit = hit * (2 - hit)
        hit = hit + (1 - hit) * mass * (k >> place & 1)
    return hit
