"""Number of drafts equal to the output, for all tokens of a text at once.

The result equals `figures.spectr.steps_given_text.survivors`, token by token, but is a hundred
times faster: arrays have a row for each token, and no plan is built.  In the comments T is the
number of tokens, V the size of the vocabulary, and z the k + 1 roots of unity.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt

from figures.spectr.steps_given_text import Floats, Polynomial, first_that_passes, roots_of_unity
from otm.coupling import KSeq, OptimalPlan, RecursiveRejection
from otm.coupling.build import PlanBuilder
from otm.optimum.cut import FULL_SUPPORT_TOLERANCE
from otm.optimum.division_factor import DEFAULT_DELTA, bisection_steps

Ids = npt.NDArray[np.int64]


def survivors_along(
    rules: Sequence[PlanBuilder], draft: Floats, target: Floats, tokens: Sequence[int], most: int
) -> Floats:
    """Return the distributions of `survivors` along a text, by rule and number of drafts.

    Parameters
    ----------
    rules : sequence of callable
        `KSeq`, `RecursiveRejection` or `OptimalPlan`.
    draft, target : float64 array [T, V]
        Distributions of the tokens.
    tokens : sequence of T int
        Tokens of the text.
    most : int
        Largest number of drafts K.

    Returns
    -------
    float64 array [rules, T, K + 1, K + 1]
        Entry [i, t, m, j] is the probability that j of m drafts are equal to the token.
    """
    moves = np.zeros((len(rules), len(tokens), most + 1, most + 1))
    at = np.asarray(tokens, dtype=np.int64)
    order = np.argsort(_ratio(draft, target), axis=1, kind="stable")
    for m in range(1, most + 1):
        z = roots_of_unity(m)
        for i, rule in enumerate(rules):
            masses = _MASSES[rule](draft, target, at, order, z)
            moves[i, :, m, : m + 1] = np.fft.fft(masses).real / (m + 1) / _at(target, at)
    return moves


def division_factors(draft: Floats, target: Floats, k: int) -> Floats:
    """Return k-Seq's division factor ρ* of each row, as in `otm.optimum.division_factor`."""
    low, high = np.ones((len(draft), 1)), np.full((len(draft), 1), float(k))
    high[_excess(draft, target, low, k) <= 0] = 1
    for _ in range(bisection_steps(k, DEFAULT_DELTA)):
        middle = (low + high) / 2
        valid = _excess(draft, target, middle, k) <= 0
        low, high = np.where(valid, low, middle), np.where(valid, middle, high)
    return high


def _excess(draft: Floats, target: Floats, rho: Floats, k: int) -> Floats:
    """Return 1 − (1 − β)^k − ρβ with β = Σ min(p, q/ρ), `[T, 1]`; it is ≤ 0 for valid ρ."""
    accepted: Floats = np.minimum(target, rho * draft).sum(1, keepdims=True)
    with np.errstate(divide="ignore"):  # β = 1 gives log(0)
        excess: Floats = -np.expm1(k * np.log1p(-np.minimum(accepted / rho, 1))) - accepted
    return excess


def _of_k_seq(draft: Floats, target: Floats, at: Ids, order: Ids, z: Polynomial) -> Polynomial:
    k = z.size - 1
    passed = np.minimum(draft, target / division_factors(draft, target, k))
    pair = np.concatenate([_at(passed, at), passed.sum(1, keepdims=True)], axis=1)
    rounds = np.repeat(pair[:, None], k, axis=1)
    return first_that_passes(rounds, _at(draft, at)[:, 0], _at(target, at)[:, 0], z)


def _of_recursion(draft: Floats, target: Floats, at: Ids, order: Ids, z: Polynomial) -> Polynomial:
    k = z.size - 1
    rounds = np.zeros((len(at), k, 2))  # tests that are never reached have probability 0
    cap, mass = np.zeros((len(at), 1)), np.ones((len(at), 1))
    reached = np.ones((len(at), 1), dtype=bool)
    for i in range(k):
        reached &= mass > 0
        residual = np.maximum(target - cap * draft, 0) / np.where(reached, mass, 1)
        passed = np.where(reached, np.minimum(residual, draft), 0)
        rounds[:, i, :1], rounds[:, i, 1] = _at(passed, at), passed.sum(1)
        reached &= cap + mass > cap
        cap = cap + mass
        mass = np.maximum(target - cap * draft, 0).sum(1, keepdims=True)
    return first_that_passes(rounds, _at(draft, at)[:, 0], _at(target, at)[:, 0], z)


