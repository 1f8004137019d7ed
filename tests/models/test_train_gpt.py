"""Training: that it learns, on what it may see, the same each time."""

import math
from collections import Counter

import pytest
import torch

from otm.models.gpt.model import GPT, GPTConfig, encode
from otm.models.gpt.train import PRESETS, default_text, loss, main, split, train

CONFIG = GPTConfig(layers=1, width=16, heads=2, context_length=32)


def trained(steps, seed=0, dropout=0.0):
    model = GPT.random(CONFIG, seed=0)
    tokens, held_out = split(default_text())
    train(model, tokens, steps=steps, batch=8, learning_rate=1e-2, seed=seed, dropout=dropout)
    return model, held_out


def test_training_beats_the_frequencies_of_bytes():
    # a loss that goes down without the model looking at what comes before
    model, held_out = trained(steps=250)
    counts = Counter(held_out.tolist())
    entropy = -sum(n / len(held_out) * math.log(n / len(held_out)) for n in counts.values())
    assert loss(model, held_out[:4096]) < entropy - 0.25


def test_a_model_that_knows_nothing_loses_the_logarithm_of_the_vocabulary():
    weights = GPT.random(CONFIG, seed=0).weights
    silent = GPT(CONFIG, weights | {"embedding": 0 * weights["embedding"]})
    assert loss(silent, torch.arange(200)) == pytest.approx(math.log(256), abs=1e-6)


def test_the_loss_is_that_of_each_byte_after_those_before_it():
    model = GPT.random(CONFIG, seed=0)
    tokens = torch.tensor(encode("In the beginning God created the heaven and the earth."))
    total = 0.0
    for window in (tokens[:32], tokens[32:]):
        for i in range(1, len(window)):
            last = model.logits(window[None, :i])[0, -1]
            total -= torch.log_softmax(last.double(), 0)[window[i]].item()
    assert loss(model, tokens) == pytest.approx(total / (len(tokens) - 2), abs=1e-6)


def test_the_seed_decides_everything():
    one, same, other = (trained(3, seed, dropout=0.5)[0] for seed in (0, 0, 1))
    assert all(torch.equal(w, same.weights[name]) for name, w in one.weights.items())
    assert not torch.equal(one.weights["norm"], other.weights["norm"])
    assert not any(w.requires_grad for w in one.weights.values())


def test_dropout_is_part_of_the_training_and_not_of_the_model():
    (plain, _), (dropped, _) = trained(3), trained(3, dropout=0.5)
    assert not torch.equal(plain.weights["norm"], dropped.weights["norm"])
    row = torch.arange(20)[None]
    assert torch.equal(dropped.logits(row), dropped.logits(row))


def test_the_end_of_the_text_is_held_out():
    tokens, held_out = split(bytes(range(200)))
    assert tokens.tolist() == list(range(190))
    assert held_out.tolist() == list(range(190, 200))


def test_presets_are_ladders():
    sizes = [preset.config.size for preset in PRESETS.values()]
    assert sizes[:4] == sorted(sizes[:4], reverse=True)
    assert sizes[4:] == sorted(sizes[4:], reverse=True)


def test_the_command_writes_a_model_that_it_has_judged(tmp_path, capsys):
    text, out = tmp_path / "text", tmp_path / "model.safetensors"
    text.write_bytes(default_text()[:2048])
    assert main([str(text), "--preset=small", "--steps=2", "--batch=1", f"--out={out}"]) == 0
    model = GPT.load(out)
    assert model.config == PRESETS["small"].config
    _, held_out = split(text.read_bytes())
    assert f"held out: {loss(model, held_out):.4f} nats/byte" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("content", "options", "message"),
    [
        (b"too short", [], "9 bytes; give at least 1,024 bytes"),
        (None, [], "No such file"),
        (b"x" * 2000, ["--steps=-1"], "steps must be at least 0"),
        (b"x" * 2000, ["--steps=0", "--out=no/such/file"], "no folder 'no/such'"),
    ],
)
def test_the_command_says_in_one_line_what_is_wrong(tmp_path, capsys, content, options, message):
    text = tmp_path / "text"
    if content is not None:
        text.write_bytes(content)
    assert main([str(text), f"--out={tmp_path / 'model'}", *options]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1
