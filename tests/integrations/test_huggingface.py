"""`generate` of transformers on OTM's drafts and verifiers, with tiny random models."""

from __future__ import annotations

import copy
import functools
import json
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from otm.coupled import decode_coupled
from otm.errors import InvalidInputError, InvalidParameterError, UnknownMethodError
from otm.integrations.huggingface import AssistedDecoding, patch_generate
from otm.integrations.huggingface.arguments import split_processors
from otm.models import HuggingFaceModel
from otm.testing import BUDGET, Control

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

V = 17
PROMPTS = torch.tensor([[3, 4, 5, 6], [0, 0, 7, 8]])
MASK = torch.tensor([[1, 1, 1, 1], [0, 0, 1, 1]])
PADDED: dict[str, Any] = {"attention_mask": MASK, "pad_token_id": 0}


@pytest.fixture(autouse=True, scope="module")
def _one_thread() -> Iterator[None]:
    """Run tiny models on one thread: several would wait for each other."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def llama(vocabulary: int = V, seed: int = 0) -> Any:
    torch.manual_seed(seed)
    config = transformers.LlamaConfig(
        vocab_size=vocabulary,
        hidden_size=16,
        intermediate_size=24,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=64,
        initializer_range=0.8,
        bos_token_id=1,
        eos_token_id=None,
        pad_token_id=0,
    )
    return transformers.LlamaForCausalLM(config).double().eval()


def t5() -> Any:
    torch.manual_seed(0)
    config = transformers.T5Config(
        vocab_size=V,
        d_model=16,
        d_kv=4,
        d_ff=24,
        num_layers=2,
        num_heads=4,
        decoder_start_token_id=0,
        eos_token_id=None,
        pad_token_id=0,
    )
    return transformers.T5ForConditionalGeneration(config).double().eval()


def drafting_for(model: Any) -> Any:
    """Return a model that is near another one, and not too near."""
    draft = copy.deepcopy(model)
    torch.manual_seed(1)
    with torch.no_grad():
        for weights in draft.parameters():
            weights.add_(0.15 * weights.std(correction=0) * torch.randn_like(weights))
    return draft


TARGET = llama()
DRAFT = drafting_for(TARGET)
SEQ2SEQ = t5()
SEQ2SEQ_DRAFT = drafting_for(SEQ2SEQ)


# Greedy decoding is that of generate


@pytest.mark.parametrize("end", [None, 16])
@pytest.mark.parametrize(("target", "draft"), [(TARGET, DRAFT), (SEQ2SEQ, SEQ2SEQ_DRAFT)])
def test_greedy_output_is_that_of_generate(target: Any, draft: Any, end: int | None) -> None:
    """Catches padding that is read, a wrong limit, end token, padding and format of the output."""
    encoder = target.config.is_encoder_decoder
    ids, mask = (PROMPTS.flip(1), MASK.flip(1)) if encoder else (PROMPTS, MASK)
    options: dict[str, Any] = {
        "attention_mask": mask, "do_sample": False, "max_new_tokens": 16,
        "eos_token_id": end, "pad_token_id": 0,
    }  # fmt: skip
    expected = target.generate(ids, **options)
    decoding = AssistedDecoding(draft, k=3, gamma=3)
    assert torch.equal(target.generate(ids, custom_generate=decoding, **options), expected)
    assert decoding.generation is not None
    assert decoding.generation.block_efficiency > 1
    with patch_generate(target, k=1, gamma=2):
        out = target.generate(ids, assistant_model=draft, return_dict_in_generate=True, **options)
    assert torch.equal(out.sequences, expected)
    kind = "GenerateEncoderDecoderOutput" if encoder else "GenerateDecoderOnlyOutput"
    assert type(out).__name__ == kind


@pytest.mark.parametrize(
    "rule", ["target-only", "greedy", "recursive rejection without replacement"]
)
def test_siblings_are_drawn_as_the_rule_needs(rule: str) -> None:
    """Catches i.i.d. siblings under a rule for others: two equal ones in some of the steps."""
    decoding = AssistedDecoding(DRAFT, k=(3, 2), gamma=2, rule=rule)
    options: dict[str, Any] = {"max_new_tokens": 16, "custom_generate": decoding, **PADDED}
    greedy = TARGET.generate(PROMPTS, do_sample=False, **options)
    assert torch.equal(
        greedy, TARGET.generate(PROMPTS, do_sample=False, max_new_tokens=16, **PADDED)
    )
    torch.manual_seed(0)
    TARGET.generate(PROMPTS, do_sample=True, top_k=0, **options)
    assert decoding.generation is not None
    for step in decoding.generation.steps:
        drafts = [path for path in step.drafts if len(path) == 2]
        assert len(drafts) == len(set(drafts)) == (6 if drafts else 0)


def test_stopping_criteria_are_honoured() -> None:
    """Catches a sequence that goes on behind a criterion, or one that stops with another."""

    class Sum(transformers.StoppingCriteria):
        """Stops a sequence once its tokens, with the padding, sum to more than a limit."""

        def __call__(self, input_ids: Any, scores: Any, **_: Any) -> Any:
            return input_ids.sum(1) > 60

    options: dict[str, Any] = {
        "do_sample": False, "max_new_tokens": 16, "eos_token_id": 16, **PADDED,
        "stopping_criteria": transformers.StoppingCriteriaList([Sum()]),
    }  # fmt: skip
    expected = TARGET.generate(PROMPTS, **options)
    assert expected.shape[1] < PROMPTS.shape[1] + 16
    for draft, gamma in ((DRAFT, 5), (TARGET, 6)):
        decoding = AssistedDecoding(draft, k=2, gamma=gamma)
        found = TARGET.generate(PROMPTS, custom_generate=decoding, **options)
        assert torch.equal(found, expected)
        assert decoding.generation is not None
        assert "stop" in decoding.generation.finish_reasons
        for row, new in zip(found.tolist(), decoding.generation.sequences, strict=True):
            padding = len(row) - PROMPTS.shape[1] - len(new)
            assert row[PROMPTS.shape[1] :] == [*new, *[0] * padding]


def test_a_stopped_sequence_is_not_decoded_further() -> None:
    """Catches steps behind a criterion, which make every statistic of the generation wrong."""

    class Short(transformers.StoppingCriteria):
        """Stops the sequence whose prompt begins with padding at its second token."""

        def __call__(self, input_ids: Any, scores: Any, **_: Any) -> Any:
            return (input_ids[:, 0] == 0) & (input_ids.shape[1] >= 6)

    decoding = AssistedDecoding(TARGET, gamma=6, k=1)
    TARGET.generate(
        PROMPTS, custom_generate=decoding, do_sample=False, max_new_tokens=16, **PADDED,
        stopping_criteria=transformers.StoppingCriteriaList([Short()]),
    )  # fmt: skip
    assert decoding.generation is not None
    assert [len(new) for new in decoding.generation.sequences] == [16, 2]
    assert decoding.generation.finish_reasons == ("length", "stop")
    assert len(decoding.generation.steps_of(1)) == 1


# Sampling


@pytest.mark.parametrize(
    "parameters",
    [
        {},  # the default of generate is top_k = 50
        {"temperature": 0.6, "top_k": 0},
        {"temperature": 1.7, "top_k": 5, "top_p": 0.8, "min_p": 0.1},
        {"top_k": None, "top_p": 0.6, "renormalize_logits": True},
    ],
)
def test_sampling_parameters_mean_what_they_mean_to_generate(parameters: dict[str, Any]) -> None:
    """Catches a parameter that is dropped or confused, against the processors of transformers."""
    seen = []

    def look(model: Any, input_ids: Any, logits_processor: Any, **given: Any) -> Any:
        seen.append((logits_processor, given["generation_config"]))
        return input_ids

    options = {"do_sample": True, "max_new_tokens": 1, **PADDED, **parameters}
    TARGET.generate(PROMPTS, custom_generate=look, **options)
    [(processors, config)] = seen
    logits = torch.tensor(3 * np.random.default_rng(0).standard_normal((5, 80)))
    expected = processors(None, logits.clone()).softmax(-1)
    before, sampling = split_processors(config, processors)
    assert before == []
    assert sampling(logits).numpy() == pytest.approx(expected.numpy())


def test_sampled_output_has_the_law_of_the_target() -> None:
    """Catches parameters on one side only, wrong rows and a wrong use of the seed."""
    target, draft = llama(4), llama(4, seed=1)
    prompt = torch.tensor([[1, 2, 3]])
    options: dict[str, Any] = {
        "do_sample": True, "temperature": 2.0, "top_k": 3, "max_new_tokens": 2, "pad_token_id": 0,
    }  # fmt: skip

    def law(model: Any) -> Any:
        """Return the distribution of the two tokens, by the warpers' definition."""
        pairs = np.zeros((4, 4))

        def after(row: list[int]) -> Any:
            scores = model(torch.tensor([row])).logits[0, -1].detach().numpy() / 2
            weights = np.exp(scores) * (scores > scores.min())
            return weights / weights.sum()

        for first, mass in enumerate(after([1, 2, 3])):
            pairs[first] = mass * after([1, 2, 3, first])
        return pairs.ravel()

    def sampler(model: Any) -> Any:
        def draws(rng: np.random.Generator, count: int) -> Any:
            torch.manual_seed(int(rng.integers(2**62)))
            found: list[int] = []
            while len(found) < count:
                decoding = AssistedDecoding(draft, k=2, gamma=2)
                out = model.generate(
                    prompt, num_return_sequences=50, custom_generate=decoding, **options
                )
                found += (4 * out[:, 3] + out[:, 4]).tolist()
            return np.array(found[:count])

        return draws

    BUDGET.check_distribution(
        "generate with an assistant",
        sampler(target),
        law(target),
        delta=0.3,
        control=Control(sampler(draft), law(draft)),
    )