def _of_optimum(draft: Floats, target: Floats, at: Ids, order: Ids, z: Polynomial) -> Polynomial:
    """Return the masses of a token that wins in the highest slot or is drawn from the residual.

    The slots and swaps are those of `OptimalPlan`; only the token's own ones are computed.
    """
    k = z.size - 1
    rank = np.argmax(order == at[:, None], axis=1)
    p = np.take_along_axis(draft, order, axis=1)
    below, slope, lacking = _lacking(p, np.take_along_axis(target, order, axis=1), k)

    # The token's interval on its side, poor or rich, and the intervals of the other side.
    own = _at(lacking, rank)
    is_poor = own > 0
    mine, others = (np.maximum(np.where(is_poor, side, -side), 0) for side in (lacking, -lacking))
    end, ends = _at(mine.cumsum(1), rank), others.cumsum(1)
    moved = np.minimum(end, ends) - np.maximum(end - np.abs(own), ends - others)
    gain = slope - _at(slope, rank)
    gain = np.where(is_poor, gain, -gain)
    useful = (moved > 0) & (gain > 0)

    # Probability that a draft of the token takes each slot.
    p_own = _at(draft, at)
    step = np.where(useful, moved, 0) / np.where(useful, gain, 1) / np.where(p_own > 0, p_own, 1)
    rest = 1 - step.sum(1, keepdims=True)
    np.put_along_axis(step, rank[:, None], rest, axis=1)
    upper = p_own * step.cumsum(1)
    lower = upper - p_own * step
    t, slot = np.nonzero(step > 0)
    strictly = (below[t, slot] - lower[t, slot])[:, None] + lower[t, slot, None] * z
    at_most = (below[t, slot + 1] - upper[t, slot])[:, None] + upper[t, slot, None] * z
    wins = sum(strictly**i * at_most ** (k - 1 - i) for i in range(k))
    won = np.zeros((len(at), k + 1), dtype=np.complex128)
    np.add.at(won, t, (p_own[t, 0] * step[t, slot])[:, None] * wins)

    winner, q_own = won[:, :1].real, _at(target, at)  # at z = 1
    accept = np.minimum(1, q_own / np.where(winner > 0, winner, np.inf))
    masses: Polynomial = q_own - winner * accept + accept * won * z
    return masses


def _lacking(p: Floats, q: Floats, k: int) -> tuple[Floats, Floats, Floats]:
    """Return the draft mass below each slot [T, V + 1], W by slot, and the tokens' missing masses.

    The distributions are in the order of q/p.
    """
    ratio = _ratio(p, q)
    q = np.where(p > 0, q, 0)
    below, target_below = (np.pad(x.cumsum(1), ((0, 0), (1, 0))) for x in (p, q))
    above = np.pad(p[:, ::-1].cumsum(1)[:, ::-1], ((0, 0), (0, 1)))
    with np.errstate(divide="ignore"):  # log(0)
        once = -np.expm1(k * np.log1p(-np.minimum(above, 1)))
    value = np.minimum((target_below + once).min(1, keepdims=True), 1)

    # The optimal cap c*, and the floor b that compensates for the mass not accepted.
    ratio = np.minimum(ratio, k)
    place = (target_below[:, :-1] + ratio * above[:, :-1] < value).sum(1)
    left, mass = value - _at(target_below, place), _at(above, place)
    everything = target_below[:, -1:] * (1 - FULL_SUPPORT_TOLERANCE)
    cap = np.where(value >= everything, k, left / np.where(mass > 0, mass, 1))
    ratio = np.minimum(ratio, np.clip(cap, 1, k))
    missing = 1 - np.minimum(q, ratio * p).sum(1, keepdims=True)
    gained = ratio * below[:, 1:] - target_below[:, 1:]
    raised = np.maximum((gained <= missing).sum(1), 1)
    floor = np.minimum((missing + _at(target_below, raised)) / _at(below, raised), 1)
    ratio = np.where(missing > 0, np.maximum(ratio, floor), ratio)

    slope: Floats = sum(below[:, :-1] ** i * below[:, 1:] ** (k - 1 - i) for i in range(k))
    return below, slope, (ratio - slope) * p


def _ratio(draft: Floats, target: Floats) -> Floats:
    """Return q/p, infinite where p is 0."""
    return np.divide(target, draft, out=np.full_like(target, np.inf), where=draft > 0)


def _at(rows: Floats, at: Ids) -> Floats:
    """Return one entry of each row, `[T, 1]`."""
    return np.take_along_axis(rows, at[:, None], axis=1)


_MASSES: dict[PlanBuilder, Callable[..., Polynomial]] = {
    KSeq: _of_k_seq,
    RecursiveRejection: _of_recursion,
    OptimalPlan: _of_optimum,
}
