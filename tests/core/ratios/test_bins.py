"""Bins of the ratio: each holds the tokens between its least ratio and that of the next."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from otm._core.arithmetic import CACHED, Probs
from otm._core.ratios import bins as ratio_bins
from otm._core.ratios.bins import FEW, RatioBins
from otm._core.ratios.keys import FINEST, MANTISSA, MOST
from otm._core.ratios.order import RatioOrder
from otm.testing.strategies import pairs

F = Fraction
exact_pairs = pairs(exact=True)
caps = st.fractions(0, 6, max_denominator=20)
Pair = tuple[Probs, Probs]


def capped(pair: Pair, cap: Fraction | float) -> Fraction:
    return sum(min(q, cap * p) for p, q in zip(*pair, strict=True))


def long_pair(spread: float) -> tuple[Probs, Probs]:
    """Make distributions with zeros, ties and ratios beyond all floats."""
    rng = np.random.default_rng(3)
    draft, target = np.exp(spread * rng.normal(size=(2, 3 * FEW)))
    target[:5_000] = draft[:5_000] * np.repeat([0.5, 1, 1 + 2.0**-52, 2, 2.0**40], 1_000)
    draft[5_000:5_050], target[5_040:5_090] = 0, 0
    draft[5_090:5_100], target[5_100:5_110] = 5e-324, 1e-310
    draft[5_110:5_120] = 1e-30 * target[5_110:5_120]
    draft[5_120:5_130] = 1e-300 * 1e-18
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
    wide = place[~narrow[place]]
    assert ((ratio[~narrow[place]] < bins.most[wide]) | (bins.most[wide] == np.inf)).all()
    assert (bins.least <= bins.ratio).all()
    assert (np.diff(bins.ratio) >= 0).all()


@pytest.mark.parametrize("bits", [MANTISSA, FINEST])
@pytest.mark.parametrize("spread", [1.0, 1e-3, 20.0])
@pytest.mark.parametrize("units", [True, False])
def test_bins_hold_their_tokens_however_they_are_split(
    spread: float, bits: int, units: bool
) -> None:
    """Catches tokens of another bin, of the first or the last, or of a part of one, on a split."""
    rng = np.random.default_rng(4)
    bins = RatioBins.of(*long_pair(spread), bits=bits, units=units)
    check_masses(bins)
    for _ in range(4):
        wide = np.flatnonzero(bins.least < bins.most)
        if not wide.size:
            break
        chosen = np.union1d(rng.choice(wide, min(3, wide.size)), wide[[0, -1]])
        bins = bins.split(chosen)
        check_masses(bins)
        never_drafted = bins.target_probs[bins.draft_probs == 0].sum()
        assert bins.draft.sum() == pytest.approx(1, rel=2.0**-50)
        assert bins.target.sum() == pytest.approx(1 - never_drafted, rel=2.0**-50)


@pytest.mark.parametrize("few", [FEW, 64])  # with 64 a bin is split by further bits first
@pytest.mark.parametrize("bits", [MANTISSA, FINEST])
@pytest.mark.parametrize("spread", [1.0, 1e-3, 20.0])
def test_tokens_of_single_bins_and_below_them(
    spread: float, bits: int, few: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Catches a token of the same key that is in another bin, or that is never drafted."""
    monkeypatch.setattr(ratio_bins, "FEW", few)
    bins = RatioBins.of(*long_pair(spread), bits=bits)
    p, q = bins.draft_probs, bins.target_probs
    with np.errstate(over="ignore"):
        ratio = np.divide(q, p, out=np.full_like(q, np.inf), where=p > 0)
    for step in range(8):
        wide = bins.wide
        if not wide.size:
            break
        beyond = min(int(np.searchsorted(bins.least[wide], MOST)), wide.size - 1)
        which = [0, -1, beyond, wide.size // 2][step % 4]
        bins = bins.split(wide[[which]])  # and then parts of its parts
        check_masses(bins)
        expected = np.searchsorted(bins.least, ratio[p > 0], side="right") - 1
        assert (bins.place(ratio[p > 0]) == expected).all()
        for size in {*range(0, bins.least.size, 50), bins.least.size - 1}:
            expected = np.flatnonzero((ratio < bins.least[size]) & (p > 0))
            assert bins.tokens_below(size).tolist() == expected.tolist()
    assert bins.tokens_below(bins.least.size).tolist() == np.flatnonzero(p).tolist()


def test_tokens_are_placed_in_a_bin_of_infinite_ratio_alone() -> None:
    """Catches a last key whose one bin beyond the others is taken for none."""
    draft, target = long_pair(1e-3)
    draft[:5_200], target[:5_200] = 1 / draft.size, 1 / draft.size
    draft[7] = 5e-324
    bins = RatioBins.of(draft / draft.sum(), target)
    bins = bins.split(bins.wide[-1:])
    assert bins.least[-1] == np.inf > MOST > bins.least[-2]
    ratio = np.append(np.full(FEW, 1.0), np.inf)
    assert bins.place(ratio)[-1] == bins.least.size - 1


@pytest.mark.parametrize("drafted", [slice(CACHED, None), slice(0, CACHED), slice(6_000, 6_003)])
def test_masses_are_shares_of_all_tokens(drafted: slice) -> None:
    """Catches a block of tokens that are never drafted, and a sum without their target mass."""
    draft, target = np.zeros(3 * FEW), long_pair(1.0)[1] * (1 + 2.0**-40)
    draft[drafted] = target[drafted]
    bins = RatioBins.of(draft / draft.sum(), target)
    check_masses(bins)
    for masses, probs in ((bins.draft, bins.draft_probs), (bins.target, target)):
        share = sum(map(F, probs[draft > 0].tolist())) / sum(map(F, probs.tolist()))
        assert float(masses.sum()) == pytest.approx(float(share), rel=2.0**-51)


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


# A bin for each ratio


@given(exact_pairs)
def test_masses_below_and_above(pair: Pair) -> None:
    bins, order = RatioBins.of(*pair), RatioOrder(*pair)
    assert bins.least.tolist() == bins.most.tolist() == sorted(set(order.ratio))
    ends = [0, *(order.ratio <= ratio for ratio in bins.least)]
    firsts = [int(np.sum(end)) for end in ends]
    assert bins.draft_below.tolist() == [order.draft[:j].sum() for j in firsts]
    assert bins.draft_above.tolist() == [order.draft[j:].sum() for j in firsts]
    assert bins.target_below.tolist() == [order.target[:j].sum() for j in firsts]
    assert bins.draft.tolist() == np.diff(bins.draft_below).tolist()
    assert bins.target.tolist() == np.diff(bins.target_below).tolist()


@given(exact_pairs, st.fractions(1, 6, max_denominator=20))
def test_measures_are_not_divided_by_their_sums(pair: Pair, scale: Fraction) -> None:
    bins = RatioBins.from_masses(scale * pair[0], pair[1])
    assert bins.draft_below[-1] == scale
    floats = RatioBins.from_masses(*(probs.astype(np.float64) / 3 for probs in pair))
    assert floats.draft_below[-1] == pytest.approx(1 / 3, rel=1e-15)


def test_the_mass_above_does_not_cancel() -> None:
    # 1 − P_j would be 0 here
    bins = RatioBins.of(np.array([1 - 1e-20, 1e-20]), np.array([0.5, 0.5]))
    assert bins.draft_above.tolist() == [1, 1e-20, 0]


@given(exact_pairs, caps)
def test_capped_mass(pair: Pair, cap: Fraction) -> None:
    assert RatioBins.of(*pair).capped_mass(cap) == capped(pair, cap)


@given(exact_pairs, caps)
def test_cap_of_mass_is_the_smallest(pair: Pair, cap: Fraction) -> None:
    bins = RatioBins.of(*pair)
    mass = capped(pair, cap)
    found, _ = bins.cap_of_mass(mass)
    if found is None:  # the mass of all tokens that can be drafted
        assert mass == bins.target.sum()
    else:
        assert capped(pair, found) == mass
        assert found <= cap
        assert found == 0 or capped(pair, found - F(1, 10**9)) < mass


@given(pairs(), st.floats(0, 6))
def test_floats_agree_with_the_sums(pair: Pair, cap: float) -> None:
    bins = RatioBins.of(*pair)
    expected = capped(pair, cap)
    assert bins.capped_mass(cap) == pytest.approx(expected, rel=1e-13, abs=1e-300)
    found, _ = bins.cap_of_mass(expected)
    if found is not None:
        assert capped(pair, found) == pytest.approx(expected, rel=1e-13, abs=1e-300)


def test_a_ratio_beyond_the_floats_is_infinite_and_silent() -> None:
    bins = RatioBins.of(np.array([5e-324, 1.0]), np.array([0.5, 0.5]))
    assert bins.least.tolist() == [0.5, np.inf]
    assert bins.capped_mass(2.0) == 0.5 + 2 * 5e-324
