"""Loops with logits processors, end tokens and stop sequences: right ones pass, wrong are named."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import pytest

from otm.audit import LOSSLESS, NOT_LOSSLESS, Instance, Report, loop, lossless, processors
from otm.audit.adapters import huggingface
from otm.audit.adapters.base import AFTER_END, AFTER_STOP, TOO_LONG, TOO_SHORT
from otm.audit.adapters.processed import ProcessedModel, Processing, first_end
from otm.audit.instances import INSTANCES
from otm.audit.larger_instances import dense, stopping
from otm.errors import InvalidInputError, InvalidParameterError
from tests.audit.adapters.processed_loops import decoding

PAIRS = [INSTANCES[name] for name in ("rows differ", "three tokens")]

REPETITION = processors.penalties(repetition=2, frequency=0.5)
LENGTH = processors.min_length(2, end=1)
GRAMMAR = processors.automaton({0: {0: 1, 2: 0}, 1: {1: 0, 2: 2}, 2: {0: 0}}, accepting=[1], end=3)

NAMES = {
    "dropped": "processor dropped",
    "bonus alone": "processor on the bonus token alone",
    "first alone": "processor at the first position alone",
    "once a step": "processor applied once a step",
    "tested raw": "processor missing in the test of drafts",
    "argmax": "filter, then argmax",
}


def audit(processor: Any, *, wrong: str = "", max_tokens: int | None = None, **options: Any) -> Any:
    """Audit a loop on few pairs of models."""
    ends = {name: options[name] for name in ("end", "stop") if name in options}
    decode = decoding(processor, wrong=wrong, **options)
    adapter = loop(decode, processor=processor, max_tokens=max_tokens, **ends)
    if processor is not None and len(adapter.more) == 4:
        # The last pairs of two tokens have many paths, and show nothing else.
        adapter.more = adapter.more[:2]
    return lossless(adapter, instances=PAIRS, examples=0)


@pytest.mark.parametrize(
    ("processor", "options"),
    [
        (REPETITION, {}),
        (processors.penalties(presence=1.5), {"first": True}),
        (processors.bias({0: 1.2, 4: -2}), {"raw_drafts": True}),
        (processors.min_p(0.5), {"shorter_steps": True}),
        (processors.bad_words([(0, 1), (2,)]), {}),
        (LENGTH, {"end": 1}),
        (GRAMMAR, {"end": 3, "raw_drafts": True}),
        (processors.in_order(REPETITION, processors.min_p(0.3)), {"stop": ((0, 1), (1, 1, 1))}),
    ],
    ids=["repetition", "presence", "bias", "min-p", "bad words", "length", "grammar", "both"],
)
def test_right_loops_pass(processor: Any, options: Any) -> None:
    """Catches a false alarm: an expected distribution without the processor, or behind an end."""
    report = audit(processor, **options)
    assert report.verdict == LOSSLESS, str(report)
    assert report.method == "exact paths"
    assert report.tv_distance < 1e-12


@pytest.mark.parametrize("wrong", NAMES)
@pytest.mark.parametrize("size", ["small", "large"])
def test_wrong_uses_of_a_processor_are_named(wrong: str, size: str) -> None:
    """Catches a mistake that passes, or that has another mistake's name, for two kinds of loops."""
    options: Any = {"shorter_steps": True}
    if size == "large":
        options = {"raw_drafts": True, "max_tokens": 4}
    report = audit(REPETITION, wrong=wrong, **options)
    assert report.verdict == NOT_LOSSLESS
    assert [diagnosis.name for diagnosis in report.diagnoses] == [NAMES[wrong]]


@pytest.mark.parametrize(
    ("processor", "options", "wrong"),
    [
        (LENGTH, {"end": 1}, "first alone"),
        (LENGTH, {"end": 1}, "once a step"),
        (GRAMMAR, {"end": 3}, "bonus alone"),
        (processors.bias({0: 1.2}), {"first": True}, "bonus alone"),
        (processors.min_p(0.7), {"raw_drafts": True}, "tested raw"),
    ],
)
def test_masks_inside_a_block_are_named(processor: Any, options: Any, wrong: str) -> None:
    """Catches names that fit penalties only: a minimum length that a block ignores, a grammar."""
    report = audit(processor, wrong=wrong, **options)
    assert report.verdict == NOT_LOSSLESS
    assert [diagnosis.name for diagnosis in report.diagnoses] == [NAMES[wrong]]


