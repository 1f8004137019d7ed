"""`generate` of transformers without a draft model: prompt lookup, n-grams, trees of them."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

from otm import SparseProbs
from otm.coupling import OptimalPlan
from otm.decoding import (
    AcceleratedDrafter,
    BestFirstDrafter,
    Drafter,
    DrawnTreeDrafter,
    DynamicTreeDrafter,
    ModelDrafter,
    NonAutoregressiveDrafter,
    PromptLookup,
    SamplingParameters,
    StaticTreeDrafter,
    skip_gram_heads,
    spectr,
    speculative,
)
from otm.errors import InvalidDraftsError, InvalidInputError, InvalidParameterError
from otm.integrations.huggingface import AssistedDecoding, patch_generate
from otm.models import HiddenStateModel, HuggingFaceModel, NGramModel
from otm.models.hidden_states.files import LayerFile
from otm.models.hidden_states.layer import LayerConfig, random_weights
from otm.testing import BUDGET, Control
from tests.integrations.test_huggingface import (  # noqa: F401
    DRAFT,
    MASK,
    PADDED,
    PROMPTS,
    SEQ2SEQ,
    TARGET,
    V,
    _one_thread,
    cache_of,
    llama,
)
from tests.models.vocabularies.tokenizer_kinds import bpe

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

GREEDY: dict[str, Any] = {"do_sample": False, "max_new_tokens": 24, **PADDED}
WITHOUT = TARGET.generate(PROMPTS, **GREEDY)
TEXT = np.concatenate([row[row != 0] for row in WITHOUT.numpy()])
"""The target's own text, which the n-grams below know."""
GRAMS = NGramModel.witten_bell(TEXT, order=3, vocabulary=V)
HEADS = skip_gram_heads(TEXT, 3, V, gamma=3)
SHAPE = (((),), ())

IID = ["k-Seq", "optimal", "recursive rejection", "walk and keep", "traversal", "grid optimal"]
DRAFTERS: list[tuple[Any, list[Any]]] = [
    (PromptLookup(), ["chain", "block", "target-only", OptimalPlan, *IID]),
    (ModelDrafter(GRAMS, 1), ["chain", "block", "greedy block", "grid k-Seq"]),
    (ModelDrafter(GRAMS, (2, 2)), IID),
    (AcceleratedDrafter(HuggingFaceModel(DRAFT), PromptLookup()), ["block", "k-Seq"]),
    (NonAutoregressiveDrafter(HEADS, V, 2), IID),
    (NonAutoregressiveDrafter(HEADS, V, nodes=5), ["target-only"]),
    (BestFirstDrafter(GRAMS, 6), ["target-only", "walk and keep"]),
    (DrawnTreeDrafter(GRAMS, 6), ["walk and keep"]),
    (StaticTreeDrafter(GRAMS, SHAPE), ["target-only"]),
    (DynamicTreeDrafter(GRAMS, 6), ["recursive rejection without replacement"]),
]
CASES = [(drafter, rule) for drafter, rules in DRAFTERS for rule in rules]


def named(case: Any) -> str:
    return type(case).__name__ if isinstance(case, Drafter) else getattr(case, "__name__", case)


ONE_CHAIN = "chain", "block", "greedy block"


@pytest.mark.parametrize(("drafter", "rule"), CASES, ids=named)
def test_greedy_output_is_that_of_generate(drafter: Drafter, rule: Any) -> None:
    """Bug: drafts after the padding or of another row, which the output then contains."""
    decoding = AssistedDecoding(drafter, gamma=3, rule=rule)
    assert torch.equal(TARGET.generate(PROMPTS, custom_generate=decoding, **GREEDY), WITHOUT)
    assert decoding.generation is not None
    assert decoding.generation.block_efficiency > 1, "drafts are accepted"


@pytest.mark.parametrize(("drafter", "rule"), CASES, ids=named)
def test_sampled_steps_are_those_of_the_loop(drafter: Drafter, rule: Any) -> None:
    """The distribution of the loop is tested in fractions; here each step must be that of the loop.

    Bug: another rule than the named one, dropped sampling parameters, drafts of an earlier call.
    """
    torch.manual_seed(4)
    seed = int(torch.randint(2**63 - 1, ()))
    loop: Any = speculative if rule in ONE_CHAIN else spectr
    expected = loop(
        HuggingFaceModel(TARGET), drafter, [[3, 4, 5, 6], [7, 8]], rule=rule, gamma=3, seed=seed,
        max_tokens=12, sampling=SamplingParameters(temperature=0.7, top_k=5),
    )  # fmt: skip
    decoding = AssistedDecoding(drafter, gamma=3, rule=rule)
    torch.manual_seed(4)
    found = TARGET.generate(
        PROMPTS, custom_generate=decoding, do_sample=True, temperature=0.7, top_k=5,
        max_new_tokens=12, **PADDED,
    )  # fmt: skip
    assert decoding.generation is not None
    assert found[:, 4:].tolist() == list(map(list, expected.sequences))
    assert [s.drafts for s in decoding.generation.steps] == [s.drafts for s in expected.steps]


