"""Streamers of `generate`: what they get, in which order, and that they always get an end."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable
from typing import Any

import pytest

from otm.errors import InvalidInputError, InvalidParameterError
from otm.integrations.huggingface import AssistedDecoding, patch_generate
from tests.integrations.test_huggingface import (  # noqa: F401
    DRAFT,
    PADDED,
    PROMPTS,
    TARGET,
    _one_thread,
)
from tests.models.vocabularies.tokenizer_kinds import bpe

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

GREEDY: dict[str, Any] = {"do_sample": False, "max_new_tokens": 9, "pad_token_id": 0}


class Collect(transformers.generation.BaseStreamer):
    """Keeps what it gets; nothing may come behind the end.  Empty, it counts as false."""

    def __len__(self) -> int:
        return len(self.puts)

    def __init__(self) -> None:
        self.puts: list[list[int]] = []
        self.ends = 0

    def put(self, value: Any) -> None:
        assert not self.ends
        assert value.device.type == "cpu"
        self.puts.append(value.flatten().tolist())

    def end(self) -> None:
        self.ends += 1

    @property
    def tokens(self) -> list[int]:
        return [*itertools.chain.from_iterable(self.puts)]


def by_argument(streamer: Any, rows: int = 1, **options: Any) -> Any:
    decoding = AssistedDecoding(DRAFT, k=2, gamma=3)
    return TARGET.generate(PROMPTS[:rows], custom_generate=decoding, streamer=streamer, **options)


def by_wrapper(streamer: Any, rows: int = 1, **options: Any) -> Any:
    """Call through a function of one's own, which transformers asks for its parameters."""
    decoding = AssistedDecoding(DRAFT, k=2, gamma=3)

    def decode(model: Any, input_ids: Any, **prepared: Any) -> Any:
        return decoding(model, input_ids, **prepared)

    return TARGET.generate(PROMPTS[:rows], custom_generate=decode, streamer=streamer, **options)


def by_option(streamer: Any, rows: int = 1, **options: Any) -> Any:
    decoding = AssistedDecoding(DRAFT, k=2, gamma=3, streamer=streamer)
    return TARGET.generate(PROMPTS[:rows], custom_generate=decoding, **options)


def by_both(streamer: Any, rows: int = 1, **options: Any) -> Any:
    decoding = AssistedDecoding(DRAFT, k=2, gamma=3, streamer=streamer)
    return TARGET.generate(PROMPTS[:rows], custom_generate=decoding, streamer=streamer, **options)


def by_patch(streamer: Any, rows: int = 1, **options: Any) -> Any:
    with patch_generate(TARGET, DRAFT, k=2, gamma=3):
        return TARGET.generate(PROMPTS[:rows], streamer=streamer, **options)


def by_place(streamer: Any, rows: int = 1, **options: Any) -> Any:
    """Give the assistant and the streamer as the seventh and the eighth argument."""
    with patch_generate(TARGET, k=2, gamma=3):
        given = [options.pop(name, None) for name in ("logits_processor", "stopping_criteria")]
        more = (None, *given, None, None, DRAFT, streamer)
        return TARGET.generate(PROMPTS[:rows], *more, **options)


WAYS = [by_argument, by_wrapper, by_option, by_both, by_patch, by_place]


class StopAt(transformers.StoppingCriteria):
    """Stops after a number of tokens."""

    def __init__(self, length: int) -> None:
        self.length = length

    def __call__(self, input_ids: Any, scores: Any, **_: Any) -> Any:
        return torch.full((len(input_ids),), input_ids.shape[1] >= self.length)


FOURTH = TARGET.generate(PROMPTS[:1], **GREEDY)[0, 7].item()


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"eos_token_id": FOURTH},
        {"stopping_criteria": transformers.StoppingCriteriaList([StopAt(6)])},
        {"do_sample": True, "top_k": 0},
        {"max_new_tokens": 1},
    ],
    ids=["length", "end token", "criterion", "sampled", "one token"],
)
@pytest.mark.parametrize("way", WAYS)
def test_a_streamer_gets_the_output_token_by_token(
    way: Callable[..., Any], options: dict[str, Any]
) -> None:
    """Bug: a reader that waits forever, a repeated prompt, or tokens after the end."""
    options = {**GREEDY, **options}
    found, expected = Collect(), Collect()
    out = way(found, **options)[0].tolist()
    if not options["do_sample"]:
        TARGET.generate(PROMPTS[:1], streamer=expected, **options)
        assert found.puts == expected.puts
    assert found.tokens == out
    assert found.puts[0] == PROMPTS[0].tolist()
    assert all(len(tokens) == 1 for tokens in found.puts[1:])
    assert found.ends == 1


