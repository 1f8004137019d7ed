"""One round of a batch: draft, let the target read the drafts, verify them.

A verifier is a function of the drafts of one sequence, which `TreeRounds` calls on the host, in
floats or fractions, with any drafter; or it makes rounds of its own by its method `rounds`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple, Protocol, TypeAlias

from otm.decoding.checks import as_paths
from otm.decoding.draft_tree import DraftNode, Randomness
from otm.decoding.drafters.model import Drafter
from otm.decoding.reading import Context, LogitsProcessor, Path, Reader
from otm.decoding.sampling_parameters import SamplingParameters
from otm.decoding.verifiers.verification import Verifier, verify_batch, verify_chain
from otm.models.base import LanguageModel


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


@dataclass(frozen=True)
class RoundsTask:
    """What rounds are made for: the models, how to sample, and the number of sequences."""

    target: LanguageModel
    drafter: Drafter | None
    sampling: SamplingParameters | None
    processor: LogitsProcessor | None
    sequences: int
    backend: str

    def reader(self) -> Reader:
        """Return a reader of the target on the host."""
        return Reader(self.target, self.sampling, self.processor)


class RoundsVerifier(Protocol):
    """A verifier that makes rounds of its own, on a device or with a state."""

    def rounds(self, task: RoundsTask) -> Rounds:
        """Make the rounds of one batch."""
        ...


AnyVerifier: TypeAlias = Verifier | RoundsVerifier
"""A function of one sequence's drafts, or a verifier that makes rounds of its own."""


def make_rounds(verifier: AnyVerifier | None, task: RoundsTask) -> Rounds:
    """Return the verifier's own rounds, or rounds on the host; None is chain verification."""
    own: Any = getattr(verifier, "rounds", None)
    if own is not None:
        rounds: Rounds = own(task)
        return rounds
    function: Any = verify_chain if verifier is None else verifier
    return TreeRounds(task.reader(), task.drafter, function)


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