class Liar(PromptLookup):
    """Prompt lookup that states half of the probability of its copies."""

    def draft(self, *batch: Any) -> Any:
        roots = super().draft(*batch)
        for node in (node for root in roots for node in root.nodes() if node.children):
            token = node.children[0].token
            node.draft_probs = SparseProbs(sorted([token, (token + 1) % 4]), [0.5, 0.5])
        return roots


@pytest.mark.parametrize("rule", ["k-Seq", "block"])
def test_two_tokens_have_the_law_of_the_target(rule: str) -> None:
    """Bug: a copy that is accepted more often than the target draws it, as the control does."""
    target, prompt, copied = llama(4), torch.tensor([[1, 2, 3, 1, 2]]), 3

    def after(*more: int) -> Any:
        tokens = torch.tensor([[*prompt[0].tolist(), *more]])
        scores = target(tokens).logits[0, -1].detach().numpy() / 2
        weights = np.exp(scores) * (scores > scores.min())
        return weights / weights.sum()

    seconds = np.array([after(first) for first in range(4)])
    stated = np.zeros(4)
    stated[[copied, (copied + 1) % 4]] = 0.5
    residual = np.maximum(after() - stated, 0)
    wrong = (1 - min(1, 2 * after()[copied])) * residual / residual.sum()
    wrong[copied] += min(1, 2 * after()[copied])

    def sampler(drafter: Drafter) -> Any:
        def draws(rng: np.random.Generator, count: int) -> Any:
            torch.manual_seed(int(rng.integers(2**62)))
            found: list[int] = []
            while len(found) < count:
                out = target.generate(
                    prompt, custom_generate=AssistedDecoding(drafter, gamma=2, rule=rule),
                    num_return_sequences=100, do_sample=True, temperature=2.0, top_k=3,
                    max_new_tokens=2, pad_token_id=0,
                )  # fmt: skip
                found += (4 * out[:, 5] + out[:, 6]).tolist()
            return np.array(found[:count])

        return draws

    BUDGET.check_distribution(
        f"generate with prompt lookup, {rule}",
        sampler(PromptLookup()),
        (after()[:, None] * seconds).ravel(),
        delta=0.2,
        control=Control(sampler(Liar()), (wrong[:, None] * seconds).ravel()),
    )


# Models and functions of the target


def test_a_model_drafts_as_the_call_samples() -> None:
    """Bug: a model without transformers that draws at temperature 1 for a greedy call."""
    trees = [{"nodes": 5, "rule": rule} for rule in ("target-only", "walk and keep")]
    for options in ({"k": (2, 2)}, *trees, {"rule": "block"}):
        decoding = AssistedDecoding(GRAMS, gamma=3, **options)  # type: ignore[arg-type]
        assert torch.equal(TARGET.generate(PROMPTS, custom_generate=decoding, **GREEDY), WITHOUT)
        assert decoding.generation is not None
        assert decoding.generation.block_efficiency > 2, "n-grams of this very text"
    banned = AssistedDecoding(GRAMS, k=1, gamma=3)
    TARGET.generate(PROMPTS, custom_generate=banned, suppress_tokens=[6, 10], **GREEDY)
    assert banned.generation is not None
    drafts = {x for step in banned.generation.steps for path in step.drafts for x in path}
    assert drafts
    assert not drafts & {6, 10}


def test_a_function_of_the_target_makes_the_drafter_of_each_call() -> None:
    """Bug: a drafter for the target of the last call, not for the one that decodes."""
    seen: list[Any] = []

    def itself(target: HuggingFaceModel) -> HuggingFaceModel:
        seen.append(target)
        return target

    decoding = AssistedDecoding(itself, k=2, gamma=3)
    for padding in (0, 5):
        options = GREEDY | {"pad_token_id": padding}
        assert torch.equal(TARGET.generate(PROMPTS, custom_generate=decoding, **options), WITHOUT)
        assert decoding.generation is not None
        assert decoding.generation.block_efficiency == 4
    assert [target.model for target in seen] == [TARGET, TARGET]
    assert seen[0] is not seen[1]
    with patch_generate(TARGET, lambda target: BestFirstDrafter(target, 3), rule="target-only"):
        assert torch.equal(TARGET.generate(PROMPTS, **GREEDY), WITHOUT)
    with pytest.raises(InvalidInputError, match="draft is a NoneType; give a LanguageModel or a D"):
        TARGET.generate(PROMPTS, custom_generate=AssistedDecoding(lambda _: None), **GREEDY)
    with pytest.raises(InvalidParameterError, match="`k` has no effect on a PromptLookup"):
        TARGET.generate(
            PROMPTS, custom_generate=AssistedDecoding(lambda _: PromptLookup(), k=2), **GREEDY
        )


