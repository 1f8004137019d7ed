"""Coupled rounds on a device: the steps of the host, and one way there."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import pytest

from otm.coupled import decode_coupled
from otm.coupled.rounds import CoupledRounds, CoupledVerifier
from otm.decoding import ModelDrafter, PromptLookup, SamplingParameters, stream
from otm.errors import InvalidDistributionError
from otm.models import LanguageModel, TableModel

torch = pytest.importorskip("torch")

from otm.coupled.device_rounds import CoupledDeviceRounds, DeviceClocks  # noqa: E402
from otm.decoding.device.session import (  # noqa: E402
    DeviceSession,
)
from tests.decoding.device.test_rounds import (  # noqa: E402
    PROMPTS,
    Broken,
    Stated,
    changing,
    gpt,
    penalised,
)
from tests.decoding.device.ways_to_host import counted_by_step  # noqa: E402

TARGET, DRAFT = gpt(0, layers=2), gpt(1, layers=1)
CHAINS = [1, 3]
SAMPLING = [None, SamplingParameters(0.8, top_k=3, top_p=0.9, min_p=0.01)]

Use = Callable[[bool], None]


@pytest.fixture
def on_device(monkeypatch: pytest.MonkeyPatch) -> Iterator[Use]:
    """Switch to the rounds of the device, or back to the host's; the other ones then fail."""

    def no_step(*_: Any) -> Any:
        raise AssertionError("rounds of the other place")

    def use(device: bool) -> None:
        monkeypatch.undo()
        monkeypatch.setattr(CoupledRounds if device else CoupledDeviceRounds, "step", no_step)
        monkeypatch.setattr("otm.decoding.rounds.RoundsTask.suits_device", lambda _: device)

    yield use
    monkeypatch.undo()


def steps(drafter: Any, lists: int, **options: Any) -> list[Any]:
    """Decode, and return what every step drafted and put out."""
    target: LanguageModel = options.pop("target", TARGET)
    prompts: Sequence[Any] = options.pop("prompts", PROMPTS)
    options = {"max_tokens": 15, "seed": 4, **options}
    made = stream(target, prompts, drafter, CoupledVerifier(lists), **options)
    return [(x.sequence, x.gamma, x.drafts, x.output, x.accepted, x.finish_reason) for x in made]


@pytest.mark.parametrize("chains", CHAINS)
@pytest.mark.parametrize("gamma", [3, changing], ids=["fixed", "changing"])
@pytest.mark.parametrize("processor", [None, penalised], ids=["plain", "processed"])
def test_steps_are_those_of_the_host(
    chains: int, gamma: Any, processor: Any, on_device: Use
) -> None:
    """Catches keys, positions and lists of another row, when sequences end one by one."""
    made = []
    for device in (True, False):
        on_device(device)
        made += [
            steps(
                ModelDrafter(DRAFT, chains, sampling, processor), chains,
                gamma=gamma, eos_token_id=4, sampling=sampling, logits_processor=processor,
            )
            for sampling in SAMPLING
        ]  # fmt: skip
    on_the_device, on_the_host = made[:2], made[2:]
    assert on_the_device == on_the_host
    for found in on_the_device:
        assert {step[4] for step in found} >= {0, 1}
        assert "eos" in {step[5] for step in found}
    assert on_the_device[0] != on_the_device[1]


def test_models_that_return_arrays(on_device: Use) -> None:
    """Of a table in floats, whose probabilities become tensors, by the same clocks."""
    rng = np.random.default_rng(3)
    target, draft = (TableModel.random(5, 2, rng) for _ in range(2))
    made = []
    for device in (True, False):
        on_device(device)
        made.append(steps(ModelDrafter(draft, 2), 2, target=target, gamma=3))
    assert made[0] == made[1]


@pytest.mark.parametrize("lists", CHAINS)
def test_one_text_with_any_drafter_in_any_batch(lists: int, on_device: Use) -> None:
    """Catches clocks that follow the drafts, or the place in the batch."""
    options: dict[str, Any] = {"max_tokens": 12, "seed": 0, "eos_token_id": 4, "lists": lists}
    on_device(False)
    expected = decode_coupled(TARGET, None, PROMPTS, **options).sequences
    on_device(True)
    for drafter, k, gamma in (
        (None, 1, 5),
        (DRAFT, lists, 2),
        (TARGET, 1, 4),
        (PromptLookup(2), 1, 3),
        (ModelDrafter(DRAFT, lists), 1, changing),
    ):
        given: Any = decode_coupled(TARGET, drafter, PROMPTS, k=k, gamma=gamma, **options)
        assert given.sequences == expected
    for b in range(len(PROMPTS)):
        made = decode_coupled(TARGET, DRAFT, PROMPTS[: b + 1], k=lists, **options)
        assert made.sequences[b] == expected[b]
    other = {**options, "lists": lists + 1}
    assert decode_coupled(TARGET, DRAFT, PROMPTS, k=lists, **other).sequences != expected


