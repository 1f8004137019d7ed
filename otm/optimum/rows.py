"""α_k of many pairs of laws at once, each equal bit for bit to that of the pair alone.

Equivalent to `otm.optimum.cut.optimal_value` in a loop, but without its overhead and with each
pair of laws sorted only once, however many numbers of drafts it is asked for.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from otm._core.arithmetic import Law, at_least_once, is_exact, running_sum
from otm._core.checks import Counts, as_draft_counts, broadcast_counts
from otm._core.distribution import as_law_rows
from otm.errors import InvalidDistributionError

BLOCK = 2**15
"""Numbers of each array that are worked on at a time, a row at the least: they stay in cache."""


def optimal_values(draft: Law, target: Law, k: npt.ArrayLike) -> tuple[Law, Counts]:
    """Optimal acceptance probabilities α_k of many pairs of laws, and the sizes of minimum cuts.

    Laws [..., n] are normalised, k is 1 or more, and all leading axes broadcast; laws are neither
    copied nor sorted again along axes that only k has.  A cut holds the tokens of least q/p.
    """
    return _by_blocks(draft, target, np.asarray(k, dtype=np.int64), lambda *laws: laws)


def alpha_rows(p: Any, q: Any, k: Any) -> Law:
    """α_k of rows as they are given; equivalent to `optimal_values` after `as_law_rows`."""
    counts = as_draft_counts(k)
    if _are_float_rows(p, q):
        # checked and normalised as they are met, in cache: a normalised copy of all of them can
        # cost more than the rest together
        try:
            return _by_blocks(p, q, counts, as_law_rows)[0]
        except InvalidDistributionError:
            pass  # it named a row of its block: found again below
    return optimal_values(*as_law_rows(p, q), counts)[0]


def _are_float_rows(p: Any, q: Any) -> bool:
    """Whether these are arrays of floats whose shapes fit, so that each row can be met alone."""
    if not all(
        isinstance(law, np.ndarray) and law.dtype.kind == "f" and law.ndim for law in (p, q)
    ):
        return False
    try:
        np.broadcast_shapes(p.shape, q.shape)
    except ValueError:
        return False
    return bool(p.shape[-1] == q.shape[-1] > 0)


def _by_blocks(
    draft: Law, target: Law, counts: Counts, prepare: Callable[[Law, Law], tuple[Law, Law]]
) -> tuple[Law, Counts]:
    """`optimal_values` of laws [..., n] that are prepared, as [R, n], when their block is met."""
    laws = np.broadcast_shapes(draft.shape[:-1], target.shape[:-1])
    shape = broadcast_counts(laws, counts)
    axes, rows, columns = law_axes(laws, shape)
    by_row = np.broadcast_to(counts, shape).transpose(axes).reshape(rows, columns)
    values = np.empty((rows, columns), dtype=object if is_exact(draft) else np.float64)
    sizes = np.empty((rows, columns), dtype=np.int64)

    laws = laws or (1,)  # one pair of laws is one row
    draft, target = (np.broadcast_to(law, (*laws, law.shape[-1])) for law in (draft, target))
    step = max(1, BLOCK // draft.shape[-1])
    for start in range(0, rows, step):
        block = slice(start, min(start + step, rows))
        if block.stop - start > 1:
            places = np.unravel_index(np.arange(start, block.stop), laws)
            p, q = draft[places], target[places]
        else:  # without a copy
            place = np.unravel_index(start, laws)
            p, q = draft[place][None], target[place][None]
        _fill(values[block], sizes[block], *prepare(p, q), by_row[block])

    apart = [shape[axis] for axis in axes]
    return tuple(np.moveaxis(x.reshape(apart), range(len(axes)), axes) for x in (values, sizes))  # type: ignore[return-value]


def law_axes(laws: tuple[int, ...], shape: tuple[int, ...]) -> tuple[list[int], int, int]:
    """Tell the axes along which the laws change from those along which k alone does.

    From the leading shape of the laws and what it broadcasts to with that of k: all axes, the laws'
    own first; the number of rows that these hold, and of columns that the others hold.
    """
    sizes = (1,) * (len(shape) - len(laws)) + laws
    axes = sorted(range(len(shape)), key=lambda axis: sizes[axis] == 1)
    columns = math.prod(shape[axis] for axis in axes if sizes[axis] == 1)
    return axes, math.prod(laws), columns


def _fill(values: Law, sizes: Counts, draft: Law, target: Law, k: Counts) -> None:
    """Write into values and sizes [R, K] the results for laws [R, n] and counts [R, K]."""
    if draft.min() > 0:
        values[:], sizes[:] = _scan(*_along_ratio(draft, target), k)
        return
    possible = draft > 0
    support = np.count_nonzero(possible, axis=1)
    # rows with equally many tokens that a cut may hold, without the others
    for m in np.unique(support):
        chosen = support == m
        inside = np.flatnonzero(possible & chosen[:, None])
        p, q = (np.take(law, inside).reshape(-1, m) for law in (draft, target))
        values[chosen], sizes[chosen] = _scan(*_along_ratio(p, q), k[chosen])


def _along_ratio(draft: Law, target: Law) -> tuple[Law, Law]:
    """Target mass of the first j tokens in q/p, and draft mass of the others: arrays [R, m + 1]."""
    with np.errstate(over="ignore"):
        order = np.argsort(target / draft, axis=-1)
    if len(order) > 1:
        order += np.arange(0, draft.size, draft.shape[1])[:, None]
    from_above = running_sum(np.take(draft, order[:, ::-1]), from_zero=True)
    return running_sum(np.take(target, order), from_zero=True), from_above[:, ::-1]


def _scan(target_below: Law, draft_above: Law, k: Counts) -> tuple[Law, Counts]:
    """Minima over j of Q_j + 1 − P_j^k, and where they are: [R, m + 1] twice, [R, K] → [R, K]."""
    values = np.empty(k.shape, dtype=draft_above.dtype)
    sizes = np.empty(k.shape, dtype=np.int64)
    # a long row takes its k one by one, each in log2(k) steps; short rows with several k take the
    # steps of the largest
    step = max(1, BLOCK // draft_above.size)
    for start in range(0, k.shape[1], step):
        columns = slice(start, start + step)
        some_above = _at_least_once(draft_above[:, None], k[:, columns, None])
        cut_values = target_below[:, None] + some_above
        sizes[:, columns] = cut_values.argmin(axis=-1)
        values[:, columns] = cut_values.min(axis=-1)
    return np.minimum(values, 0 * values + 1), sizes


def _at_least_once(mass: Law, k: Counts) -> Law:
    """Probability 1 − (1 − mass)^k for an array of k, in the steps of `at_least_once`.

    The squarings before the leading binary digit of a smaller k leave its zeros as they are.
    """
    if k.min() == k.max():
        return np.broadcast_to(at_least_once(mass, int(k.flat[0])), np.broadcast(mass, k).shape)
    hit: Law = 0 * (mass * k)
    for place in reversed(range(int(k.max()).bit_length())):
        hit = hit * (2 - hit)
        hit = hit + (1 - hit) * mass * (k >> place & 1)
    return hit
