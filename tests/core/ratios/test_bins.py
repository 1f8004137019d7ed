"""Bins of the ratio: each holds the tokens between its least ratio and that of the next."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from otm._core.arithmetic import CACHED, Probs, split_parts
from otm._core.ratios import bins as ratio_bins
from otm._core.ratios.bins import FEW, RatioBins, by_ratio, count_up_to, floor_of
from otm._core.ratios.keys import (
    FINEST,
    LEAST,
    MANTISSA,
    MOST,
    RatioKeys,
    edges_of,
    even_bins,
    key_of,
)
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
        assert bins.draft.sum() == pytest.approx(1, rel=2.0**-50, abs=0)
        assert bins.target.sum() == pytest.approx(1 - never_drafted, rel=2.0**-50, abs=0)


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
        split = int(wide[[0, -1, beyond, wide.size // 2][step % 4]])
        bins = bins.split([split])  # and then parts of its parts
        check_masses(bins)
        expected = np.searchsorted(bins.least, ratio[p > 0], side="right") - 1
        assert (bins.place(ratio[p > 0]) == expected).all()
        last = bins.least.size - 1
        for size in {*range(0, last, max(50, last // 8)), last, split, min(split + 1, last)}:
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
        assert float(masses.sum()) == pytest.approx(float(share), rel=2.0**-51, abs=0)


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


def test_further_bits_divide_a_bin_into_64(monkeypatch: pytest.MonkeyPatch) -> None:
    """Catches parts of another width, one that reaches beyond the bin, and parts of parts."""
    rng = np.random.default_rng(6)
    draft = rng.random(2 * FEW) + 0.5
    target = draft * np.exp(0.1 * rng.normal(size=draft.size))
    draft, target = draft / draft.sum(), target / target.sum()
    bins = RatioBins.of(draft, target, bits=FINEST)
    heaviest = bins.wide[bins.draft[bins.wide].argmax()]
    tokens = np.count_nonzero(bins.place(target[draft > 0] / draft[draft > 0]) == heaviest)
    monkeypatch.setattr(ratio_bins, "FEW", int(tokens))
    alone = bins.split(np.array([heaviest]))
    assert alone.wide.size == bins.wide.size - 1, "few tokens have a bin for each ratio at once"
    monkeypatch.setattr(ratio_bins, "FEW", int(tokens) - 1)
    finer = bins.split(np.array([heaviest]))
    inside = (finer.least >= bins.least[heaviest]) & (finer.most <= bins.most[heaviest])
    widths = key_of(finer.most[inside], 0) - key_of(finer.least[inside], 0)
    assert set(widths.tolist()) == {2 ** (FINEST - 6)}
    assert not (key_of(finer.least[inside], 0) % 2 ** (FINEST - 6)).any()
    monkeypatch.setattr(ratio_bins, "FEW", 8)
    part = np.flatnonzero(inside)[finer.draft[inside].argmax()]
    pure = finer.split(np.array([part]))
    assert pure.wide.size == finer.wide.size - 1, "a part has a bin for each ratio"
    alike = bins.split(np.array([heaviest - 2, heaviest, heaviest + 1]))
    check_masses(alike)
    ends = bins.least[heaviest - 2], bins.most[heaviest + 1]
    parts = (alike.least >= ends[0]) & (alike.most <= ends[1])
    widths = key_of(alike.most[parts], 0) - key_of(alike.least[parts], 0)
    assert sorted(set(widths.tolist())) == [2 ** (FINEST - 6), 2**FINEST]
    assert np.count_nonzero(widths == 2**FINEST) == 1, "the bin that was not to be split"
    several = finer.split(np.array([heaviest - 1, heaviest]))
    assert several.wide.size == finer.wide.size - 2, "and so have two bins of different widths"


def test_the_first_and_the_last_bin_keep_their_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    """Catches parts that overlap another bin.  Bug: an upper end of minus zero."""
    monkeypatch.setattr(ratio_bins, "FEW", 16)
    draft, target = np.full((2, 600), 1e-12)
    draft[400:], target[400:] = 1 / 200, 1 / 200
    draft[:100] = target[:100] / (MOST * np.linspace(1, 4, 100))
    draft[100:200] = 1e-310 * np.linspace(1, 2, 100)
    draft[200:250] = 5e-324
    target[250:350] = draft[250:350] * LEAST * np.append(1.5, np.linspace(0.4, 1.01, 99))
    target[350:400] = 1e-300
    bins = RatioBins.of(draft / draft.sum(), target / target.sum(), few=16)
    for _ in range(8):
        assert (bins.least[1:] >= bins.most[:-1]).all()
        assert bins.most[-1] == np.inf
        check_masses(bins)
        if not bins.wide.size:
            break
        bins = bins.split(bins.wide[-1:])
        bins = bins.split(bins.wide[:1]) if bins.wide.size else bins


@pytest.mark.parametrize("n", [FEW, FEW + 1])
def test_up_to_so_many_tokens_each_ratio_has_its_bin(n: int) -> None:
    draft = np.full(n, 1 / n)
    target = np.linspace(1, 2, n) / np.linspace(1, 2, n).sum()
    assert (RatioBins.of(draft, target).wide.size > 0) == (n > FEW)


def test_bins_end_where_those_of_keys_do() -> None:
    """Catches a bin beside the last that is taken to reach to infinity, or one beside the first."""
    ratio = np.array([LEAST / 2, LEAST * (1 + 2.0**-5), 1.0, MOST * (1 - 2.0**-20), 2 * MOST])
    target = np.array([1e-11, 1e-10, 0.2, 0.4, 0.4])
    draft = target / ratio
    bins = RatioBins.of(draft, target, few=1)
    assert bins.least[[0, -1]].tolist() == [0, MOST]
    assert LEAST < bins.least[1] < bins.most[1] < 2 * LEAST
    assert bins.most[-2:].tolist() == [MOST, np.inf]


@pytest.mark.parametrize("units", [True, False])
def test_blocks_of_tokens_make_the_bins_of_all(
    units: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Catches ends of the last block for those of all, and keys counted from those of a block."""
    ratio = np.concatenate([[LEAST / 8, 0.01, 90, 8 * MOST], np.linspace(0.5, 2, 200), np.ones(60)])
    draft = np.append(np.full(263, 1e-12), 1 - 263e-12)
    target = draft * ratio / (draft @ ratio)
    whole = RatioBins.of(draft, target, few=1, units=units)
    monkeypatch.setattr("otm._core.ratios.keys.BLOCK", (64, 64))
    for order in (slice(None), slice(None, None, -1)):
        bins = RatioBins.of(draft[order], target[order], few=1, units=units)
        check_masses(bins)
        assert bins.least.tolist() == whole.least.tolist()
        assert bins.most.tolist() == whole.most.tolist()
        assert bins.keys.of_tokens.tolist() == whole.keys.of_tokens[order].tolist()