def test_a_history_does_not_matter_where_nothing_depends_on_it() -> None:
    """Catches an alarm on a bias that is applied once a step, which is right."""
    assert audit(processors.bias({0: 1.2}), wrong="once a step").verdict == LOSSLESS


def test_another_processor_is_a_deviation_without_a_name() -> None:
    """Negative control: the loop has another penalty than the one that is stated."""
    decode = decoding(processors.penalties(repetition=1.5))
    adapter = loop(decode, processor=REPETITION)
    # Names of processors need no comparison with known mistakes, which takes long.
    report = lossless(adapter, instances=PAIRS, examples=0, max_seconds=1)
    assert report.verdict == NOT_LOSSLESS
    assert not any(diagnosis.name in NAMES.values() for diagnosis in report.diagnoses)


@pytest.mark.parametrize(
    ("wrong", "options", "name", "text"),
    [
        ("end overrun", {"end": 1}, AFTER_END, "after the end token 1"),
        ("end overrun", {"end": 2, "max_tokens": 5}, AFTER_END, "after the end token 2"),
        ("stop overrun", {"stop": ((0, 1),)}, AFTER_STOP, "after the stop sequence (0, 1)"),
        (
            "stop overrun",
            {"stop": ((1,), (2, 2)), "max_tokens": 4},
            AFTER_STOP,
            "after the stop sequence",
        ),
        ("too long", {}, TOO_LONG, "cut off the additional tokens"),
        ("too long", {"max_tokens": 4, "end": 1}, TOO_LONG, "max_tokens was 4"),
        ("too short", {}, TOO_SHORT, "give loop(…, end=token)"),
        ("too short", {"stop": ((0, 1),), "max_tokens": 4}, TOO_SHORT, "token or stop sequence"),
    ],
)
def test_wrong_ends_are_named(wrong: str, options: Any, name: str, text: str) -> None:
    """Catches tokens behind an end, an exceeded limit and a short text without their names."""
    report: Report = audit(None, wrong=wrong, **options)
    assert report.verdict == NOT_LOSSLESS
    assert [diagnosis.name for diagnosis in report.diagnoses] == [name]
    assert text in str(report)


def test_a_wrong_distribution_is_not_called_a_wrong_end() -> None:
    """Catches the name of an overrun for a loop whose tokens are wrong too."""

    def decode(
        target: Any, draft: Any, prompt: Any, max_tokens: int, uniforms: Any, **_: Any
    ) -> Any:
        tokens = decoding(wrong="end overrun", end=1)(draft, draft, prompt, 1, max_tokens, uniforms)
        return tokens

    report = lossless(loop(decode, end=1), instances=PAIRS, examples=0, max_seconds=1)
    assert report.verdict == NOT_LOSSLESS
    assert AFTER_END not in [diagnosis.name for diagnosis in report.diagnoses]


def test_a_stop_sequence_that_begins_in_the_prompt_does_not_count() -> None:
    """Catches models on which no text would show a loop that counts the prompt."""
    text_from = decoding(stop=((0, 1),))

    def decode(  # noqa: PLR0917
        target: Any, draft: Any, prompt: Any, gamma: int, max_tokens: int, uniforms: Any
    ) -> Any:
        text = text_from(target, draft, prompt, gamma, max_tokens, uniforms)
        found = first_end((*prompt[-1:], *text), ((0, 1),))
        return text if found is None else text[: found[0] - 1]

    check = functools.partial(lossless, instances=PAIRS, examples=0, max_seconds=8)
    assert check(loop(text_from, stop=((0, 1),))).verdict == LOSSLESS
    assert check(loop(decode, stop=((0, 1),))).verdict == NOT_LOSSLESS
    assert {instance.prompt for instance in stopping(((3, 1),))} == {(1,), (3,)}