def test_sources_stay_with_their_sequences() -> None:
    """Catches rows with another source, an assistant that samples otherwise, and dead seeds."""
    options: dict[str, Any] = {
        "attention_mask": MASK.flip(1), "max_new_tokens": 8,
        "do_sample": True, "temperature": 0.7, "top_k": 5,
        "custom_generate": AssistedDecoding(SEQ2SEQ, k=3, gamma=3),
    }  # fmt: skip
    outputs = []
    for seed in (0, 0, 1):
        torch.manual_seed(seed)
        outputs.append(SEQ2SEQ.generate(PROMPTS.flip(1), **options))
        drafted = options["custom_generate"].generation
        # the target drafts for itself, so all drafts are accepted unless it is asked about another
        assert all(step.accepted == min(step.drafted, len(step.output)) for step in drafted.steps)
    assert torch.equal(outputs[0], outputs[1])
    assert not torch.equal(outputs[0], outputs[2])


# Processors, scores, caches, padding

BAD: dict[str, Any] = {"bad_words_ids": [[13], [1, 11]], "suppress_tokens": [2]}
DECAY = {"exponential_decay_length_penalty": (3, 1.4)}
# before version 5 it makes NaN of what `min_length` forbids
LONGER: dict[str, Any] = {} if transformers.__version__ < "5" else DECAY
WATERMARK = transformers.WatermarkingConfig(context_width=2)


