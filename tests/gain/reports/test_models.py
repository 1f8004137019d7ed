"""Two models of Hugging Face, as small as they may be, and a text."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from otm.errors import InvalidInputError
from otm.gain import ModelPair, Settings, from_models
from otm.gain.reports.blocks import measure_all

pytest.importorskip("joblib")
torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

WORDS = "in the beginning god created heaven and earth was without form".split()
TEXT = "In the beginning\nGod created the heaven and the earth\n\n"
TEXT += "and the earth\n\n\nwas without form\n"
SETTINGS = Settings(ks=(1, 2), lossy_settings=())


def write_model(folder: Path, *, width: int, words: list[str]) -> Path:
    tokenizers = pytest.importorskip("tokenizers")
    numbers = {word: i for i, word in enumerate(["?", *words])}
    tokenizer = tokenizers.Tokenizer(tokenizers.models.WordLevel(numbers, unk_token="?"))
    tokenizer.normalizer = tokenizers.normalizers.Lowercase()
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    transformers.PreTrainedTokenizerFast(tokenizer_object=tokenizer).save_pretrained(folder)
    torch.manual_seed(width)
    config = transformers.GPT2Config(
        vocab_size=16, n_embd=width, n_layer=1, n_head=2, n_positions=32, bos_token_id=0,
        eos_token_id=0, initializer_range=1.0,
    )  # fmt: skip
    transformers.GPT2LMHeadModel(config).save_pretrained(folder)
    return folder


@pytest.fixture
def pair(tmp_path: Path) -> ModelPair:
    draft = write_model(tmp_path / "draft", width=4, words=WORDS)
    target = write_model(tmp_path / "target", width=8, words=WORDS)
    (tmp_path / "text.txt").write_text(TEXT, encoding="utf-8")
    return from_models(draft, target, tmp_path / "text.txt", window=4, sampled=True)


def test_positions_are_those_of_the_text(
    pair: ModelPair, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Catches logits that are one token late, and windows that run into each other."""
    numbers = {word: i for i, word in enumerate(["?", *WORDS])}
    words = [part.lower().split() for part in TEXT.split("\n\n") if part.strip()]
    windows = [
        [numbers[word] for word in part[i : i + 4]]
        for part in words
        for i in range(0, len(part), 4)
    ]
    assert [window.tolist() for window in pair.windows] == windows
    assert pair.prompts.tolist() == [0] * 7 + [1] * 2 + [2] * 2
    monkeypatch.setattr("otm.gain.reports.score_files.BLOCK_BYTES", 2 * 8 * 12)  # two positions
    blocks = list(pair.blocks(pair.bounds))
    assert [block.stop - block.first for block in blocks] == [2, 1, 2, 1, 1, 2, 2]
    for i, model in enumerate((pair.draft, pair.target)):
        logits = np.concatenate([(block.draft, block.target)[i] for block in blocks])
        with torch.no_grad():
            wanted = [model(torch.tensor([window])).logits[0, :-1, :12] for window in windows]
        np.testing.assert_allclose(logits, torch.cat(wanted).numpy(), atol=1e-5)
    tokens = np.concatenate([block.tokens for block in blocks])
    assert tokens.tolist() == [token for window in windows for token in window[1:]]


def test_prompts_of_a_text_are_named_line_by_line(pair: ModelPair, tmp_path: Path) -> None:
    """Catches a prompt a line that needs empty lines between, and names for other lines."""
    text, names = tmp_path / "lines.txt", tmp_path / "names.txt"
    text.write_text("god created\nthe heaven\n\nwas without form\n", encoding="utf-8")
    names.write_text("a\na\n\nb\n", encoding="utf-8")
    models = tmp_path / "draft", tmp_path / "target"
    named = from_models(*models, text, prompts=names, window=8)
    assert [window.size for window in named.windows] == [4, 3]
    assert len(set(named.prompts.tolist())) == 2
    each = from_models(*models, text, prompts=text, window=8)
    assert [window.size for window in each.windows] == [2, 2, 3]
    assert len(set(each.prompts.tolist())) == 3
    with pytest.raises(InvalidInputError, match="has 7 lines and the text 4"):
        from_models(*models, text, prompts=tmp_path / "text.txt")


def test_models_are_measured_like_files(pair: ModelPair, tmp_path: Path) -> None:
    """Catches results that depend on the workers, or do not resume."""
    one = measure_all(pair, SETTINGS, tmp_path / "one", workers=1)
    two = measure_all(pair, SETTINGS, tmp_path / "two", workers=2)
    again = measure_all(pair, SETTINGS, tmp_path / "one", workers=1)
    for name, array in one.items():
        assert len(array) == 11
        np.testing.assert_array_equal(two[name], array)
        np.testing.assert_array_equal(again[name], array)
    with torch.no_grad():
        pair.draft.transformer.wte.weight[0, 0] += 1
    with pytest.raises(InvalidInputError, match="differs in its source"):
        measure_all(pair, SETTINGS, tmp_path / "one")


def test_models_that_do_not_fit_are_refused(pair: ModelPair, tmp_path: Path) -> None:
    other = write_model(tmp_path / "other", width=4, words=WORDS[::-1])
    text = tmp_path / "text.txt"
    with pytest.raises(InvalidInputError, match="different tokens"):
        from_models(other, tmp_path / "target", text)
    with pytest.raises(
        InvalidInputError, match=r"folder .* of the draft model does not exist"
    ) as caught:
        from_models(tmp_path / "missing", tmp_path / "target", text)
    assert "\n" not in str(caught.value)
    models = tmp_path / "draft", tmp_path / "target"
    with pytest.raises(InvalidInputError, match="moved to the device 'nowhere'"):
        from_models(*models, text, device="nowhere")
    text.write_bytes(b"\xff\xfe")
    with pytest.raises(InvalidInputError, match="not UTF-8"):
        from_models(tmp_path / "draft", tmp_path / "target", text)
    text.write_bytes(b"in\n\nthe\n")
    with pytest.raises(InvalidInputError, match="no two consecutive tokens"):
        from_models(tmp_path / "draft", tmp_path / "target", text)


def test_a_window_that_is_too_long_for_a_model_is_refused(pair: ModelPair, tmp_path: Path) -> None:
    """Catches an IndexError of an embedding after some blocks; 32 tokens are read of 33."""
    models = tmp_path / "draft", tmp_path / "target"
    text = tmp_path / "long.txt"
    text.write_text("in the beginning " * 20, encoding="utf-8")
    with pytest.raises(InvalidInputError, match="give a window of 33"):
        from_models(*models, text, window=34)
    measured = measure_all(from_models(*models, text, window=33), SETTINGS, tmp_path / "out")
    assert len(measured["acceptance"]) == 32 + 26
