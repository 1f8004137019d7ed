"""Export byte-level models of this package to Hugging Face transformers."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from otm._core.display.text import shown
from otm._core.files.paths import AnyPath, as_path
from otm._core.optional import require
from otm.errors import InvalidInputError
from otm.models.gpt.model import GPT

PRINTABLE = (*range(33, 127), *range(161, 173), *range(174, 256))
"""Bytes that byte-level tokenizers write as characters of the same code.

The other bytes become the characters 256, 257, …
"""


def save_huggingface(model: GPT, folder: AnyPath) -> None:
    """Write a model, its tokenizer and its generation settings for `from_pretrained`.

    In transformers the architecture is called GPT-NeoX; its tokens are bytes.  Programs that serve
    Hugging Face models can then serve the draft and target models of this package.

    Parameters
    ----------
    model : GPT
        A model, such as `load("target")`.
    folder : str or Path
        Folder to write to; it is created if it does not exist.

    Raises
    ------
    InvalidInputError
        If the model is not a `GPT`, or the folder is not writable.
    MissingDependencyError
        If transformers is not installed.

    Examples
    --------
    ::

        from otm.models import load, save_huggingface

        save_huggingface(load("target"), "models/target")
        AutoModelForCausalLM.from_pretrained("models/target")
    """
    if not isinstance(model, GPT):
        raise InvalidInputError(
            f'{shown(model)} is not an otm.models.GPT; give a model such as load("target")'
        )
    transformers, path = require("transformers"), as_path(folder, "of a folder")
    config = model.config
    network = transformers.GPTNeoXForCausalLM(
        transformers.GPTNeoXConfig(
            vocab_size=config.vocabulary,
            hidden_size=config.width,
            num_hidden_layers=config.layers,
            num_attention_heads=config.heads,
            intermediate_size=4 * config.width,
            max_position_embeddings=config.context_length,
            hidden_act="gelu",
            rotary_pct=1.0,
            use_parallel_residual=False,
            attention_bias=False,
            tie_word_embeddings=True,
            bos_token_id=None,
            eos_token_id=None,
        )
    )
    state = _state(model)
    for name, weight in network.state_dict().items():
        # These models have no biases.
        if name.endswith(".bias"):
            state[name] = 0 * weight
        # Only the output matrix remains; its name depends on the version of transformers.
        elif name not in state:
            state[name] = model.weights["embedding"]
    network.load_state_dict(state)
    network.tie_weights()
    network.generation_config = transformers.GenerationConfig(do_sample=True, top_k=0)
    try:
        path.mkdir(parents=True, exist_ok=True)
        with _without_bars(transformers.utils.logging):
            network.save_pretrained(path)
        _tokenizer(transformers).save_pretrained(path)
    except OSError as error:
        raise InvalidInputError(
            f"the folder {shown(str(path))} is not writable: {error.strerror}"
        ) from None


@contextmanager
def _without_bars(logging: Any) -> Iterator[None]:
    """Hide the progress bar of transformers, since writing a model takes only a moment."""
    shows = logging.is_progress_bar_enabled()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        if shows:
            logging.enable_progress_bar()


def _state(model: GPT) -> dict[str, Any]:
    """Return the weights under the names of GPT-NeoX, which rotates the two halves of a head."""
    config, weights = model.config, model.weights
    heads, pairs = config.heads, config.width // config.heads // 2
    state = {
        "gpt_neox.embed_in.weight": weights["embedding"],
        "gpt_neox.final_layer_norm.weight": weights["norm"],
    }
    for layer in range(config.layers):
        of_layer = f"gpt_neox.layers.{layer}."
        mixed = weights[f"{layer}.queries_keys_values"].view(3, heads, pairs, 2, -1)
        halves = mixed.transpose(2, 3).reshape(3, heads, 2 * pairs, -1)
        # Values are not rotated, so they keep their order.
        values = mixed[2:].reshape(1, heads, 2 * pairs, -1)
        packed = require("torch").cat([halves[:2], values]).transpose(0, 1)
        state |= {
            f"{of_layer}attention.query_key_value.weight": packed.reshape(3 * config.width, -1),
            f"{of_layer}attention.dense.weight": weights[f"{layer}.attention_output"],
            f"{of_layer}input_layernorm.weight": weights[f"{layer}.attention_norm"],
            f"{of_layer}post_attention_layernorm.weight": weights[f"{layer}.perceptron_norm"],
            f"{of_layer}mlp.dense_h_to_4h.weight": weights[f"{layer}.perceptron_input"],
            f"{of_layer}mlp.dense_4h_to_h.weight": weights[f"{layer}.perceptron_output"],
        }
    return state


def _tokenizer(transformers: Any) -> Any:
    """Build a tokenizer whose token ids are bytes."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers

    others = iter(range(256, 512))
    names = {chr(byte if byte in PRINTABLE else next(others)): byte for byte in range(256)}
    by_bytes = Tokenizer(models.BPE(vocab=names, merges=[]))
    by_bytes.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    by_bytes.decoder = decoders.ByteLevel()
    # The model accepts only these inputs.
    inputs = ["input_ids", "attention_mask"]
    return transformers.PreTrainedTokenizerFast(tokenizer_object=by_bytes, model_input_names=inputs)