def test_first_end() -> None:
    assert first_end((0, 3, 1, 3, 1), ((3, 1),)) == (3, (3, 1))
    assert first_end((0, 1, 3), ((3, 1), (3,))) == (3, (3,))
    assert first_end((1, 3), ((3, 1),)) is None


def test_processed_rows_are_exact_and_follow_the_history() -> None:
    """Catches rows that are computed once, or that lose small or zero probabilities."""
    (instance, *_) = dense(())
    model = ProcessedModel(instance.target, Processing(processors.bad_words([(1, 0)])), 1, ((9,),))
    assert model.probs((0, 1)).tolist() == [0, 1]
    assert model.probs((0, 0)).tolist() == instance.target.probs((0, 0)).tolist()
    assert model.after((0, 1), (0,)).tolist() == instance.target.probs((0, 1)).tolist()
    tiny = ProcessedModel(instance.target, Processing(processors.bias({0: -200.0})), 1, ())
    assert 0 < tiny.probs((0,))[0] < 1e-14
    assert tiny.probs((0,)).sum() == 1


@pytest.mark.parametrize("tensors", [False, True])
def test_a_processor_serves_the_rows_of_a_loop(tensors: bool) -> None:
    """Bugs: the prompt's length of another row; rows that share their counts; a lost type."""
    kind: Any = pytest.importorskip("torch").tensor if tensors else np.asarray
    prompts = [(0, 1), (1,)]
    processor = processors.penalties(repetition=2.0, frequency=0.5)
    tokens, numbers = [[0, 1, 1], [1, 1, 1], [1, 0, 0]], [0, 1, 1]
    scores = -np.arange(1.0, 10.0).reshape(3, 3)
    found = processor.for_prompts(prompts)(kind(tokens), kind(scores), kind(numbers))
    assert type(found) is type(kind(scores))
    starts = [len(prompts[number]) for number in numbers]
    rows = zip(tokens, scores, starts, strict=True)
    assert found.tolist() == [processor(*row).tolist() for row in rows]
    with pytest.raises(InvalidInputError, match="for_prompts"):
        processor(kind(tokens), kind(scores), kind(numbers))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"processor": 3}, "processor = 3"),
        ({"processor": processors.bias}, "cannot be called with tokens and logits"),
        ({"processor": processors.bias({50_256: 1.0})}, "small tokens"),
        ({"processor": processors.Processor(abs, tokens=5)}, "`tokens` is 5"),  # type: ignore[arg-type]
        ({"stop": "ab"}, "stop = 'ab'"),
        ({"stop": ((),)}, r"stop contains \(\)"),
        ({"stop": (3, 1)}, "stop contains 3"),
        ({"stop": ((-1,),)}, "stop = -1"),
    ],
)
def test_bad_options_are_errors(options: Any, message: str) -> None:
    with pytest.raises(InvalidParameterError, match=message):
        loop(decoding(), **options)


NOISE = np.random.default_rng(0)


@pytest.mark.parametrize(
    ("processor", "message"),
    [
        (lambda tokens, logits: logits[:-1], "must return one number for each token"),
        (lambda tokens, logits: logits * np.nan, "NaN"),
        (lambda tokens, logits: logits - np.inf, "supports none of"),
        (lambda tokens, logits: logits + NOISE.random(logits.size), "different logits"),
    ],
    ids=["shape", "NaN", "excludes all", "random"],
)
def test_results_that_are_no_logits_are_errors(processor: Any, message: str) -> None:
    """Catches a wrong processor of the user that would pass as a mistake of the loop."""
    with pytest.raises(InvalidParameterError, match=message):
        lossless(loop(decoding(), processor=processor), instances=PAIRS, examples=0)


