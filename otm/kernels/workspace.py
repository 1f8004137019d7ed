"""Work memory of the Triton kernels, which calls can share."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import Tensor


class Workspace:
    """Buffers that grow on demand and never move once they are large enough.

    With a workspace, a verification allocates only its result.  No decision depends on what a call
    leaves in the buffers.

    One workspace serves one stream at a time: calls that may run at once need separate workspaces.
    Replaced buffers are kept as long as the workspace, because a captured CUDA graph writes to
    their addresses.  Each new buffer at least doubles the size, so replaced buffers need less
    memory than the current ones.

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
        """Memory of all buffers, in bytes."""
        buffers = [*self._buffers.values(), *self._outgrown]
        return sum(buffer.numel() * buffer.element_size() for buffer in buffers)

    def take(self, name: str, shape: tuple[int, ...], dtype: Any, device: Any) -> Tensor:
        """Return the buffer of this name in a shape, with its previous contents.

        Parameters
        ----------
        name : str
            Name of the buffer; buffers with different names never overlap.
        shape : tuple of int
            Shape of the returned view.
        dtype : torch.dtype
            Type of the buffer's numbers.
        device : torch.device
            Device of the buffer.

        Returns
        -------
        Tensor
            A view of this shape, valid until the next call with this name.
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
