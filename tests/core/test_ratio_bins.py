"""Bins of the ratio: each holds the tokens between its least ratio and that of the next."""

from __future__ import annotations

import numpy as np
import pytest

from otm._core import ratio_bins
from otm._core.arithmetic import Probs
from otm._core.ratio_bins import FEW, FINEST, MANTISSA, RatioBins


def long_pair(spread: float) -> tuple[Probs, Probs]:
    """Make distributions with zeros, ties and ratios beyond all floats."""
    rng = np.random.default_rng(3)
    draft, target = np.exp(spread * rng.normal(size=(2, 3 * FEW)))
    target[:5_000] = draft[:5_000] * np.repeat([0.5, 1, 1 + 2.0**-52, 2, 2.0**40], 1_000)
    draft[5_000:5_050], target[5_040:5_090] = 0, 0
    draft[5_090:5_100], target[5_100:5_110] = 5e-324, 1e-310
    draft[5_110:5_120] = 1e-30 * target[5_110:5_120]
    return draft / draft.sum(), target / target.sum()


def check_masses(bins: RatioBins) -> None:
    """Compare all masses with those of the tokens of each bin, found by a search for each."""
    p, q = bins.draft_probs, bins.target_probs
    drafted = p > 0
    with np.errstate(over="ignore"):
        ratio = q[drafted] / p[drafted]
    place = np.searchsorted(bins.least, ratio, side="right") - 1
    size = bins.least.size
    for masses, probs in ((bins.draft, p), (bins.target, q)):
        assert np.allclose(masses, np.bincount(place, probs[drafted], size), rtol=1e-12, atol=0)
    narrow = bins.least == bins.most
    assert (ratio[narrow[place]] == bins.least[place[narrow[place]]]).all()
    assert (ratio[~narrow[place]] < bins.most[place[~narrow[place]]]).all()
    assert (bins.least <= bins.ratio).all()
    assert (np.diff(bins.ratio) >= 0).all()


@pytest.mark.parametrize("rough", [False, True])
@pytest.mark.parametrize("bits", [MANTISSA, FINEST])
@pytest.mark.parametrize("spread", [1.0, 1e-3, 20.0])
def test_bins_hold_their_tokens_however_they_are_split(
    spread: float, bits: int, rough: bool
) -> None:
    """Catches tokens of another bin, of the first or the last, or of a part of one, on a split."""
    rng = np.random.default_rng(4)
    bins = RatioBins.of(*long_pair(spread), bits=bits, rough=rough)
    check_masses(bins)
    for _ in range(4):
        wide = np.flatnonzero(bins.least < bins.most)
        if not wide.size:
            break
        chosen = np.union1d(rng.choice(wide, min(3, wide.size)), wide[[0, -1]])
        bins = bins.split(chosen)
        check_masses(bins)


def test_bins_of_many_tokens_are_split_by_further_bits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Catches a sort of nearly all tokens, or bins of other ends, where ratios are close."""
    monkeypatch.setattr(ratio_bins, "FEW", 64)
    bins = RatioBins.of(*long_pair(1e-3))
    wide = np.flatnonzero(bins.least < bins.most)
    heaviest = wide[bins.draft[wide].argmax()]
    finer = bins.split(np.array([heaviest]))
    assert bins.least.size < finer.least.size <= bins.least.size + 64
    check_masses(finer)
    assert np.isin(np.delete(bins.least, heaviest), finer.least).all()