@pytest.mark.parametrize(
    "make",
    [
        lambda: processors.penalties(repetition=0),
        lambda: processors.bias({-1: 2.0}),
        lambda: processors.bias({1: np.inf}),
        lambda: processors.min_p(2),
        lambda: processors.bad_words([()]),
        lambda: processors.min_length(-1, 0),
        lambda: processors.automaton({0: {0: 0}}, start=1),
        lambda: processors.automaton({0: [1]}),  # type: ignore[dict-item]
        lambda: processors.automaton({0: {0: 0}}, accepting=5),  # type: ignore[arg-type]
        lambda: processors.bias([1, 2]),  # type: ignore[arg-type]
        lambda: processors.bias({1: "-inf"}),  # type: ignore[dict-item]
        lambda: processors.bad_words([1, 2]),  # type: ignore[list-item]
        lambda: processors.in_order(lambda tokens, logits: logits),  # type: ignore[arg-type]
    ],
)
def test_bad_numbers_of_processors_are_errors(make: Any) -> None:
    with pytest.raises(InvalidParameterError):
        make()


def test_processors_are_those_of_transformers() -> None:
    """Catches a formula that differs from the library's, which is the definition."""
    torch = pytest.importorskip("torch")
    theirs = pytest.importorskip("transformers")
    pairs = [
        (processors.penalties(repetition=1.7), theirs.RepetitionPenaltyLogitsProcessor(1.7)),
        (processors.min_p(0.3), theirs.MinPLogitsWarper(0.3)),
        (
            processors.bad_words([(0, 1), (2,)]),
            theirs.NoBadWordsLogitsProcessor([[0, 1], [2]], eos_token_id=torch.tensor([4])),
        ),
        (
            processors.min_length(2, end=3),
            theirs.MinNewTokensLengthLogitsProcessor(2, 2, torch.tensor([3])),
        ),
        (processors.bias({1: 2.0}), theirs.SequenceBiasLogitsProcessor({(1,): 2.0})),
    ]
    rng = np.random.default_rng(0)
    for ours, their in pairs:
        for length in range(2, 6):
            tokens, logits = tuple(rng.integers(5, size=length).tolist()), rng.normal(size=5)
            expected = huggingface.logits_processor(their)(tokens, logits)
            found = ours(tokens, logits, prompt_length=2)
            np.testing.assert_allclose(found, expected.numpy(), rtol=1e-6)


BY_BREAKPOINTS: Any = functools.partial(lossless, instances=PAIRS[:1], examples=0, slow=True)


def test_generate_with_a_penalty_and_an_end_token() -> None:
    """Catches an adapter that expects the unprocessed target."""
    pytest.importorskip("transformers")
    report = BY_BREAKPOINTS(huggingface.generate(repetition_penalty=2.0, eos_token_id=1))
    assert report.verdict == LOSSLESS, str(report)


@pytest.mark.parametrize("stated", [True, False])
def test_assisted_generation_in_a_loop(stated: bool) -> None:
    """Catches a loop that gets the processed target; without the penalty, it must deviate."""
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    penalty = huggingface.logits_processor(transformers.RepetitionPenaltyLogitsProcessor(2.0))

    def decode(target: Any, draft: Any, prompt: Any, gamma: int, max_tokens: int) -> Any:
        model, assistant, ids = *map(huggingface.causal_lm, (target, draft)), torch.tensor([prompt])
        assistant.generation_config.update(
            num_assistant_tokens=gamma, num_assistant_tokens_schedule="constant",
            assistant_confidence_threshold=0.0,
        )  # fmt: skip
        return model.generate(
            ids, attention_mask=torch.ones_like(ids), assistant_model=assistant, do_sample=True,
            top_k=0, max_new_tokens=max_tokens, eos_token_id=1, pad_token_id=1,
            repetition_penalty=2.0,
        )[0, len(prompt):]  # fmt: skip

    adapter = loop(decode, processor=penalty if stated else None, end=1)
    # More pairs of models take long.
    adapter.more = ()
    report = BY_BREAKPOINTS(adapter, max_seconds=20)
    assert report.verdict == (LOSSLESS if stated else NOT_LOSSLESS), str(report)


def test_a_processor_that_knows_one_vocabulary_only() -> None:
    """Catches a crash on the smaller vocabularies of the audit: they are left out."""

    def processor(tokens: Any, logits: Any) -> Any:
        logits[2] -= 1.0
        return logits

    adapter = loop(decoding(), processor=processor)
    small = Instance(PAIRS[0].target, PAIRS[0].draft, 1)
    with pytest.raises(InvalidParameterError, match="supports none of"):
        lossless(adapter, instances=[small], examples=0)
