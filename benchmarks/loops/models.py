"""Models for the measurements of decoding loops."""

from dataclasses import replace

from otm.models import GPT, GPTConfig

__all__ = ["VOCABULARY", "deepened", "random_pair"]

VOCABULARY = 50_257


def random_pair(layers: int) -> tuple[GPT, GPT]:
    """Make a target of `layers` layers with random weights; its first layer is the draft.

    The first layer contributes much, so that the embedding of the last token does not determine the
    next token.  The other layers contribute little, so that the two distributions are similar.
    """
    random = GPT.random(GPTConfig(layers=layers, width=256, heads=4, vocabulary=VOCABULARY), seed=0)
    weights = {}
    for name, weight in random.weights.items():
        scale = 1.0
        if name.endswith(("attention_output", "perceptron_output")):
            scale = 30.0 if name.startswith("0.") else 1.5
        elif name == "norm":
            scale = 12.0  # makes distributions as peaked as those of a language model
        weights[name] = weight * scale
    small = GPTConfig(layers=1, width=256, heads=4, vocabulary=VOCABULARY)
    return GPT(random.config, weights), GPT(small, {name: weights[name] for name in small.shapes})


def deepened(model: GPT, factor: int) -> GPT:
    """Make a model with `factor` times the layers and the same output.

    The new layers do not change the output.  So a draft model is as good as before, but the target
    is `factor` times more expensive.
    """
    layers = model.config.layers
    config = replace(model.config, layers=factor * layers)
    weights = {}
    for name in config.shapes:
        layer, _, part = name.partition(".")
        if layer.isdigit() and int(layer) >= layers:
            copied = model.weights[f"{int(layer) % layers}.{part}"]
            weights[name] = 0 * copied if part.endswith("output") else copied
        else:
            weights[name] = model.weights[name]
    return GPT(config, weights)
