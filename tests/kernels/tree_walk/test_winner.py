"""How close the winner's c comes to the best one, and what the difference costs."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from otm._core.probs.sparse import SparseProbs
from otm.coupling.optimal.certain import CertainDrafts
from otm.kernels.common.distributions.numpy import UNIT, mass
from otm.kernels.tree_walk.numpy import POINTS, Outside, largest_step, winner

Floats = npt.NDArray[np.float64]


class Pair(NamedTuple):
    """Two distributions and the certain children, with the winner's distribution by two ways."""

    target: Floats
    best: Floats  # for the root c, by `otm.coupling.optimal.certain`
    by_kernel: Floats
    by_one_step: Floats  # of Newton's method, from 1
    missing: float  # 1 − Σ v for the kernel's c, if A had only c q


def pair(rng: np.random.Generator, size: int) -> Pair:
    """Draw distributions as of two models, and one to eight certain children."""
    logits = rng.normal(size=size) * rng.choice([1, 2, 4])
    of_draft = logits + rng.normal(size=size) * rng.choice([0.3, 1, 2])
    target, draft = (np.exp(x) / np.exp(x).sum() for x in (logits, of_draft))
    count = rng.choice([1, 2, 4, 8])
    likely = rng.random() < 0.7
    certain = np.argsort(-draft)[:count] if likely else rng.choice(size, count, replace=False)
    is_certain = np.isin(np.arange(size), certain)
    rule = CertainDrafts(certain, *(SparseProbs(np.arange(size), x) for x in (draft, target)))
    totals = (mass(x)[certain].sum(keepdims=True) for x in (target, draft))
    masses = Outside(*(np.where(is_certain, 0, mass(x)) for x in (target, draft)), *totals)
    of_certain, laws = target[is_certain].sum(), []
    for points in (POINTS, 1):
        won = winner(masses, points)
        outside = won.wins / float(won.drawn[0])
        laws.append(np.where(is_certain, won.certain * target / of_certain, outside))
    c = float(largest_step(masses, POINTS)[0]) * UNIT / float(won.drawn[0])
    missing = 1 - laws[0][~is_certain].sum() - c * of_certain
    return Pair(target, rule.winner_probs, *laws, missing)


def accepted(first: Pair, law: Floats, below: list[tuple[Floats, Floats]]) -> float:
    """Mean number of accepted drafts of two levels; token x has the node x mod m below it."""
    kept = np.minimum(first.target, law)
    share = np.where(law > 0, kept / np.where(law > 0, law, 1), 0)
    second = 0.0
    for i, (target, wins) in enumerate(below):
        part = slice(i, None, len(below))
        second += float(
            (law[part] * np.minimum(share[part, None] * target, wins).sum(axis=1)).sum()
        )
    return float(kept.sum()) + second


def test_c_comes_close_to_the_root_from_below() -> None:
    """Bug: points that miss the root, or a step that passes it."""
    rng = np.random.default_rng(0)
    pairs = [pair(rng, 500) for _ in range(150)]
    missing = np.array([each.missing for each in pairs])
    assert (missing > -1e-12).all()
    assert np.median(missing) < 1e-3
    for each in pairs:
        assert abs(each.by_kernel.sum() - 1) < 1e-12


def test_whole_paths_lose_almost_no_draft() -> None:
    """Bug: points that are too few.  A single step loses a hundred times as much."""
    rng = np.random.default_rng(1)
    lost: list[Any] = []
    for _ in range(40):
        first = pair(rng, 500)
        below = [(x.target, x.best) for x in (pair(rng, 100) for _ in range(8))]
        of_laws = (accepted(first, law, below) for law in first[1:4])
        best, by_kernel, by_one_step = of_laws
        lost.append((best - by_kernel, best - by_one_step))
    by_kernel, by_one_step = np.mean(lost, axis=0)
    assert abs(by_kernel) < 2e-5
    assert by_one_step > 100 * abs(by_kernel)
