from __future__ import annotations

import numpy as np
import pytest
from hypothesis import example, given

import otm
from otm._core.ratios import bins as ratio_bins
from otm._core.ratios.bins import FEW, RatioBins
from otm.coupling import KSeq, RecursiveRejection
from otm.coupling.compare.capped import by_cut, by_division_factor, by_rounds
from otm.coupling.lossy import LenientPlan, TypicalAcceptance
from otm.coupling.lossy.lenient import distance_to_target
from otm.gain.reports.pairs import measure_pair, typical
from otm.gain.reports.settings import Settings, Typical
from otm.optimum.cut import optimal_cap
from otm.optimum.lenience import lenient_value
from otm.testing.strategies import pairs

KS = (1, 2, 3, 5, 8, 64)


@given(pair=pairs(max_tokens=8))
def test_all_three_rules_accept_what_their_plans_do(pair: tuple[np.ndarray, np.ndarray]) -> None:
    """Catches a root on the wrong piece, a lost token with p = 0, and rounds that go on too far."""
    draft, target = pair
    order = RatioBins.of(draft, target)
    optimum, lenient = by_cut(order, KS, [0.9, 0.5])
    k_seq, rounds = by_division_factor(order, KS), by_rounds(order, KS)
    for i, k in enumerate(KS):
        problem = otm.Problem(draft, target, k)
        assert optimum.probability[i] == pytest.approx(otm.alpha(draft, target, k), abs=1e-14)
        assert optimum.cap[i] == pytest.approx(optimal_cap(problem), abs=1e-12)
        assert k_seq.probability[i] == pytest.approx(KSeq(problem).acceptance, abs=1e-12)
        rejection = RecursiveRejection(problem).acceptance
        assert rounds.probability[i] == pytest.approx(rejection, abs=1e-12)
        for j, lenience in enumerate([0.9, 0.5]):
            wanted = lenient_value(problem, lenience)
            assert lenient[j, i] == pytest.approx(wanted, abs=1e-14)
        # each cap accepts its mass
        for found in (k_seq, rounds):
            mass = np.minimum(target, found.cap[i] * draft).sum()
            assert found.probability[i] == pytest.approx(mass, abs=1e-12)


@pytest.mark.parametrize("spread", [0.01, 1, 20])
def test_long_laws_too(spread: float) -> None:
    """Catches errors that grow with the length, and Newton's steps that never settle."""
    rng = np.random.default_rng(1)
    weights = np.exp(spread * rng.normal(size=(2, 20_000)))
    draft, target = weights / weights.sum(axis=1, keepdims=True)
    order = RatioBins.of(draft, target, few=draft.size)
    for k, found in zip((2, 8), by_division_factor(order, (2, 8)).probability, strict=True):
        wanted = KSeq(otm.Problem(draft, target, k)).acceptance
        assert found == pytest.approx(wanted, abs=1e-12)
    for k, found in zip((2, 8), by_rounds(order, (2, 8)).probability, strict=True):
        wanted = RecursiveRejection(otm.Problem(draft, target, k)).acceptance
        assert found == pytest.approx(wanted, abs=1e-12)


@given(pair=pairs(max_tokens=8))
@example(pair=(np.array([0.5, 0.5]), np.array([5e-324, 1.0])))  # a ratio beyond all floats
def test_knobs_cost_what_their_plans_do(pair: tuple[np.ndarray, np.ndarray]) -> None:
    """Catches a tie that is broken otherwise, or mass of unlikely tokens that is counted twice."""
    draft, target = pair
    optimum, lenient = by_cut(RatioBins.of(draft, target), KS, [0.5])
    for setting in (Typical(), Typical(0.5, 0.9), Typical(1.0, 1.0), Typical(0, 0)):
        found = typical(draft, target, KS, setting)
        for i, k in enumerate(KS):
            problem = otm.Problem(draft, target, k)
            plan = TypicalAcceptance(problem, setting.epsilon, setting.delta)
            assert found[0, i] == pytest.approx(plan.acceptance, abs=1e-12)
            distance = distance_to_target(plan).total_variation
            assert found[1, i] == pytest.approx(distance, abs=1e-12)
    for i, k in enumerate(KS):
        plan = LenientPlan(otm.Problem(draft, target, k), 0.5)
        assert lenient[0, i] == pytest.approx(plan.acceptance, abs=1e-10)
        distance = distance_to_target(plan).total_variation
        assert lenient[0, i] - optimum.probability[i] == pytest.approx(distance, abs=1e-10)


@pytest.mark.parametrize("name", ["apart", "close", "closer", "top p", "equal", "few ratios"])
@pytest.mark.parametrize("ks", [(1, 2, 3, 8), (2, 64)])
def test_bins_give_what_a_sort_gives(
    name: str, ks: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Catches a cap or a cut inside a bin that is not split, for the last or an earlier round."""
    rng = np.random.default_rng(5)
    logits = 3 * rng.normal(size=FEW + 900)
    noise = {"close": 0.02, "closer": 1e-5, "equal": 0}.get(name, 1.0)
    target, draft = (np.exp(x) for x in (logits, logits + noise * rng.normal(size=logits.size)))
    if name == "top p":
        target[target < np.quantile(target, 0.5)] = 0
        draft[draft < np.quantile(draft, 0.7)] = 0
    if name == "few ratios":
        target, draft = rng.integers(1, 5, logits.size), np.ones(logits.size)
    draft, target = draft / draft.sum(), target / target.sum()
    drawn = int(target.argmax())  # for tokens that are next to never drawn a cap is rounding
    ratio = draft[drawn] / target[drawn]
    in_bins = measure_pair(draft, target, Settings(ks=ks), ratio)
    monkeypatch.setattr(ratio_bins, "in_bins", lambda *_: False)
    by_sort = measure_pair(draft, target, Settings(ks=ks), ratio)
    for key, found in in_bins.items():
        assert found == pytest.approx(by_sort[key], abs=1e-12), key


def test_caps_of_values_are_the_optimal_caps() -> None:
    """Catches a cap that is none where all that can be drafted is accepted, or below one."""
    rng = np.random.default_rng(6)
    for zeros in (0, 3):
        draft, target = rng.dirichlet(np.ones(12), size=2)
        draft[:zeros], target[6 : 6 + zeros] = 0, 0
        draft, target = draft / draft.sum(), target / target.sum()
        found = by_cut(RatioBins.of(draft, target), KS)[0].cap
        wanted = [optimal_cap(otm.Problem(draft, target, k)) for k in KS]
        assert found == pytest.approx(wanted, abs=1e-12)
