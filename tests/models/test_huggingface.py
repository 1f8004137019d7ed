"""Models of transformers, tiny and random: against plain runs of the model on single rows."""

from __future__ import annotations

import copy
import sys
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from otm.decoding import SamplingParameters, autoregressive, spectr, speculative
from otm.errors import (
    InvalidDistributionError,
    InvalidInputError,
    InvalidParameterError,
    MissingDependencyError,
)
from otm.models.huggingface.model import HuggingFaceModel, check_same_vocabulary

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

V = 17
SIZES: dict[str, Any] = {
    "vocab_size": V,
    "hidden_size": 16,
    "intermediate_size": 24,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 64,
    "initializer_range": 0.8,
    "bos_token_id": 1,
    "eos_token_id": None,
    "pad_token_id": 0,
}
GPT2: dict[str, Any] = {
    "vocab_size": V,
    "n_embd": 16,
    "n_layer": 2,
    "n_head": 4,
    "n_positions": 64,
    "initializer_range": 0.5,
    "bos_token_id": 1,
    "eos_token_id": None,
    "pad_token_id": 0,
}
T5: dict[str, Any] = {
    "vocab_size": V,
    "d_model": 16,
    "d_kv": 4,
    "d_ff": 24,
    "num_layers": 2,
    "num_heads": 4,
    "decoder_start_token_id": 0,
    "eos_token_id": None,
    "pad_token_id": 0,
}
BLOOM: dict[str, Any] = {
    "vocab_size": V,
    "hidden_size": 16,
    "n_layer": 2,
    "n_head": 4,
    "initializer_range": 0.5,
    "bos_token_id": 1,
    "eos_token_id": None,
    "pad_token_id": 0,
}


