"""FlashInfer's chain verification under audit."""

from __future__ import annotations

from typing import Any

from otm._core.optional import require
from otm.audit.adapters.base import Adapter
from otm.audit.adapters.drafts import Batched, seed_of

__all__ = ["chain_speculative_sampling"]


def chain_speculative_sampling(device: str = "cuda") -> Adapter:
    """Audit `flashinfer.sampling.chain_speculative_sampling`.

    It takes probabilities in float32 and draws from a generator in its own way, and so is
    audited by Monte Carlo.

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

    def verify(target: Any, draft: Any, tokens: Any, uniforms: Any) -> Any:
        draft_probs, target_probs = (
            torch.from_numpy(probs).float().to(device) for probs in (draft, target)
        )
        output, _accepted, _emitted = rule(
            draft_probs,
            torch.from_numpy(tokens).int().to(device),
            target_probs,
            generator=torch.Generator(device).manual_seed(seed_of(uniforms)),
        )
        return output.tolist()

    return Batched(verify, "FlashInfer, chain_speculative_sampling", repeatable=False)
