"""Two tiny instruct models with a chat template, written as folders of Hugging Face."""

from __future__ import annotations

from pathlib import Path

import pytest

WORDS = "in the beginning god created heaven and earth was without form user assistant".split()
VOCABULARY = ["?", "<end>", *WORDS]
TEMPLATE = (
    "{% for m in messages %}{{ m['role'] }} {{ m['content'] }} <end> {% endfor %}"
    "{% if add_generation_prompt %}assistant{% endif %}"
)


def write_model(folder: Path, width: int, template: str | None = TEMPLATE) -> Path:
    """Write a random model of one layer, whose tokens are the words."""
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    tokenizers = pytest.importorskip("tokenizers")
    numbers = {word: i for i, word in enumerate(VOCABULARY)}
    tokenizer = tokenizers.Tokenizer(tokenizers.models.WordLevel(numbers, unk_token="?"))
    tokenizer.normalizer = tokenizers.normalizers.Lowercase()
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.WhitespaceSplit()
    fast = transformers.PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token="<end>")
    fast.chat_template = template
    fast.save_pretrained(folder)
    torch.manual_seed(width)
    config = transformers.LlamaConfig(
        vocab_size=16, hidden_size=width, intermediate_size=width, num_hidden_layers=1,
        num_attention_heads=2, num_key_value_heads=1, max_position_embeddings=64,
        bos_token_id=0, eos_token_id=1, initializer_range=0.5,
    )  # fmt: skip
    transformers.LlamaForCausalLM(config).save_pretrained(folder)
    return folder
