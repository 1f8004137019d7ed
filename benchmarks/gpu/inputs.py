"""Inputs for checks of decisions: chains of all lengths and temperatures down to 0, from a seed."""

from typing import Any

import torch
from torch import Tensor

from benchmarks.chain import several
from benchmarks.chain.inputs import make_inputs
from otm.kernels import Verified, verify_logits, verify_probs
from otm.kernels.common import runtime, softmax
from otm.kernels.registry import uniforms_per_position
from otm.rules import named

TEMPERATURES = (0.0, 0.7, 1.0, 1.3, 1e-8)
FIRST = 2
"""Number of sequences of a large batch that the NumPy reference also decides."""


def make(
    rule: str,
    shape: tuple[int, int, int, int],
    dtype: torch.dtype,
    device: torch.device,
    *,
    logits: bool,
    seed: int = 0,
    alike: bool = False,
) -> list[Tensor]:
    """Draw target rows, draft rows, drafts, uniforms and, for logits, temperatures.

    The shape is (B, K, γ, V); a rule for one chain has no K.  With `alike`, all chains have γ
    drafts and all temperatures are 1.
    """
    batch, count, gamma, size = shape
    rng = torch.Generator(device).manual_seed(seed)
    several_chains = named(rule, "kernel").several
    if several_chains:
        made = several.make(shape, dtype, device, logits=logits, seed=seed)
        rows = [x[:, None].expand(-1, count, -1, -1) for x in made[:2]]
        tokens, per_position = made[2], uniforms_per_position(rule, count)
    else:
        of_rows = {"logits": logits, "device": device, "seed": seed}
        inputs = make_inputs((batch, gamma, size), dtype, "typical", **of_rows)
        rows, tokens, per_position = [inputs.target, inputs.draft], inputs.tokens, 1
    index = torch.arange(batch, device=device)
    lengths = torch.full((batch,), gamma, device=device)
    if not alike:
        lengths[index % 5 == 3], lengths[index % 5 == 4] = 1, 0
    ended = torch.arange(gamma, device=device) >= lengths[:, None]  # [B, γ]
    tokens = tokens.masked_fill(ended[:, None] if several_chains else ended, -1)
    uniforms = torch.rand(
        batch, gamma * per_position + 2, dtype=torch.float64, device=device, generator=rng
    )
    if not logits:
        return [*rows, tokens, uniforms]
    if alike:
        return [*rows, tokens, uniforms, torch.ones(batch, device=device)]
    temperatures = torch.tensor(TEMPERATURES, device=device).roll(seed)
    temperatures = temperatures.repeat(-(-batch // len(TEMPERATURES)))[:batch]
    if several_chains:
        tokens[temperatures == 0, 1:] = -1  # all chains of a greedy sequence are equal
    return [*rows, tokens, uniforms, temperatures]


def by_kernels(
    rule: str, inputs: list[Tensor], workspace: Any = None, backend: str = "triton"
) -> Verified[Tensor]:
    """Verify by the kernels, or by another backend such as "auto"."""
    options: dict[str, Any] = {"rule": rule, "backend": backend, "validate": False}
    options["workspace"] = workspace
    if len(inputs) == 4:
        return verify_probs(*inputs, **options)
    return verify_logits(*inputs[:4], temperature=inputs[4], **options)


def by_torch(rule: str, inputs: list[Tensor], part: int = 8) -> Verified[Tensor]:
    """Verify by plain torch on the same device, a few sequences at a time to save memory."""
    outcomes = []
    for some in zip(*(x.split(part) for x in inputs), strict=True):
        laws = with_probs(list(some))
        outcomes.append(verify_probs(*laws, rule=rule, backend="torch", validate=False))
    fields = (None if x[0] is None else torch.cat(x) for x in zip(*outcomes, strict=True))
    return Verified(*fields)


def by_numpy(rule: str, inputs: list[Tensor]) -> Verified[Any]:
    """Verify by the NumPy reference, from the same probabilities."""
    target, draft, *rest = with_probs([x.cpu() for x in inputs])
    arrays = (x.numpy() for x in (target.float(), draft.float(), *rest))
    return verify_probs(*arrays, rule=rule, backend="numpy", validate=False)


def with_probs(inputs: list[Tensor]) -> list[Tensor]:
    """Replace logits by the probabilities that the kernels compute from them."""
    if len(inputs) == 4:
        return inputs
    *rows, tokens, uniforms, temperatures = inputs
    laws = softmax.probs_from_logits(*rows, tokens, temperatures, runtime.BLOCK)
    return [*laws, tokens, uniforms]  # type: ignore[list-item]
