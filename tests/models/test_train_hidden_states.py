"""Training of a draft layer: texts, loss and updates, against definitions and on a tiny target."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from otm.models.hidden_states.attention import register
from otm.models.hidden_states.layer import Layer, LayerConfig, random_weights
from otm.models.hidden_states.objective import Objective
from otm.models.hidden_states.optimiser import orthogonal
from otm.models.hidden_states.prompts import TEMPLATES, THINGS, prompts
from otm.models.hidden_states.text import OWN, Text, sample
from otm.models.hidden_states.train import Plan, frequent_tokens, held_out, main, train
from otm.models.huggingface.chat import chat_tokens, tokens_around
from otm.models.huggingface.model import HuggingFaceModel
from tests.gain.reports.instruct import write_model
from tests.models.test_huggingface import SIZES, V

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

LAYERS = (1, 2)
CONFIG = LayerConfig(LAYERS, width=16, heads=4, key_heads=2, hidden=24)


def tiny() -> HuggingFaceModel:
    torch.manual_seed(0)
    settings = {"max_position_embeddings": 256, "initializer_range": 0.5}
    tokens = {"eos_token_id": 2, "pad_token_id": None}
    config = transformers.LlamaConfig(**SIZES | settings | tokens)
    return HuggingFaceModel(transformers.LlamaForCausalLM(config).eval())


def a_text(target: HuggingFaceModel, seed: int, rows: int = 12) -> Text:
    generator = torch.Generator().manual_seed(seed)
    starts = torch.randint(3, V, (rows, 5), generator=generator)
    return sample(target, LAYERS, starts, 1.0, generator)


def test_a_text_has_the_states_of_its_tokens() -> None:
    """Bug: states, totals or lengths that are one token early or late."""
    target = tiny()
    text = a_text(target, seed=1)
    with torch.no_grad():
        plain = target.model(text.tokens, output_hidden_states=True)
    states = torch.cat([plain.hidden_states[layer] for layer in LAYERS], -1)
    torch.testing.assert_close(text.states.float(), states, rtol=0.02, atol=0.02)
    totals = plain.logits.logsumexp(-1)[:, 4:]
    torch.testing.assert_close(text.log_totals[:, 4:], totals, rtol=1e-4, atol=1e-4)
    for row, length in zip(text.tokens.tolist(), text.lengths.tolist(), strict=True):
        assert 2 not in row[5 : length - 1]
        assert row[length - 1] == 2 or length == len(row)


def test_the_target_ends_its_own_requests_as_the_template_does() -> None:
    """Bug: an answer that begins in the end of the turn, or a request that ends the text."""
    target = tiny()
    closing = [2, 7, 9]
    starts = torch.full((60, 5), 3)
    text = sample(
        target, LAYERS, starts, 1.0, torch.Generator().manual_seed(0), end_of_turn=closing
    )
    begins = text.prompts.tolist()
    assert len(set(begins)) > 5
    for row, begin, length in zip(text.tokens.tolist(), begins, text.lengths.tolist(), strict=True):
        if begin >= len(row):
            continue
        assert row[begin - 3 : begin] == closing
        assert 2 not in row[5 : begin - 3]
        assert 2 not in row[begin : length - 1]
        assert row[length - 1] == 2 or length == len(row)


def test_a_long_request_is_cut() -> None:
    """Bug: a target that never ends its request has no answer."""
    target = tiny()
    target.model.generation_config.eos_token_id = V
    starts = torch.full((2, 5), 3)
    text = sample(
        target, LAYERS, starts, 1.0, torch.Generator().manual_seed(0), end_of_turn=[2, 7, 9]
    )
    assert text.prompts.tolist() == [5 + OWN + 3] * 2
    assert text.lengths.tolist() == [text.tokens.shape[1]] * 2


def test_the_turn_of_a_user_is_split_at_the_request(tmp_path: Path) -> None:
    """Bug: tokens of the template lost before or after the request."""
    tokenizer = transformers.AutoTokenizer.from_pretrained(write_model(tmp_path, 8))
    start, end = tokens_around(tokenizer)
    request = tokenizer("the heaven", add_special_tokens=False).input_ids
    assert start + request + end == chat_tokens(tokenizer, "the heaven")


def test_grouped_attention_is_that_of_transformers() -> None:
    """Bug: query heads that meet the keys of another group, or a mask of another position."""
    target = tiny()
    ids = torch.randint(0, V, (3, 9), generator=torch.Generator().manual_seed(5))
    with torch.no_grad():
        expected = target.model(ids).logits
        target.model.set_attn_implementation(register())
        torch.testing.assert_close(target.model(ids).logits, expected, rtol=1e-5, atol=1e-5)


def test_acceptance_is_that_of_the_drafts() -> None:
    """Bug: a draft compared with the target's distribution at another position."""
    target = tiny()
    text = a_text(target, seed=2, rows=4)
    layer = Layer(CONFIG, random_weights(CONFIG, V, seed=3))
    embedding = target.model.model.embed_tokens.weight.detach()
    head = target.model.lm_head.weight.detach()
    objective = Objective(embedding, head, torch.arange(V))
    row = torch.tensor([1])
    text = text._replace(states=text.states.float(), lengths=text.lengths.clamp(min=30))
    slots = objective.slots(text, row)
    alphas, tokens = objective.acceptance(layer, slots, gamma=1)
    end = int(text.lengths[1])
    with torch.no_grad():
        q = target.model(text.tokens[1:2, :end]).logits.softmax(-1)[0]
        states = text.states[1:2, : end - 1]
        x = layer.from_states(states, embedding[text.tokens[1:2, 1:end]])
        query, key, value = layer.project(x, torch.arange(end - 1)[None])
        mask = torch.ones(end - 1, end - 1, dtype=torch.bool).tril()
        p = layer.logits(layer.finish(x, query, key, value, mask), head).softmax(-1)[0]
    # The output of slot t, for token t + 1, is the draft's distribution of token t + 2.
    expected = torch.minimum(p[3:-1], q[4:-1]).sum(-1).mean().item()
    assert alphas[0] == pytest.approx(expected, abs=2e-2)
    assert tokens == pytest.approx(1 + alphas[0], abs=1e-6)


