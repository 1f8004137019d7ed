"""What steps cost: Theorem 3.8 where time is constant, and what was measured elsewhere."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

import numpy as np
import pytest

from otm.errors import InvalidInputError, InvalidParameterError, OTMError
from otm.gain import expected_tokens, overlapped_improvement, walltime_improvement
from otm.gain import measured_latency as module
from otm.gain.latency import Latency
from otm.gain.measured_latency import measure_latency
from otm.models import LanguageModel, Session
from otm.models.base import PaddedTokens

TABLE = Latency((1, 4), (1, 5, 9), (1.0, 2.0), ((10, 12), (14, 20), (16, 30)), overhead=0.5)


@pytest.mark.parametrize("cost", [0.0, 0.05, 1.5])
@pytest.mark.parametrize("gamma", [0, 1, 7])
def test_constant_times_give_theorem_3_8(cost: float, gamma: int) -> None:
    """Catches γ + 1 drafts that are paid for, and K that is when it should not be."""
    latency = Latency.constant(cost)
    for alpha in (0.0, 0.6, 1.0):
        tokens = expected_tokens(alpha, gamma)
        for k in (1, 8):
            assert latency.speedup(tokens, gamma, k) == pytest.approx(
                walltime_improvement(alpha, gamma, cost)
            )


def test_the_time_of_a_step() -> None:
    """Catches rows taken for tokens, γ tokens for γ + 1, and an overhead that is forgotten."""
    assert TABLE.step_time(gamma=4, k=1) == 4 * 1 + 14 + 0.5
    assert TABLE.step_time(gamma=8, k=4) == 8 * 2 + 30 + 0.5
    assert TABLE.step_time(gamma=0, k=1) == 10.5
    assert TABLE.speedup(3.0, gamma=4, k=4) == pytest.approx(3 * 10 / (4 * 2 + 20 + 0.5))


def test_times_between_measured_ones_are_interpolated() -> None:
    assert TABLE.step_time(gamma=4, k=2) == pytest.approx(4 * (1 + 1 / 3) + 16 + 0.5)
    assert TABLE.step_time(gamma=6, k=1) == pytest.approx(6 + 15 + 0.5)


@pytest.mark.parametrize(("gamma", "k"), [(9, 1), (1, 5)])
def test_times_beyond_the_table_are_not_guessed(gamma: int, k: int) -> None:
    """Catches NumPy's interpolation, which goes on with the last value."""
    with pytest.raises(InvalidInputError, match="measure more"):
        TABLE.step_time(gamma, k)


def test_a_table_survives_json() -> None:
    read = Latency(**json.loads(json.dumps(dataclasses.asdict(TABLE))))
    assert read.step_time(6, 3) == TABLE.step_time(6, 3)


@pytest.mark.parametrize("hit_rate", [0.0, 0.5, 1.0])
@pytest.mark.parametrize("cost", [0.125, 0.5])
def test_constant_times_give_theorem_25_6(cost: float, hit_rate: float) -> None:
    """Cost 0.5: preparing takes longer than verifying.  Bug: a hit that still waits for drafts."""
    latency = Latency.constant(cost).overlapped(hit_rate, prepared=4)
    for alpha, gamma in ((0.6, 1), (0.6, 4), (1.0, 7)):
        tokens = expected_tokens(alpha, gamma)
        assert latency.speedup(tokens, gamma, k=2) == pytest.approx(
            overlapped_improvement(alpha, gamma, cost, hit_rate)
        )


def test_the_time_of_a_step_with_prepared_drafts() -> None:
    """By hand.  Bug: prepared rows that cost nothing, or that the waiting draft model reads too."""
    slow = dataclasses.replace(TABLE, draft=(4.0, 8.0))
    assert slow.overlapped(0.25, prepared=4).step_time(4, 1) == max(4 * 8, 14) + 0.75 * 16 + 0.5
    assert TABLE.overlapped(0.25, prepared=4).step_time(4, 1) == 14 + 0.75 * 4 + 0.5
    assert (
        slow.overlapped(0.25, prepared=2).tree_time([1, 2])
        == max(2 * (4 + 4 / 3), 13) + 0.75 * 8 + 0.5
    )
    assert slow.overlapped(0.25, prepared=2).under_load(2).step_time(4, 1) == pytest.approx(
        max(4 * 8, 14 + 2) + 0.75 * 4 * (4 + 4 / 3) + 0.5
    )
    with pytest.raises(InvalidInputError, match="K = 1"):
        TABLE.overlapped(0.5, prepared=4).step_time(4, 2)
    for wrong in ({"hit_rate": 1.5}, {"hit_rate": 0.5, "prepared": 0}):
        with pytest.raises(InvalidParameterError, match=r"1\.5|prepared"):
            TABLE.overlapped(**wrong)


class Clock:
    """Time that passes only where a model says so."""

    def __init__(self) -> None:
        self.now = 0.0

    def perf_counter(self) -> float:
        return self.now


