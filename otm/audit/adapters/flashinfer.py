"""Adapter of FlashInfer's chain verification."""

from __future__ import annotations

from typing import Any

from otm._core.optional import require
from otm.audit.adapters.base import Adapter
from otm.audit.adapters.drafts import Batched, seed_of

__all__ = ["chain_speculative_sampling"]


def chain_speculative_sampling(device: str = "cuda") -> Adapter:
    """Audit `flashinfer.sampling.chain_speculative_sampling`.

    This function works on float32 probabilities and draws from its own generator, so the audit uses
    Monte Carlo.

    Parameters
    ----------
    device : str, optional
        Device on which to run; the kernels need a GPU.

    Returns
    -------
    Adapter
        Adapter for one chain; it passes a batch of runs as one batch.

    Raises
    ------
    MissingDependencyError
        If FlashInfer or torch is not installed.

    Notes
    -----
    The adapter supports versions with a parameter `generator`; earlier ones had uniforms instead.
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
