"""Coupled decoding steps on the device of the models, which also computes the clocks.

The text equals that of `CoupledRounds`, up to rounding of the scores.  Clock times are bitwise
equal on all devices.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np

from otm._core.optional import require
from otm._core.tensors import on_device
from otm.coupled.clocks.first_rings import first_rings
from otm.coupled.clocks.numpy import draw_key
from otm.decoding.device.drafts import Drafted, DrawLevel, ModelDrafts, as_drafts
from otm.decoding.device.rounds import DeviceRounds
from otm.decoding.draft_tree import Randomness
from otm.decoding.drafters.model import ModelDrafter
from otm.decoding.rounds import Batch, RoundsTask
from otm.kernels.registry import AUTO
from otm.kernels.results import Verified


class DeviceClocks:
    """The clocks of a step: each sequence of a batch has clocks at positions after its context."""

    def __init__(self, backend: str = AUTO) -> None:
        self._backend = backend
        self._keys: list[int] = []
        self._lengths: list[int] = []
        # Keys and context lengths [2, B] of this step on each device.
        self._on_devices: dict[Any, Any] = {}

    def follow(self, batch: Batch) -> None:
        """Store keys and context lengths of the sequences of a step."""
        if batch.parents is None:
            self._keys = list(map(draw_key, batch.uniforms))
        else:
            self._keys = [self._keys[parent] for parent in batch.parents]
        self._lengths = list(map(len, batch.contexts))
        self._on_devices = {}

    def first(self, probs: Any, offsets: Any, lists: Any, count: int) -> Any:
        """Return the token with the smallest time in each row [B, L, V]: [B, L].

        Row l is `offsets[l]` positions after the context, and reads the clocks of `count`
        lists, beginning with `lists[l]`.
        """
        device = probs.device
        if device not in self._on_devices:
            numbers = np.array([self._keys, self._lengths], np.int64)
            self._on_devices[device] = on_device(numbers, device)
        keys, lengths = self._on_devices[device]
        positions = lengths[:, None] + offsets
        lists = lists.expand(positions.shape)
        return first_rings(probs, keys, positions, lists, count, backend=self._backend)


class CoupledDrafts(ModelDrafts):
    """Chains that a model draws from the clocks; chain m reads list m."""

    keeps_probs = False

    def __init__(self, drafter: ModelDrafter, clocks: DeviceClocks) -> None:
        super().__init__(drafter)
        self._clocks = clocks

    def _drawing(
        self, depths: Sequence[int], uniforms: Sequence[Randomness], device: Any
    ) -> DrawLevel:
        """Return a function that draws a level from the clocks; it uses no uniforms."""
        torch = require("torch")
        lists = torch.arange(self.chains, device=device)

        def draw_level(level: int, probs: Any) -> Any:
            rows = probs.expand(-1, self.chains, -1)
            return self._clocks.first(rows, torch.full_like(lists, level), lists, 1)

        return draw_level


class CoupledDeviceRounds(DeviceRounds):
    """Steps whose output follows the clocks while at least one chain agrees with the output."""

    def __init__(self, task: RoundsTask, lists: int) -> None:
        self._clocks, self._lists = DeviceClocks(task.backend), lists
        of_model = partial(CoupledDrafts, clocks=self._clocks)
        super().__init__(task, as_drafts(task.drafter, task.target, of_model, several=False))

    def follow(self, batch: Batch) -> None:
        """Copy the keys of each parent to its continuation."""
        self._clocks.follow(batch)

    def _decide(
        self, drafted: Drafted, tokens: Any, target: Any, uniforms: Sequence[Randomness]
    ) -> Verified[Any]:
        """Follow the output along the chains that agree with it, one position after another.

        With a single chain, all positions are computed at once.
        """
        torch = require("torch")
        batch, chains, gamma = tokens.shape
        offsets = torch.arange(gamma + 1, device=tokens.device)
        sequence = torch.arange(batch, device=tokens.device)
        numbers = torch.arange(chains, device=tokens.device)
        agree = torch.ones((batch, chains), dtype=torch.bool, device=tokens.device)
        chain, accepted = 0 * sequence, 0 * sequence
        output: Any = self._output(target[:, 0], offsets) if chains == 1 else None
        columns = []
        for i in range(gamma + 1):
            running = agree.any(1)
            # Follow the first agreeing chain; an ended sequence keeps its chain.
            place = numbers.where(agree, chains).amin(1)
            chain = place.where(running, chain)
            if output is None:
                column = self._output(target[sequence, chain, i][:, None], offsets[i : i + 1])[:, 0]
            else:
                column = output[:, i]
            columns.append(column.where(running, -1))
            if i < gamma:
                agree = agree & (tokens[:, :, i] == column[:, None])
                accepted = accepted + agree.any(1)
        return Verified(torch.stack(columns, 1), accepted, chain)

    def _output(self, rows: Any, offsets: Any) -> Any:
        """Return the tokens with the smallest time over all lists: [B, L, V], [L] → [B, L]."""
        return self._clocks.first(rows, offsets, 0 * offsets, self._lists)
