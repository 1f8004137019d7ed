"""The two extreme completions of truncated distributions: the nearest pair and the farthest pair.

A truncated distribution lists its largest probabilities.  For the unlisted tokens only two facts
are known: their total probability, and that each of them has at most the smallest listed
probability (the cap).  α_k depends on two distributions p and q only through the capped sums
Σ min(q, λ p), λ ≥ 0, and increases with each of them.  Among all completions of two lists, one pair
has the largest capped sum for every λ, and another pair has the smallest.  This module builds the
two extreme pairs, which attain the smallest and the largest α_k for every k.
`docs/theory/truncated.md` has the proofs.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from otm._core.arithmetic import Number, Probs, as_number, at_least_once
from otm._core.ratios.bins import RatioBins

Counts: TypeAlias = npt.NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class TopList:
    """The largest masses of a distribution or measure, and the sum of all other masses.

    `tokens` [s] are the listed tokens in ascending order, and `masses` [s] their masses.  `rest`
    is the sum of all unlisted masses; each is at most the smallest listed mass.
    """

    tokens: npt.NDArray[np.int64]
    masses: Probs
    rest: Number

    @property
    def cap(self) -> Number:
        """Largest mass that an unlisted token can have."""
        return as_number(self.masses.min())


def measure_value(draft: Probs, target: Probs, k: int) -> Number:
    """Compute the minimum over H of target(H) + 1 − (1 − draft(H^c))^k for any two measures.

    For distributions the minimum is α_k.  The minimum never decreases when a mass increases.
    """
    bins = RatioBins.from_masses(draft, target)
    one = 0 * as_number(draft[0]) + 1
    values = bins.target_below + at_least_once(np.minimum(bins.draft_above, one), k)
    return min(as_number(values.min()), one)


def nearest_completion(draft: TopList, target: TopList) -> tuple[Probs, Probs]:
    """Build the completions with the largest Σ min(q, λ p) for every λ, and so the largest α_k.

    Return the masses of both completions on the listed tokens and, as the last entry, on all other
    tokens together.  There must be a vocabulary in which the unlisted masses fit under the caps;
    the result is the same for every vocabulary that is large enough.
    """
    # Each distribution spreads its unlisted mass over the tokens that only the other one lists, in
    # proportion to the masses there, but at most its cap on each.  Any remaining mass goes to
    # tokens that neither lists.  These all have the same ratio q/p, so one entry stands for them.
    # Mass on a token where the other distribution is zero adds to no Σ min(q, λ p) and is left out.
    shared_draft, shared_target, draft_only, target_only = _split(draft, target)
    nothing = 0 * draft.rest
    draft_left = max(draft.rest - draft.cap * target_only.size, nothing)
    target_left = max(target.rest - target.cap * draft_only.size, nothing)
    # The code below is for a draft that reaches its cap; otherwise exchange the two.
    if target.cap * draft_left < draft.cap * target_left:
        swapped_target, swapped_draft = nearest_completion(target, draft)
        return swapped_draft, swapped_target
    draft_caps = np.full(target_only.size, draft.cap)
    target_caps = np.concatenate([np.full(draft_only.size, target.cap), [target.rest]])
    draft_and_left = np.concatenate([draft_only, [draft_left]])
    draft_poured = _pour(draft.rest, target_only, draft_caps)
    target_poured = _pour(target.rest, draft_and_left, target_caps)
    return (
        np.concatenate([shared_draft, draft_only, draft_poured, [draft_left]]),
        np.concatenate([shared_target, target_poured[:-1], target_only, target_poured[-1:]]),
    )


def farthest_completion(
    draft: TopList, target: TopList, unlisted: int | None
) -> tuple[Probs, Probs]:
    """Build the completions with the smallest Σ min(q, λ p) for every λ, and so the smallest α_k.

    Return the masses of both completions on the listed tokens, then on the `unlisted` other tokens
    (as many as needed if None).  Unlisted tokens with equal masses share one entry.  The unlisted
    masses must fit under the caps.
    """
    # Each distribution fills tokens up to its cap, starting with tokens that neither lists.  There
    # the draft fills from one end and the target from the other, so that they overlap as little as
    # possible.  Then the draft fills tokens that only the target lists, those with the least target
    # mass first; the target does the same with tokens that only the draft lists.
    shared_draft, shared_target, draft_only, target_only = _split(draft, target)
    draft_only, target_only = np.sort(draft_only), np.sort(target_only)
    if unlisted is None:  # With an unlimited vocabulary the two need not overlap.
        apart = [[draft.rest, 0 * draft.rest], [0 * target.rest, target.rest]]
        return (
            np.concatenate([shared_draft, draft_only, 0 * target_only, apart[0]]),
            np.concatenate([shared_target, 0 * draft_only, target_only, apart[1]]),
        )
    full = [_full_tokens(probs, unlisted) for probs in (draft, target)]
    changes = [0, full[0], full[0] + 1, unlisted - full[1] - 1, unlisted - full[1], unlisted]
    edges = np.array(sorted({min(max(edge, 0), unlisted) for edge in changes}))
    width = np.diff(edges)
    draft_spill = _filled(draft, unlisted + np.arange(target_only.size), np.array([1]))
    target_spill = _filled(target, unlisted + np.arange(draft_only.size), np.array([1]))
    draft_blocks = _filled(draft, edges[:-1], width)
    target_blocks = _filled(target, unlisted - edges[1:], width)
    return (
        np.concatenate([shared_draft, draft_only, draft_spill, draft_blocks]),
        np.concatenate([shared_target, target_spill, target_only, target_blocks]),
    )


def _split(draft: TopList, target: TopList) -> tuple[Probs, Probs, Probs, Probs]:
    """Split the masses of both lists: on the tokens in both, then on the other tokens of each."""
    in_target = np.isin(draft.tokens, target.tokens, assume_unique=True)
    in_draft = np.isin(target.tokens, draft.tokens, assume_unique=True)
    return (
        draft.masses[in_target],
        target.masses[in_draft],
        draft.masses[~in_target],
        target.masses[~in_draft],
    )


def _pour(total: Number, weights: Probs, caps: Probs) -> Probs:
    """Return masses min(cap, c · weight) with sum `total`, or the caps if they sum to less."""
    caps = np.where(weights > 0, caps, 0 * caps)
    with np.errstate(over="ignore", invalid="ignore"):
        level, _ = RatioBins.from_masses(weights, caps).cap_of_mass(total)
        # For subnormal weights the level may overflow.  Then the caps are used, which is an upper
        # bound.
        poured = caps if level is None else np.minimum(caps, level * weights)
    return np.where(weights > 0, poured, caps)


def _full_tokens(probs: TopList, unlisted: int) -> int:
    """Count the unlisted tokens that the unlisted mass fills up to the cap."""
    if probs.cap * unlisted <= probs.rest:  # In this case the quotient could overflow.
        return unlisted if probs.cap else 0
    return int(probs.rest // probs.cap)


def _filled(probs: TopList, start: Counts, width: Counts) -> Probs:
    """Return the masses of blocks of tokens that the unlisted mass fills one after the other.

    Block i has width[i] tokens, and start[i] tokens precede it.
    """
    kind = probs.masses.dtype  # Counts become floats, or Python integers if masses are fractions.
    cap, rest = np.asarray(probs.cap), np.asarray(probs.rest)
    most = np.minimum(rest - cap * start.astype(kind), cap * width.astype(kind))
    return np.asarray(np.maximum(most, 0 * cap))