@pytest.mark.parametrize(("rule", "k"), [("block", None), ("k-Seq", 2), ("walk and keep", 3)])
def test_drafts_from_hidden_states_are_those_of_the_loop(rule: str, k: int | None) -> None:
    """Bug: a layer that reads the states of an earlier call, or those of the padding."""
    config = LayerConfig((1, 2), width=16, heads=4, key_heads=2, hidden=24)
    tokens = torch.tensor([1, 2, 5, 7, 8, 11, 16])
    layer = LayerFile(config, random_weights(config, len(tokens), seed=1), tokens)
    decoding = AssistedDecoding(
        lambda target: HiddenStateModel(target, layer), k=k, gamma=3, rule=rule
    )
    assert torch.equal(TARGET.generate(PROMPTS, custom_generate=decoding, **GREEDY), WITHOUT)
    torch.manual_seed(4)
    seed, target = int(torch.randint(2**63 - 1, ())), HuggingFaceModel(TARGET)
    loop: Any = speculative if k is None else functools.partial(spectr, k=k)
    draft, prompts = HiddenStateModel(target, layer), [[3, 4, 5, 6], [7, 8]]
    expected = loop(target, draft, prompts, rule=rule, gamma=3, seed=seed, max_tokens=12)
    torch.manual_seed(4)
    options: dict[str, Any] = {"do_sample": True, "top_k": 0, "max_new_tokens": 12, **PADDED}
    TARGET.generate(PROMPTS, custom_generate=decoding, **options)
    assert decoding.generation is not None
    assert decoding.generation.sequences == expected.sequences
    assert [s.drafts for s in decoding.generation.steps] == [s.drafts for s in expected.steps]


@pytest.mark.parametrize("k", [3, None])
def test_list_coupling_gives_the_text_of_an_assistant(k: int | None) -> None:
    """Bug: another number of lists for drafts of another kind, and so another text."""
    made = []
    for assistant in (DRAFT, PromptLookup(), ModelDrafter(GRAMS, 2), GRAMS):
        decoding = AssistedDecoding(assistant, k=k, gamma=3, rule="list coupling")
        torch.manual_seed(5)
        made.append(
            TARGET.generate(
                PROMPTS, custom_generate=decoding, do_sample=True, max_new_tokens=12, **PADDED
            ).tolist()
        )
    assert made[0] == made[1] == made[2] == made[3]


# What a call of generate may contain


def test_prompt_lookup_in_other_calls() -> None:
    """Bug: an encoder, a cache, a stream, scores or a criterion that needs an assistant's model."""
    lookup = AssistedDecoding(PromptLookup(), gamma=3)
    options: dict[str, Any] = {"do_sample": False, "max_new_tokens": 16}
    ids = PROMPTS[:1].repeat(1, 2)
    expected = TARGET.generate(
        ids, return_dict_in_generate=True, output_scores=True, repetition_penalty=1.2, **options
    )
    heard: list[int] = []
    ear = type(
        "Ear", (), {"put": lambda _, x: heard.extend(x.flatten().tolist()), "end": lambda _: None}
    )()
    found = TARGET.generate(
        ids, custom_generate=lookup, past_key_values=cache_of(ids[:, :5]), streamer=ear,
        return_dict_in_generate=True, output_scores=True, repetition_penalty=1.2, **options,
    )  # fmt: skip
    assert torch.equal(found.sequences, expected.sequences)
    assert heard == expected.sequences[0].tolist()
    for one, other in zip(found.scores, expected.scores, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-5)
    ids, mask = PROMPTS.flip(1), MASK.flip(1)
    expected = SEQ2SEQ.generate(ids, attention_mask=mask, **options)
    found = SEQ2SEQ.generate(ids, attention_mask=mask, custom_generate=lookup, **options)
    assert torch.equal(found, expected)
    assert lookup.generation is not None
    assert lookup.generation.block_efficiency > 1


def watched(monkeypatch: pytest.MonkeyPatch) -> list[AssistedDecoding]:
    """Return a list that gets each decoding that runs."""
    seen: list[AssistedDecoding] = []
    call = AssistedDecoding.__call__

    @functools.wraps(call)
    def run(decoding: AssistedDecoding, *args: Any, **kwargs: Any) -> Any:
        seen.append(decoding)
        return call(decoding, *args, **kwargs)

    monkeypatch.setattr(AssistedDecoding, "__call__", run)
    return seen


