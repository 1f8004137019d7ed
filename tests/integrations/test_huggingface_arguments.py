"""Every argument of `generate` has its effect or raises; no argument is ignored silently."""

from __future__ import annotations

import copy
import inspect
from typing import Any

import pytest

from otm.errors import InvalidParameterError
from otm.integrations.huggingface import AssistedDecoding, patch_generate
from otm.models import HuggingFaceModel
from tests.integrations.test_huggingface import (  # noqa: F401
    DRAFT,
    MASK,
    PADDED,
    PROMPTS,
    TARGET,
    V,
    _one_thread,
    drafting_for,
    llama,
)
from tests.models.vocabularies.tokenizer_kinds import bpe

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

GREEDY: dict[str, Any] = {"do_sample": False, "max_new_tokens": 9, **PADDED}
WITHOUT = TARGET.generate(PROMPTS, **GREEDY)
FIRST = WITHOUT[0, 4].item()
TOKENIZER = bpe([], "</s>")
STRINGS = [TOKENIZER.decode([FIRST])]


class AfterTwo(transformers.StoppingCriteria):
    def __call__(self, input_ids: Any, scores: Any, **_: Any) -> Any:
        return torch.full((len(input_ids),), input_ids.shape[1] >= 6)


class Never(transformers.LogitsProcessor):
    """Forbids a token."""

    def __call__(self, input_ids: Any, scores: Any) -> Any:
        return scores.index_fill(1, torch.tensor([FIRST]), -torch.inf)


GREEN = transformers.WatermarkingConfig(bias=9.0, seeding_scheme="lefthash", context_width=1)

HONOURED: list[dict[str, Any]] = [
    {"generation_config": transformers.GenerationConfig(max_new_tokens=5, pad_token_id=0)},
    {"inputs": PROMPTS[:, 1:], "attention_mask": MASK[:, 1:]},
    {"max_new_tokens": 3},
    {"max_new_tokens": None, "max_length": 8},
    {"eos_token_id": FIRST},
    {"eos_token_id": FIRST, "pad_token_id": 5},
    {"eos_token_id": FIRST, "min_new_tokens": 4},
    {"eos_token_id": FIRST, "min_length": 7},
    {"max_time": 0.0},
    {"stop_strings": STRINGS, "tokenizer": TOKENIZER, "eos_token_id": 13},
    {"stopping_criteria": transformers.StoppingCriteriaList([AfterTwo()])},
    {"logits_processor": transformers.LogitsProcessorList([Never()])},
    {"prefix_allowed_tokens_fn": lambda row, tokens: [3 + row, 7]},
    {"repetition_penalty": 3.0},
    {"no_repeat_ngram_size": 1},
    {"bad_words_ids": [[FIRST]]},
    {"sequence_bias": {(FIRST,): -50.0}},
    {"suppress_tokens": [FIRST]},
    {"begin_suppress_tokens": [FIRST]},
    {"forced_eos_token_id": 6},
    {"eos_token_id": 6, "exponential_decay_length_penalty": (2, 30.0)},
    {"watermarking_config": GREEN},
]
"""Arguments that change the text of `generate`; the same change is asked of us."""

SAME_TEXT: list[dict[str, Any]] = [
    {"use_cache": False},
    {"cache_implementation": "static"},
    {"remove_invalid_values": True},
    {"renormalize_logits": True},
    {"return_dict_in_generate": True, "output_scores": True, "output_logits": True},
    {"num_return_sequences": 1},
    {"synced_gpus": False},
    {"negative_prompt_ids": PROMPTS, "negative_prompt_attention_mask": MASK},
    {"early_stopping": True},
    {"disable_compile": True},
    {"num_assistant_tokens": 3, "num_assistant_tokens_schedule": "constant"},
    {"assistant_confidence_threshold": 0.5},
]
"""Arguments that change speed or memory, or nothing where no beams and no guidance are."""

SAMPLED: list[dict[str, Any]] = [
    {"do_sample": True, "top_k": 1},
    {"do_sample": True, "top_k": None, "top_p": 0.01},
    {"do_sample": True, "top_k": None, "min_p": 1.0},
    {"do_sample": True, "top_k": None, "temperature": 1e-4},
    {"do_sample": True, "top_k": None, "epsilon_cutoff": 0.9},
    {"do_sample": True, "top_k": 1, "eta_cutoff": 0.9},
    {"do_sample": True, "top_k": 1, "typical_p": 0.9},
    {"do_sample": True, "top_k": 1, "num_return_sequences": 2},
]
"""Sampling in which nothing is left to chance: the text is that of greedy decoding."""

REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"prompt_lookup_num_tokens": 3}, "tokens (= 3 beside AssistedDecoding|and an assistant)"),
    ({"assistant_early_exit": 1}, "drafts with the first layers"),
    ({"use_mtp": True}, "drafts with more heads"),
    ({"speculation_type": "dflash"}, "drafts with a special kind of model"),
    ({"assistant_ensemble_weight": 0.5}, "mixes the assistant into the output"),
    ({"num_beams": 2}, "generation mode is beam_search"),
    ({"penalty_alpha": 0.6, "top_k": 4}, "generation mode is contrastive_search"),
    ({"dola_layers": "low"}, "generation mode is dola_generation"),
    ({"force_words_ids": [[3]], "num_beams": 2}, "generation mode is constrained_beam_search"),
    ({"guidance_scale": 1.5}, "reads the batch with its own cache"),
    ({"guidance_scale": 1.5, "negative_prompt_ids": PROMPTS}, "reads the batch with its own cache"),
    ({"output_attentions": True}, "output_attentions are not possible"),
    ({"output_hidden_states": True, "return_dict_in_generate": True}, "output_hidden_states=True"),
    ({"synced_gpus": True}, "synced_gpus"),
]
"""Arguments that a call without OTM would take, in a way that is not ours."""

ONLY_PATCHED: list[tuple[dict[str, Any], str]] = [
    ({"cache_implementation": "paged"}, "continuous batching"),
    ({"token_healing": True, "tokenizer": TOKENIZER}, r"heal_tokens\(input_ids, tokenizer\) first"),
    ({"custom_generate": lambda model, input_ids, **_: input_ids}, "not accept custom_generate"),
]

ELSEWHERE = {
    # tests of their own
    *("assistant_model", "assistant_tokenizer", "streamer", "max_matching_ngram_size"),
    *("encoder_repetition_penalty", "encoder_no_repeat_ngram_size", "forced_bos_token_id"),
    *("decoder_start_token_id", "bos_token_id", "top_h"),
    # of beams alone, or of loops of transformers alone: speed and memory
    *("length_penalty", "diversity_penalty", "num_beam_groups", "constraints", "low_memory"),
    *("assistant_lookbehind", "target_lookbehind", "is_assistant", "compile_config"),
    *("prefill_chunk_size", "cache_config", "max_cache_len", "continuous_batching_config"),
    *("trust_remote_code", "kwargs", "self", "use_model_defaults"),
    *("return_legacy_cache", "transformers_version", "_from_model_config"),
}


def by_argument(**options: Any) -> Any:
    inputs = options.pop("inputs", PROMPTS)
    return TARGET.generate(inputs, custom_generate=AssistedDecoding(DRAFT, k=2, gamma=3), **options)


def by_patch(**options: Any) -> Any:
    inputs = options.pop("inputs", PROMPTS)
    with patch_generate(TARGET, k=2, gamma=3):
        return TARGET.generate(inputs, assistant_model=DRAFT, **options)


def plain(**options: Any) -> Any:
    return TARGET.generate(options.pop("inputs", PROMPTS), **options)


def with_defaults(options: dict[str, Any]) -> dict[str, Any]:
    return PADDED | options if "generation_config" in options else GREEDY | options


def named(options: dict[str, Any]) -> str:
    return ", ".join(options)


WAYS = [by_argument, by_patch]


@pytest.mark.parametrize("options", HONOURED, ids=named)
def test_what_changes_the_text_changes_ours(options: dict[str, Any]) -> None:
    """Bug: an argument that is dropped; each of these changes what plain `generate` returns."""
    expected = plain(**with_defaults(options))
    assert expected.shape != WITHOUT.shape or not torch.equal(expected, WITHOUT)
    assert torch.equal(by_patch(**with_defaults(options)), expected)
    if "tokenizer" in options:
        with pytest.raises(ValueError, match="tokenizer"):  # which transformers does not hand on
            by_argument(**with_defaults(options))
        return
    assert torch.equal(by_argument(**with_defaults(options)), expected)


@pytest.mark.parametrize("options", [*SAME_TEXT, *SAMPLED], ids=named)
@pytest.mark.parametrize("way", WAYS)
def test_what_leaves_the_text_leaves_ours(way: Any, options: dict[str, Any]) -> None:
    """Bug: an argument that ends in an error, or that changes the distribution."""
    if "cache_implementation" in options and transformers.__version__.startswith("4"):
        pytest.skip("this version fails in a second call whose cache was not used")
    found = way(**GREEDY | options)
    if options.get("return_dict_in_generate"):
        assert len(found.scores) == len(found.logits) == 9
        found = found.sequences
    copies = options.get("num_return_sequences", 1)
    assert torch.equal(found, WITHOUT.repeat_interleave(copies, dim=0))


