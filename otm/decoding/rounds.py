"""One round of a batch: draft, let the target read the drafts, verify them.

`TreeRounds` takes any drafter and any verifier, and works on the host, in floats or fractions.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

from otm.decoding.checks import as_paths
from otm.decoding.draft_tree import DraftNode, Randomness
from otm.decoding.drafters.model import Drafter
from otm.decoding.reading import Context, Path, Reader
from otm.decoding.verifiers.verification import Verifier, verify_batch


class Outcome(NamedTuple):
    """What a round makes of one sequence."""

    drafts: tuple[Path, ...]  # the paths, as often as each was drawn
    output: Path  # the accepted drafts and one token more


class Rounds(ABC):
    """Makes one round after another, each with the sequences that still go on.

    Attributes
    ----------
    draws_afresh : bool
        Whether later rounds have nothing in common with the drafts that were not reached.
    """

    draws_afresh = True

    @abstractmethod
    def play(
        self,
        contexts: Sequence[Context],
        depths: Sequence[int],
        parents: Sequence[int] | None,
        uniforms: Sequence[Randomness],
    ) -> list[Outcome]:
        """Draft paths of at most `depths[b]` tokens behind each context, and verify them.

        `parents[b]` is the sequence of the round before that b continues; None begins anew.
        """

    @property
    @abstractmethod
    def seconds(self) -> tuple[float, float]:
        """Seconds spent in the models of the drafter, and in the target, so far."""


class TreeRounds(Rounds):
    """Trees of drafts and distributions on the host, one sequence verified after another."""

    def __init__(self, reader: Reader, drafter: Drafter | None, verifier: Verifier) -> None:
        self._reader, self._drafter, self._verifier = reader, drafter, verifier

    def play(
        self,
        contexts: Sequence[Context],
        depths: Sequence[int],
        parents: Sequence[int] | None,
        uniforms: Sequence[Randomness],
    ) -> list[Outcome]:
        """Draft trees, read them, and verify each."""
        trees = [DraftNode() for _ in contexts]
        if self._drafter is not None:
            trees = self._drafter.draft(contexts, depths, parents, uniforms)
        paths = as_paths(trees, depths, self._reader.model.vocabulary)
        probs = self._reader.read(contexts, paths, parents, whole=True)
        target_probs = (partial(probs, i) for i in range(len(trees)))
        outputs = verify_batch(self._verifier, trees, target_probs, uniforms)
        drafts = [tuple(tree.drawn_paths()) for tree in trees]
        return list(map(Outcome, drafts, outputs))

    @property
    def seconds(self) -> tuple[float, float]:
        """Seconds of the drafter and of the target so far."""
        return (0.0 if self._drafter is None else self._drafter.seconds), self._reader.seconds