def test_a_target_that_drafts_for_itself_is_always_accepted(on_device: Use) -> None:
    """With one list; catches a draft that reads the clocks of another position."""
    on_device(True)
    for step in decode_coupled(TARGET, TARGET, PROMPTS, gamma=4, max_tokens=15, seed=1).steps:
        assert step.accepted == min(4, 14 - (step.position - len(PROMPTS[step.sequence])))


@pytest.mark.parametrize("slip", ["position", "list", "key"])
def test_a_slip_changes_the_text(
    slip: str, on_device: Use, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Negative control of the comparisons above."""
    on_device(False)
    expected = steps(ModelDrafter(DRAFT, 2), 2, gamma=3)
    on_device(True)
    first = DeviceClocks.first

    def slipped(clocks: Any, probs: Any, offsets: Any, lists: Any, count: int) -> Any:
        if slip == "key":
            clocks._keys = [key + 1 for key in clocks._keys]
            clocks._there = {}
        return first(clocks, probs, offsets + (slip == "position"), lists + (slip == "list"), count)

    monkeypatch.setattr(DeviceClocks, "first", slipped)
    assert steps(ModelDrafter(DRAFT, 2), 2, gamma=3) != expected


@pytest.mark.parametrize("chains", CHAINS)
@pytest.mark.parametrize("sampling", SAMPLING, ids=str)
def test_one_copy_of_whole_numbers_a_round(
    chains: int, sampling: Any, on_device: Use, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Catches any other way to the host; a copy of scores would be V times as long."""
    on_device(True)
    gamma = 3
    with counted_by_step(monkeypatch) as rounds:
        steps(ModelDrafter(DRAFT, chains, sampling), chains, gamma=gamma, sampling=sampling)
    most = len(PROMPTS) * (chains * gamma + gamma + 3)
    assert len(rounds) > 5
    assert all(len(sizes) == 1 and sizes[0] <= most for sizes in rounds)


def test_a_further_way_to_the_host_is_counted(
    on_device: Use, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Negative control of the test above."""
    on_device(True)
    first = DeviceClocks.first

    def leaking(clocks: DeviceClocks, probs: Any, *more: Any) -> Any:
        bool(probs.isfinite().all())
        return first(clocks, probs, *more)

    monkeypatch.setattr(DeviceClocks, "first", leaking)
    with counted_by_step(monkeypatch) as rounds:
        steps(ModelDrafter(DRAFT), 1, gamma=2, max_tokens=4)
    assert all(len(sizes) > 1 for sizes in rounds[:1])


def test_no_draft_probabilities_are_kept(on_device: Use, monkeypatch: pytest.MonkeyPatch) -> None:
    """Bug: memory for the rows of all levels, which nothing reads."""
    on_device(True)
    shapes = []
    memory = DeviceSession.memory

    def noted(rows: DeviceSession, like: Any, shape: tuple[int, ...]) -> Any:
        if rows.model is DRAFT:
            shapes.append(shape)
        return memory(rows, like, shape)

    monkeypatch.setattr(DeviceSession, "memory", noted)
    steps(ModelDrafter(DRAFT, 3), 3, gamma=4, prompts=PROMPTS[:1])
    assert set(shapes) == {(1, 3, 1, 5)}


@pytest.mark.parametrize("place", ["target", "draft"])
def test_scores_without_a_distribution_are_refused(place: str, on_device: Use) -> None:
    on_device(True)
    models = {"target": Broken(0.0, 3), "draft": Broken(0.0, 3), place: Broken(np.nan, 3)}
    named = f"sequence 1 of the batch: the logits of the {place} model have NaN"
    for chains in CHAINS:
        with pytest.raises(InvalidDistributionError, match=named):
            steps(
                ModelDrafter(models["draft"], chains), chains,
                target=models["target"], prompts=[[1], [3]], gamma=2,
            )  # fmt: skip


def test_where_the_rounds_are_played(monkeypatch: pytest.MonkeyPatch) -> None:
    """Bug: a device that is used where the host does better, or not used at all."""
    scores = np.random.default_rng(5).normal(0, 3, 2048).tolist()
    long, short = Stated(scores, torch.float64), Stated(scores[:9], torch.float64)
    played: list[type] = []
    for rounds in (CoupledRounds, CoupledDeviceRounds):
        step = rounds.step

        def noted(self: Any, *arguments: Any, step: Any = step) -> Any:
            played.append(type(self))
            return step(self, *arguments)

        monkeypatch.setattr(rounds, "step", noted)
    texts = {}
    for name, target, drafter, options in (
        ("chains", long, ModelDrafter(long, 2), {}),
        ("alone", long, None, {}),
        ("a tree", long, ModelDrafter(long, (2, 1)), {}),
        ("few are left", long, ModelDrafter(long, 2), {"sampling": SamplingParameters(top_k=5)}),
        ("few tokens", short, ModelDrafter(short, 2), {}),
    ):
        played.clear()
        found = steps(drafter, 2, target=target, prompts=[[0]], max_tokens=6, gamma=2, **options)
        on_host = name not in {"chains", "alone"}
        assert set(played) == {CoupledRounds if on_host else CoupledDeviceRounds}, name
        texts[name] = [token for step in found for token in step[3]]
    assert texts["chains"] == texts["alone"] == texts["a tree"]