@pytest.mark.parametrize(
    "given",
    [
        {"repetition_penalty": 1.7, "no_repeat_ngram_size": 2, "min_new_tokens": 9},
        {"min_length": 12, **LONGER, **BAD},
        {"watermarking_config": WATERMARK, "begin_suppress_tokens": [7, 12], **DECAY},
        {"prefix_allowed_tokens_fn": lambda b, row: range(b, 12 + b, 1 + len(row) % 2)},
        {"encoder_repetition_penalty": 2.5, "forced_eos_token_id": 5},
    ],
    ids=lambda given: next(iter(given)),
)
@pytest.mark.parametrize("model", [TARGET, SEQ2SEQ], ids=["Llama", "T5"])
def test_processed_greedy_output_and_its_scores_are_those_of_generate(
    model: Any, given: dict[str, Any]
) -> None:
    """Catches rows that get another prefix or batch, and scores of another token or its padding."""
    ids, mask = (PROMPTS, MASK) if model is TARGET else (PROMPTS.flip(1), MASK.flip(1))
    options: dict[str, Any] = {
        "do_sample": False, "max_new_tokens": 14, "eos_token_id": [9, 16], **given,
        "attention_mask": mask, "pad_token_id": 0, "return_dict_in_generate": True,
        "output_scores": True, "output_logits": True,
    }  # fmt: skip
    expected = model.generate(ids, **options)
    draft = DRAFT if model is TARGET else SEQ2SEQ_DRAFT
    for process_drafts in (True, False):
        decoding = AssistedDecoding(draft, k=3, gamma=3, process_drafts=process_drafts)
        found = model.generate(ids, custom_generate=decoding, **options)
        assert torch.equal(found.sequences, expected.sequences)
        assert decoding.generation is not None
        for name in ("scores", "logits"):
            assert len(found[name]) == len(expected[name])
            for one, other in zip(found[name], expected[name], strict=True):
                torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-5)