@pytest.mark.parametrize("place", ["call", "configuration", "model"])
@pytest.mark.parametrize("longest", [None, 3])
def test_prompt_lookup_num_tokens_of_a_patched_call(
    place: str, longest: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Bug: transformers' own loop, another γ or match, and limits of that loop (one sequence)."""
    wish: dict[str, Any] = {"prompt_lookup_num_tokens": 4, "max_matching_ngram_size": longest}
    options = dict(GREEDY)
    if place == "call":
        options |= wish
    elif place == "configuration":
        config = {"do_sample": False, "max_new_tokens": 24, "pad_token_id": 0}
        options = {"attention_mask": MASK}
        options["generation_config"] = transformers.GenerationConfig(**config, **wish)
    else:
        for name, value in wish.items():
            monkeypatch.setattr(TARGET.generation_config, name, value, raising=False)
    seen = watched(monkeypatch)
    with patch_generate(TARGET, rule="chain"):
        assert torch.equal(TARGET.generate(PROMPTS, **options), WITHOUT)
        TARGET.generate(PROMPTS, num_return_sequences=2, **options | {"do_sample": True})
    assert [decoding.assistant.max_ngram for decoding in seen] == [longest or 2] * 2
    for decoding in seen:
        assert decoding.generation is not None
        assert {step.gamma for step in decoding.generation.steps} == {4}
    with patch_generate(TARGET, gamma=3) as patched:
        if place == "call":
            patched.generate(PROMPTS, **options | {"prompt_lookup_num_tokens": None})
            assert len(seen) == 2, "no drafts, so transformers decodes"


# Rejected input


@pytest.mark.parametrize(
    ("assistant", "options", "words"),
    [
        (PromptLookup(), {"k": 2}, "`k` has no effect on a PromptLookup; remove it"),
        (PromptLookup(), {"nodes": 4, "rule": "target-only"}, "`nodes` has no effect"),
        (
            PromptLookup(),
            {"tokenizers": (bpe([], "</s>"), bpe([], "</s>"))},
            "`tokenizers` has no effect",
        ),
        ("gpt2", {}, "the assistant is a str; give a loaded model, .* or a LanguageModel or Dr"),
        (None, {}, "the assistant is a NoneType"),
    ],
    ids=["k", "nodes", "tokenizers", "str", "None"],
)
def test_drafters_and_parameters_of_models_exclude_each_other(
    assistant: Any, options: dict[str, Any], words: str
) -> None:
    with pytest.raises(InvalidParameterError, match=words):
        AssistedDecoding(assistant, **options)


def test_drafts_that_do_not_suit_the_call_are_refused() -> None:
    """Bug: an error of numpy or torch, or one after the first forward pass."""

    def decode(assistant: Any, **options: Any) -> Callable[[], Any]:
        decoding = AssistedDecoding(assistant, gamma=2, **options)
        return lambda: TARGET.generate(PROMPTS, custom_generate=decoding, **GREEDY)

    calls: Sequence[tuple[Callable[[], Any], type[Exception], str]] = [
        (decode(ModelDrafter(NGramModel.witten_bell([1, 2], 2, 5))), InvalidInputError, "of 5 tok"),
        (decode(NGramModel.witten_bell([1, 2], 2, 5)), InvalidInputError, "vocabulary of 5 tokens"),
        (decode(PromptLookup(), rule="greedy block"), InvalidInputError, "give a model, or a Mode"),
        (
            decode(StaticTreeDrafter(GRAMS, SHAPE), rule="k-Seq"),
            InvalidDraftsError,
            'rule="target-only"',
        ),
    ]
    for call, error, words in calls:
        with pytest.raises(error, match=words):
            call()


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"prompt_lookup_num_tokens": 0}, "prompt_lookup_num_tokens = 0; it must be an integer"),
        ({"prompt_lookup_num_tokens": 3, "max_matching_ngram_size": 0}, "ngram_size = 0"),
        ({"prompt_lookup_num_tokens": 3, "assistant_model": DRAFT}, "tokens and an assistant"),
        ({"prompt_lookup_num_tokens": 3, "num_beams": 2}, "the generation mode is beam_search"),
    ],
    ids=["tokens", "match", "assistant", "beams"],
)
def test_wrong_prompt_lookup_is_refused(options: dict[str, Any], words: str) -> None:
    with pytest.raises(InvalidParameterError, match=words), patch_generate(TARGET):
        TARGET.generate(PROMPTS, **GREEDY | options)
