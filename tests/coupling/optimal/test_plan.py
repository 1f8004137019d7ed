"""Slots and swaps: exactly optimal in fractions, and to 1e-11 at 20,000 tokens in floats."""

from __future__ import annotations

import itertools
import math
import random
from fractions import Fraction

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import otm
from otm._core.arithmetic import Probs
from otm.coupling.k_seq import KSeq
from otm.coupling.optimal.plan import LARGEST_COUNT, OptimalPlan
from otm.coupling.optimal.reference import ReferencePlan
from otm.coupling.optimal.slots import SlotTable
from otm.coupling.optimal.swaps import target_win_ratio
from otm.coupling.recursive_rejection import RecursiveRejection
from otm.coupling.residual import acceptance_ratio
from otm.errors import InvalidDraftCountError
from otm.optimum.cut import minimum_cut, optimal_cap
from otm.problem import Problem
from otm.testing import exact_acceptance, exact_output_distribution
from otm.testing.instances import instance
from otm.testing.strategies import problems
from tests.coupling.optimal.realised import distance_to_target, realised_output

F = Fraction
fewer = settings(max_examples=settings.default.max_examples // 4)


@fewer
@given(problems(max_tokens=5, max_drafts=3, exact=True))
def test_acceptance_is_exactly_alpha(problem: Problem) -> None:
    plan = OptimalPlan(problem)
    assert plan.acceptance == plan.acceptance_by_test == minimum_cut(problem).value
    assert plan.output_distribution().tolist() == problem.target.tolist()
    assert plan.winner_distribution.sum() == 1
    assert exact_acceptance(plan) == minimum_cut(problem).value
    assert exact_output_distribution(plan).tolist() == problem.target.tolist()


@given(problems(max_tokens=8, max_drafts=8, exact=True))
def test_the_winning_law_is_the_wanted_one(problem: Problem) -> None:
    plan, order = OptimalPlan(problem), problem.by_ratio
    wanted = target_win_ratio(problem)
    ratio = wanted.mean[wanted.bins.place(order.ratio)]
    assert plan.winner_distribution[order.tokens].tolist() == (order.draft * ratio).tolist()
    cap = optimal_cap(problem)
    assert set(ratio[order.ratio > ratio]) <= {cap}, "capped"
    assert len(set(ratio[order.ratio < ratio])) <= 1, "raised to one floor"


@given(problems(max_tokens=6, max_drafts=5, exact=True), st.integers(0, 2**32))
def test_decisions_and_laws_are_those_of_the_reference(problem: Problem, seed: int) -> None:
    """Catches any step of the fast plan that is not the theorem's."""
    plan = OptimalPlan(problem)
    draft, target = problem.draft.tolist(), problem.target.tolist()
    reference = ReferencePlan(draft, target, problem.k)
    assert reference.alpha == plan.acceptance
    assert reference.winner_probs == plan.winner_distribution.tolist()
    for token, own in reference.slot_of.items():
        moves = reference.moves[own]
        law = {**moves, own: 1 - sum(moves.values())}
        stored = zip(*map(np.ndarray.tolist, plan.slot_distribution(token)), strict=True)
        assert law == {slot: mass for slot, mass in stored if mass or slot == own}
    rng, tokens = random.Random(seed), list(reference.slot_of)
    edges = [end for move in reference.moves for end in itertools.accumulate(move.values())]
    edges = [F(0), *(end for end in edges if end < 1), *(F(rng.randrange(97), 97) for _ in "abc")]
    for _ in range(20):
        drafts = rng.choices(tokens, k=problem.k)
        uniforms = rng.choices(edges, k=problem.k + 2)
        assert reference.select(drafts, uniforms) == plan.select(drafts, uniforms).token


@given(problems(max_tokens=8, max_drafts=8, exact=True))
def test_swaps_are_few_and_sorted(problem: Problem) -> None:
    slots = OptimalPlan(problem).slots
    swaps, m = slots.swaps, slots.draft.size
    assert swaps.low.size == swaps.high.size == swaps.mass.size < max(m, 1)
    assert (np.diff(swaps.low) >= 0).all()
    assert (np.diff(swaps.high) >= 0).all()
    assert (swaps.low < swaps.high)[swaps.mass > 0].all()
    assert not set(swaps.low) & set(swaps.high)
    assert (swaps.mass >= 0).all()


@given(problems(max_tokens=8, max_drafts=8, exact=True))
def test_slot_laws_are_laws_that_keep_the_mass_of_every_slot(problem: Problem) -> None:
    slots = OptimalPlan(problem).slots
    draft = slots.draft
    mass = [F(0)] * draft.size
    for rank in range(draft.size):
        places, law = slots.slot_distribution(rank)
        assert (law >= 0).all()
        assert law.sum() == 1
        assert (np.diff(places) > 0).all()
        for place, probability in zip(places, law, strict=True):
            mass[place] += draft[rank] * probability
    assert mass == draft.tolist()


@given(problems(max_tokens=8, max_drafts=8))
def test_slot_laws_of_floats_are_what_the_uniforms_find(problem: Problem) -> None:
    slots = OptimalPlan(problem).slots
    for rank in range(slots.draft.size):
        places, law = slots.slot_distribution(rank)
        assert law.sum() == pytest.approx(1, abs=1e-15)
        grid = (np.arange(64) + 0.5) / 64
        found = slots.slots_of(np.full(64, rank), np.ones(64), grid)
        frequencies = [np.count_nonzero(found == place) / 64 for place in places]
        assert sum(frequencies) == 1
        assert abs(np.array(frequencies) - law).max() <= len(places) / 64


@pytest.mark.parametrize("exact", [False, True])
def test_a_uniform_on_the_edge_of_a_slot_takes_the_next(exact: bool) -> None:
    # Sampling: every move owns [start, end), down to the last bit of the grid
    plan = OptimalPlan(instance("three drafts", exact=exact))
    slots = plan.slots
    assert slots.keys.size
    for rank in range(slots.draft.size):
        places, law = slots.slot_distribution(rank)
        moves = [
            *slots.swaps.high[slots.swaps.low == rank],
            *slots.swaps.low[slots.swaps.high == rank],
        ]
        order = [*moves, rank]
        ends = np.cumsum([law[places == place].sum() for place in order])[:-1]
        for end, place, following in zip(ends, order[:-1], order[1:], strict=True):
            below = end - F(1, 2**53) if exact else np.nextafter(end, 0) - 2.0**-53
            edges = np.array([below, end], dtype=law.dtype)
            found = slots.slots_of(np.array([rank, rank]), np.ones(2), edges)
            assert found.tolist() == [place, following]


def test_a_coarse_grid_costs_acceptance_and_nothing_else(monkeypatch: pytest.MonkeyPatch) -> None:
    """Bug: the plan reports the desired distribution, not that of its rounded tables."""
    monkeypatch.setattr("otm.coupling.optimal.slots.KEY_BITS", 7)
    draft, target = [0.37, 0.29, 0.17, 0.11, 0.06], [0.08, 0.13, 0.21, 0.26, 0.32]
    problem = Problem(draft, target, 3)
    plan = OptimalPlan(problem)
    draft_mass = plan.slots.draft
    laws = [list(zip(*plan.slots.slot_distribution(rank), strict=True)) for rank in range(5)]
    winning = np.zeros(5)
    for ranks in itertools.product(range(5), repeat=3):
        for slots in itertools.product(*(laws[rank] for rank in ranks)):
            probability = math.prod(draft_mass[rank] for rank in ranks)
            probability *= math.prod(share for _, share in slots)
            highest = max(slot for slot, _ in slots)
            winners = [
                rank for rank, (slot, _) in zip(ranks, slots, strict=True) if slot == highest
            ]
            for rank in winners:
                winning[rank] += probability / len(winners)
    won = sum(plan.slots.win_ratio) * draft_mass
    assert won == pytest.approx(winning, abs=1e-15)
    assert plan.output_distribution() == pytest.approx(target, abs=1e-15)
    assert 1e-4 < otm.alpha(draft, target, 3) - plan.acceptance < 0.1


@pytest.mark.parametrize("k", [2, 9, 40])
def test_the_winner_on_a_coarse_grid_is_that_of_the_slots(
    monkeypatch: pytest.MonkeyPatch, k: int
) -> None:
    """Catches masses above a slot that omit swapped mass; it shows with many drafts."""
    monkeypatch.setattr("otm.coupling.optimal.slots.KEY_BITS", 7)
    plan = OptimalPlan(Problem([0.37, 0.29, 0.17, 0.11, 0.06], [0.08, 0.13, 0.21, 0.26, 0.32], k))
    laws = [list(zip(*plan.slots.slot_distribution(rank), strict=True)) for rank in range(5)]
    draft = [F(mass) for mass in plan.slots.draft.tolist()]
    in_slot = [F(0)] * 5
    for mass, law in zip(draft, laws, strict=True):
        for slot, share in law:
            in_slot[slot] += mass * F(share)
    total = sum(in_slot)
    ends = list(itertools.accumulate(in_slot, initial=F(0)))
    wins = [
        ((high / total) ** k - (low / total) ** k) / mass if mass else F(0)
        for low, high, mass in zip(ends[:-1], ends[1:], in_slot, strict=True)
    ]
    expected = [sum(F(share) * wins[slot] for slot, share in law) for law in laws]
    found = sum(plan.slots.win_ratio)
    assert found == pytest.approx([float(ratio) for ratio in expected], rel=1e-13)


@pytest.mark.parametrize("share", [0.0, 1e-300])
def test_a_token_that_almost_never_swaps_keeps_its_slot(share: float) -> None:
    """Bug: a uniform stretched beyond all whole numbers, which come out negative."""
    slots = OptimalPlan(instance("three drafts", exact=False)).slots
    ranks = np.repeat(np.arange(slots.draft.size), 2)
    uniforms = np.resize([2.0**-53, 1 - 2.0**-53], ranks.size)
    with np.errstate(divide="ignore"):
        found = slots.slots_of(ranks, np.full(ranks.size, share), uniforms)
    assert found.tolist() == ranks.tolist()


@pytest.mark.parametrize(
    ("draft", "target", "k"),
    [
        ([0.25, 0.25, 0.5000000000000007], [0.5, 0.2, 0.2999999999999993], 3),
        ([0.6, 0.4000000000000007], [0.2, 0.7999999999999993], 64),
    ],
)
def test_sums_that_are_not_quite_one_belong_to_no_token(
    draft: list[float], target: list[float], k: int
) -> None:
    """Catches a winner's distribution with the draft's excess, or twice the target's excess."""
    plan = OptimalPlan(Problem(draft, target, k))
    assert distance_to_target(realised_output(plan)[0], plan) <= 3e-16
    assert math.fsum(plan.winner_distribution) == pytest.approx(math.fsum(target), abs=6e-16)


def test_a_token_that_gives_all_its_mass_away_stays_in_its_row() -> None:
    """Bug: a cumulative probability of one by rounding: the key of the next row."""
    draft = [9.99999e-13, 9.99999e-07, 0.999999]
    target = [9.999999999989988e-16, 0.9999999999989988, 9.99999999998999e-13]
    plan = OptimalPlan(Problem(draft, target, 2))
    assert plan.slots.swaps.mass[0] > plan.slots.draft[1]
    assert plan.slots.ends.max() == 2**plan.slots._grid_bits - 1
    place = plan.slots.swaps.moves.owner[[plan.slots.ends.argmax()]]
    assert plan.slots.slots_of(place, np.ones(1), np.array([1 - 2.0**-53])) == place


@given(problems(max_tokens=8, max_drafts=6, exact=True))
def test_no_rule_accepts_more(problem: Problem) -> None:
    best = OptimalPlan(problem).acceptance
    assert KSeq(problem).acceptance <= best
    assert RecursiveRejection(problem).acceptance <= best


@pytest.mark.parametrize("b", [F(0), F(1, 8), F(1, 4), F(3, 4), F(1)])
@pytest.mark.parametrize("k", [1, 2, 8])
def test_bernoulli_laws(b: Fraction, k: int) -> None:
    # SpecTr, equation 10
    expected = min(b, 1 - F(3, 4) ** k) + min(1 - b, 1 - F(1, 4) ** k)
    problem = Problem([F(3, 4), F(1, 4)], [1 - b, b], k)
    assert OptimalPlan(problem).acceptance == expected


@pytest.mark.parametrize("rare", [1e-30, 1e-300, 4e-322, 5e-324])
def test_a_draft_that_is_almost_never_drawn_costs_nothing(rare: float) -> None:
    # Floats: the mass above the cap cancels, and the cap once came out as zero
    problem = Problem([0.4, 0.6, rare], [0.5, 0.45, 0.05], 2)
    assert OptimalPlan(problem).acceptance == pytest.approx(0.95, abs=1e-15)


def test_a_token_of_many_that_is_almost_never_drawn_has_a_share() -> None:
    """Bug: a ratio of infinity times zero."""
    draft, target = (law.copy() for law in IN_BINS["flat"])
    draft[0], target[0] = 5e-324, 0.25  # with the ratio infinity
    plan = OptimalPlan(Problem(draft / draft.sum(), target / target.sum(), 3))
    assert np.isfinite(plan.winner_distribution).all()
    assert abs(plan.output_distribution() - plan.problem.target).sum() <= 2e-14
    assert abs(plan.acceptance - minimum_cut(plan.problem).value) <= 1e-14
    uniforms = np.full(plan.uniforms_per_selection, 0.5)
    assert plan.select([0, 0, 0], uniforms).index == 0


@pytest.mark.parametrize("rare", [1e-30, 1e-200, 5e-324])
def test_a_win_that_underflows_is_still_rejected(rare: float) -> None:
    # Degenerate distributions: t(x) = 0 and x drafted, where p(x)^k is zero in floats
    plan = OptimalPlan(Problem([rare, 1.0], [0.0, 1.0], 2))
    assert tuple(plan.select([0, 0], [0.5, 0.5, 0.0, 0.5])) == (1, -1)


def test_what_a_plan_hands_out_cannot_be_written_to() -> None:
    """Bug: an array of a frozen plan that its user can change."""
    plan = OptimalPlan(instance("three drafts"))
    handed_out = plan.accept_probability, plan.accepted_mass, plan.winner_distribution
    assert not any(array.flags.writeable for array in handed_out)


def test_what_is_wanted_is_accepted_though_its_mass_underflows() -> None:
    """Bug: a ratio to zero that is not one, where a draft can still come."""
    ratio = acceptance_ratio(np.array([0.5, 0.0, 0.25]), np.array([0.0, 0.0, 0.5]))
    assert ratio.tolist() == [1, 0, 0.5]


def large_laws(n: int) -> dict[str, tuple[Probs, Probs]]:
    """Draft and target distributions of language-model size, in pairs that differ in kind."""
    rng = np.random.default_rng(0)

    def normalised(weights: npt.NDArray[np.float64]) -> Probs:
        return weights / weights.sum()

    peaked = normalised(rng.permutation(1 / np.arange(1, n + 1) ** 1.5))
    near = normalised(peaked * rng.lognormal(sigma=0.7, size=n))
    flat = normalised(rng.random(n) + 0.5), normalised(rng.random(n) + 0.5)
    kept = rng.random((2, n)) < 0.5
    even = np.arange(n) % 2 == 0
    return {
        "peaked": (peaked, near),
        "opposed": (np.sort(peaked), np.sort(peaked)[::-1]),
        "flat": flat,
        "sparse": (normalised(peaked * kept[0]), normalised(near * kept[1])),
        "disjoint": (normalised(flat[0] * even), normalised(flat[1] * ~even)),
        "equal": (peaked, peaked.copy()),
        "steep": (normalised(np.exp(-rng.permutation(n) / 30.0)), near),
    }


LARGE = large_laws(20_000)
IN_BINS = large_laws(8_200)


@pytest.mark.parametrize("k", [2, 8, 64])
@pytest.mark.parametrize("name", LARGE)
def test_large_vocabularies(name: str, k: int) -> None:
    problem = Problem(*LARGE[name], k)
    plan = OptimalPlan(problem)
    swaps = plan.slots.swaps
    assert abs(plan.acceptance - minimum_cut(problem).value) <= 1e-14
    assert abs(plan.output_distribution() - problem.target).sum() <= 2e-14
    assert plan.winner_distribution.sum() == pytest.approx(1, abs=1e-14)
    assert plan.winner_distribution @ (problem.draft == 0) == 0
    assert swaps.mass.size < slots_of_single_tokens(problem)
    assert (swaps.mass >= 0).all()
    assert (swaps.low < swaps.high)[swaps.mass > 0].all()


def slots_of_single_tokens(problem: Problem) -> int:
    return int(np.count_nonzero(problem.draft))


@pytest.mark.parametrize("name", IN_BINS)
@pytest.mark.parametrize("k", [2, 10**9])
def test_the_output_is_the_target_by_code_that_shares_nothing(name: str, k: int) -> None:
    """Catches a claimed distribution that differs from the tables, even in the last digits."""
    if name == "steep" and k > 2:
        pytest.skip("its fractions have too many digits")
    problem = Problem(*IN_BINS[name], k)
    plan = OptimalPlan(problem)
    assert plan.slots.draft.size < slots_of_single_tokens(problem)
    output, accepted = realised_output(plan)
    assert distance_to_target(output, plan) <= 1e-14
    assert float(accepted) == pytest.approx(plan.acceptance, abs=2e-15)


@pytest.mark.parametrize("name", ["peaked", "flat"])
def test_a_token_takes_the_slots_of_its_law(name: str) -> None:
    """Catches a distribution of a bin's mean token, or of a share the wrong way round."""
    plan = OptimalPlan(Problem(*IN_BINS[name], 4))
    tokens = np.flatnonzero(plan.problem.draft)
    places, shares = plan.slots.place(plan.problem.target[tokens] / plan.problem.draft[tokens])
    unlike = np.flatnonzero((abs(shares - 1) > 0.01) & (plan.slots.moved[places] > 0.1))
    points = 1024
    grid = (np.arange(points) + 0.5) / points
    assert unlike.size > 20
    for i in unlike[:: unlike.size // 20]:
        slots, law = plan.slot_distribution(int(tokens[i]))
        assert law.sum() == pytest.approx(1, abs=1e-15)
        taken = plan.slots.slots_of(np.full(points, places[i]), np.full(points, shares[i]), grid)
        assert set(taken.tolist()) <= set(slots.tolist())
        shared = np.array([np.count_nonzero(taken == slot) / points for slot in slots])
        assert abs(shared - law).max() <= 1 / points + 1e-12


def test_more_drafts_than_floats_can_tell_apart_are_refused() -> None:
    """Bug: acceptance lost without a word where α is one."""
    draft, target = IN_BINS["flat"]
    most = OptimalPlan(Problem(draft, target, LARGEST_COUNT))
    assert 1 - most.acceptance <= LARGEST_COUNT * 2.0**-53
    with pytest.raises(InvalidDraftCountError, match="at most 1,073,741,824 drafts"):
        OptimalPlan(Problem(draft, target, LARGEST_COUNT + 1))
    assert otm.alpha(draft, target, 2**62) == 1


@pytest.mark.parametrize("name", LARGE)
def test_large_selections_stay_in_both_supports(name: str) -> None:
    # Sampling: zeros of the target are never output, also at extreme uniforms
    problem = Problem(*LARGE[name], 8)
    plan = OptimalPlan(problem)
    rng = np.random.default_rng(0)
    drafts = rng.choice(np.flatnonzero(problem.draft), size=(2_000, 8))
    numbers = rng.random((2_000, plan.uniforms_per_selection))
    numbers[::5], numbers[1::5] = 0, 1 - 2.0**-53
    token, index = plan.select(drafts, numbers)
    assert (problem.target[token] > 0).all()
    found = np.take_along_axis(drafts, np.maximum(index, 0)[:, None], axis=1)[:, 0]
    assert ((found == token) == (index >= 0)).all()


@pytest.mark.parametrize("k", [2, 8, 64])
@pytest.mark.parametrize("name", LARGE)
def test_other_rules_are_lossless_on_large_vocabularies(name: str, k: int) -> None:
    problem = Problem(*LARGE[name], k)
    alpha = minimum_cut(problem).value
    for plan in (KSeq(problem), RecursiveRejection(problem)):
        assert abs(plan.output_distribution() - problem.target).max() <= 1e-12
        assert plan.acceptance_by_test <= plan.acceptance + 1e-12 <= alpha + 2e-12
    assert KSeq(problem).acceptance >= (1 - (1 - 1 / k) ** k) * alpha - 1e-12


@pytest.mark.parametrize(("n", "bits"), [(2, 53), (1_023, 53), (1_024, 52), (8_192, 49)])
def test_keys_have_all_the_bits_that_rows_leave(n: int, bits: int) -> None:
    """Bug: a bit of the uniforms given away, or one more than there is."""
    draft, target = np.full(n, 1 / n), np.arange(1, n + 1) / (n * (n + 1) / 2)
    slots = OptimalPlan(Problem(draft, target, 2)).slots
    assert slots.draft.size == n, "each ratio has a slot of its own"
    assert slots._grid_bits == bits


def test_a_bin_whose_ratio_is_its_slope_moves_as_one() -> None:
    """Catches a division by the difference, and a rate of infinity times zero."""
    target = target_win_ratio(Problem(*IN_BINS["flat"], 3))
    table = SlotTable.build(target._replace(slope=target.mean), 3)
    assert np.count_nonzero(target.follows) > 20
    assert (table.place(target.bins.ratio)[1] == 1).all()
    draft = IN_BINS["flat"][0].copy()
    wanted = draft * np.linspace(1, 1.3, draft.size)
    draft, wanted = draft / draft.sum(), wanted / wanted.sum()
    draft[0], wanted[0] = 5e-324, 2.0**-50  # a ratio of infinity, where all can be accepted
    slots = OptimalPlan(Problem(draft / draft.sum(), wanted / wanted.sum(), 2)).slots
    assert np.count_nonzero(slots.target.follows)
    assert slots.target.mean[-1] == slots.target.slope[-1] == 2
    assert slots.place(np.array([np.inf]))[1].tolist() == slots.place_few([np.inf])[1] == [1]


def test_only_tokens_that_share_a_bin_move_at_rates_of_their_own() -> None:
    """Catches a rate that is one but for rounding, for a token whose ratio is its bin's."""
    slots = OptimalPlan(Problem(*IN_BINS["flat"], 3)).slots
    bins, target = slots.bins, slots.target
    narrow = (bins.least == bins.most) & (target.mean == bins.least)
    assert narrow.any()
    assert target.follows.any()
    assert not target.follows[narrow].any()
