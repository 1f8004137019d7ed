"""Verification of one chain on a CPU: the NumPy reference reads tensors row by row.

A batched operation reads the rows of all drafts.  The reference reads a row only when needed, and
the row then stays in the cache.  Chain verification, for example, reads rows up to the first
rejected draft.  Reading row by row is several times faster for long rows; for short rows the
overhead of Python calls dominates.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from otm.kernels.common.distributions.numpy import locate, mass, memory
from otm.kernels.common.distributions.torch import locate_all
from otm.kernels.common.rows.numpy import read, unpack
from otm.kernels.layout import Chains
from otm.kernels.results import Verified
from otm.kernels.sparse_drafts import SparseDrafts
from otm.rules import Rule, named

LEAST_VOCABULARY = 2048
"""Smallest vocabulary for which rows are read one by one."""


def reads_rows(rule: str | Rule, target: Tensor) -> bool:
    """Whether to read the rows of this tensor one by one."""
    on_host = target.device.type == "cpu" and target.shape[-1] >= LEAST_VOCABULARY
    return on_host and not named(rule, "kernel").several


def verify(rule: Rule, chains: Chains, most: int = 0) -> Verified[Tensor]:
    """Verify by the rule's NumPy reference; packed chains have at most `most` drafts."""
    target, draft, draft_tokens, uniforms, temperature, offsets, *_ = chains
    size, tokens = target.shape[-1], draft_tokens.numpy()
    target = _as_array(target)
    # Lists are short, so they are converted as a whole.
    if isinstance(draft, SparseDrafts):
        probs = draft.probs.detach()
        probs = probs.float() if probs.dtype == torch.bfloat16 else probs
        draft = SparseDrafts(draft.tokens.numpy(), probs.numpy())
    elif draft is not None:
        draft = _as_array(draft)
    if offsets is not None:
        target, draft, tokens = unpack(target, draft, tokens, offsets.numpy(), most)
    target = _as_rows("target", target, chains.target.dtype)
    if draft is not None and not isinstance(draft, SparseDrafts):
        draft = _as_rows("draft", draft, chains.draft.dtype)
    values = temperature.tolist() if isinstance(temperature, Tensor) else temperature
    rows = read(target, draft, tokens, size, values)
    outcome = rule.load_kernel("numpy").verify(*rows, tokens, uniforms.detach().numpy())
    return Verified(torch.from_numpy(outcome.tokens), torch.from_numpy(outcome.accepted))


def draw(probs: Tensor, uniforms: Tensor) -> Tensor:
    """Draw m tokens from each row, the same on every device: [B, C, V], [B, C, m] → [B, C, m]."""
    if probs.device.type != "cpu" or probs.shape[-1] < LEAST_VOCABULARY:
        return locate_all(mass(probs), uniforms)
    rows, points = probs.flatten(0, 1).numpy(), uniforms.flatten(0, 1).tolist()
    masses = memory.take("drawn from", rows.shape[1], np.int64)
    tokens = []
    for row, us in zip(rows, points, strict=True):
        mass(row, 1, masses)
        tokens += [locate(masses, u) for u in us]
    return torch.tensor(tokens).view(uniforms.shape)


def as_arrays(model: str, rows: Tensor) -> Any:
    """Return a model's rows by sequence, without copying the tensor."""
    return _as_rows(model, _as_array(rows), rows.dtype)


def _as_array(numbers: Tensor) -> Any:
    """Return a tensor's memory as an array; as bits for bfloat16, which NumPy lacks."""
    numbers = numbers.detach()
    if numbers.dtype == torch.bfloat16:
        return numbers.view(torch.int16).numpy().view(np.uint16)
    return numbers.numpy()


def _as_rows(model: str, rows: Any, dtype: torch.dtype) -> Any:
    """Return rows [R, V] by sequence; bfloat16 rows are widened when read."""
    return map(partial(_WidenedRows, model), rows) if dtype == torch.bfloat16 else rows


class _WidenedRows:
    """Rows [R, V] of bfloat16 bits, which are widened to float32 when read.

    A row stays valid until another row of the same model is read.
    """

    def __init__(self, model: str, bits: npt.NDArray[np.uint16]) -> None:
        self.shape = bits.shape
        self._name, self._bits = f"{model}, widened", bits

    def __getitem__(self, place: Any) -> Any:
        bits = self._bits[place]
        wide = memory.take(self._name, bits.size, np.uint32) if bits.ndim else None
        return np.left_shift(bits, 16, out=wide, dtype=np.uint32).view(np.float32)
