"""Distributions and drafts to verify, with the rejection at a chosen position."""

from dataclasses import dataclass, replace

import torch
from torch import Tensor

REJECTIONS = ("first", "middle", "none", "typical")
"""Where the first draft is rejected; "typical": distributions that accept about 3 in 4."""

SPREAD, NOISE = 3.0, 0.6  # of the draft model's logits, and of the target's around them


@dataclass(frozen=True)
class Inputs:
    """Arguments of a verifier, without uniforms.

    Attributes
    ----------
    target, draft : Tensor [B, γ + 1, V] and [B, γ, V]
        Logits or probabilities.
    tokens : int64 Tensor [B, γ]
        Drafts, drawn from the draft distribution.
    logits : bool
        Whether target and draft are logits.
    """

    target: Tensor
    draft: Tensor
    tokens: Tensor
    logits: bool

    def copy(self) -> "Inputs":
        """Return the same numbers at other addresses."""
        return replace(
            self, target=self.target.clone(), draft=self.draft.clone(), tokens=self.tokens.clone()
        )

    @property
    def bytes(self) -> int:
        return sum(x.numel() * x.element_size() for x in (self.target, self.draft, self.tokens))

    def bytes_to_read(self, accepted: Tensor) -> int:
        """Count the bytes that no verifier can do without.

        From probabilities: of each sequence the target's row after the accepted drafts, and the
        draft's beside it if one was rejected.  From logits: all rows once, for their sums, and
        of the target's and draft's rows one pair again for the residual: γ + 1 target rows, γ draft
        rows and one more, 2γ + 2, the second reading of the draft's row being from a cache.
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
    """Draw inputs of shape (B, γ, V), for each seed the same ones every time."""
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
    elif rejection != "none":  # a draft that the target cannot produce
        row = 0 if rejection == "first" else gamma // 2
        target[:, row].scatter_(1, tokens[:, row, None], -torch.inf)
    if not logits:
        target, draft = target.softmax(-1), draft.softmax(-1)
    return Inputs(target.to(dtype), draft.to(dtype), tokens, logits)
