"""Prefix trees as tensors: a model draws the children of each node on its device."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from otm._core.optional import require
from otm._core.tensors import on_device
from otm.decoding.device.drafts import DeviceDrafts, Drafted
from otm.decoding.device.session import DeviceSession
from otm.decoding.drafters.model import ModelDrafter
from otm.decoding.reading import Context, Path
from otm.decoding.rounds import Batch


class PrefixDrafts(DeviceDrafts):
    """Paths of a prefix tree, as chains that share their first drafts.

    The draft model reads the paths of a level anew, so that its cache holds the contexts alone.
    """

    def __init__(self, drafter: ModelDrafter) -> None:
        # The callers exclude chains, so the branching is a tuple.
        self._branching: tuple[int, ...] = drafter.branching  # type: ignore[assignment]
        self._rows = DeviceSession(drafter.model, drafter.sampling, drafter.processor)

    @property
    def seconds(self) -> float:
        """Seconds spent in the model so far."""
        return self._rows.seconds

    def draft(self, batch: Batch) -> Drafted:
        """Draw the trees of the batch, level by level."""
        torch = require("torch")
        from otm.kernels.common.host import draw

        contexts, depths, parents, uniforms = batch
        size, gamma = len(contexts), min(max(depths), len(self._branching))
        limits = np.minimum(depths, gamma)
        branching = self._branching[:gamma]
        chains = math.prod(branching)
        self._rows.follow(contexts, parents)
        if gamma == 0:
            return Drafted.nothing(size)
        # The uniforms of a level are those of its nodes in order, level after level.
        counts = np.cumprod(branching)
        coins = np.zeros((size, int(counts.sum())))
        for row, limit, source in zip(coins, limits, uniforms, strict=True):
            used = int(counts[:limit].sum())
            row[:used] = source(used)
        scores = self._rows.read_contexts(contexts)[:, None]  # [B, nodes, V]
        points = on_device(coins, scores.device)
        paths = torch.zeros((size, 1, 0), dtype=torch.int64, device=scores.device)
        rows = self._rows.memory(scores, (size, chains, gamma, scores.shape[-1]))
        good = torch.ones(size, dtype=torch.bool, device=scores.device)
        for i, children in enumerate(branching):
            nodes, live = paths.shape[1], np.repeat((limits > i)[:, None], paths.shape[1], 1)
            if i:
                self._rows.repeat(branching[i - 1])
                read = self._rows.append(paths.flatten(0, 1), i * live.ravel())
                scores = read[:, -1].view(size, nodes, -1)
            # The first path through a node has its row; the others get a copy.
            of_nodes = rows[:, :: chains // nodes, i]
            probs, valid = self._rows.probs(scores, paths, live, of_nodes)
            good = good & (valid | ~on_device(live, valid.device)).all(1)
            start = int(counts[:i].sum())
            coin = points[:, start : start + counts[i]].view(size, nodes, children)
            tokens = draw(probs, coin).flatten(1)[..., None]
            rows[:, :, i] = probs.repeat_interleave(chains // nodes, 1)
            paths = torch.cat([paths.repeat_interleave(children, 1), tokens], 2)
        lengths = np.repeat(limits[:, None], chains, 1)
        ended = np.arange(gamma) >= lengths[..., None]
        paths = paths.masked_fill(on_device(ended, paths.device), -1)
        first = np.arange(chains)[:, None] % (chains // counts) == 0
        counted = on_device(np.broadcast_to(first, (size, chains, gamma)).copy(), paths.device)
        return Drafted(paths, rows, good, lengths, counted)

    def learn(self, contexts: Sequence[Context], chains: Sequence[Sequence[Path]]) -> None:
        """Rewind the rows to the contexts."""
        self._rows.repeat(1)
