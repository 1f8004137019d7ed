"""The two extreme completions of truncated distributions: the nearest pair and the farthest pair.

Of a distribution its largest probabilities are known, and of the rest only the sum and a cap, which
no unlisted token exceeds.  α_k depends on two measures p and q only through the capped sums
Σ min(q, λ p), λ ≥ 0, and grows with each of them.  Among all completions of two lists one pair has
the largest of these sums for every λ at once, and another the smallest; they are built here.  So
they attain the extremes of α_k for every k.  `docs/theory/truncated.md` has the proofs.
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
    """What is known of a distribution or measure: its largest masses, and the sum of all others."""

    tokens: npt.NDArray[np.int64]  # [s], the listed tokens, ascending
    masses: Probs  # [s], their masses
    rest: Number  # sum of all other masses, none of which exceeds the smallest listed one

    @property
    def cap(self) -> Number:
        """Most that an unlisted token can have."""
        return as_number(self.masses.min())


def measure_value(draft: Probs, target: Probs, k: int) -> Number:
    """Minimum over H of target(H) + 1 − (1 − draft(H^c))^k, also for sums other than one.

    For distributions this is α_k; like it, it never falls when a mass grows.
    """
    bins = RatioBins.of_measures(draft, target)
    one = 0 * as_number(draft[0]) + 1
    values = bins.target_below + at_least_once(np.minimum(bins.draft_above, one), k)
    return min(as_number(values.min()), one)


def nearest_completion(draft: TopList, target: TopList) -> tuple[Probs, Probs]:
    """Pair of completions with the largest Σ min(q, λ p) for every λ, and so the largest α_k.

    Masses of both on the listed tokens and, last, on all others together.  The rests must fit under
    the caps on some vocabulary; the pair is the same for all that have room.
    """
    # Each distribution pours its rest over the tokens that only the other one lists, in proportion
    # to the masses there but never above its cap; what is left goes to tokens that neither lists.
    # Those all have the same ratio q/p and stand as one.  Where one distribution is zero, the
    # other's poured mass is left out: it is in no Σ min(q, λ p).
    shared_draft, shared_target, draft_only, target_only = _split(draft, target)
    nothing = 0 * draft.rest
    draft_left = max(draft.rest - draft.cap * target_only.size, nothing)
    target_left = max(target.rest - target.cap * draft_only.size, nothing)
    if target.cap * draft_left < draft.cap * target_left:  # then it is the target that is capped
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
    """Pair of completions with the smallest Σ min(q, λ p) for every λ, and so the smallest α_k.

    Masses of both on the listed tokens, then on the `unlisted` others (as many as they need if
    None), of which those with equal masses stand as one.  The rests must fit under the caps.
    """
    # Each distribution gives as many tokens as its rest allows the cap, first those that neither
    # lists. There the draft fills from one end and the target from the other, to meet as late as
    # they can. Then the draft goes on to the tokens that only the target lists, least target mass
    # first, and the target likewise.
    shared_draft, shared_target, draft_only, target_only = _split(draft, target)
    draft_only, target_only = np.sort(draft_only), np.sort(target_only)
    if unlisted is None:  # they need not meet
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
    """Masses of both on the tokens that both list, and of each on those that it lists alone."""
    in_target = np.isin(draft.tokens, target.tokens, assume_unique=True)
    in_draft = np.isin(target.tokens, draft.tokens, assume_unique=True)
    return (
        draft.masses[in_target],
        target.masses[in_draft],
        draft.masses[~in_target],
        target.masses[~in_draft],
    )


def _pour(total: Number, weights: Probs, caps: Probs) -> Probs:
    """Masses min(cap, c · weight) with this sum, or all caps if they sum to less."""
    caps = np.where(weights > 0, caps, 0 * caps)
    with np.errstate(over="ignore", invalid="ignore"):
        level, _ = RatioBins.of_measures(weights, caps).cap_of_mass(total)
        # over subnormal weights the level can overflow: to the caps, which errs upwards by no more
        poured = caps if level is None else np.minimum(caps, level * weights)
    return np.where(weights > 0, poured, caps)


def _full_tokens(probs: TopList, unlisted: int) -> int:
    """How many of the unlisted tokens the rest fills up to the cap."""
    if probs.cap * unlisted <= probs.rest:  # where the quotient could overflow
        return unlisted if probs.cap else 0
    return int(probs.rest // probs.cap)


def _filled(probs: TopList, start: Counts, width: Counts) -> Probs:
    """Masses of blocks of tokens where the rest fills one token after the other.

    Block i has width[i] tokens, with start[i] tokens before it.
    """
    kind = probs.masses.dtype  # whole numbers as floats, or as Python's own beside fractions
    cap, rest = np.asarray(probs.cap), np.asarray(probs.rest)
    most = np.minimum(rest - cap * start.astype(kind), cap * width.astype(kind))
    return np.asarray(np.maximum(most, 0 * cap))
