"""Muon: momentum whose matrices are replaced by the nearest orthogonal ones ([jordan2024]_).

In the few hundred updates of a draft layer it reaches a lower loss than AdamW.

References
----------
.. [jordan2024] Jordan et al., "Muon: An optimizer for hidden layers in neural networks", 2024.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor

MOMENTUM = 0.95
DECAY = 0.2
QUINTIC = 3.4445, -4.775, 2.0315
"""Coefficients of the polynomial that moves all singular values close to 1."""


class Muon:
    """Updates matrices in place by steps of the same size in every direction."""

    def __init__(self, matrices: Sequence[Tensor]) -> None:
        self._matrices = matrices
        self._means: list[Any] = [matrix.detach() * 0 for matrix in matrices]

    def step(self, rate: float) -> None:
        """Update the matrices by their gradients, which are set to None."""
        import torch

        with torch.no_grad():
            for matrix, mean in zip(self._matrices, self._means, strict=True):
                gradient: Any = matrix.grad
                mean.lerp_(gradient, 1 - MOMENTUM)
                step = orthogonal(gradient.lerp(mean, MOMENTUM))
                # The root mean square of an update of AdamW is about 0.2.
                matrix.mul_(1 - rate * DECAY)
                matrix.sub_(step * (0.2 * rate * max(matrix.shape) ** 0.5))
                matrix.grad = None


def orthogonal(matrix: Tensor, steps: int = 5) -> Tensor:
    """Return about U Vᵀ of the singular value decomposition U S Vᵀ of a matrix."""
    a, b, c = QUINTIC
    tall = matrix.shape[0] > matrix.shape[1]
    x = (matrix.T if tall else matrix).bfloat16()
    x = x / (x.norm() + 1e-7)
    for _ in range(steps):
        square = x @ x.T
        x = a * x + (b * square + c * square @ square) @ x
    return (x.T if tall else x).to(matrix.dtype)