@pytest.fixture(autouse=True, scope="module")
def _one_thread() -> Iterator[None]:
    """Run tiny models on one thread: several would wait for each other."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def build(name: str, config: str, **parameters: Any) -> Any:
    torch.manual_seed(0)
    model = getattr(transformers, name)(getattr(transformers, config)(**parameters))
    return model.double().eval()


def llama() -> Any:
    return build("LlamaForCausalLM", "LlamaConfig", **SIZES)


def gpt2() -> Any:
    return build("GPT2LMHeadModel", "GPT2Config", **GPT2)


def t5() -> Any:
    return build("T5ForConditionalGeneration", "T5Config", **T5)


def mistral() -> Any:
    # a window of 4 tokens, which rewinding must bring back
    return build("MistralForCausalLM", "MistralConfig", sliding_window=4, **SIZES)


def bloom() -> Any:
    # no position_ids: rows of different lengths cannot be run together
    return build("BloomForCausalLM", "BloomConfig", **BLOOM)


def drafting_for(model: Any) -> Any:
    """Return a model that is near another one, and not too near."""
    draft = copy.deepcopy(model)
    torch.manual_seed(1)
    with torch.no_grad():
        for weights in draft.parameters():
            weights.add_(0.15 * weights.std(correction=0) * torch.randn_like(weights))
    return draft


CAUSAL = [llama, gpt2, mistral, bloom]
SOURCES = [[3, 4, 5, 6], [7, 8], [9, 10, 11]]
SOURCE = {
    "input_ids": np.array([[3, 4, 5, 6], [7, 8, 0, 0], [9, 10, 11, 0]]),
    "attention_mask": np.array([[1, 1, 1, 1], [1, 1, 0, 0], [1, 1, 1, 0]]),
}


def plainly(model: Any, row: list[int], source: int) -> Any:
    """Logits [L, V] of one row, all of it read at once."""
    if not model.config.is_encoder_decoder:
        return model(torch.tensor([row])).logits[0].detach().numpy()
    given = {"input_ids": torch.tensor([SOURCES[source]])}
    found = model(**given, decoder_input_ids=torch.tensor([row]))
    return found.logits[0].detach().numpy()


@pytest.mark.parametrize("cache", [True, False])
@pytest.mark.parametrize("architecture", [*CAUSAL, t5])
def test_sessions_give_the_logits_of_single_rows(
    architecture: Callable[[], Any], cache: bool
) -> None:
    """Catches wrong positions, masks, slots, copies and sources, in rows that go their own ways."""
    model = architecture()
    source = SOURCE if model.config.is_encoder_decoder else None
    wrapped = HuggingFaceModel(model, source=source, cache=cache)
    # the softmax of bloom's attention is in float32, which some machines round by the row's length
    close = 1e-5 if architecture is bloom else 1e-10
    for seed in range(3):
        rng = np.random.default_rng(seed)
        session = wrapped.start(3)
        rows: list[tuple[int, list[int]]] = [(b, []) for b in range(3)]
        for step in range(7):
            length = int(rng.integers(1, 5))
            counts = rng.integers(0, length + 1, len(rows)) if step % 2 else np.full(3, length)
            counts = np.resize(counts, len(rows))
            tokens = rng.integers(0, V, (len(rows), length))
            tokens[np.arange(length) >= counts[:, None]] = -1
            new = [(b, row + [t for t in more if t >= 0]) for (b, row), more in zip(
                rows, tokens.tolist(), strict=True)]  # fmt: skip
            if step == seed:
                session.read(tokens)
            else:
                logits = np.asarray(session.append(tokens))
                assert logits.shape == (*tokens.shape, V)
                for r, (b, row) in enumerate(new):
                    if counts[r]:
                        expected = plainly(model, row, b)[len(row) - counts[r] :]
                        assert logits[r, : counts[r]] == pytest.approx(expected, abs=close)
            kept = rng.integers(0, len(rows), int(rng.integers(2, 6)))
            lengths = np.array(
                [len(new[r][1]) - min(rng.integers(0, 4), len(new[r][1])) for r in kept]
            )
            session.keep(kept, lengths)
            rows = [(new[r][0], new[r][1][:n]) for r, n in zip(kept, lengths, strict=True)]


def test_one_row_has_the_very_logits_of_generate() -> None:
    """Catches a mask or positions where none are needed: in float32 they could flip a tie."""
    model = llama().float()
    prompt = [3, 4, 5, 6]
    found = model.generate(
        torch.tensor([prompt]),
        do_sample=False,
        max_new_tokens=8,
        output_logits=True,
        return_dict_in_generate=True,
    )
    session = HuggingFaceModel(model).start(1)
    session.read(np.array([prompt]))
    new = found.sequences[0, len(prompt) :].tolist()
    for token, expected in zip(new, found.logits[1:], strict=False):
        assert torch.equal(session.append(np.array([[token]]))[0], expected)


# The loops: greedy decoding is that of transformers


def by_generate(model: Any, prompts: list[list[int]], end: int | None) -> list[list[int]]:
    """Decode greedily with `generate`, prompt by prompt."""
    found = []
    for b, prompt in enumerate(prompts):
        given = {"input_ids": torch.tensor([prompt])}
        if model.config.is_encoder_decoder:
            given = {"input_ids": torch.tensor([SOURCES[b]])}
        given["attention_mask"] = torch.ones_like(given["input_ids"])
        out = model.generate(
            **given, do_sample=False, max_new_tokens=12, eos_token_id=end, pad_token_id=0
        )
        found.append(out[0, len(prompt) :].tolist())
    return found


@pytest.mark.parametrize("architecture", [llama, gpt2, t5])
def test_greedy_decoding_is_that_of_generate(architecture: Callable[[], Any]) -> None:
    """Catches a cache that is rewound wrongly after a rejection, a wrong bonus token and ending."""
    model = architecture()
    draft = drafting_for(model)
    prompts, source = [[3, 4, 5, 6], [7, 8]], None
    if model.config.is_encoder_decoder:
        prompts, source = [[0], [0]], {name: array[:2] for name, array in SOURCE.items()}
    both = [HuggingFaceModel(each, source=source) for each in (model, draft)]
    often = by_generate(model, prompts, None)[0][5]
    for end in (None, often):
        options: dict[str, Any] = {
            "sampling": SamplingParameters(temperature=0), "max_tokens": 12, "eos_token_id": end
        }  # fmt: skip
        expected = by_generate(model, prompts, end)
        for found in (
            autoregressive(both[0], prompts, **options),
            speculative(both[0], both[1], prompts, gamma=3, **options),
            spectr(both[0], both[1], prompts, k=3, gamma=3, **options),
        ):
            assert [list(tokens) for tokens in found.sequences] == expected


# Rejected input


def test_contexts_that_do_not_fit_are_refused() -> None:
    wrapped = HuggingFaceModel(llama())
    assert wrapped.context_length == 64
    with pytest.raises(InvalidInputError, match=r"target model, whose limit is 64 tokens"):
        autoregressive(wrapped, [[1] * 60], max_tokens=5)
    session = wrapped.start(1)
    session.read(np.ones((1, 64), dtype=np.int64))
    with pytest.raises(InvalidInputError, match="a row would have 65 tokens"):
        session.append(np.ones((1, 1), dtype=np.int64))


def mamba() -> Any:
    return build(
        "MambaForCausalLM", "MambaConfig", vocab_size=V, hidden_size=8, num_hidden_layers=1
    )


@pytest.mark.parametrize(
    ("model", "arguments", "message"),
    [
        (lambda: "gpt2", {}, "a str; give a loaded model"),
        (lambda: llama().train(), {}, r"call eval\(\) on target"),
        (lambda: llama().model, {}, "LlamaModel has no language modelling head"),
        (mamba, {}, "give cache=False"),
        (llama, {"vocabulary": V + 1}, "vocabulary = 18; it must be an integer from 1 to 17"),
        (llama, {"vocabulary": True}, "vocabulary = True"),
        (llama, {"vocabulary": 1.0}, r"vocabulary = 1\.0"),
        (llama, {"vocabulary": -(10**5000)}, "a negative integer"),
        (llama, {"source": [1]}, "has no encoder"),
        (t5, {}, "input as `source`"),
    ],
)
def test_models_that_cannot_be_used_are_refused(
    model: Callable[[], Any], arguments: dict[str, Any], message: str
) -> None:
    with pytest.raises(InvalidParameterError, match=message):
        HuggingFaceModel(model(), **arguments)


def test_a_missing_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    model = llama()
    monkeypatch.setitem(sys.modules, "transformers", None)
    with pytest.raises(MissingDependencyError, match=r"otm\[huggingface\]"):
        HuggingFaceModel(model)


def test_a_state_that_cannot_be_rewound_is_recomputed() -> None:
    """Catches a refusal that names a way out which does not work."""
    model = mamba()
    session = HuggingFaceModel(model, cache=False).start(2)
    session.read(np.array([[1, 2, 3], [4, -1, -1]]))
    session.keep(np.array([0, 0, 1]), np.array([1, 3, 1]))
    logits = np.asarray(session.append(np.array([[5], [6], [7]])))
    for found, row in zip(logits, ([1, 5], [1, 2, 3, 6], [4, 7]), strict=True):
        assert found[0] == pytest.approx(plainly(model, row, 0)[-1], abs=1e-10)


def test_sources_that_fit_no_rows_are_refused() -> None:
    model = t5()
    with pytest.raises(InvalidInputError, match="2 rows for 3 sources"):
        HuggingFaceModel(model, source=SOURCE).start(2)
    outputs = model.get_encoder()(torch.tensor([SOURCES[0]]))
    with pytest.raises(InvalidInputError, match="encoder_outputs and also input_ids"):
        HuggingFaceModel(model, source={"encoder_outputs": outputs, "input_ids": [SOURCES[0]]})


def test_one_source_serves_all_rows() -> None:
    """Catches a source that is repeated or indexed wrongly; tokens alone do for it."""
    model = t5()
    session = HuggingFaceModel(model, source=SOURCES[0]).start(2)
    logits = np.asarray(session.append(np.array([[0, 3], [0, 5]])))
    for found, row in zip(logits, ([0, 3], [0, 5]), strict=True):
        assert found == pytest.approx(plainly(model, row, 0), abs=1e-10)


def test_rows_of_different_sources_share_nothing() -> None:
    """Catches a row that goes on from the keys of another one, which has the same tokens."""
    model = t5()
    session = HuggingFaceModel(model, source=SOURCE).start(3)
    session.read(np.array([[0, 3], [0, 3], [0, 3]]))
    session.keep(np.array([2, 1, 1, 0]), np.array([2, 1, 2, 2]))
    session.read(np.array([[4], [3], [4], [4]]))
    session.keep(np.array([2, 1]), np.array([3, 2]))
    logits = np.asarray(session.append(np.array([[5], [4]])))
    for found, row in zip(logits, ([0, 3, 4, 5], [0, 3, 4]), strict=True):
        assert found[0] == pytest.approx(plainly(model, row, 1)[-1], abs=1e-10)


def test_padding_of_the_vocabulary_is_cut_off() -> None:
    model = llama()
    for cache in (True, False):
        session = HuggingFaceModel(model, vocabulary=13, cache=cache).start(1)
        logits = np.asarray(session.append(np.array([[1, 2]])))
        assert logits[0] == pytest.approx(plainly(model, [1, 2], 0)[:, :13], abs=1e-10)


def test_drafts_are_moved_to_the_model(monkeypatch: pytest.MonkeyPatch) -> None:
    """Bug: tokens of a drafter on the host beside weights on a device."""
    model = llama().to("meta")
    session = HuggingFaceModel(model).start(1)
    seen = []

    def run(tokens: Any, **_: Any) -> Any:
        seen.append(tokens.device.type)
        return torch.zeros((*tokens.shape, 1), device="meta")

    monkeypatch.setattr(session, "_run", run)
    session.append(np.array([[1, 2]]))
    session.append_tensor(torch.tensor([[1]]), np.ones(1, np.int64))
    assert seen == ["meta", "meta"]


def test_logits_that_are_not_numbers_are_refused() -> None:
    model = llama()
    with torch.no_grad():
        model.lm_head.weight[3] = float("nan")
    with pytest.raises(InvalidDistributionError, match="the logits have NaN"):
        autoregressive(HuggingFaceModel(model), [[1, 2]], max_tokens=2)


class Words:
    """A tokenizer, as far as its vocabulary goes."""

    def __init__(self, words: list[str]) -> None:
        self._words = words

    def get_vocab(self) -> dict[str, int]:
        return {word: i for i, word in enumerate(self._words)}


def test_vocabularies_that_differ_are_refused() -> None:
    """Catches ids that are compared by their number alone."""
    model = llama()
    words = [f"w{i}" for i in range(V)]
    target = HuggingFaceModel(model, tokenizer=Words(words))
    check_same_vocabulary(target, HuggingFaceModel(model))
    check_same_vocabulary(target, HuggingFaceModel(model, tokenizer=Words([*words, "more"])))
    with pytest.raises(InvalidInputError, match="give vocabulary=13 to both"):
        check_same_vocabulary(target, HuggingFaceModel(model, vocabulary=13))
    other = HuggingFaceModel(model, tokenizer=Words([*words[:5], "x", *words[6:]]))
    with pytest.raises(InvalidInputError, match="token 5 is 'w5' for the target model and 'x'"):
        check_same_vocabulary(target, other)


def test_a_model_is_left_as_it_is() -> None:
    """Catches settings that stay changed, and gradients that are recorded."""
    model = llama()
    before = copy.deepcopy(model.state_dict()), str(model.config), str(model.generation_config)
    generation = autoregressive(HuggingFaceModel(model), [[1, 2]], max_tokens=3, seed=0)
    assert generation.tokens == 3
    assert str(model.config), str(model.generation_config) == before[1:]
    assert all(torch.equal(new, old) for new, old in zip(
        model.state_dict().values(), before[0].values(), strict=True))  # fmt: skip
    assert all(weights.grad is None and weights.requires_grad for weights in model.parameters())