def test_training_raises_the_acceptance() -> None:
    target = tiny()
    texts = [a_text(target, seed) for seed in (1, 2, 3)]
    head = target.model.lm_head.weight.detach().bfloat16()
    embedding = target.model.model.embed_tokens.weight.detach().bfloat16()
    objective = Objective(embedding, head, torch.arange(V))
    layer = Layer(CONFIG, random_weights(CONFIG, V, seed=0))
    other = a_text(target, seed=9)
    before, _ = held_out(layer, objective, other, rows=8, gamma=2)
    train(layer, objective, texts, Plan(updates=40, texts=1, rows=8), seed=0)
    after, per_step = held_out(layer, objective, other, rows=8, gamma=2)
    assert after[0] > before[0] + 0.05
    assert after[1] > before[1] + 0.02
    assert per_step > 1 + after[0]


def test_steps_of_matrices_are_nearly_orthogonal() -> None:
    """Bug: rows and columns exchanged for tall matrices."""
    for shape in ((6, 4), (4, 6)):
        matrix = torch.randn(shape, generator=torch.Generator().manual_seed(0))
        u, _, v = torch.linalg.svd(matrix, full_matrices=False)
        step = orthogonal(matrix, steps=10)
        torch.testing.assert_close((step * (u @ v)).sum() / 4, torch.tensor(1.0), atol=0.3, rtol=0)


def test_frequent_tokens_are_of_answers_only() -> None:
    """Bug: tokens of the prompts, or after the end, count."""
    tokens = torch.tensor([[9, 9, 9, 4, 4, 2, 7, 7, 7], [9, 9, 9, 5, 4, 5, 5, 2, 7]])
    nothing = torch.zeros(0)
    text = Text(tokens, nothing, nothing, torch.tensor([6, 8]), torch.tensor([3, 3]))
    assert frequent_tokens([text], 4, 12).tolist() == [0, 2, 4, 5]


def test_topics_of_evaluation_are_not_in_the_prompts_of_training() -> None:
    """Bug: one list of topics for both."""
    kept_out = {" ".join(thing.split()) for thing in THINGS[::10]}
    for kind in TEMPLATES:
        rng = np.random.default_rng(0)
        mine = prompts(kind, 400, rng, held_out=False)
        others = prompts(kind, 400, rng, held_out=True)
        if kind != "summary":
            assert not set(mine) & set(others)
        if kind == "article":
            assert not any(f" {thing} " in text for thing in kept_out for text in mine)


def test_prompts_of_benchmarks_are_not_used() -> None:
    """Bug: a draft that is trained on the prompts that it is measured on."""
    frozen = Path(__file__).parents[2] / "benchmarks" / "real" / "prompts.toml"
    if not frozen.exists():
        pytest.skip("the frozen prompts are in the checkout only")
    text = frozen.read_text("utf-8")
    rng = np.random.default_rng(0)
    for kind in set(TEMPLATES) - {"summary"}:
        for held in (False, True):
            assert not any(p in text for p in prompts(kind, 3000, rng, held_out=held))


def test_a_mistake_in_the_command_is_one_line(
    capsys: pytest.CaptureFixture[str], tmp_path: Any
) -> None:
    assert main(["nowhere", "--out", str(tmp_path / "no" / "file")]) == 2
    assert "there is no folder" in capsys.readouterr().err
    assert main(["nowhere", "--out", str(tmp_path / "file"), "--updates", "0"]) == 2
    assert "at least 1" in capsys.readouterr().err
