"""One chain on a CPU: tensors are read as arrays, row by row, by the definition itself.

A batched operation reads the rows of all drafts.  The definition reads a row when it needs it, and
then in a cache: for chain verification the rows up to the first rejected draft.  Where rows are
long this is several times as fast, and where they are short the calls from Python cost more.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from otm.kernels.numpy.distributions import locate, mass, memory, probs_from_logits
from otm.kernels.registry import load
from otm.kernels.torch import distributions
from otm.kernels.verified import Verified
from otm.rules import named

LEAST_VOCABULARY = 2048
"""The smallest vocabulary whose rows are read one by one."""


def reads_rows(rule: str, target: Tensor) -> bool:
    """Whether the rows of these tensors are to be read one by one."""
    on_host = target.device.type == "cpu" and target.shape[-1] >= LEAST_VOCABULARY
    return on_host and not named(rule, "kernel").several


def verify(
    rule: str, arguments: tuple[Any, ...], temperature: float | Tensor | None
) -> Verified[Tensor]:
    """Verify by the rule's definition: probabilities, or logits if there is a temperature."""
    target, draft, draft_tokens, uniforms = arguments
    rows: tuple[Any, Any] = _as_rows("target", target), None
    if draft is not None:
        rows = rows[0], _as_rows("draft", draft)
    rest = (draft_tokens.numpy(), uniforms.detach().numpy())
    if temperature is not None:
        values = temperature.tolist() if isinstance(temperature, Tensor) else temperature
        rows = probs_from_logits(*rows, rest[0], values)
    outcome = load(rule, "numpy").verify(*rows, *rest)
    return Verified(torch.from_numpy(outcome.tokens), torch.from_numpy(outcome.accepted))


def draw(probs: Tensor, uniforms: Tensor) -> Tensor:
    """Draw m tokens from each row: [B, C, V], [B, C, m] → [B, C, m], the same on every device."""
    if probs.device.type != "cpu" or probs.shape[-1] < LEAST_VOCABULARY:
        return distributions.locate_all(distributions.mass(probs), uniforms)
    rows, points = probs.flatten(0, 1).numpy(), uniforms.flatten(0, 1).tolist()
    masses = memory.take("drawn from", rows.shape[1], np.int64)
    tokens = []
    for row, us in zip(rows, points, strict=True):
        mass(row, 1, masses)
        tokens += [locate(masses, u) for u in us]
    return torch.tensor(tokens).view(uniforms.shape)


def _as_rows(model: str, numbers: Tensor) -> Any:
    """Rows by sequence [B, R, V], in the memory of the tensor."""
    numbers = numbers.detach()
    if numbers.dtype == torch.bfloat16:
        return map(partial(_Widened, model), numbers.view(torch.int16).numpy().view(np.uint16))
    return numbers.numpy()


class _Widened:
    """Rows [R, V] of bfloat16, by its bits: widened when they are read, as NumPy has no such type.

    A row stands in the memory of its model until the next one of that model is read.
    """

    def __init__(self, model: str, bits: npt.NDArray[np.uint16]) -> None:
        self.shape = bits.shape
        self._name, self._bits = f"{model}, widened", bits

    def __getitem__(self, place: Any) -> Any:
        bits = self._bits[place]
        wide = memory.take(self._name, bits.size, np.uint32) if bits.ndim else None
        return np.left_shift(bits, 16, out=wide, dtype=np.uint32).view(np.float32)