class TimedModel(LanguageModel):
    """Takes a + b·tokens + c·rows for each forward pass, and longer for the first ones."""

    vocabulary = 5

    def __init__(self, clock: Clock, a: float, b: float, c: float) -> None:
        self.clock, self.costs = clock, (a, b, c)
        self.lengths: list[int] = []
        self.passes = 0

    def start(self, rows: int) -> Session:
        return TimedSession(self, rows)


class TimedSession(Session):
    def __init__(self, model: TimedModel, rows: int) -> None:
        self.model, self.rows, self.length = model, rows, 0

    def append(self, tokens: PaddedTokens) -> Any:
        assert tokens.shape[0] == self.rows
        assert (tokens >= 0).all()
        a, b, c = self.model.costs
        self.model.passes += 1
        cold = 100.0 if self.model.passes <= 12 else 0.0  # the prompts, and the first round
        self.model.clock.now += a + b * tokens.shape[1] + c * self.rows + cold
        self.model.lengths.append(self.length)
        self.length += tokens.shape[1]
        return np.zeros((*tokens.shape, 5))

    def keep(self, rows: Any, lengths: Any) -> None:
        assert len(rows) == self.rows
        self.length = int(lengths[0])


def test_measuring_gives_the_times_of_the_models(monkeypatch: pytest.MonkeyPatch) -> None:
    """Catches shapes that are mixed up, prompts that grow, and first runs that count."""
    clock = Clock()
    monkeypatch.setattr(module, "time", clock)
    target, draft = TimedModel(clock, 10, 1, 0.25), TimedModel(clock, 1, 0.5, 0.125)
    target.passes, draft.passes = 0, 6  # nine shapes and three prompts, three and three
    found = measure_latency(target, draft, 20, gammas=[2, 4], ks=[4, 2], repeats=1, overhead=0.5)
    assert found.tokens == (1, 3, 5)
    assert found.rows == (1, 2, 4)
    assert found.draft == pytest.approx([1.5 + 0.125 * k for k in (1, 2, 4)])
    expected = [[10 + n + 0.25 * k for k in (1, 2, 4)] for n in (1, 3, 5)]
    assert np.array(found.target) == pytest.approx(np.array(expected))
    assert set(target.lengths[3:]) == set(draft.lengths[3:]) == {20}
    assert found.overhead == 0.5


def test_a_slow_baseline_feigns_no_gain(monkeypatch: pytest.MonkeyPatch) -> None:
    """Catches a disturbed time of one token, beside which every step looks fast."""
    clock = Clock()
    monkeypatch.setattr(module, "time", clock)
    target = TimedModel(clock, 10, -1, -1)  # less time for more tokens and rows
    found = measure_latency(
        target, TimedModel(clock, 1, 0, 0), 20, gammas=[2, 4], ks=[4], repeats=1
    )
    assert np.array(found.target) == pytest.approx(10 - 5 - 4)


@pytest.mark.parametrize(
    "wrong",
    [
        {"rows": (2, 4)},
        {"rows": (1, 1)},
        {"rows": ()},
        {"tokens": (1, 9, 5)},
        {"tokens": (1, 5)},
        {"draft": (1.0,)},
        {"draft": (1.0, -2.0)},
        {"target": ((0, 12), (14, 20), (16, 30))},
        {"target": ((10,), (14,), (16,))},
        {"overhead": -1},
    ],
)
def test_wrong_tables_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises((InvalidInputError, InvalidParameterError)) as caught:
        dataclasses.replace(TABLE, **wrong)
    assert isinstance(caught.value, OTMError)


def test_what_is_no_model_is_not_measured() -> None:
    """Bug: AttributeError for a model of transformers that nobody wrapped."""
    model = TimedModel(Clock(), 1, 1, 1)
    for pair in ((object(), model), (model, object())):
        with pytest.raises(InvalidInputError, match="give a LanguageModel"):
            measure_latency(*pair, 16, gammas=[1], ks=[1])  # type: ignore[arg-type]


def test_what_cannot_be_measured_is_refused() -> None:
    model = TimedModel(Clock(), 1, 1, 1)
    model.context_length = 8
    with pytest.raises(InvalidInputError, match="draft model, whose limit is 8 tokens"):
        measure_latency(TimedModel(Clock(), 1, 1, 1), model, 6, [3], [1])
    with pytest.raises(InvalidParameterError, match="repeats"):
        measure_latency(model, model, 4, [3], [1], repeats=0)
    assert model.lengths == []


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"target": ((10, 12), (0, 20), (16, 30))}, "above 0"),
        ({"rows": None}, "give integers"),
        ({"tokens": "159"}, "give integers"),
    ],
)
def test_bad_tables_are_refused(change: Any, words: str) -> None:
    """Bugs: a division by zero in `speedup`, and errors of Python."""
    with pytest.raises(InvalidParameterError, match=words):
        Latency(**(dataclasses.asdict(TABLE) | change))
