"""One step of a batch: draft, score the drafts with the target, verify them.

There are two kinds of verifiers.  A verifier may be a function of the drafts of one sequence;
`TreeRounds` calls it on the host, in floats or fractions, with any drafter.  A verifier may also be
an object whose method `rounds` returns its own implementation of the steps.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple, Protocol, TypeAlias

from otm._core.arithmetic import Number
from otm._core.display.text import shown
from otm.decoding.checks import as_paths
from otm.decoding.draft_tree import DraftNode, Randomness
from otm.decoding.drafters.base import Drafter
from otm.decoding.reading import Context, LogitsProcessor, Path, ProbsAfter, Reader
from otm.decoding.sampling_parameters import SamplingParameters, as_sampling, keeps_all_tokens
from otm.decoding.verifiers.base import TargetProbs, Verifier
from otm.decoding.verifiers.chain import verify_chain
from otm.errors import InvalidDraftsError, InvalidParameterError
from otm.models.base import LanguageModel

LEAST_VOCABULARY = 2048
"""Smallest vocabulary for which a CPU verifies by tensor operations by default."""


class Batch(NamedTuple):
    """The sequences of a step."""

    contexts: Sequence[Context]
    # Maximum number of drafts in a path of each sequence.
    depths: Sequence[int]
    # For each sequence, the index in the previous batch that it continues; None in the first step.
    parents: Sequence[int] | None
    uniforms: Sequence[Randomness]


class Outcome(NamedTuple):
    """The drafts and the output of one sequence in a step."""

    # The draft paths; a path that was drawn twice appears twice.
    drafts: tuple[Path, ...]
    # The accepted drafts and one more token.
    output: Path
    # The target's probability of each output token, if the task asks for it.
    probs: tuple[Number, ...] | None = None


@dataclass(frozen=True)
class RoundsTask:
    """Models, sampling parameters, number of sequences and kernel backend of a batch.

    `log_probs` says whether outcomes need the target's probabilities of their tokens.
    """

    target: LanguageModel
    drafter: Drafter | None
    sampling: SamplingParameters | None
    processor: LogitsProcessor | None
    sequences: int
    backend: str
    log_probs: bool = False

    def is_on_cpu(self) -> bool:
        """Return whether the target's tensors are on a CPU."""
        return bool(self.target.device.type == "cpu")

    def is_small(self) -> bool:
        """Return whether a CPU verifies few tokens, for which torch's calls exceed its work."""
        return self.is_on_cpu() and self.target.vocabulary < LEAST_VOCABULARY

    def suits_device(self) -> bool:
        """Return whether to verify on the device of the models, instead of on the host."""
        return (self.drafter is None or self.drafter.suits_device) and self.takes_kernels()

    def takes_kernels(self) -> bool:
        """Return whether kernels are faster than the host, for drafts on the target's device."""
        if self.target.device is None:
            return False
        if not self.is_on_cpu():
            return True
        # If truncation keeps few tokens, the host computes with these tokens only.
        return not self.is_small() and keeps_all_tokens(as_sampling(self.sampling))


class _Timed(Protocol):
    """An object that measures its model time: a reader or a drafter."""

    @property
    def seconds(self) -> float:
        """Seconds spent in models so far."""


class Rounds(ABC):
    """Implementation of the steps of one batch; each step gets the unfinished sequences.

    Attributes
    ----------
    steps_are_independent : bool
        Whether the randomness of later steps is independent of the drafts that were not reached.
    place : {"host", "device"}
        Where drafts are verified.
    """

    steps_are_independent = True
    place = "host"

    def __init__(self, drafter: _Timed | None, target: _Timed) -> None:
        self._timed = drafter, target

    @property
    def seconds(self) -> tuple[float, float]:
        """Seconds in drafter and target so far; on a GPU, the time of launching their kernels."""
        drafter, target = self._timed
        return (0.0 if drafter is None else drafter.seconds), target.seconds

    def follow(self, batch: Batch) -> None:  # noqa: B027 - stateless rounds need no override
        """Reorder the state to match the batch; `step` calls this before it drafts."""

    @abstractmethod
    def step(self, batch: Batch) -> list[Outcome]:
        """Draft paths after each context, verify them, and return the outcomes."""


class HostRounds(Rounds):
    """Steps that keep distributions on the host, each restricted to its support."""

    def __init__(self, task: RoundsTask) -> None:
        self._drafter = task.drafter
        self._log_probs = task.log_probs
        self._reader = Reader(task.target, task.sampling, task.processor)
        super().__init__(self._drafter, self._reader)

    def draft(self, batch: Batch) -> list[DraftNode]:
        """Return a draft tree for each sequence."""
        if self._drafter is None:
            return [DraftNode() for _ in batch.contexts]
        return self._drafter.draft(*batch)

    @abstractmethod
    def verify(self, batch: Batch, trees: Sequence[DraftNode], probs: ProbsAfter) -> list[Path]:
        """Return the output of each sequence, from its tree and the target's distributions."""

    def step(self, batch: Batch) -> list[Outcome]:
        """Draft trees, score them with the target, and verify them."""
        self.follow(batch)
        parents = batch.parents
        if parents is None:
            # A drafter can use the target's hidden states.
            self._reader.follow(batch.contexts, None)
            parents = range(len(batch.contexts))
        trees = self.draft(batch)
        paths = as_paths(trees, batch.depths, self._reader.model.vocabulary)
        probs = self._reader.read(batch.contexts, paths, parents, whole=True)
        outputs = self.verify(batch, trees, probs)
        drafts = [tuple(tree.repeated_leaf_paths()) for tree in trees]
        if not self._log_probs:
            return list(map(Outcome, drafts, outputs))
        # the target has read every prefix of an output as a draft path
        of_tokens = [
            tuple(probs(b, output[:i]).of(token) for i, token in enumerate(output))
            for b, output in enumerate(outputs)
        ]
        return list(map(Outcome, drafts, outputs, of_tokens))


class TreeRounds(HostRounds):
    """Steps of a verifier that is a function of one sequence's drafts."""

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
    """Return the verified output of each of B trees; raise if an output has no token."""
    outputs = [verifier(*parts) for parts in zip(trees, target_probs, uniforms, strict=True)]
    if not all(outputs):
        raise InvalidDraftsError(
            "the verifier returned no token; it must return the accepted drafts and one more token"
        )
    return outputs


class RoundsVerifier(Protocol):
    """A verifier with its own implementation of a step, on a device or with a state."""

    def rounds(self, task: RoundsTask) -> Rounds:
        """Return an object that runs the steps of one batch."""
        ...


AnyVerifier: TypeAlias = Verifier | RoundsVerifier
"""A function of one sequence's drafts, or a verifier with its own implementation of a step."""


def rounds_factory(verifier: AnyVerifier | None) -> Callable[[RoundsTask], Rounds]:
    """Return the verifier's own `rounds` method, or a factory of host steps that call the verifier.

    If `verifier` is None, use chain verification.
    """
    own: Callable[[RoundsTask], Rounds] | None = getattr(verifier, "rounds", None)
    if isinstance(verifier, type) or not (verifier is None or own or callable(verifier)):
        raise InvalidParameterError(
            f"verifier = {shown(verifier)}; give a function such as `verify_chain`, or an object "
            "with a method `rounds`, such as `DeviceVerifier()`"
        )
    function: Any = verify_chain if verifier is None else verifier
    return partial(TreeRounds, verifier=function) if own is None else own