def test_plain_sums_still_make_one_after_a_split() -> None:
    """Catches a total that is corrected the wrong way where a sum of floats loses mass."""
    n = 3 * FEW
    draft = np.full(n, 2e-17)
    draft[0], draft[1:100] = 0.5, (0.5 + 2.0**-40) / 99
    target = draft * (1 + 1e-3 * np.linspace(0, 1, n))
    target[1:100] *= 3
    target *= draft.sum() / target.sum()
    bins = RatioBins.of(draft, target, units=False)
    for _ in range(3):
        assert bins.draft.sum() == pytest.approx(1, rel=2.0**-51, abs=0)
        assert bins.target.sum() == pytest.approx(1, rel=2.0**-51, abs=0)
        bins = bins.split(bins.wide[:1]) if bins.wide.size else bins
    whole = RatioBins.of(draft, target)
    split = whole.split(whole.wide)
    assert split.excess is whole.excess, "units of mass need no correction"


def test_mass_is_a_share_of_its_own_distribution() -> None:
    """Catches the sum of the other distribution, and a mass of no tokens of another kind."""
    draft, target = np.array([0.5, 0.5]), np.array([0.25, 0.75 + 2.0**-40])
    bins, first = RatioBins.of(draft, target), np.array([True, False])
    assert bins.mass(bins.draft_probs, first) == 0.5
    share = F(0.25) / (1 + F(2.0**-40))
    assert bins.mass(bins.target_probs, first) == pytest.approx(float(share), rel=2.0**-51, abs=0)
    assert bins.draft_below[-1] == 1
    small = RatioBins.of(np.array([0, 1e-20, 1.0]), np.array([0.5, 0.25, 0.25]))
    few = np.array([True, True, False])
    assert small.mass(small.draft_probs, few) == 1e-20
    assert type(small.mass(small.draft_probs, few)) is float
    exact = RatioBins.of(*(np.array([F(1, 3), F(2, 3)]) for _ in "pq"))
    assert type(exact.mass(exact.target_probs, np.zeros(2, dtype=np.bool_))) is F


def test_exact_ratios_are_placed_exactly(monkeypatch: pytest.MonkeyPatch) -> None:
    """Catches many fractions that are placed by the keys of their floats."""
    monkeypatch.setattr(ratio_bins, "FEW", 1)
    least = F(1, 10**30)  # that the second ratio lies below one, which its float is
    draft = np.array([F(1, 4)] * 4)
    bins = RatioBins.of(draft, draft * np.array([F(1, 2) + least, 1 - least, F(1), F(3, 2)]))
    assert bins.place(bins.least).tolist() == [0, 1, 2, 3]


