"""Converts a GPT of this package to Hugging Face transformers: the same weights in other code."""

from typing import Any

from otm.models.gpt.model import GPT

__all__ = ["as_gpt_neox"]


def as_gpt_neox(model: GPT) -> Any:
    """Return a GPT-NeoX model equivalent to a GPT, with sequential blocks and zero biases.

    Rotary positions here rotate pairs of neighbouring numbers; in GPT-NeoX, they rotate the two
    halves of a head.  So the rows of queries and keys are reordered.
    """
    import torch
    import transformers

    sizes = model.config
    heads, width = sizes.heads, sizes.width
    network = transformers.GPTNeoXForCausalLM(
        transformers.GPTNeoXConfig(
            vocab_size=sizes.vocabulary,
            hidden_size=width,
            num_hidden_layers=sizes.layers,
            num_attention_heads=heads,
            intermediate_size=4 * width,
            max_position_embeddings=sizes.context_length,
            rotary_pct=1.0,
            use_parallel_residual=False,
            tie_word_embeddings=True,
            attention_bias=False,
            bos_token_id=None,
            eos_token_id=None,
        )
    ).eval()
    weights = {"gpt_neox.embed_in.weight": model.weights["embedding"]}
    weights["gpt_neox.final_layer_norm.weight"] = model.weights["norm"]
    names = {
        "attention_norm": "input_layernorm",
        "attention_output": "attention.dense",
        "perceptron_norm": "post_attention_layernorm",
        "perceptron_input": "mlp.dense_h_to_4h",
        "perceptron_output": "mlp.dense_4h_to_h",
    }
    for i in range(sizes.layers):
        layer = f"gpt_neox.layers.{i}"
        for ours, theirs in names.items():
            weights[f"{layer}.{theirs}.weight"] = model.weights[f"{i}.{ours}"]
        mixed = model.weights[f"{i}.queries_keys_values"].view(3, heads, -1, 2, width)
        halves = torch.stack((*mixed[:2].transpose(2, 3).flatten(2, 3), mixed[2].flatten(1, 2)))
        rows = halves.transpose(0, 1).reshape(3 * width, width)  # q, k and v by head
        weights[f"{layer}.attention.query_key_value.weight"] = rows
    with torch.no_grad():
        for name, parameter in network.named_parameters():
            if name in weights:
                parameter.copy_(weights[name])
            elif name.endswith("bias"):
                parameter.zero_()
    return network
