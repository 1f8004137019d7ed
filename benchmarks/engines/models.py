"""A pair of tiny models with a tokenizer: random weights, and a draft near its target."""

from pathlib import Path

import torch
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from benchmarks.engines.audits import Subject
from otm.decoding import SamplingParameters

VOCABULARY = 64
LENGTH = 256
PROMPTS = ("w3 w5 w7 w3 w5 w7 w3 w5", "w11 w2 w11 w2 w11", "w40 w41 w42 w43", "w9 w9 w9 w9 w9 w9")
"""Prompts with repetitions, in which n-grams find drafts."""

SAMPLING = (
    SamplingParameters(),
    SamplingParameters(temperature=0.7),
    SamplingParameters(top_k=8),
)


def make_pair(folder: Path, vocabulary: int = VOCABULARY) -> Subject:
    """Write target and draft, whose distributions overlap by about 80 %."""
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=vocabulary,
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=2,
        max_position_embeddings=LENGTH,
        bos_token_id=None,
        eos_token_id=vocabulary - 1,
        tie_word_embeddings=False,
    )
    target, draft = LlamaForCausalLM(config), LlamaForCausalLM(config)
    with torch.no_grad():
        for name, weights in target.named_parameters():
            if "layers" in name and weights.dim() == 2:
                weights.mul_(4)
        target.lm_head.weight.mul_(12)
        draft.load_state_dict(target.state_dict())
        draft.lm_head.weight.add_(0.08 * torch.randn_like(draft.lm_head.weight))
    folders = folder / "target", folder / "draft"
    for model, place in zip((target, draft), folders, strict=True):
        model.generation_config.update(do_sample=True, top_k=0)  # settings of transformers' server
        model.float().save_pretrained(place)
        tokenizer(vocabulary).save_pretrained(place)
    return Subject(*folders, PROMPTS, SAMPLING)


def tokenizer(vocabulary: int) -> PreTrainedTokenizerFast:
    """Return a tokenizer whose token i is the word "wi"; the last token ends a text."""
    words = {f"w{i}": i for i in range(vocabulary - 1)} | {"</s>": vocabulary - 1}
    by_word = Tokenizer(models.WordLevel(words, unk_token="w0"))
    by_word.pre_tokenizer = pre_tokenizers.Whitespace()
    return PreTrainedTokenizerFast(tokenizer_object=by_word, eos_token="</s>")
