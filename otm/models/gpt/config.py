"""Sizes of a GPT and the shapes of its weights."""

from __future__ import annotations

import math
from dataclasses import dataclass

from otm._core.numbers import as_integer
from otm.errors import InvalidParameterError

BLOCK = (
    "attention_norm",
    "queries_keys_values",
    "attention_output",
    "perceptron_norm",
    "perceptron_input",
    "perceptron_output",
)
"""Weights of a layer, behind its number and a full stop."""

LARGEST = 2**20
"""Largest size, far above any model: a file that claims more is refused before anything is made."""


@dataclass(frozen=True)
class GPTConfig:
    """Sizes of a model.

    Parameters
    ----------
    layers : int
        Number of blocks, each of attention and a perceptron of four times the width.
    width : int
        Numbers that stand for a token between blocks.
    heads : int
        Attention heads; the width must be an even multiple of them.
    context_length : int, optional
        Most tokens that a row may hold.
    vocabulary : int, optional
        Number of tokens; 256 for bytes.

    Raises
    ------
    InvalidParameterError
        If a size is not an integer from 1 to 2^20, or the heads do not fit the width.

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
                f"width = {self.width} for {self.heads} heads; give an even multiple of the heads, "
                "since rotary positions turn pairs of numbers"
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
    def tensors(self) -> int:
        """Number of tensors of weights."""
        return 2 + len(BLOCK) * self.layers

    @property
    def size(self) -> int:
        """Number of weights in all."""
        return sum(map(math.prod, self.shapes.values()))
