"""Distributions and drafts for verification, with the rejection at a chosen position."""

from dataclasses import dataclass, replace

import torch
from torch import Tensor

REJECTIONS = ("first", "middle", "none", "typical")
"""Position of the first rejection; for "typical" inputs about 3 of 4 drafts are accepted."""

# Standard deviations of the draft's logits, and of the differences to the target's logits.
SPREAD, NOISE = 3.0, 0.6


@dataclass(frozen=True)
class Inputs:
    """Arguments of a verifier, without uniforms.

    Attributes
    ----------
    target, draft : Tensor [B, γ + 1, V] and [B, γ, V]
        Logits or probabilities.
    tokens : int64 Tensor [B, γ]
        Draft tokens, sampled from the draft distribution.
    logits : bool
        Whether target and draft are logits.
    """

    target: Tensor
    draft: Tensor
    tokens: Tensor
    logits: bool

    def copy(self) -> "Inputs":
        """Return a copy of all tensors in different memory."""
        return replace(
            self, target=self.target.clone(), draft=self.draft.clone(), tokens=self.tokens.clone()
        )

    @property
    def bytes(self) -> int:
        return sum(x.numel() * x.element_size() for x in (self.target, self.draft, self.tokens))

    def bytes_to_read(self, accepted: Tensor) -> int:
        """Count the bytes that every verifier must read.

        From probabilities, this is each sequence's target row after the accepted drafts, and also
        the draft row if a draft was rejected.  From logits, these are 2γ + 2 rows: γ + 1 target
        rows and γ draft rows once, for their sums, and one target row again for the residual.  The
        second read of the draft row comes from a cache.
        """
        batch, gamma = self.tokens.shape
        rejected = int((accepted < gamma).sum())
        rows = batch * (2 * gamma + 2) if self.logits else batch + rejected
        return rows * self.target.shape[2] * self.target.element_size()


def make_inputs(
    shape: tuple[int, int, int],
    dtype: torch.dtype,
    rejection: str,
    *,
    logits: bool,
    device: torch.device,
    seed: int = 7,
) -> Inputs:
    """Draw inputs of shape (B, γ, V); the same seed gives the same inputs."""
    batch, gamma, size = shape
    rng = torch.Generator(device).manual_seed(seed)

    def normal(rows: int) -> Tensor:
        return torch.randn(batch, rows, size, generator=rng, device=device)

    draft = SPREAD * normal(gamma)
    target = torch.cat([draft, SPREAD * normal(1)], 1)
    tokens = torch.multinomial(draft.softmax(-1).reshape(-1, size), 1, generator=rng)
    tokens = tokens.reshape(batch, gamma)
    if rejection == "typical":
        target[:, :gamma] += NOISE * normal(gamma)
    elif rejection != "none":  # the draft token gets target probability zero
        row = 0 if rejection == "first" else gamma // 2
        target[:, row].scatter_(1, tokens[:, row, None], -torch.inf)
    if not logits:
        target, draft = target.softmax(-1), draft.softmax(-1)
    return Inputs(target.to(dtype), draft.to(dtype), tokens, logits)