def test_processors_know_the_tokens_that_pad_the_vocabulary() -> None:
    """Catches processors that reach beyond the scores, or see other ones."""
    options: dict[str, Any] = {
        "do_sample": False, "max_new_tokens": 9, **PADDED, "watermarking_config": WATERMARK,
        "suppress_tokens": [15, 16], "sequence_bias": {(16,): 1.0, (3,): 2.0},
        "return_dict_in_generate": True, "output_scores": True,
    }  # fmt: skip
    expected = TARGET.generate(PROMPTS, **options)
    decoding = AssistedDecoding(DRAFT, k=2, gamma=3, vocabulary=15)
    found = TARGET.generate(PROMPTS, custom_generate=decoding, **options)
    assert torch.equal(found.sequences, expected.sequences)
    for one, other in zip(found.scores, expected.scores, strict=True):
        torch.testing.assert_close(one, other[:, :15], rtol=1e-5, atol=1e-5)


def test_padding_on_the_right_is_not_read() -> None:
    """Catches sequences that go on behind their padding."""
    options: dict[str, Any] = {"do_sample": False, "max_new_tokens": 9, "pad_token_id": 0}
    expected = TARGET.generate(PROMPTS, attention_mask=MASK, **options)[:, 4:]
    ids, mask = torch.tensor([[3, 4, 5, 6], [7, 8, 0, 0]]), MASK[:, [3, 2, 1, 0]]
    decoding = AssistedDecoding(DRAFT, k=2, gamma=3)
    found = TARGET.generate(ids, attention_mask=mask, custom_generate=decoding, **options)
    assert torch.equal(found[:, :4], ids)
    assert torch.equal(found[:, 4:], expected)


def cache_of(ids: Any, mask: Any = None, model: Any = TARGET, cache: Any = None) -> Any:
    """Return a cache of a model that has read these tokens."""
    cache = transformers.DynamicCache() if cache is None else cache
    positions = None if mask is None else (mask.cumsum(1) - 1).clamp(min=0)
    with torch.no_grad():
        model(ids, attention_mask=mask, position_ids=positions, past_key_values=cache)
    return cache


