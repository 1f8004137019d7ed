"""Draft chains as tensors: drawn by a model on its device, or copied from a host drafter."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from otm._core.optional import require
from otm._core.probs.sparse import SparseProbs
from otm._core.tensors import on_device
from otm.decoding.checks import as_paths
from otm.decoding.device.session import DeviceSession
from otm.decoding.draft_tree import Randomness, one_chain
from otm.decoding.drafters.base import Drafter
from otm.decoding.drafters.model import ModelDrafter, draws_chains
from otm.decoding.reading import Context, Path
from otm.decoding.rounds import Batch
from otm.errors import InvalidDraftsError
from otm.kernels.sparse_drafts import SparseDrafts
from otm.models.base import LanguageModel

Place = tuple[int, int, int]
"""Indices of a sequence, a chain and a position."""

DrawLevel = Callable[[int, Any], Any]
"""Function from a level and its distributions to one draft per chain: [B, K].

At level 0, all chains of a sequence share one distribution.
"""


NO_TREES = (
    "kernels on a device verify chains, which branch only at the root; `spectr_verifier` accepts "
    "trees"
)
"""End of the error message for a drafter's tree that is not a set of chains."""


@dataclass(frozen=True)
class Drafted:
    """K chains of at most γ drafts for each of B sequences."""

    # Draft tokens, int64 [B, K, γ]; −1 after the end of a chain.
    tokens: Any
    # Distributions [B, K, γ, V] or SparseDrafts of the drafts; None for deterministic drafts.
    probs: Any
    # Whether the distributions of each sequence are valid, bool [B]; None if the host checked them.
    good: Any
    # Length of each chain, [B, K].
    lengths: npt.NDArray[np.int64]
    # Which drafts are not draws of an earlier chain, bool [B, K, γ]; None if all chains are.
    counted: Any = None

    @classmethod
    def nothing(cls, batch: int) -> Drafted:
        """Return an instance without drafts for a batch of sequences."""
        torch = require("torch")
        tokens = torch.zeros((batch, 1, 0), dtype=torch.int64)
        return cls(tokens, None, None, np.zeros((batch, 1), np.int64))


class DeviceDrafts(ABC):
    """Source of draft chains for a batch, as tensors."""

    @abstractmethod
    def draft(self, batch: Batch) -> Drafted:
        """Return draft chains after each context."""

    @abstractmethod
    def learn(self, contexts: Sequence[Context], chains: Sequence[Sequence[Path]]) -> None:
        """Record the chains [B][K] after their contexts, once the host knows their tokens."""

    @property
    @abstractmethod
    def seconds(self) -> float:
        """Seconds spent in models so far."""


class ModelDrafts(DeviceDrafts):
    """Chains that a model draws on its device; the host sees drafts only after verification."""

    keeps_probs = True
    """Whether verification needs the draft distributions."""

    def __init__(self, drafter: ModelDrafter) -> None:
        # The callers exclude prefix trees, so the branching is a number.
        self.chains: int = drafter.branching  # type: ignore[assignment]
        self._rows = DeviceSession(drafter.model, drafter.sampling, drafter.processor)

    @property
    def seconds(self) -> float:
        """Seconds spent in the model so far."""
        return self._rows.seconds

    def draft(self, batch: Batch) -> Drafted:
        """Draw all chains of the batch, level by level."""
        torch = require("torch")
        contexts, depths, parents, uniforms = batch
        size, chains, gamma = len(contexts), self.chains, max(depths)
        lengths = np.repeat(np.array(depths, np.int64)[:, None], chains, axis=1)
        self._rows.follow(contexts, parents)
        if gamma == 0:
            return Drafted.nothing(size)
        scores = self._rows.read_contexts(contexts)  # [B, V]
        draw = self._drawing(depths, uniforms, scores.device)
        nothing = torch.zeros((size, 1, 0), dtype=torch.int64, device=scores.device)
        kept = gamma if self.keeps_probs else 1
        rows = self._rows.memory(scores, (size, chains, kept, scores.shape[-1]))
        live = lengths[:, :1] > 0
        probs, good = self._rows.probs(scores[:, None], nothing, live, rows[:, :1, 0])
        if chains > 1 and self.keeps_probs:
            rows[:, 1:, 0] = probs
        drawn = [draw(0, probs)]  # [B, K]
        goods = [good]
        if chains > 1:
            self._rows.repeat(chains)
        for i in range(1, gamma):
            counts = (lengths > i).ravel().astype(np.int64)
            scores = self._rows.append(drawn[-1].reshape(-1, 1), counts)
            scores = scores.view(size, chains, -1)
            before = torch.stack(drawn, 2)
            out = rows[:, :, min(i, kept - 1)]
            probs, good = self._rows.probs(scores, before, lengths > i, out)
            drawn.append(draw(i, probs))
            goods.append(good | on_device(lengths <= i, good.device))
        tokens = torch.stack(drawn, 2)
        if min(depths) < gamma:
            live = on_device(np.arange(gamma) < lengths[..., None], tokens.device)
            tokens = tokens.where(live, -1)
        good = torch.cat(goods, 1).all(1) | on_device(lengths[:, 0] == 0, tokens.device)
        return Drafted(tokens, rows if self.keeps_probs else None, good, lengths)

    def _drawing(
        self, depths: Sequence[int], uniforms: Sequence[Randomness], device: Any
    ) -> DrawLevel:
        """Read one uniform per draft, and return a function that draws a level with them."""
        from otm.kernels.common.host import draw

        coins = np.zeros((len(depths), max(depths), self.chains))
        for coin, depth, source in zip(coins, depths, uniforms, strict=True):
            coin[:depth] = source(depth * self.chains).reshape(depth, self.chains)
        # Uniforms [B, γ, K].
        points = on_device(coins, device)

        def draw_level(level: int, probs: Any) -> Any:
            if level == 0:
                return draw(probs, points[:, :1])[:, 0]
            return draw(probs, points[:, level, :, None])[..., 0]

        return draw_level

    def learn(self, contexts: Sequence[Context], chains: Sequence[Sequence[Path]]) -> None:
        """Record which tokens the rows have read: all drafts of a chain except the last."""
        if max(len(path) for paths in chains for path in paths) > 0:
            self._rows.learn(
                [
                    context + path[:-1]
                    for context, paths in zip(contexts, chains, strict=True)
                    for path in paths
                ]
            )


