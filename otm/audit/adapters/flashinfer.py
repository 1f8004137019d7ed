"""FlashInfer's chain verification under audit."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from otm._core.optional import require
from otm.audit.adapter import Adapter
from otm.audit.adapters.batched import Batched, seed_of

__all__ = ["chain_speculative_sampling"]


def chain_speculative_sampling(device: str = "cuda") -> Adapter:
    """Audit `flashinfer.sampling.chain_speculative_sampling`.

    It takes probabilities in float32 and draws from a generator that it is given, in its own way,
    and so is audited by Monte Carlo.

    Parameters
    ----------
    device : str, optional
        Where to run; its kernels need a GPU.

    Returns
    -------
    Adapter
        For one chain; a batch of runs is one batch there.

    Raises
    ------
    MissingDependencyError
        If FlashInfer is not installed, or torch.

    Notes
    -----
    The signature is that of the versions that take a `generator`; earlier ones took uniforms.
    """
    torch = require("torch")
    rule = require("flashinfer.sampling", "chain_speculative_sampling")

    def verify(
        target: npt.NDArray[Any],
        draft: npt.NDArray[Any],
        tokens: npt.NDArray[np.int64],
        uniforms: npt.NDArray[Any],
    ) -> Any:
        offered, wanted = (torch.from_numpy(laws).float().to(device) for laws in (draft, target))
        output, _accepted, _emitted = rule(
            offered,
            torch.from_numpy(tokens).int().to(device),
            wanted,
            generator=torch.Generator(device).manual_seed(seed_of(uniforms)),
        )
        return output.tolist()

    return Batched(
        verify,
        "FlashInfer, chain_speculative_sampling",
        uniforms=lambda gamma, k: 1,
        repeatable=False,
    )
