"""Reports on instruct models: prompts in the chat template, and the target's own answers."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from otm.decoding import SamplingParameters
from otm.errors import InvalidInputError, InvalidParameterError
from otm.gain import ModelPair, Settings, from_models, report
from tests.gain.reports.instruct import VOCABULARY, write_model

for package in ("joblib", "jinja2", "matplotlib"):
    pytest.importorskip(package)
torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

MESSAGES = ["in the beginning", "god created the heaven"]


@pytest.fixture(name="read")
def fixture_read(tmp_path: Path) -> Callable[..., ModelPair]:
    draft, target = write_model(tmp_path / "draft", 8), write_model(tmp_path / "target", 16)
    text = tmp_path / "text.txt"
    text.write_text("\n\n".join(MESSAGES), encoding="utf-8")
    return lambda **options: from_models(draft, target, text, **{"window": 9} | options)


def in_template(message: str) -> list[int]:
    words = f"user {message} <end> assistant".split()
    return [VOCABULARY.index(word) for word in words]


def test_positions_are_the_answers_to_messages_in_the_template(
    read: Callable[..., ModelPair],
) -> None:
    """Catches prompts as positions, prompts without the template, and answers after their end."""
    pair = read()
    assert pair.sampled
    assert "chat template" in pair.name
    for window, size, message in zip(pair.windows, pair.prompt_sizes, MESSAGES, strict=True):
        assert window[:size].tolist() == in_template(message)
        answer = window[size:].tolist()
        assert 1 <= len(answer) <= 9
        assert 1 not in answer[:-1]
        assert len(answer) == 9 or answer[-1] == 1
    assert pair.prompts.tolist() == [
        prompt
        for prompt, (window, size) in enumerate(zip(pair.windows, pair.prompt_sizes, strict=True))
        for _ in range(window.size - size)
    ]
    assert pair.context(0) == tuple(pair.windows[0][: pair.prompt_sizes[0]].tolist())
    again, other = read(), read(seed=5)
    assert [w.tolist() for w in again.windows] == [w.tolist() for w in pair.windows]
    assert [w.tolist() for w in other.windows] != [w.tolist() for w in pair.windows]


def test_logits_of_a_block_do_not_depend_on_the_requested_blocks(
    read: Callable[..., ModelPair], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Catches logits after the prompt's start, and blocks that differ when a report continues."""
    pair = read()
    monkeypatch.setattr("otm.gain.reports.score_files.BLOCK_BYTES", 3 * 8 * pair.vocabulary)
    blocks = list(pair.blocks(pair.bounds))
    assert len(blocks) > len(MESSAGES)
    (last,) = pair.blocks(pair.bounds[-1:])
    np.testing.assert_array_equal(last.target, blocks[-1].target)
    logits = np.concatenate([block.target for block in blocks])
    with torch.no_grad():
        whole = [
            pair.target(torch.tensor(window[None])).logits[0, size - 1 : -1, : pair.vocabulary]
            for window, size in zip(pair.windows, pair.prompt_sizes, strict=True)
        ]
    np.testing.assert_allclose(logits, torch.cat(whole).numpy(), atol=1e-5)
    tokens = np.concatenate([block.tokens for block in blocks])
    sizes = pair.prompt_sizes
    answers = [window[n:] for window, n in zip(pair.windows, sizes, strict=True)]
    assert tokens.tolist() == np.concatenate(answers).tolist()


def test_the_template_can_be_left_out_and_the_report_says_so(
    read: Callable[..., ModelPair], tmp_path: Path
) -> None:
    """Catches a template that is applied to the text of a base model, or applied silently."""
    pair = read(chat=False)
    assert "without a chat template" in pair.name
    numbers = [[VOCABULARY.index(word) for word in text.split()] for text in MESSAGES]
    assert [window.tolist() for window in pair.windows] == numbers
    assert not pair.sampled
    base = write_model(tmp_path / "base", 8, template=None)
    assert "without a chat template" in from_models(base, base, tmp_path / "text.txt").name
    with pytest.raises(InvalidParameterError, match="no chat template"):
        from_models(base, base, tmp_path / "text.txt", chat=True)
    with pytest.raises(InvalidInputError, match="--no-chat"):
        read(sampled=True)


def test_a_report_samples_as_the_answers_were_sampled(
    read: Callable[..., ModelPair], tmp_path: Path
) -> None:
    """Catches answers at temperature 1 in a report for another temperature."""
    pair = read(sampling=SamplingParameters(0.5))
    with pytest.raises(InvalidParameterError, match=r"T 0\.5, and the report assumes T 1"):
        report(pair, tmp_path / "out", Settings(ks=(1,)))
    greedy = read(sampling=SamplingParameters(0))
    first = int(greedy.prompt_sizes[0])
    with torch.no_grad():
        logits = greedy.target(torch.tensor(greedy.windows[0][None, :first])).logits
    assert int(logits[0, -1, : greedy.vocabulary].argmax()) == greedy.windows[0][first]