@pytest.mark.parametrize("right", [False, True], ids=["left", "both sides"])
def test_a_chat_goes_on_from_its_cache(right: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Catches keys at wrong places, tokens that are read again, and a cache that is changed.

    Noise in the cache shows that its keys and values are those that are used.
    """
    more = torch.tensor([[2, 9], [11, 3]])
    ids = torch.cat([PROMPTS, more], dim=1)
    mask = torch.cat([MASK, torch.ones_like(more)], dim=1)
    cache = cache_of(PROMPTS, MASK)
    torch.manual_seed(0)
    for layer in cache.layers:
        layer.values += 0.3 * torch.randn_like(layer.values)
    options: dict[str, Any] = {
        "do_sample": False, "max_new_tokens": 12, "pad_token_id": 0, "return_dict_in_generate": True
    }  # fmt: skip
    clean = TARGET.generate(ids, attention_mask=mask, **options)
    expected = TARGET.generate(
        ids, attention_mask=mask, past_key_values=copy.deepcopy(cache), **options
    )
    assert not torch.equal(clean.sequences, expected.sequences)
    if right:  # the same rows, with padding in other places
        ids[1, :4], mask[1, :4] = ids[1, :4].roll(-1), mask[1, :4].roll(-1)
        for layer in cache.layers:
            layer.keys[1], layer.values[1] = layer.keys[1].roll(-1, 1), layer.values[1].roll(-1, 1)
    widths = []
    forward = TARGET.forward

    @functools.wraps(forward)
    def counting(*args: Any, **given: Any) -> Any:
        widths.append(given["input_ids"].shape[1])
        return forward(*args, **given)

    monkeypatch.setattr(TARGET, "forward", counting)
    held = copy.deepcopy(cache)
    found = TARGET.generate(
        ids, attention_mask=mask, past_key_values=cache, **options,
        custom_generate=AssistedDecoding(DRAFT, k=2, gamma=3),
    )  # fmt: skip
    assert torch.equal(found.sequences[:, 6:], expected.sequences[:, 6:])
    assert max(widths) <= 4, "the new tokens and drafts alone"
    assert found.past_key_values is None
    for one, other in zip(cache.layers, held.layers, strict=True):
        assert torch.equal(one.keys, other.keys)


def test_a_cache_of_another_kind_is_not_used() -> None:
    """Catches keys of a window that are taken for those of all tokens."""
    sizes = TARGET.config.to_dict() | {"max_window_layers": 0, "sliding_window": 3}
    config = transformers.Qwen2Config(
        **{name: size for name, size in sizes.items() if name not in ("model_type", "dtype")},
        use_sliding_window=True,
    )
    torch.manual_seed(3)
    model = transformers.Qwen2ForCausalLM(config).double().eval()
    draft, ids = drafting_for(model), torch.tensor([[3, 4, 5, 6, 7, 8, 9]])
    options: dict[str, Any] = {"do_sample": False, "max_new_tokens": 9}
    expected = model.generate(ids, **options)
    cache = cache_of(ids[:, :5], None, model, transformers.DynamicCache(config=config))
    assert {type(layer).__name__ for layer in cache.layers} == {"DynamicSlidingWindowLayer"}
    decoding = AssistedDecoding(draft, k=2, gamma=3)
    found = model.generate(ids, past_key_values=cache, custom_generate=decoding, **options)
    assert torch.equal(found, expected)


# Rejected input


class Guided(transformers.UnbatchedClassifierFreeGuidanceLogitsProcessor):
    """A processor of somebody's own that inherits a state."""


class Quantized:
    """An empty cache that would round what it holds."""

    def __init__(self) -> None:
        self.layers = [type("QuantizedLayer", (), {})()]

    def get_seq_length(self) -> int:
        return 0


SYNTH_ID = transformers.SynthIDTextWatermarkingConfig(ngram_len=3, keys=[1, 2, 3])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"num_beams": 2}, "the generation mode is beam_search"),
        ({"guidance_scale": 1.3}, "not possible .* reads the batch with its own cache"),
        ({"watermarking_config": SYNTH_ID}, "not possible .* remembers the contexts"),
        ({"logits_processor": [Guided(1.3, TARGET)]}, "Guided is not possible"),
        (
            {"output_hidden_states": True, "return_dict_in_generate": True},
            "output_hidden_states=True is not possible with drafts",
        ),
        (
            {"past_key_values": cache_of(PROMPTS[:1].repeat(1, 2))},
            "past_key_values contain 8 tokens, but the input has 4",
        ),
        (
            {"past_key_values": cache_of(PROMPTS[:1]), "attention_mask": torch.ones(1, 8).long()},
            "attention_mask has 8 tokens, but the input has 4",
        ),
        ({"past_key_values": Quantized()}, "a quantized cache"),
        ({"position_ids": torch.tensor([[5, 6, 7, 8]])}, "position_ids must count"),
        ({"inputs_embeds": torch.zeros(1, 4, 16).double()}, "inputs_embeds are not possible"),
    ],
)
def test_what_cannot_be_honoured_is_refused(options: dict[str, Any], message: str) -> None:
    """Catches a parameter that is ignored in silence."""
    options = {"do_sample": False, "max_new_tokens": 4, **options}
    with pytest.raises(InvalidParameterError, match=message):
        TARGET.generate(PROMPTS[:1], custom_generate=AssistedDecoding(DRAFT), **options)


def test_models_that_do_not_fit_are_refused() -> None:
    options: dict[str, Any] = {"do_sample": False, "max_new_tokens": 4}
    with pytest.raises(InvalidInputError, match="give vocabulary=13 to both"):
        TARGET.generate(PROMPTS[:1], custom_generate=AssistedDecoding(llama(13)), **options)
    with pytest.raises(InvalidParameterError, match="the target is not"):
        TARGET.generate(PROMPTS[:1], custom_generate=AssistedDecoding(SEQ2SEQ), **options)
    with pytest.raises(InvalidInputError, match="target model, whose limit is 64 tokens"):
        TARGET.generate(
            PROMPTS[:1], custom_generate=AssistedDecoding(DRAFT), do_sample=False, max_length=80
        )
    with pytest.raises(UnknownMethodError, match=r"there is no rule .best.; there are .*k-Seq"):
        AssistedDecoding(DRAFT, rule="best")