def test_entries_up_to_a_number_include_those_equal_to_it() -> None:
    count = count_up_to(np.array([1.0, 2, 2, 3]), 2.0)
    assert (count, type(count)) == (3, int)


@given(exact_pairs, st.fractions(0, 1, max_denominator=12))
def test_the_floor_adds_the_mass_that_is_missing(pair: Pair, share: Fraction) -> None:
    def added(floor: Fraction) -> Fraction:
        return sum((max(floor * p - q, F(0)) for p, q in zip(*pair, strict=True)), F(0))

    missing = share * added(F(1))
    floor, _ = RatioBins.of(*pair).floor_of_mass(missing)
    assert added(F(floor)) == missing
    assert 0 <= floor <= 1


@pytest.mark.parametrize("ties", [True, False])
def test_rows_have_the_bins_of_single_ones(ties: bool) -> None:
    """Catches an order or a count of another row, with tokens of one ratio and without."""
    rng = np.random.default_rng(9)
    ratio = rng.permuted(np.tile(np.arange(1.0, 8), (5, 1)), axis=1)
    if ties:
        ratio = ratio // rng.integers(2, 4, (5, 1))
        ratio[1:3] = 2  # as the last tokens before them and the first after them may be
    parts = rng.integers(1, 100, (2, 2, 5, 7)) / 128
    ratios, masses, sizes = by_ratio(ratio, parts)
    expected, added = [], []
    for i in range(5):
        levels, place = np.unique(ratio[i], return_inverse=True)
        expected.append(levels)
        added.append(np.zeros((2, 2, levels.size)))
        np.add.at(added[-1], (slice(None), slice(None), place), parts[:, :, i])
    assert ratios.tolist() == np.concatenate(expected).tolist()
    assert masses.tolist() == np.concatenate(added, axis=-1).tolist()
    assert sizes.tolist() == [levels.size for levels in expected]


def test_no_floor_is_raised_where_nothing_is_missing() -> None:
    ratio, below = np.array([0.5, 2.0]), np.array([0, 0.5, 1])
    assert floor_of(ratio, below, np.array([0, 0.25, 1.25]), 0.0) == 0


def test_no_array_of_bins_of_many_tokens_can_be_changed() -> None:
    """Catches an array that bins hold or cache, before a split and after it, by their keys too."""
    bins = RatioBins.of(*long_pair(1.0), units=False)
    for some in (bins, bins.split(bins.wide[:3])):
        some.place(np.ones(FEW + 1))
        arrays = [some.least, some.most, some.parts, some.excess, some.keys.of_tokens, some.wide]
        arrays += [some.draft, some.target, some.draft_below, some.draft_above, some.target_below]
        arrays += [some.ratio, *some._of_keys[1:]]
        arrays += [some.tokens_below(0), some.tokens_below(7), some.tokens_below(some.least.size)]
        assert not any(array.flags.writeable for array in arrays)


# The corner of a bin


def two_ratios(high: float) -> RatioBins:
    """Bins of an octave, the middle one with tokens at both of its ends."""
    draft = np.array([0.1, 0.2, 0.3, 0.15, 0.25])
    ratio = np.array([0.25, 1, high, 1, 4])
    return RatioBins.of(draft, draft * ratio / (draft @ ratio), few=1, bits=52)


def test_the_corner_is_that_of_tokens_at_both_ends_of_a_bin() -> None:
    """Catches masses that are not split by the ratio, and bounds that are far too low."""
    bins = RatioBins.of(np.array([0.25, 0.5, 0.25]), np.array([0.25, 0.75, 0.0]), few=1, bits=52)
    ends = RatioBins(
        bins.draft_probs, bins.target_probs, np.array([0, 1.0]), np.array([0, 1.5]),
        bins.parts, bins.excess,
    )  # fmt: skip
    assert bins.draft.tolist() == ends.draft.tolist() == [0.25, 0.75]
    (above,), (below,) = ends.corners(np.array([1]))
    # a third of the bin has the ratio 1, two thirds 1.5
    assert above == pytest.approx(0.5, rel=1e-14)
    assert below == pytest.approx(0.25, rel=1e-14)


def test_a_corner_lies_between_the_edges_of_its_bin() -> None:
    """Catches masses beyond the bin where all its tokens have one end's ratio, or no last one."""
    draft, target = np.array([0.25, 0.25, 0.5]), np.array([0.25, 0.5, 0.25])
    bins = RatioBins.of(draft, target)
    low = np.array([0.5, 1, 2 - 2.0**-52])
    for least, most in (
        (low, np.array([0.5 + 2.0**-53, 1 + 2.0**-52, 2])),
        (bins.least, np.nextafter(bins.least, np.inf)),
        (np.nextafter(bins.least, 0), bins.least),
        (bins.least, np.full(3, np.inf)),
    ):
        wide = RatioBins(draft, target, least, most, bins.parts, bins.excess)
        above, below = wide.corners(np.arange(3))
        assert (above >= wide.draft_above[1:]).all()
        assert (above <= wide.draft_above[:-1]).all()
        assert (below >= wide.target_below[:-1]).all()
        assert (below <= wide.target_below[1:]).all()
    assert above.tolist() == wide.draft_above[1:].tolist()
    assert below.tolist() == (wide.target_below[:-1] + wide.least * wide.draft).tolist()