def test_tokens_come_while_the_text_is_written() -> None:
    """Bug: all tokens at the end, which streams nothing."""
    lengths: list[int] = []
    found = Collect()

    def look(input_ids: Any, scores: Any) -> Any:
        lengths.append(len(found.tokens))
        return scores

    processors = transformers.LogitsProcessorList([look])
    by_argument(found, logits_processor=processors, **GREEDY | {"max_new_tokens": 24})
    assert len(set(lengths)) > 3


@pytest.mark.parametrize("way", WAYS)
def test_a_streamer_ends_with_an_error(way: Callable[..., Any]) -> None:
    """Bug: a reader that hangs because the writer has failed."""
    calls = []

    def fails(input_ids: Any, scores: Any) -> Any:
        calls.append(input_ids.shape[1])
        if max(calls) > 8:
            raise RuntimeError("out of memory")
        return scores

    found = Collect()
    processors = transformers.LogitsProcessorList([fails])
    with pytest.raises(RuntimeError, match="out of memory"):
        way(found, logits_processor=processors, **GREEDY)
    out = TARGET.generate(PROMPTS[:1], **GREEDY)[0].tolist()
    assert found.tokens == out[: len(found.tokens)]
    assert found.ends == 1


@pytest.mark.parametrize("way", [by_argument, by_patch, by_option])
def test_a_streamer_ends_where_the_call_is_refused(way: Callable[..., Any]) -> None:
    found = Collect()
    with pytest.raises(InvalidParameterError):
        way(found, guidance_scale=1.5, **GREEDY)
    assert found.ends == 1


@pytest.mark.parametrize("way", [by_argument, by_option, by_patch])
def test_several_sequences_are_not_streamed(way: Callable[..., Any]) -> None:
    """As in transformers, whose streamers reject a batch; also with a streamer that accepts one."""
    found = Collect()
    with pytest.raises(InvalidInputError, match="accepts one sequence, but the call has 2"):
        way(found, rows=2, **GREEDY | PADDED)
    assert found.ends == 1


def test_two_streamers_get_the_same() -> None:
    """One of the call, one of the decoding: bug: only one is fed, and the other's reader waits."""
    one, other = Collect(), Collect()
    decoding = AssistedDecoding(DRAFT, k=2, gamma=3, streamer=one)
    out = TARGET.generate(PROMPTS[:1], custom_generate=decoding, streamer=other, **GREEDY)
    assert one.puts == other.puts
    assert one.tokens == out[0].tolist()
    assert (one.ends, other.ends) == (1, 1)
    # a later call without a streamer does not go to that of the call before
    TARGET.generate(PROMPTS[:1], custom_generate=AssistedDecoding(DRAFT), **GREEDY)


def test_a_streamer_of_a_patch_and_one_of_a_call_get_the_same() -> None:
    """Bug: that of the call in place of that of the patch."""
    one, other = Collect(), Collect()
    with patch_generate(TARGET, DRAFT, k=2, gamma=3, streamer=one):
        out = TARGET.generate(PROMPTS[:1], streamer=other, **GREEDY)
    assert one.tokens == other.tokens == out[0].tolist()
    assert (one.ends, other.ends) == (1, 1)


def test_a_model_with_a_generate_of_its_own_streams_too() -> None:
    """As speech models have: their `generate` calls that of all models."""

    class Own(type(TARGET)):  # type: ignore[misc]
        def generate(self, *args: Any, extra: int = 0, **kwargs: Any) -> Any:
            return super().generate(*args, **kwargs)

    model = Own(TARGET.config).double().eval()
    model.load_state_dict(TARGET.state_dict())
    found = Collect()
    decoding = AssistedDecoding(DRAFT, k=2, gamma=3)
    out = model.generate(PROMPTS[:1], custom_generate=decoding, streamer=found, **GREEDY)
    assert (found.tokens, found.ends) == (out[0].tolist(), 1)


def test_text_is_read_in_another_thread() -> None:
    """The usual reader of transformers; a time limit in place of a test that hangs."""
    tokenizer = bpe([("t", "h")], "</s>")
    streamer = transformers.TextIteratorStreamer(tokenizer, skip_prompt=True, timeout=60)
    outputs: list[Any] = []
    thread = threading.Thread(target=lambda: outputs.append(by_argument(streamer, **GREEDY)))
    thread.start()
    text = "".join(streamer)
    thread.join()
    assert text == tokenizer.decode(outputs[0][0, 4:])


@pytest.mark.parametrize("streamer", ["text", object(), Collect])
def test_what_is_no_streamer_is_refused(streamer: Any) -> None:
    """Bug: an AttributeError in the middle of `generate`."""
    if streamer is Collect:  # an instance without an end
        streamer = type("Half", (), {"put": print})()
    with pytest.raises(InvalidParameterError, match=r"streamer = .*`put` and `end`"):
        AssistedDecoding(DRAFT, streamer=streamer)