@pytest.mark.parametrize(
    ("way", "options", "words"),
    [(way, *case) for way in WAYS for case in REFUSED]
    + [(by_patch, *case) for case in ONLY_PATCHED],
)
def test_what_is_not_ours_is_refused(way: Any, options: dict[str, Any], words: str) -> None:
    """Bug: a loop of transformers in place of OTM's, without a word."""
    settings = transformers.GenerationConfig().to_dict()
    inputs = inspect.signature(TARGET.generate).parameters
    if not all(name in settings or name in inputs or name == "tokenizer" for name in options):
        pytest.skip("this version of transformers does not know it")
    with pytest.raises(InvalidParameterError, match=words):
        way(**GREEDY | options)


OWN = [case for case in REFUSED if next(iter(case[0])) in ("assistant_early_exit", "use_mtp")]


@pytest.mark.parametrize(("options", "words"), OWN)
@pytest.mark.parametrize("place", ["call", "configuration", "model"])
@pytest.mark.parametrize("assistant", [None, DRAFT], ids=["without", "with assistant"])
def test_drafts_of_transformers_are_refused_under_a_patch(
    options: dict[str, Any], words: str, place: str, assistant: Any,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """Also without an assistant, and where the wish stands in a configuration."""
    given = dict(GREEDY)
    if place == "call":
        given |= options
    elif place == "configuration":
        config = {"do_sample": False, "max_new_tokens": 9, "pad_token_id": 0, **options}
        given = {"attention_mask": MASK}
        given["generation_config"] = transformers.GenerationConfig(**config)
    else:
        for name, value in options.items():
            monkeypatch.setattr(TARGET.generation_config, name, value, raising=False)
    with (
        patch_generate(TARGET, assistant, k=2, gamma=3),
        pytest.raises(InvalidParameterError, match=words),
    ):
        TARGET.generate(PROMPTS, **given)


def test_a_patched_call_without_an_assistant_is_left_alone() -> None:
    """Arguments that assisted calls reject are allowed here, since transformers' loop runs."""
    with patch_generate(TARGET):
        assert torch.equal(TARGET.generate(PROMPTS, **GREEDY), WITHOUT)
        found = TARGET.generate(PROMPTS, num_beams=2, prompt_lookup_num_tokens=None, **GREEDY)
    assert torch.equal(found, TARGET.generate(PROMPTS, num_beams=2, **GREEDY))


@pytest.mark.parametrize("place", ["configuration", "model"])
def test_stop_strings_of_a_configuration(place: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Bug: an error about a tokenizer that was given."""
    # with an end token, since transformers pads rows behind their ends only then
    options: dict[str, Any] = GREEDY | {"eos_token_id": 13}
    if place == "model":
        monkeypatch.setattr(TARGET.generation_config, "stop_strings", STRINGS)
    else:
        config = {name: value for name, value in options.items() if name != "attention_mask"}
        options = {"attention_mask": MASK}
        options["generation_config"] = transformers.GenerationConfig(stop_strings=STRINGS, **config)
    expected = plain(tokenizer=TOKENIZER, **options)
    assert not torch.equal(expected, WITHOUT)
    assert torch.equal(by_patch(tokenizer=TOKENIZER, **options), expected)


def test_another_assistant_beside_that_of_the_decoding_is_refused() -> None:
    """Bug: an assistant that never drafts."""
    decoding = AssistedDecoding(DRAFT, k=2, gamma=3)
    with pytest.raises(InvalidParameterError, match="assistant_model differs from the assistant"):
        TARGET.generate(PROMPTS, custom_generate=decoding, assistant_model=llama(seed=3), **GREEDY)
    found = TARGET.generate(PROMPTS, custom_generate=decoding, assistant_model=DRAFT, **GREEDY)
    assert torch.equal(found, WITHOUT)


def test_every_argument_is_in_a_table() -> None:
    """A new argument of transformers needs an answer before it is passed on."""
    known = set(ELSEWHERE)
    for options in (*HONOURED, *SAME_TEXT, *SAMPLED, *(o for o, _ in (*REFUSED, *ONLY_PATCHED))):
        known |= options.keys()
    names = {*transformers.GenerationConfig().to_dict()}
    names |= {*inspect.signature(transformers.GenerationMixin.generate).parameters}
    assert not names - known


# Assistants that transformers has changed in place


@pytest.fixture(scope="module")
def pruned() -> Any:
    """Let transformers decode with two tokenizers, which prunes the assistant's output layer."""
    of_target, of_draft = bpe([("t", "h")], "</s>"), bpe([("h", "e"), ("Ġ", "t")], "<|end|>")
    target, draft = llama(len(of_target)), llama(len(of_draft), 1)
    target.generate(
        torch.tensor([of_target.encode("the")]), assistant_model=draft, tokenizer=of_target,
        assistant_tokenizer=of_draft, do_sample=True, max_new_tokens=3, pad_token_id=0,
    )  # fmt: skip
    return target, draft, (of_target, of_draft)


def test_a_pruned_assistant_is_refused(pruned: Any) -> None:
    """Bug: an IndexError deep in a step."""
    target, draft, pair = pruned
    ids = torch.tensor([pair[0].encode("the")])
    options: dict[str, Any] = {"do_sample": False, "max_new_tokens": 3, "pad_token_id": 0}
    decoding = AssistedDecoding(draft, k=1, gamma=2, tokenizers=pair)
    for match in ("pruned it in place", "load the model again"):
        with pytest.raises(InvalidParameterError, match=match):
            target.generate(ids, custom_generate=decoding, **options)
    with (
        patch_generate(target, k=1, gamma=2),
        pytest.raises(InvalidParameterError, match="pruned it in place"),
    ):
        target.generate(
            ids, assistant_model=draft, tokenizer=pair[0], assistant_tokenizer=pair[1], **options
        )
    with pytest.raises(InvalidParameterError, match="pruned it in place"):
        HuggingFaceModel(draft)


def test_an_assistant_is_not_changed_by_otm(pruned: Any) -> None:
    """The advice holds: the same pair, patched, works again and again."""
    target, _, pair = pruned
    draft = llama(len(pair[1]), 1)
    state = copy.deepcopy(draft.state_dict())
    ids = torch.tensor([pair[0].encode("the")])
    with patch_generate(target, k=1, gamma=2):
        for _ in range(2):
            target.generate(
                ids, assistant_model=draft, tokenizer=pair[0], assistant_tokenizer=pair[1],
                do_sample=True, max_new_tokens=3, pad_token_id=0,
            )  # fmt: skip
    assert draft.state_dict().keys() == state.keys()
    assert all(torch.equal(new, state[name]) for name, new in draft.state_dict().items())


def test_an_output_layer_with_fewer_scores_than_tokens_is_refused() -> None:
    """Pruned by hand; the first tokens may be used if one says so."""
    draft = drafting_for(TARGET)
    draft.lm_head = torch.nn.Linear(16, 11, bias=False).double()
    decoding = AssistedDecoding(draft, k=1, gamma=2)
    with pytest.raises(
        InvalidParameterError, match=f"scores 11 tokens, but its configuration says {V}"
    ):
        TARGET.generate(PROMPTS, custom_generate=decoding, **GREEDY)
    assert HuggingFaceModel(draft, vocabulary=11).vocabulary == 11


@pytest.mark.parametrize("order", [(0, 1, 2), (1, 0, 2), (0, 2, 1), (2, 0, 1), (2, 1, 0)])
@pytest.mark.parametrize("own", [False, True])
def test_patches_are_left_in_any_order(
    order: tuple[int, ...], own: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Bug: leaving the outer patch took the inner one away, and leaving the inner one raised."""
    if own:
        monkeypatch.setattr(TARGET, "generate", TARGET.generate)
    before = vars(TARGET).get("generate")
    seen: list[int] = []
    monkeypatch.setattr(AssistedDecoding, "__call__", watched(seen))
    patches = [patch_generate(TARGET, DRAFT, k=k, gamma=2) for k in (1, 2, 3)]
    for patch in patches:
        patch.__enter__()
    still = {1, 2, 3}
    for place in order:
        patches[place].__exit__(None, None, None)
        still.discard(place + 1)
        seen.clear()
        TARGET.generate(PROMPTS[:1], do_sample=False, max_new_tokens=2, pad_token_id=0)
        assert seen == ([max(still)] if still else [])  # the inner one of those that are left
    assert vars(TARGET).get("generate") is before


def watched(seen: list[int]) -> Any:
    """Make a call of a decoding that writes its k down."""
    call = AssistedDecoding.__call__

    def run(decoding: Any, *args: Any, **kwargs: Any) -> Any:
        seen.append(decoding.k)
        return call(decoding, *args, **kwargs)

    return run
