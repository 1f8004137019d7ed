"""One round of a batch: draft, let the target read the drafts, verify them.

A verifier is either a function of the drafts of one sequence (`TreeRounds` calls it on the host, in
floats or fractions, with any drafter), or an object whose method `rounds` makes its own rounds.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple, Protocol, TypeAlias

from otm._core.display.text import shown
from otm.decoding.checks import as_paths
from otm.decoding.draft_tree import DraftNode, Randomness
from otm.decoding.drafters.base import Drafter
from otm.decoding.reading import Context, LogitsProcessor, Path, ProbsAfter, Reader
from otm.decoding.sampling_parameters import SamplingParameters, as_sampling, leaves_all
from otm.decoding.verifiers.base import TargetProbs, Verifier
from otm.decoding.verifiers.chain import verify_chain
from otm.errors import InvalidDraftsError, InvalidParameterError
from otm.models.base import LanguageModel

LEAST_VOCABULARY = 2048
"""The smallest vocabulary for which a CPU verifies by tensor operations without being asked to."""


class Batch(NamedTuple):
    """The sequences of a round."""

    contexts: Sequence[Context]
    depths: Sequence[int]  # most drafts of a path
    parents: Sequence[int] | None  # the sequence that each continues; None to begin anew
    uniforms: Sequence[Randomness]


class Outcome(NamedTuple):
    """The drafts and the output of one sequence in a round."""

    drafts: tuple[Path, ...]  # the paths, as often as each was drawn
    output: Path  # the accepted drafts and one more token


@dataclass(frozen=True)
class RoundsTask:
    """The models of a batch, how to sample, the number of sequences and the kernels' backend."""

    target: LanguageModel
    drafter: Drafter | None
    sampling: SamplingParameters | None
    processor: LogitsProcessor | None
    sequences: int
    backend: str

    def suits_device(self) -> bool:
        """Whether drafts and target are on a device, and the host does not verify better."""
        if self.target.device is None or not (self.drafter is None or self.drafter.suits_device):
            return False
        if self.target.device.type != "cpu":
            return True
        # With fewer tokens a call of torch takes longer than its work.  If truncation leaves few
        # tokens, the host works on these alone.
        return self.target.vocabulary >= LEAST_VOCABULARY and leaves_all(as_sampling(self.sampling))


class _Timed(Protocol):
    """A model's reader, or a drafter."""

    @property
    def seconds(self) -> float:
        """Seconds spent in models so far."""


class Rounds(ABC):
    """Makes one round after another, each with the sequences that still go on.

    Attributes
    ----------
    draws_afresh : bool
        Whether later rounds use none of the randomness that decided about drafts not reached.
    """

    draws_afresh = True

    def __init__(self, drafter: _Timed | None, target: _Timed) -> None:
        self._timed = drafter, target

    @property
    def seconds(self) -> tuple[float, float]:
        """Seconds of drafter and target so far; on a GPU, of launching their kernels."""
        drafter, target = self._timed
        return (0.0 if drafter is None else drafter.seconds), target.seconds

    def follow(self, batch: Batch) -> None:  # noqa: B027 - rounds without a state need none
        """Let the state of each sequence follow it; `step` calls this before it drafts."""

    @abstractmethod
    def step(self, batch: Batch) -> list[Outcome]:
        """Draft paths behind each context, and verify them."""


class HostRounds(Rounds):
    """Rounds in which distributions are on the host, each by its support."""

    def __init__(self, task: RoundsTask) -> None:
        self._drafter = task.drafter
        self._reader = Reader(task.target, task.sampling, task.processor)
        super().__init__(self._drafter, self._reader)

    def draft(self, batch: Batch) -> list[DraftNode]:
        """Draft a tree for each sequence."""
        if self._drafter is None:
            return [DraftNode() for _ in batch.contexts]
        return self._drafter.draft(*batch)

    @abstractmethod
    def verify(self, batch: Batch, trees: Sequence[DraftNode], probs: ProbsAfter) -> list[Path]:
        """Return the output of each sequence, from its tree and the target's distributions."""

    def step(self, batch: Batch) -> list[Outcome]:
        """Draft trees, read them, and verify them."""
        self.follow(batch)
        trees = self.draft(batch)
        paths = as_paths(trees, batch.depths, self._reader.model.vocabulary)
        probs = self._reader.read(batch.contexts, paths, batch.parents, whole=True)
        outputs = self.verify(batch, trees, probs)
        drafts = [tuple(tree.drawn_paths()) for tree in trees]
        return list(map(Outcome, drafts, outputs))


class TreeRounds(HostRounds):
    """Rounds of a verifier that is a function of one sequence's drafts."""

    def __init__(self, task: RoundsTask, verifier: Verifier) -> None:
        super().__init__(task)
        self._verifier = verifier

    def verify(self, batch: Batch, trees: Sequence[DraftNode], probs: ProbsAfter) -> list[Path]:
        """Verify one sequence after another."""
        target_probs = (partial(probs, b) for b in range(len(trees)))
        return verify_batch(self._verifier, trees, target_probs, batch.uniforms)


def verify_batch(
    verifier: Verifier,
    trees: Sequence[DraftNode],
    target_probs: Iterable[TargetProbs],
    uniforms: Sequence[Randomness],
) -> list[Path]:
    """Verify the trees of B sequences; raise for an output without a token, which never ends."""
    outputs = [verifier(*parts) for parts in zip(trees, target_probs, uniforms, strict=True)]
    if not all(outputs):
        raise InvalidDraftsError(
            "the verifier returned no token; it must return the accepted drafts and one token more"
        )
    return outputs


class RoundsVerifier(Protocol):
    """A verifier that makes rounds of its own, on a device or with a state."""

    def rounds(self, task: RoundsTask) -> Rounds:
        """Make the rounds of one batch."""
        ...


AnyVerifier: TypeAlias = Verifier | RoundsVerifier
"""A function of one sequence's drafts, or a verifier that makes rounds of its own."""


def maker_of_rounds(verifier: AnyVerifier | None) -> Callable[[RoundsTask], Rounds]:
    """Return the verifier's own way to make rounds, or rounds on the host that call it.

    None is chain verification.
    """
    own: Callable[[RoundsTask], Rounds] | None = getattr(verifier, "rounds", None)
    if isinstance(verifier, type) or not (verifier is None or own or callable(verifier)):
        raise InvalidParameterError(
            f"verifier = {shown(verifier)}; give a function such as `verify_chain`, or an object "
            "that makes its rounds, such as `DeviceVerifier()`"
        )
    function: Any = verify_chain if verifier is None else verifier
    return partial(TreeRounds, verifier=function) if own is None else own
