"""A decoder-only transformer, computed from a dictionary of tensors.

It has layer norms before attention and perceptron, rotary positions, no biases, and one matrix for
embedding and output ([radford2019]_, [su2024]_).  Importing this module does not import torch.

References
----------
.. [radford2019] Radford et al., "Language Models are Unsupervised Multitask Learners", 2019.
.. [su2024] Su et al., "RoFormer: Enhanced transformer with rotary position embedding",
   Neurocomputing 568, 2024.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

from otm._core.numbers import as_integer
from otm._core.optional import require
from otm.errors import InvalidInputError, InvalidParameterError

if TYPE_CHECKING:
    from torch import Tensor

Attention = Callable[[int, Any, Any], Any]
"""Attention of one layer, a function of three arguments.

The arguments are the layer's index, the queries [R, heads, L, d], and keys and values
[2, R, heads, L, d].
"""

Drop = Callable[[Any], Any]
"""Dropout of the output of attention or perceptron."""

BLOCK = (
    "attention_norm",
    "queries_keys_values",
    "attention_output",
    "perceptron_norm",
    "perceptron_input",
    "perceptron_output",
)
"""Names of the weights of a layer; the layer's number and a full stop precede each name."""

LARGEST = 2**20
"""Largest size, far above any real model; a file with a larger size is rejected early."""


