"""The experiments of docs/train-a-draft.md, in small: objectives, training, judgement."""

from __future__ import annotations

from types import ModuleType

import numpy as np
import pytest

torch = pytest.importorskip("torch")

import otm  # noqa: E402
from otm.models import load  # noqa: E402
from otm.models.gpt.train import default_text, split  # noqa: E402
from tests.repo.pages import load as load_file  # noqa: E402


@pytest.fixture(scope="module")
def script() -> ModuleType:
    return load_file("examples/training/train_a_draft.py")


def test_objectives_are_what_their_names_say(script: ModuleType) -> None:
    """Bug: draft and target swapped, which a total variation distance alone would not show."""
    generator = torch.Generator().manual_seed(0)
    logits, scores = torch.randn(2, 2, 3, 5, generator=generator).double()
    target, tokens = scores.softmax(-1), torch.tensor([[0, 1, 2], [3, 4, 0]])
    p, q = logits.softmax(-1).numpy().reshape(6, 5), target.numpy().reshape(6, 5)
    alphas = {k: np.mean([otm.alpha(a, b, k) for a, b in zip(p, q, strict=True)]) for k in (1, 4)}
    overlap = np.minimum(p, q).sum(-1)
    expected = {
        "text": -np.log(p[np.arange(6), tokens.numpy().ravel()]).mean(),
        "KL": (q * np.log(q / p)).sum(-1).mean(),
        "1 - alpha_1": abs(p - q).sum(-1).mean() / 2,
        "-log alpha_1": -np.log(overlap).mean(),
        "1 - alpha_4": 1 - alphas[4],
        "both alphas": 1 - (alphas[1] + alphas[4]) / 2,
    }
    assert script.OBJECTIVES.keys() == expected.keys()
    for name, objective in script.OBJECTIVES.items():
        assert objective(logits, target, tokens).item() == pytest.approx(expected[name], rel=1e-12)


def test_every_copy_is_trained_and_the_target_is_not(script: ModuleType) -> None:
    """Bug: copies that share weights, an objective without a gradient, a seed that is not used."""
    target, start = load("target"), load("small")
    seen, _ = split(default_text())
    first, again = (script.train(target, seen, steps=2, seed=0) for _ in range(2))
    trained = [draft.weights["norm"] for draft in first.values()]
    assert len({tuple(weight.tolist()) for weight in trained}) == len(script.OBJECTIVES)
    assert not any(torch.equal(weight, start.weights["norm"]) for weight in trained)
    repeated = [draft.weights["norm"] for draft in again.values()]
    assert all(map(torch.equal, trained, repeated))
    assert torch.equal(target.weights["norm"], load("target").weights["norm"])


def test_models_are_judged_at_every_position(
    script: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Bug: the two models' distributions are swapped or shifted, or steps mix prompts."""
    monkeypatch.setattr(script, "PROMPTS", 2)
    monkeypatch.setattr(script, "TOKENS", 6)
    target, draft = load("target"), load("small")
    tokens = split(default_text())[1][:700]
    found = script.judge(target, draft, tokens)
    values, windows = found["alpha_1"]
    assert len(values) == len(tokens) == len(windows)
    assert np.bincount(windows).tolist() == [512, 188]
    p, q = (
        model.logits(tokens[None, :512])[0, 77].double().softmax(-1) for model in (draft, target)
    )
    assert values[77] == pytest.approx(torch.minimum(p, q).sum().item(), rel=1e-9)
    for k in (1, 4):
        tokens_of_steps, prompts = found[f"tokens, K = {k}"]
        assert np.bincount(prompts, tokens_of_steps).tolist() == [6, 6]


def test_training_for_a_block_teaches_each_copy_and_judges_it() -> None:
    """Bug: distributions of other places than the tokens, texts that the target did not draw."""
    script = load_file("examples/training/train_for_a_block.py")
    target = load("target")
    script.LENGTH = 24
    seen, _ = split(default_text())
    drawn = script.texts(target, seen, 4, seed=0)
    assert drawn.shape == (4, script.PROMPT + 24)
    of_target = script.laws(target, drawn).softmax(-1)
    tokens = drawn[:, script.PROMPT :]
    assert of_target.shape[:2] == tokens.shape
    surprise = -of_target.gather(-1, tokens[..., None]).log().mean()
    entropy = -(of_target * of_target.log()).sum(-1).mean()
    assert abs(surprise - entropy) < 0.5, "the tokens must come from these distributions"
    trained = script.train(target, "small", drawn, steps=2, seed=0)
    logits = script.laws(load("small"), drawn)
    losses = {name: loss(logits, of_target, tokens) for name, loss in script.OBJECTIVES.items()}
    overlap = torch.minimum(logits.softmax(-1), of_target).sum(-1).mean()
    assert losses["1 - alpha_1"].item() == pytest.approx(1 - overlap.item(), abs=1e-6)
    both = losses["1 - alpha_1"] + losses["block of 8"]
    assert losses["both"].item() == pytest.approx(both.item(), abs=1e-6)
    assert len({tuple(draft.weights["norm"].tolist()) for draft in trained.values()}) == 5
    judged = script.judge(target, target, drawn)
    assert {name: values.mean().round(5) for name, values in judged.items()} == {
        "alpha_1": 1, "chain, 4": 5, "block, 4": 5, "chain, 8": 9, "block, 8": 9,
    }  # fmt: skip
