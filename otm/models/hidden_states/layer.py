"""One layer of attention that predicts a target's next hidden state from the last one.

For the token x_i of a text, the layer reads the target's states h_{i−1} after the token before, and
the target's embedding of x_i.  Its output o_i stands for h_i, so the target's output head gives the
distribution of x_{i+1}.  Further along a draft, where the target's states are unknown, the layer
reads its own output o_{i−1} instead ([li2024eagle]_).

References
----------
.. [li2024eagle] Li et al., "EAGLE: Speculative Sampling Requires Rethinking Feature Uncertainty",
   ICML 2024.
.. [li2025eagle] Li et al., "EAGLE-3: Scaling up Inference Acceleration of Large Language Models via
   Training-Time Test", NeurIPS 2025.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import Tensor

EPSILON = 1e-5


@dataclass(frozen=True)
class LayerConfig:
    """Sizes of the layer, and the layers of the target whose states it reads."""

    # Indices of `hidden_states` of the target: 0 is the embedding, the last is before the head.
    states: tuple[int, ...]
    width: int
    heads: int
    key_heads: int
    hidden: int
    rope_base: float = 100_000.0

    @property
    def states_width(self) -> int:
        """Number of entries of the target's states that a slot reads."""
        return self.width * len(self.states)

    def shapes(self, tokens: int) -> dict[str, tuple[int, ...]]:
        """Return the shape of each weight, for an output head of `tokens` tokens."""
        d, size = self.width, self.width // self.heads
        return {
            "of_states": (d, self.states_width),
            "of_own": (d, d),
            "of_token": (d, d),
            "query": (d, d),
            "key": (self.key_heads * size, d),
            "value": (self.key_heads * size, d),
            "out": (d, d),
            "gate": (self.hidden, d),
            "up": (self.hidden, d),
            "down": (d, self.hidden),
            "state_norm": (len(self.states), d),
            "own_norm": (d,),
            "token_norm": (d,),
            "attention_norm": (d,),
            "mlp_norm": (d,),
            "final_norm": (d,),
            "bias": (tokens,),
        }


Weights = dict[str, Any]


def random_weights(config: LayerConfig, tokens: int, seed: int) -> Weights:
    """Return weights for the start of the training, as float32 tensors."""
    import torch

    generator = torch.Generator().manual_seed(seed)
    weights: Weights = {}
    for name, shape in config.shapes(tokens).items():
        if name.endswith("norm"):
            weights[name] = torch.ones(shape)
        elif name == "bias":
            weights[name] = torch.zeros(shape)
        else:
            scale = 1 / math.sqrt(shape[1])
            weights[name] = torch.randn(shape, generator=generator) * scale
    return weights


def norm(x: Tensor, gain: Tensor) -> Tensor:
    """Divide vectors by their root mean square, and multiply them by the gain."""
    y: Tensor = x.float()
    y = y * (y.square().mean(-1, keepdim=True) + EPSILON).rsqrt()
    return (y * gain.float()).to(x.dtype)


