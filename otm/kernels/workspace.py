"""Work memory of the Triton kernels, which calls can share."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import Tensor


class Workspace:
    """Buffers that grow on demand and stay where they are once they are large enough.

    A verification with one allocates nothing but its result.  What is left in it between two
    calls means nothing, and the decisions do not depend on it.

    One workspace serves one stream at a time: calls that can run at once need one each.  Buffers
    that were outgrown are kept as long as the workspace, since a CUDA graph that was captured with
    them writes to their addresses; as buffers at least double, these are less than the buffers in
    use.

    Examples
    --------
    >>> import torch
    >>> workspace = Workspace()
    >>> first = workspace.take("sums", (2, 3), torch.int64, torch.device("cpu"))
    >>> second = workspace.take("sums", (1, 3), torch.int64, torch.device("cpu"))
    >>> first.data_ptr() == second.data_ptr()
    True
    >>> workspace.nbytes
    48
    """

    def __init__(self) -> None:
        self._buffers: dict[tuple[str, Any, Any], Tensor] = {}
        self._outgrown: list[Tensor] = []

    @property
    def nbytes(self) -> int:
        """Memory that is held, in bytes."""
        held = [*self._buffers.values(), *self._outgrown]
        return sum(buffer.numel() * buffer.element_size() for buffer in held)

    def take(self, name: str, shape: tuple[int, ...], dtype: Any, device: Any) -> Tensor:
        """Return the buffer of a name in a shape; it holds whatever it held before.

        Parameters
        ----------
        name : str
            Buffers of different names never overlap.
        shape : tuple of int
            Its shape.
        dtype : torch.dtype
            Type of its numbers.
        device : torch.device
            Where it lies.

        Returns
        -------
        Tensor
            A view in that shape, valid until the next call with this name.
        """
        import torch

        key, size = (name, dtype, device), math.prod(shape)
        buffer = self._buffers.get(key)
        if buffer is None or buffer.numel() < size:
            if buffer is not None:
                self._outgrown.append(buffer)
                size = max(size, 2 * buffer.numel())
            buffer = torch.empty(size, dtype=dtype, device=device)
            self._buffers[key] = buffer
        return buffer[: math.prod(shape)].view(shape)
