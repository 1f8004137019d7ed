"""Recommendations: the largest speed-up, from efficiencies and times computed elsewhere."""

from __future__ import annotations

import numpy as np
import pytest

from otm.decoding import ModelDrafter, SamplingParameters, spectr
from otm.errors import InvalidInputError, InvalidParameterError, UnknownMethodError
from otm.gain.efficiency import block_efficiency
from otm.gain.efficiency_bound import efficiency_bound
from otm.gain.latency import Latency
from otm.gain.recommendation import Recommendation, recommend
from otm.gain.recording import record
from otm.models import LanguageModel, TableModel

RNG = np.random.default_rng(21)
TARGET, DRAFT = (
    TableModel({(c,): RNG.dirichlet(np.full(6, 0.7)) for c in range(6)} | {(): np.full(6, 1 / 6)})
    for _ in range(2)
)
CONTEXTS = [[(c,), (c, 2)] for c in range(6)]
ALIKE = Latency.constant(0.02)


def recommended(latency: Latency, draft: LanguageModel = DRAFT) -> Recommendation:
    return recommend(TARGET, draft, CONTEXTS, latency, ks=[1, 4], gammas=[1, 3], seed=5)


def test_speedups_are_efficiencies_over_times() -> None:
    """Catches the time of another setup, and candidates that are not in order."""
    latency = Latency((1, 4), (1, 4), (0.1, 0.2), ((1.0, 1.2), (1.3, 2.0)))
    found = recommended(latency)
    recordings = record(TARGET, ModelDrafter(DRAFT, 4), CONTEXTS, 3, seed=5)
    means = block_efficiency(recordings, ks=[1, 4], gammas=[1, 3])
    alike = {("optimal", 1, 1), ("optimal", 1, 3), ("traversal", 1, 1)}  # all as k-Seq
    alike |= {("walk and keep", 1, 1), ("walk and keep", 1, 3)}  # as traversal
    assert {candidate.setup for candidate in found.candidates} == set(means) - alike
    bounds = efficiency_bound(recordings, [1, 4], [1, 3])
    assert f"No memoryless lossless verifier exceeds {found.best.bound} tokens" in str(found)
    speeds = []
    for candidate in found.candidates:
        assert candidate.bound == bounds["bound", *candidate.setup[1:]]
        setup = candidate.setup
        assert candidate.block_efficiency == pytest.approx(means[setup])
        assert candidate.speedup.mean == pytest.approx(
            latency.speedup(means[setup].mean, setup.gamma, setup.k)
        )
        assert candidate.gap_to_best.mean == pytest.approx(
            found.best.speedup.mean - candidate.speedup.mean
        )
        speeds.append(candidate.speedup.mean)
    assert speeds == sorted(speeds, reverse=True)
    assert found.best.gap_to_best == (0, 0, 0)


def test_the_costs_decide() -> None:
    """Catches a decision by block efficiency alone."""
    fast_rows = Latency((1, 4), (1, 4), (0.02, 0.02), ((1.0, 1.001), (1.0, 1.001)))
    assert recommended(fast_rows).best.setup[1:] == (4, 3)
    slow_rows = Latency((1, 4), (1, 4), (0.02, 0.02), ((1.0, 4.0), (1.0, 4.0)))
    assert recommended(slow_rows).best.setup[1:] == (1, 3)
    slow_tokens = Latency((1, 4), (1, 2, 4), (0.02, 0.02), ((1.0, 1.0), (1.0, 1.0), (3.0, 3.0)))
    assert recommended(slow_tokens).best.setup[1:] == (4, 1)