@dataclass(frozen=True)
class GPTConfig:
    """Sizes of a GPT.

    Parameters
    ----------
    layers : int
        Number of blocks.  A block has attention and a perceptron of four times the width.
    width : int
        Dimension of the hidden states.
    heads : int
        Number of attention heads; the width must be an even multiple of it.
    context_length : int, optional
        Largest number of tokens of a row.
    vocabulary : int, optional
        Number of tokens; 256 for bytes.

    Raises
    ------
    InvalidParameterError
        If a size is not an integer from 1 to 2^20, or the width is not an even multiple of
        `heads`.

    Examples
    --------
    >>> GPTConfig(layers=4, width=128, heads=4).size
    820352
    """

    layers: int
    width: int
    heads: int
    context_length: int = 512
    vocabulary: int = 256

    def __post_init__(self) -> None:
        for name, value in list(vars(self).items()):
            object.__setattr__(self, name, as_integer(value, name, 1, LARGEST))
        if self.width % (2 * self.heads):
            raise InvalidParameterError(
                f"width = {self.width} for {self.heads} heads; rotary positions need a width that "
                "is an even multiple of heads"
            )

    @property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Shape of each weight."""
        d = self.width
        block = ((d,), (3 * d, d), (d, d), (d,), (4 * d, d), (d, 4 * d))
        shapes: dict[str, tuple[int, ...]] = {"embedding": (self.vocabulary, d), "norm": (d,)}
        for layer in range(self.layers):
            shapes |= {f"{layer}.{name}": shape for name, shape in zip(BLOCK, block, strict=True)}
        return shapes

    @property
    def size(self) -> int:
        """Total number of weights."""
        return sum(map(math.prod, self.shapes.values()))


class Transformer:
    """The network, with one tensor for each entry of `config.shapes`.

    All tensors have the same floating-point type and device.
    """

    def __init__(self, config: GPTConfig, weights: Mapping[str, Tensor]) -> None:
        torch = require("torch")
        self.config = config
        self.vocabulary = config.vocabulary
        self.context_length: int | None = config.context_length
        shapes = {name: tuple(weight.shape) for name, weight in weights.items()}
        if wrong := sorted(shapes.items() ^ config.shapes.items()):
            name = wrong[0][0]
            raise InvalidInputError(
                f"the weight {name!r} has shape {shapes.get(name)}; this configuration needs shape "
                f"{config.shapes.get(name)}"
            )
        kinds = {(weight.dtype, weight.device) for weight in weights.values()}
        if len(kinds) > 1 or not weights["embedding"].is_floating_point():
            raise InvalidInputError(
                f"the weights have types and devices {sorted(map(str, kinds))}; all weights must "
                "have the same floating-point type and device"
            )
        self.weights = dict(weights)
        embedding = weights["embedding"]
        self.device: Any = embedding.device
        exact = torch.float64 if embedding.dtype == torch.float64 else torch.float32
        pairs = config.width // config.heads // 2
        # [context_length, 3, 1, pairs]: rotation angles of queries, keys and values, for each
        # position and pair of coordinates.  The angles of values are 0; this is faster than to
        # treat values separately.
        angles = torch.outer(
            torch.arange(config.context_length, dtype=torch.float64),
            10_000.0 ** (-torch.arange(pairs, dtype=torch.float64) / pairs),
        )
        angles = torch.stack((angles, angles, 0 * angles), 1)[:, :, None]
        turns = torch.stack((angles.cos(), angles.sin()), -1).to(embedding.device, exact)
        self.turns = torch.view_as_complex(turns)
        self._blocks = [[weights[f"{i}.{name}"] for name in BLOCK] for i in range(config.layers)]

    @classmethod
    def random(cls, config: GPTConfig, seed: int) -> Self:
        """Return a model with random initial weights for training, in float32 on the CPU."""
        torch = require("torch")
        generator = torch.Generator().manual_seed(seed)
        weights = {}
        for name, shape in config.shapes.items():
            if len(shape) == 1:
                weights[name] = torch.ones(shape)
                continue
            deviation = 0.02 if name == "embedding" else shape[1] ** -0.5
            # The hidden state is a sum with two such outputs per block.
            if name.endswith("_output"):
                deviation /= math.sqrt(2 * config.layers)
            weights[name] = torch.randn(shape, generator=generator) * deviation
        return cls(config, weights)

    def to(self, *, device: Any = None, dtype: Any = None) -> Self:
        """Return the model on another device or in another floating-point type."""
        moved = {name: w.to(device=device, dtype=dtype) for name, w in self.weights.items()}
        return type(self)(self.config, moved)

    def logits(self, tokens: Tensor, drop: Drop | None = None) -> Tensor:
        """Return logits of the next token after each token of complete rows, without a cache.

        Parameters
        ----------
        tokens : int64 tensor [R, L]
            Rows without padding, of at most `context_length` tokens.
        drop : callable, optional
            Dropout function for training.

        Returns
        -------
        tensor [R, L, V]
            Logits; gradients can be computed if the weights require them.
        """
        attention = require("torch").nn.functional.scaled_dot_product_attention

        def attend(_: int, q: Tensor, kv: Tensor) -> Any:
            return attention(q, kv[0], kv[1], is_causal=True)

        return self.output(self.hidden(tokens, self.turns[: tokens.shape[1]], attend, drop))

    def hidden(
        self, tokens: Tensor, turns: Tensor, attend: Attention, drop: Drop | None = None
    ) -> Any:
        """Apply all blocks to tokens [R, L] with rotations `turns` [(R,) L, 3, 1, d / 2].

        Returns
        -------
        tensor [R, L, width]
            Output of the last block.
        """
        torch = require("torch")
        F = torch.nn.functional
        R, L = tokens.shape
        size, heads = (self.config.width,), self.config.heads
        x = F.embedding(tokens, self.weights["embedding"])
        for layer, (norm_1, qkv, out, norm_2, up, down) in enumerate(self._blocks):
            mixed = F.linear(F.layer_norm(x, size, norm_1), qkv)
            pairs = torch.view_as_complex(mixed.view(R, L, 3, heads, -1, 2).to(turns.real.dtype))
            turned = torch.view_as_real(pairs * turns).flatten(-2).to(mixed.dtype)
            turned = turned.permute(2, 0, 3, 1, 4)
            y = attend(layer, turned[0], turned[1:]).transpose(1, 2).reshape(R, L, -1)
            y = F.linear(y, out)
            x = x + (drop(y) if drop else y)
            y = F.linear(F.gelu(F.linear(F.layer_norm(x, size, norm_2), up)), down)
            x = x + (drop(y) if drop else y)
        return x

    def output(self, hidden: Tensor) -> Any:
        """Compute logits [R, L, V] from the output of the last block."""
        F = require("torch").nn.functional
        x = F.layer_norm(hidden, (self.config.width,), self.weights["norm"])
        return F.linear(x, self.weights["embedding"])
