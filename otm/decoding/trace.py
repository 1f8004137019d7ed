"""Traces of decoding: every step of every sequence, and summary statistics."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Literal

from otm._core.arithmetic import Number
from otm._core.display.reprs import FactsRepr, ShortRepr
from otm.decoding.reading import Path

FinishReason = Literal["eos", "length", "stop"]
"""Why a sequence ended: an end token, the limit of its length, or the user's `stop` function."""


@dataclass(frozen=True)
class Seconds:
    """Seconds that a step of the whole batch spent in the drafter, in the target and elsewhere.

    Attributes
    ----------
    draft : float
        Seconds that the models of the drafter took.
    target : float
        Seconds that the target model took.
    other : float
        Seconds that all other parts of the loop took, such as sampling drafts and verification.

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
        """Sum of `draft`, `target` and `other`, in seconds."""
        return self.draft + self.target + self.other


@dataclass(frozen=True)
class Step(ShortRepr):
    """One call of the target model, for one sequence.

    Attributes
    ----------
    sequence : int
        Index of the prompt.
    call : int
        Number of the step of the batch, from 0.
    position : int
        Number of tokens before the step, including the prompt.
    gamma : int
        Maximum number of drafts in a path, as the policy chose it.  Near the maximum length, paths
        can be shorter than `gamma`; without a drafter, there are no drafts.
    drafts : tuple of tuple of int
        The draft paths; a path that was drawn twice appears twice.
    output : tuple of int
        Tokens that the step adds.
    accepted : int
        Number of output tokens that were drafts.  The token after the accepted drafts was not
        drafted; it is missing if the output ends before it.
    finish_reason : "eos", "length", "stop" or None
        Why the sequence ended; None if it continues.
    seconds : Seconds
        Time of the step of the whole batch.
    probs : tuple of float or Fraction, or None
        The target's probability of each output token, given the tokens before it; None without the
        option `log_probs`.

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
    probs: tuple[Number, ...] | None = None

    @property
    def drafted(self) -> int:
        """Length of the longest draft path, in tokens."""
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
class Generation(FactsRepr):
    """Result of decoding a batch of prompts.

    Attributes
    ----------
    prompts : tuple of tuple of int
        The prompts of the batch.
    steps : tuple of Step
        All steps in chronological order.

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
        """New tokens of each sequence, without the prompt."""
        tokens: list[list[int]] = [[] for _ in self.prompts]
        for step in self.steps:
            tokens[step.sequence].extend(step.output)
        return tuple(map(tuple, tokens))

    @cached_property
    def log_probs(self) -> tuple[tuple[float, ...], ...] | None:
        """Log-probability of each new token under the target, as sampled: with its parameters.

        Lossless rules sample each token from this distribution, given the tokens before it, for any
        drafts.  Lossy rules do not, so their tokens are not samples of it.  None without the option
        `log_probs`.
        """
        if any(step.probs is None for step in self.steps):
            return None
        found: list[list[float]] = [[] for _ in self.prompts]
        for step in self.steps:
            found[step.sequence].extend(map(_log, step.probs or ()))
        return tuple(map(tuple, found))

    @property
    def finish_reasons(self) -> tuple[FinishReason | None, ...]:
        """Why each sequence ended; None for sequences that did not end."""
        last = {step.sequence: step.finish_reason for step in self.steps}
        return tuple(last.get(b) for b in range(len(self.prompts)))

    @property
    def tokens(self) -> int:
        """Number of new tokens."""
        return sum(len(step.output) for step in self.steps)

    @property
    def block_efficiency(self) -> float:
        """Mean number of new tokens per step of a sequence, that is, per call of the target model.

        The mean lies between 1 and γ + 1 ([sun2023]_, section 7), unless the end of a sequence cuts
        steps short.  NaN if there are no steps.

        References
        ----------
        .. [sun2023] Sun et al., "SpecTr: Fast Speculative Decoding via Optimal Transport",
           NeurIPS 2023.
        """
        return self.tokens / len(self.steps) if self.steps else float("nan")

    @property
    def acceptance_rate(self) -> float:
        """Fraction of the individually verified drafts that were accepted: an estimate of α.

        If single chains were verified draft by draft, the rate estimates the acceptance probability
        α of [leviathan2023]_, section 3.1.  NaN if there were no drafts.

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
        """Seconds of all steps, by part of the loop."""
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
            The steps of the sequence in chronological order; empty if there is no such prompt.
        """
        return [step for step in self.steps if step.sequence == sequence]


def _log(probability: Number) -> float:
    """Return a logarithm; −∞ for a token that a lossy rule emitted although it is impossible."""
    if not probability:
        return -math.inf
    if isinstance(probability, Fraction):
        # integers of any size have a logarithm, but may not fit a float
        return math.log(probability.numerator) - math.log(probability.denominator)
    return math.log(probability)
