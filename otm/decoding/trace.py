"""What happened while decoding: every step of every sequence, and what they add up to."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

from otm._core.display.reprs import Brief, Facts
from otm.decoding.reading import Path

FinishReason = Literal["eos", "length", "stop"]
"""Why a sequence is finished: an end token, the limit of its length, or the user's own function."""


@dataclass(frozen=True)
class Seconds:
    """Where the time of a step of the whole batch went, in seconds.

    Attributes
    ----------
    draft : float
        In the models of the drafter.
    target : float
        In the target model.
    other : float
        In drawing drafts, in judging them, and in everything else of the loop.

    Examples
    --------
    >>> Seconds(draft=0.25, target=0.5, other=0.125).total
    0.875
    """

    draft: float
    target: float
    other: float

    @property
    def total(self) -> float:
        """All of it, in seconds."""
        return self.draft + self.target + self.other


@dataclass(frozen=True)
class Step(Brief):
    """One call of the target model, for one sequence.

    Attributes
    ----------
    sequence : int
        Which prompt this continues.
    call : int
        Number of the step of the batch, from 0.
    position : int
        Number of tokens before the step, the prompt's included.
    gamma : int
        Most drafts of a path by the policy; near the limit of the length, and without a
        drafter, fewer are drafted.
    drafts : tuple of tuple of int
        The paths that were drafted, as often as each was.
    output : tuple of int
        Tokens that the step adds.
    accepted : int
        How many of these were drafts; the one that follows them, if it is not cut off, was not.
    finish_reason : "eos", "length", "stop" or None
        Why the sequence is finished, if it is.
    seconds : Seconds
        Of the step of the whole batch.

    Examples
    --------
    >>> step = Step(0, 0, 1, 2, ((0, 1),), (0, 0), 1, None, Seconds(0.0, 0.0, 0.0))
    >>> step.drafted, step.accepted, step.rejected  # the second draft was rejected
    (2, 1, True)
    """

    sequence: int
    call: int
    position: int
    gamma: int
    drafts: tuple[Path, ...]
    output: Path
    accepted: int
    finish_reason: FinishReason | None
    seconds: Seconds

    @property
    def drafted(self) -> int:
        """Length of the longest path of drafts, in tokens."""
        return max(map(len, self.drafts), default=0)

    @property
    def rejected(self) -> bool:
        """Whether a draft after the accepted ones was verified and rejected."""
        known = self.output[: self.accepted]
        verified = len(self.output) > self.accepted
        return verified and any(
            len(path) > self.accepted and path[: self.accepted] == known for path in self.drafts
        )


@dataclass(frozen=True)
class Generation(Facts):
    """Outcome of decoding a batch of prompts.

    Attributes
    ----------
    prompts : tuple of tuple of int
        What was given.
    steps : tuple of Step
        All steps, in the order in which they were made.

    Examples
    --------
    >>> from otm.decoding import autoregressive
    >>> from otm.models import TableModel
    >>> generation = autoregressive(TableModel({(): [0, 1]}), [[0], [1]], max_tokens=3)
    >>> generation.sequences, generation.tokens, generation.block_efficiency
    (((1, 1, 1), (1, 1, 1)), 6, 1.0)
    """

    prompts: tuple[Path, ...]
    steps: tuple[Step, ...]

    @property
    def _title(self) -> str:
        return "Generation"

    def _lines(self) -> list[tuple[str, str]]:
        reasons = Counter(self.finish_reasons)
        ends = ", ".join(f"{count} by {reason}" for reason, count in reasons.items() if reason)
        return [
            ("prompts", f"{len(self.prompts):,}"),
            ("tokens", f"{self.tokens:,} in {len(self.steps):,} calls of the target model"),
            ("block efficiency", f"{self.block_efficiency:.3f} tokens for each call"),
            ("drafts", f"{self.acceptance_rate:.3f} of the verified ones accepted"),
            ("ended", ends or "none"),
            ("seconds", f"{self.seconds.total:.3f}: " + ", ".join(
                f"{name} {seconds:.3f}" for name, seconds in vars(self.seconds).items()
            )),
        ]  # fmt: skip

    @cached_property
    def sequences(self) -> tuple[Path, ...]:
        """New tokens of each sequence, without its prompt."""
        tokens: list[list[int]] = [[] for _ in self.prompts]
        for step in self.steps:
            tokens[step.sequence].extend(step.output)
        return tuple(map(tuple, tokens))

    @property
    def finish_reasons(self) -> tuple[FinishReason | None, ...]:
        """Why each sequence was finished."""
        last = {step.sequence: step.finish_reason for step in self.steps}
        return tuple(last.get(b) for b in range(len(self.prompts)))

    @property
    def tokens(self) -> int:
        """Number of new tokens."""
        return sum(len(step.output) for step in self.steps)

    @property
    def block_efficiency(self) -> float:
        """New tokens for each call of the target model, counted for each sequence by itself.

        It lies between 1 and γ + 1 ([sun2023]_, section 7), but for steps that an ending cuts
        short; NaN if there is no step.

        References
        ----------
        .. [sun2023] Sun et al., "SpecTr: Fast Speculative Decoding via Optimal Transport",
           NeurIPS 2023.
        """
        return self.tokens / len(self.steps) if self.steps else float("nan")

    @property
    def acceptance_rate(self) -> float:
        """Accepted drafts over those that were verified one after another, an estimate of α.

        A probability: the α of [leviathan2023]_, section 3.1, where a single chain was verified
        draft by draft; NaN if none was drafted.

        References
        ----------
        .. [leviathan2023] Leviathan, Kalman and Matias, "Fast Inference from Transformers via
           Speculative Decoding", ICML 2023.
        """
        accepted = sum(step.accepted for step in self.steps)
        rejected = sum(step.rejected for step in self.steps)
        return accepted / (accepted + rejected) if accepted + rejected else float("nan")

    @property
    def seconds(self) -> Seconds:
        """Where the time went, over all steps."""
        calls = {step.call: step.seconds for step in self.steps}.values()
        return Seconds(
            sum(call.draft for call in calls),
            sum(call.target for call in calls),
            sum(call.other for call in calls),
        )

    def steps_of(self, sequence: int) -> Sequence[Step]:
        """Return the steps of one sequence.

        Parameters
        ----------
        sequence : int
            Number of the prompt, from 0.

        Returns
        -------
        sequence of Step
            In the order in which they were made; none for a number beyond the prompts.
        """
        return [step for step in self.steps if step.sequence == sequence]