def test_the_plug_is_pulled_again() -> None:
    """Catches a model that stays changed, also after an error, and calls without an assistant."""
    options: dict[str, Any] = {"do_sample": False, "max_new_tokens": 4}
    expected = TARGET.generate(PROMPTS[:1], **options)
    with patch_generate(TARGET):
        assert torch.equal(TARGET.generate(PROMPTS[:1], **options), expected)
    with (
        pytest.raises(InvalidParameterError, match="not accept custom_generate"),
        patch_generate(TARGET, DRAFT),
    ):
        TARGET.generate(PROMPTS[:1], custom_generate=lambda **_: None, **options)
    assert "generate" not in vars(TARGET)


def test_plugs_are_nested_and_leave_what_was_there() -> None:
    """Catches an instance's own `generate` that is lost, and an inner patch that ends the outer."""
    model = copy.deepcopy(TARGET)
    options: dict[str, Any] = {"do_sample": False, "max_new_tokens": 6}
    expected = TARGET.generate(PROMPTS[:1], **options)
    calls = []

    def own(*args: Any, **kwargs: Any) -> Any:
        calls.append(kwargs)
        return type(model).generate(model, *args, **kwargs)

    model.generate = own
    with patch_generate(model, DRAFT, gamma=2):
        outer = model.generate
        with patch_generate(model, DRAFT, gamma=3):
            assert torch.equal(model.generate(PROMPTS[:1], **options), expected)
        assert calls.pop()["custom_generate"].generation.steps[0].gamma == 3
        assert model.generate is outer
        assert torch.equal(model.generate(PROMPTS[:1], **options), expected)
        assert calls.pop()["custom_generate"].generation.steps[0].gamma == 2
    assert model.generate is own


@pytest.mark.parametrize(
    ("given", "options", "message"),
    [
        (("gpt2", DRAFT), {}, "the model is a str; give a loaded model"),
        ((TARGET, "gpt2"), {}, "the assistant is a str; give a loaded model"),
        ((TARGET, DRAFT), {"bogus": 1}, "'bogus'"),
        ((TARGET,), {"bogus": 1}, "'bogus'"),
        ((TARGET,), {"gamma": -1}, "γ = -1"),
        ((TARGET,), {"k": ()}, "branching"),
    ],
)
def test_a_wrong_plug_is_refused_at_once(given: Any, options: Any, message: str) -> None:
    """Catches mistakes that show up in the first call only, or never."""
    with pytest.raises(InvalidParameterError, match=message), patch_generate(*given, **options):
        pass
    assert "generate" not in vars(TARGET)


# A report that was computed for other settings


def write_report(folder: Path, **sampling: Any) -> Path:
    document = {"settings": {"sampling": {"temperature": 1.0, **sampling}}}
    (folder / "report.json").write_text(json.dumps(document))
    return folder


@pytest.mark.parametrize(
    ("reported", "call", "said"),
    [
        ({"top_k": 50}, {}, None),
        ({}, {"top_k": 0}, None),
        ({}, {}, "samples with T 1, top-k 50, but the report assumed T 1"),
        ({"top_k": 50}, {"repetition_penalty": 1.3}, "has 1 logits processor, which"),
    ],
    ids=["default top-k", "top-k off", "default top-k, report without", "a penalty"],
)
def test_a_report_for_other_settings(
    tmp_path: Path, reported: dict[str, Any], call: dict[str, Any], said: str | None
) -> None:
    """Catches a report of 3.5 tokens a step for a `generate` that gives 1.2, in silence."""
    decoding = AssistedDecoding(DRAFT, k=2, gamma=2, report=write_report(tmp_path, **reported))
    options = {**PADDED, "do_sample": True, "max_new_tokens": 2, **call}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        if said is None:
            TARGET.generate(PROMPTS, custom_generate=decoding, **options)
            return
        with pytest.raises(UserWarning, match=said):
            TARGET.generate(PROMPTS, custom_generate=decoding, **options)