def test_costs_that_say_nothing_of_chains_decide_nothing_about_them() -> None:
    """Catches an answer that rests on chains that cost nothing: the largest K would always win."""
    found = recommended(ALIKE)
    assert found.best.setup[1:] == (1, 3)
    assert {candidate.setup.k for candidate in found.candidates} == {1}
    free = found.if_chains_are_free
    assert {candidate.setup.k for candidate in free} == {4}
    assert free[0].speedup.mean == max(candidate.speedup.mean for candidate in free)
    assert free[0].gap_to_best.mean == pytest.approx(found.best.speedup.mean - free[0].speedup.mean)
    first = free[0].setup
    assert f"If they cost nothing, {first.rule}, K = 4, γ = {first.gamma} would be" in str(found)
    fewest = recommend(TARGET, DRAFT, CONTEXTS, ALIKE, ks=[2, 4], gammas=[1], seed=5)
    assert fewest.best.setup.k == 2


def test_drafting_that_does_not_pay_is_not_recommended() -> None:
    """Catches a best setup that is sold although it is slower than none."""
    found = recommended(Latency.constant(5.0))
    assert not found.beats_autoregressive
    assert str(found).startswith("Do not use drafts with these models. The best setting found (")
    assert f"({found.best.setup.rule}, K = 1," in str(found)
    assert recommended(ALIKE, TARGET).beats_autoregressive


def test_the_draft_model_is_sampled_like_the_target() -> None:
    """Catches a temperature or truncation that acts on the target instead."""
    sampling = SamplingParameters(temperature=0.5, top_k=2)
    found = recommend(
        TARGET, TARGET, CONTEXTS, ALIKE, rules=["k-Seq"], ks=[1], gammas=[3],
        sampling=sampling, draft_temperatures=[1.0, 0.5], draft_truncations=[{}, {"top_k": None}],
    )  # fmt: skip
    assert len(found.candidates) == 4
    assert found.best.draft_sampling == sampling
    assert found.best.block_efficiency.mean == pytest.approx(4)  # draft and target are equal
    assert found.candidates[1].block_efficiency.mean < 4 - 1e-6


def test_the_best_is_what_to_pass_on() -> None:
    """Catches names of arguments that `spectr` does not have."""
    found = recommended(ALIKE)
    generation = spectr(TARGET, DRAFT, [[0]], max_tokens=12, seed=0, **found.best.arguments)
    assert generation.tokens == 12
    assert max(step.drafted for step in generation.steps) == found.best.setup.gamma


class Untouched(TableModel):
    """A model that must not be run."""

    def probs(self, context: tuple[int, ...]) -> np.ndarray:
        raise AssertionError


def test_wrong_arguments_are_refused_before_models_run() -> None:
    """Catches a long recording that ends in an error about a name."""
    model = Untouched({(): [0.5, 0.5]})
    table = Latency((1, 2), (1, 3), (0.1, 0.1), ((1.0, 1.0), (1.0, 1.0)))
    contexts = [[(0,)]]
    with pytest.raises(InvalidInputError, match="measure more"):
        recommend(model, model, contexts, table, ks=[4], gammas=[2])
    with pytest.raises(InvalidInputError, match="measure more"):
        recommend(model, model, contexts, table, ks=[2], gammas=[3])
    with pytest.raises(UnknownMethodError):
        recommend(model, model, contexts, table, rules=["best"], ks=[2], gammas=[2])
    with pytest.raises(InvalidParameterError, match="temperature"):
        recommend(model, model, contexts, table, ks=[2], gammas=[2], draft_temperatures=[-1])
    with pytest.raises(InvalidParameterError, match="'top_q'"):
        recommend(
            model, model, contexts, table, ks=[2], gammas=[2], draft_truncations=[{"top_q": 1}]
        )
    with pytest.raises(InvalidParameterError, match="gamma"):
        recommend(model, model, contexts, table, ks=[2], gammas=[0])
    with pytest.raises(InvalidParameterError, match="to compare is empty"):
        recommend(model, model, contexts, table, ks=[])
    with pytest.raises(InvalidParameterError, match="to compare is empty"):
        recommend(model, model, contexts, table, ks=[2], gammas=[2], draft_temperatures=[])