class Layer:
    """The layer with its weights."""

    def __init__(self, config: LayerConfig, weights: Weights) -> None:
        self.config, self.weights = config, weights

    def from_states(self, states: Tensor, embedded: Tensor) -> Tensor:
        """Return the input [..., D] for the target's states [..., S · D] and tokens [..., D]."""
        from torch.nn.functional import linear

        w, config = self.weights, self.config
        parts = states.unflatten(-1, (len(config.states), config.width))
        scaled = norm(parts, w["state_norm"]).flatten(-2)
        return linear(scaled, w["of_states"]) + self._of_token(embedded)

    def from_own(self, output: Tensor, embedded: Tensor) -> Tensor:
        """Return the input [..., D] for own outputs [..., D] and tokens [..., D]."""
        from torch.nn.functional import linear

        w = self.weights
        return linear(norm(output, w["own_norm"]), w["of_own"]) + self._of_token(embedded)

    def _of_token(self, embedded: Tensor) -> Tensor:
        from torch.nn.functional import linear

        return linear(norm(embedded, self.weights["token_norm"]), self.weights["of_token"])

    def project(self, x: Tensor, positions: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return queries, keys and values [B, heads, L, size] for inputs [B, L, D]."""
        from torch.nn.functional import linear

        w, config = self.weights, self.config
        y = norm(x, w["attention_norm"])
        turned = rotation(positions, config.width // config.heads, config.rope_base)
        query, key, value = (
            linear(y, w[name]).unflatten(-1, (heads, -1)).transpose(1, 2)
            for name, heads in (
                ("query", config.heads),
                ("key", config.key_heads),
                ("value", config.key_heads),
            )
        )
        return rotate(query, turned), rotate(key, turned), value

    def finish(self, x: Tensor, query: Tensor, keys: Tensor, values: Tensor, mask: Any) -> Tensor:
        """Attend to keys and values, apply the perceptron, and return the output [B, L, D]."""
        from torch.nn.functional import linear, silu

        w = self.weights
        seen = attend(query, keys, values, mask)
        x = x + linear(seen.transpose(1, 2).flatten(-2), w["out"])
        y = norm(x, w["mlp_norm"])
        return x + linear(silu(linear(y, w["gate"])) * linear(y, w["up"]), w["down"])

    def logits(self, output: Tensor, head: Tensor) -> Tensor:
        """Return logits [..., v] of the tokens of the head [v, D]."""
        from torch.nn.functional import linear

        return linear(norm(output, self.weights["final_norm"]), head, self.weights["bias"])


def attend(query: Tensor, keys: Tensor, values: Tensor, mask: Any, scale: Any = None) -> Tensor:
    """Attend with queries [B, H, L, size] to keys and values [B, G, T, size], where G divides H.

    The mask is [L, T] or [B, 1, L, T].  The H / G query heads of a group become H / G · L queries
    of one head, which on a CPU is several times as fast as ``enable_gqa``.
    """
    from torch.nn.functional import scaled_dot_product_attention

    b, heads, length, size = query.shape
    groups = keys.shape[1]
    alike = query.reshape(b, groups, -1, size)
    if mask is not None:
        mask = mask.repeat(*[1] * (mask.ndim - 2), heads // groups, 1)
    seen = scaled_dot_product_attention(alike, keys, values, attn_mask=mask, scale=scale)
    return seen.reshape(b, heads, length, size)


def rotation(positions: Tensor, size: int, base: float) -> tuple[Tensor, Tensor]:
    """Return cosine and sine [B, 1, L, size / 2] of the rotations at positions [B, L]."""
    import torch

    steps = torch.arange(0, size, 2, device=positions.device) / size
    angles = positions[:, None, :, None] * base**-steps
    return angles.cos(), angles.sin()


def rotate(x: Tensor, turned: tuple[Tensor, Tensor]) -> Tensor:
    """Rotate the pairs (i, i + size / 2) of vectors [B, heads, L, size]."""
    import torch

    cos, sin = (part.to(x.dtype) for part in turned)
    a, b = x.chunk(2, -1)
    return torch.cat((a * cos - b * sin, b * cos + a * sin), -1)


def unrolled(layer: Layer, states: Tensor, embedded: Tensor, passes: int) -> list[Tensor]:
    """Return the outputs [B, L, D] of each pass over texts with known states.

    Pass s stands for the s-th draft: at slot t, the states are known up to slot t − s + 1, and the
    s − 1 slots after it hold own outputs of the earlier passes, as in [li2025eagle]_.
    """
    import torch

    b, length = states.shape[:2]
    slots = torch.arange(length, device=states.device)
    behind = slots[:, None] - slots
    outputs: list[Tensor] = []
    keys: list[Tensor] = []
    values: list[Tensor] = []
    for s in range(passes):
        if s == 0:
            x = layer.from_states(states, embedded)
        else:
            shifted = torch.nn.functional.pad(outputs[-1], (0, 0, 1, 0))[:, :-1]
            x = layer.from_own(shifted, embedded)
        query, key, value = layer.project(x, slots.expand(b, length))
        keys.append(key)
        values.append(value)
        # Block j holds the keys of pass j.
        blocks = [behind >= s] + [behind == s - j for j in range(1, s + 1)]
        mask = torch.cat(blocks, 1)
        # The first slots of later passes see nothing; they see slot 0, and are not used.
        mask[:, 0] |= ~mask.any(1)
        outputs.append(layer.finish(x, query, torch.cat(keys, 2), torch.cat(values, 2), mask))
    return outputs