def test_what_is_no_report(tmp_path: Path) -> None:
    (tmp_path / "report.json").write_text("{}")
    with pytest.raises(InvalidInputError, match="is not a report of `otm report`"):
        AssistedDecoding(DRAFT, report=tmp_path)


# Coupled decoding


def seeded(decoding: AssistedDecoding, **options: Any) -> Any:
    """Sample from the target under one seed of torch, which is returned as the loops take it."""
    torch.manual_seed(5)
    seed = int(torch.randint(2**63 - 1, ()))
    torch.manual_seed(5)
    options = {"do_sample": True, "top_k": 0, "max_new_tokens": 12, **PADDED, **options}
    return TARGET.generate(PROMPTS, custom_generate=decoding, **options), seed


@pytest.mark.parametrize("k", [1, 3, (2, 3)])
def test_list_coupling_gives_one_text_with_any_assistant(k: Any) -> None:
    """Catches lists that follow from the chains, and a seed or keys that follow the drafts."""
    lists = max(k) if isinstance(k, tuple) else k
    made = []
    for assistant, gamma in ((DRAFT, 3), (TARGET, 5), (llama(seed=7), 2)):
        decoding = AssistedDecoding(assistant, k=k, gamma=gamma, rule="list coupling")
        out, seed = seeded(decoding)
        made.append(out.tolist())
        models = HuggingFaceModel(TARGET), HuggingFaceModel(assistant)
        prompts = [[3, 4, 5, 6], [7, 8]]
        options: dict[str, Any] = {"gamma": gamma, "max_tokens": 12, "seed": seed}
        expected = decode_coupled(*models, prompts, k=k, **options)
        assert decoding.generation is not None
        assert decoding.generation.sequences == expected.sequences
        assert [step.drafts for step in decoding.generation.steps] == [
            step.drafts for step in expected.steps
        ]
    assert made[0] == made[1] == made[2]
    alone = decode_coupled(models[0], None, prompts, lists=lists, max_tokens=12, seed=seed)
    assert [row[4:] for row in made[0]] == list(map(list, alone.sequences))


def test_other_rules_do_not_give_one_text() -> None:
    """Negative control of the test above; greedy decoding is that of generate with any rule."""
    made = [seeded(AssistedDecoding(draft, k=3, gamma=3))[0].tolist() for draft in (DRAFT, TARGET)]
    assert made[0] != made[1]
    decoding = AssistedDecoding(DRAFT, k=3, gamma=3, rule="list coupling")
    greedy: dict[str, Any] = {"do_sample": False, "max_new_tokens": 12, **PADDED}
    expected = TARGET.generate(PROMPTS, **greedy)
    assert torch.equal(TARGET.generate(PROMPTS, custom_generate=decoding, **greedy), expected)
    with patch_generate(TARGET, DRAFT, k=2, rule="list coupling"):
        assert torch.equal(TARGET.generate(PROMPTS, **greedy), expected)


# Trees within a budget


def test_a_budget_of_nodes_drafts_the_likeliest_paths() -> None:
    """Bug: a budget that is not passed on, or drafts of chains beside it."""
    options: dict[str, Any] = {"do_sample": False, "max_new_tokens": 12, **PADDED}
    expected = TARGET.generate(PROMPTS, **options)
    decoding = AssistedDecoding(DRAFT, nodes=7, gamma=3, rule="target-only")
    assert torch.equal(TARGET.generate(PROMPTS, custom_generate=decoding, **options), expected)
    assert decoding.generation is not None
    first = decoding.generation.steps[0].drafts
    assert len({path[:i] for path in first for i in range(1, len(path) + 1)}) == 7
    assert max(map(len, first)) <= 3


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"nodes": 7, "rule": "k-Seq"}, "'target-only' or 'walk and keep' or 'branch"),
        ({"nodes": 0, "rule": "target-only"}, "nodes = 0"),
        ({"nodes": 7, "k": 4}, "omit one of both"),
        ({"match": "strings", "rule": "target-only", "k": 1}, "without tokenizers"),
    ],
    ids=["rule", "none", "k", "match"],
)
def test_options_that_do_not_go_together_are_refused(options: dict[str, Any], words: str) -> None:
    with pytest.raises(InvalidParameterError, match=words):
        AssistedDecoding(DRAFT, **options)