def test_a_corner_allows_for_rounding_in_narrow_bins() -> None:
    """Catches a margin that is missing on one side, cancels or shrinks with the bin."""
    rng = np.random.default_rng(7)
    for _ in range(100):
        draft = rng.random(20)
        draft /= draft.sum()
        target = draft * rng.choice([1.5, 1.5 + 2.0**-52, 1.5 + 2.0**-51], draft.size)
        ratio = target / draft
        least, most = ratio[[ratio.argmin()]], np.nextafter(ratio[[ratio.argmax()]], np.inf)
        parts = split_parts(np.array((draft, target))).sum(axis=-1, keepdims=True)
        bins = RatioBins(draft, target, least, most, parts, np.zeros((2, 1)))
        (above,), (below,) = bins.corners(np.array([0]))
        low, high = F(least.item()), F(most.item())
        drafted, wanted = sum(map(F, draft.tolist())), sum(map(F, target.tolist()))
        turn = min(max((high * drafted - wanted) / (high - low), F(0)), drafted)
        assert above <= drafted - turn + F(1, 2**50)
        assert below <= low * turn + F(1, 2**50)


@given(pairs(max_tokens=12), st.integers(1, 8))
def test_no_cut_inside_of_a_bin_is_below_its_edges_and_corner(pair: Pair, k: int) -> None:
    """Catches a bin that is not split although the best cut ends inside of it."""
    p, q = pair
    bins = RatioBins.of(p, q, few=0, bits=52)
    above, below = bins.corners(bins.wide)
    with np.errstate(over="ignore"):
        ratio = np.divide(q, p, out=np.full_like(q, np.inf), where=p > 0)
    for place, corner_above, corner_below in zip(bins.wide, above, below, strict=True):
        edges = zip(
            bins.draft_above[place : place + 2], bins.target_below[place : place + 2], strict=True
        )
        least = min(v + 1 - (1 - u) ** k for u, v in (*edges, (corner_above, corner_below)))
        inside = [r for r in ratio[p > 0] if bins.least[place] <= r < bins.most[place]]
        for edge in inside:
            cut = (ratio <= edge) & (p > 0)
            value = q[cut].sum() + 1 - (p[cut].sum()) ** k
            assert value >= least - 1e-12


# Keys


def test_edges_are_the_least_floats_of_their_keys() -> None:
    """Catches an edge too many, which makes a bin of its own."""
    assert key_of(edges_of(64_000, 64_005, MANTISSA), MANTISSA).tolist() == [*range(64_000, 64_007)]
    first, edges = even_bins()
    assert edges.size == key_of(MOST, MANTISSA) - first + 2
    assert edges[[0, -1]].tolist() == [0, np.inf]


def test_a_bin_holds_all_tokens_of_its_keys_if_its_ends_are_those_of_keys() -> None:
    """Catches ends one float beside those of a key, and ratios beyond the first or last key."""
    middle = int(key_of(1.0, MANTISSA))
    edges = edges_of(middle, middle + 4, MANTISSA)
    keys = RatioKeys(np.arange(-1, 4_097, dtype=np.int16), MANTISSA)

    def within(least: float, most: float) -> tuple[list[int], bool]:
        tokens, whole = keys.within(np.array([least]), np.array([most]))
        assert type(whole) is bool
        return keys.of_tokens[tokens].tolist(), whole

    first = middle - int(key_of(LEAST, MANTISSA))
    for j in range(4):
        assert within(edges[j], edges[j + 1]) == ([first + j], True)
        assert within(edges[j], np.nextafter(edges[j + 1], np.inf))[1] is False
        assert within(np.nextafter(edges[j], np.inf), edges[j + 1]) == ([first + j], False)
        assert within((edges[j] + edges[j + 1]) / 2, edges[j + 1]) == ([first + j], False)
    assert within(edges[0], edges[3]) == ([first, first + 1, first + 2], True)
    assert within(LEAST, 1.0)[1] is within(1.0, MOST)[1] is True
    assert within(LEAST / 2, LEAST)[1] is within(MOST, 2 * MOST)[1] is False
    assert within(0.0, 2.0**-1000) == ([0], False)
    assert within(2.0**1000, np.inf) == ([4_096], False)


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
    assert bins.target.sum() == sum(pair[1][pair[0] > 0])
    everything = np.ones(pair[1].size, dtype=np.bool_)
    assert bins.mass(bins.target_probs, everything) == 1
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
