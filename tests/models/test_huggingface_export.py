"""Models of this package as folders of Hugging Face."""

from __future__ import annotations

from pathlib import Path

import pytest

from otm.errors import InvalidInputError
from otm.models import encode, load, save_huggingface

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

TEXT = "And it came to pass, né\n  thät 𝔖he"


def test_scores_and_tokens_are_those_of_the_model(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """Catches rotary pairs in another order, packed heads, a bias or a norm that is left random."""
    model = load("medium")
    transformers.utils.logging.enable_progress_bar()
    save_huggingface(model, tmp_path / "new" / "folder")
    assert "%|" not in capfd.readouterr().err, "a progress bar"
    assert transformers.utils.logging.is_progress_bar_enabled()
    network = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "new" / "folder")
    tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path / "new" / "folder")
    tokens = tokenizer(TEXT).input_ids
    assert tokens == encode(TEXT)
    assert tokenizer.decode(tokens) == TEXT
    assert len(tokenizer) == model.vocabulary == 256
    with torch.no_grad():
        theirs = network.eval()(torch.tensor([tokens])).logits
    torch.testing.assert_close(theirs, model.logits(torch.tensor([tokens])), atol=1e-4, rtol=0)
    assert (network.generation_config.do_sample, network.generation_config.top_k) == (True, 0)


def test_what_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidInputError, match="'target' is not an"):
        save_huggingface("target", tmp_path)  # type: ignore[arg-type]
    (tmp_path / "file").touch()
    with pytest.raises(InvalidInputError, match="not writable"):
        save_huggingface(load("small"), tmp_path / "file")