class HostDrafts(DeviceDrafts):
    """Chains from any drafter that runs on the host, copied to tensors."""

    def __init__(self, drafter: Drafter, vocabulary: int, *, several: bool) -> None:
        self._drafter, self._vocabulary = drafter, vocabulary
        # Rules for several chains always need draft distributions, even of deterministic drafts.
        self._several = several

    def learn(self, contexts: Sequence[Context], chains: Sequence[Sequence[Path]]) -> None:
        """Do nothing, because the drafter receives the contexts."""

    @property
    def seconds(self) -> float:
        """Seconds spent in the drafter's models so far."""
        return self._drafter.seconds

    def draft(self, batch: Batch) -> Drafted:
        """Run the drafter, and convert its chains and their distributions to tensors."""
        torch = require("torch")
        trees = self._drafter.draft(*batch)
        as_paths(trees, batch.depths, self._vocabulary)
        chains = [[one_chain(child, NO_TREES) for child in tree.children] for tree in trees]
        count = max(1, *map(len, chains))
        gamma = max((len(chain) for paths in chains for chain in paths), default=0)
        tokens = np.full((len(trees), count, gamma), -1, np.int64)
        placed_probs: list[tuple[Place, SparseProbs]] = []
        for b, (tree, paths) in enumerate(zip(trees, chains, strict=True)):
            for c, chain in enumerate(paths):
                for i, (parent, node) in enumerate(zip((tree, *chain), chain, strict=False)):
                    tokens[b, c, i] = node.token
                    probs = parent.checked_draft_probs()
                    if probs.tokens[-1] >= self._vocabulary:
                        raise InvalidDraftsError(
                            f"a draft distribution gives token {probs.tokens[-1]} positive "
                            f"probability, but the target model has tokens 0 to "
                            f"{self._vocabulary - 1}; on a device both must have one vocabulary"
                        )
                    placed_probs.append(((b, c, i), probs))
        draft_probs: Any = None
        most = max((each.tokens.size for _, each in placed_probs), default=1)
        if self._several or count > 1 or most > 1:
            draft_probs = self._as_tensors(placed_probs, tokens.shape, most)
        return Drafted(torch.from_numpy(tokens), draft_probs, None, (tokens >= 0).sum(2))

    def _as_tensors(
        self, placed_probs: Sequence[tuple[Place, SparseProbs]], shape: tuple[int, ...], most: int
    ) -> Any:
        """Return distributions as SparseDrafts, or as dense rows if their supports are large."""
        torch = require("torch")
        if 2 * most > self._vocabulary:
            rows = np.zeros((*shape, self._vocabulary))
            for place, each in placed_probs:
                rows[place][each.tokens] = each.probabilities
            return torch.from_numpy(rows)
        ids, values = np.full((*shape, most), -1, np.int64), np.zeros((*shape, most))
        for place, each in placed_probs:
            ids[place][: each.tokens.size] = each.tokens
            values[place][: each.tokens.size] = each.probabilities
        return SparseDrafts(torch.from_numpy(ids), torch.from_numpy(values))


def as_drafts(
    drafter: Drafter | None,
    target: LanguageModel,
    of_model: Callable[[ModelDrafter], DeviceDrafts],
    *,
    several: bool,
) -> DeviceDrafts | None:
    """Return a source of draft chains as tensors: a model on its device, or a host drafter."""
    if drafter is None:
        return None
    if draws_chains(drafter):
        return of_model(drafter)
    return HostDrafts(drafter, target.vocabulary, several=several)
