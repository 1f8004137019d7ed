"""The decoding loop: draft, score the drafts with the target, verify them, append the output."""

from __future__ import annotations

import itertools
import time
from collections import deque
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TypedDict, Unpack

import numpy as np
import numpy.typing as npt

from otm._core.tensors import in_inference_mode, inference_mode
from otm.decoding.checks import (
    as_device_backend,
    as_end,
    as_flag,
    as_sources,
    check_options,
    check_task,
)
from otm.decoding.draft_tree import Randomness
from otm.decoding.drafters.base import Drafter
from otm.decoding.policies import GammaPolicy, as_gamma, as_policy
from otm.decoding.reading import Context, LogitsProcessor, Path
from otm.decoding.rounds import AnyVerifier, Batch, Rounds, RoundsTask, rounds_factory
from otm.decoding.sampling_parameters import SamplingParameters
from otm.decoding.trace import FinishReason, Seconds, Step
from otm.models.base import LanguageModel

Prompts = Sequence[Sequence[int]]
LONGEST_HISTORY = 256
"""Maximum number of last steps of a sequence that a policy for γ receives."""


class DecodingOptions(TypedDict, total=False):
    """Options that all decoding functions share; every option is optional.

    Attributes
    ----------
    sampling : SamplingParameters
        How to sample from the target model; by default from its unchanged distribution.
    logits_processor : LogitsProcessor
        Function that adjusts scores before `sampling` applies.  Its arguments are token ids [M, L],
        scores [M, V] of the next tokens, and the prompt index [M] of each row.  The function
        returns the adjusted scores.  Ids and scores are tensors on the model's device if the model
        has one.  The function may change the scores in place.  Each row of its result must depend
        only on the same row of the arguments.
    max_tokens : int
        Maximum number of new tokens of a sequence, at least 1; 64 by default.
    eos_token_id : int or collection of int
        Tokens that end a sequence; the output includes them.
    stop : callable
        Function that receives the new tokens of a sequence after each new token; a true result
        ends the sequence.
    seed : int
        Seed of the random numbers.  Sequence b uses child b of the seed only, so its random
        numbers do not depend on the other sequences of the batch.
    uniforms : sequence of Randomness
        Sources of uniforms that replace the seed, one per sequence, such as `rng.random`.
    backend : {"auto", "torch", "triton"}
        Backend for verification on a device, as for `otm.kernels.verify_probs`.
    log_probs : bool
        Whether to store the target's probability of each new token in its step, for
        `Generation.log_probs`.  The target reads no token twice for it.

    Examples
    --------
    >>> from otm.decoding import autoregressive
    >>> from otm.models import TableModel
    >>> options = DecodingOptions(max_tokens=3, seed=0)
    >>> len(autoregressive(TableModel({(): [0.5, 0.5]}), [[0]], **options).sequences[0])
    3
    """

    sampling: SamplingParameters
    logits_processor: LogitsProcessor | None
    max_tokens: int
    eos_token_id: int | Collection[int] | None
    stop: Callable[[Sequence[int]], bool] | None
    seed: int | None
    uniforms: Sequence[Randomness] | None
    backend: str
    log_probs: bool


def stream(
    target: LanguageModel,
    prompts: Prompts,
    drafter: Drafter | None = None,
    verifier: AnyVerifier | None = None,
    *,
    gamma: int | GammaPolicy = 5,
    **options: Unpack[DecodingOptions],
) -> Iterator[Step]:
    """Decode with any drafter and verifier, and yield each step when it is complete.

    Parameters
    ----------
    target : LanguageModel
        The model to sample from.
    prompts : sequence of sequences of int
        Tokens to continue, at least one per prompt; a single prompt is passed as [prompt].
    drafter : Drafter, optional
        The drafter; without a drafter, the target decodes alone.
    verifier : Verifier or RoundsVerifier, optional
        A function such as `verify_chain`, the default, or a verifier with its own implementation
        of a step: `DeviceVerifier`, `GreedyBlockVerifier`, `otm.coupled.CoupledVerifier` or
        `otm.coupled.WatermarkVerifier`.
    gamma : int or GammaPolicy, optional
        Maximum number γ of drafts in a path.
    **options
        See `DecodingOptions`.

    Yields
    ------
    Step
        In each iteration, one step for each unfinished sequence, in the order of the prompts.

    Raises
    ------
    InvalidInputError
        If `drafter` is not a drafter, a prompt is empty or does not contain tokens, the prompt and
        the new tokens exceed the context length of a model, or the vocabularies differ.
    InvalidParameterError
        If γ or an option is outside its range.
    InvalidDistributionError
        While decoding, if a model returns too few logits, or logits without a distribution.
    InvalidDraftsError
        While decoding, if a drafter returns invalid trees, or drafts that it cannot have drawn.
    InvalidUniformsError
        While decoding, if a source of uniforms does not return m uniforms.

    Examples
    --------
    >>> from otm.decoding.drafters.model import ModelDrafter
    >>> from otm.models import TableModel
    >>> target, draft = TableModel({(): [0.5, 0.5]}), TableModel({(): [0.75, 0.25]})
    >>> for step in stream(target, [[0]], ModelDrafter(draft), gamma=2, max_tokens=5, seed=3):
    ...     print(step.drafts, "->", step.output)
    ((0, 0),) -> (1,)
    ((0, 0),) -> (0, 1)
    ((1,),) -> (1, 0)
    """
    check_options(options, DecodingOptions.__annotations__)
    backend = as_device_backend(options.get("backend", "auto"))
    checked_prompts, limit = check_task(target, drafter, prompts, options.get("max_tokens", 64))
    end = as_end(options.get("eos_token_id"), target.vocabulary)
    sources = as_sources(options.get("seed"), options.get("uniforms"), len(checked_prompts))
    task = RoundsTask(
        target,
        drafter,
        options.get("sampling"),
        options.get("logits_processor"),
        len(checked_prompts),
        backend,
        as_flag(options.get("log_probs", False), "log_probs"),
    )
    make_rounds = rounds_factory(verifier)
    rounds = make_rounds(task)
    loop = _Loop(rounds, as_policy(gamma), limit, end, options.get("stop"))
    return loop.steps(checked_prompts, sources)


@dataclass(frozen=True)
class _Loop:
    """State that all steps of one batch share."""

    rounds: Rounds
    policy: GammaPolicy
    limit: int
    end: frozenset[int]
    stop: Callable[[Sequence[int]], bool] | None

    def steps(self, prompts: Sequence[Context], sources: Sequence[Randomness]) -> Iterator[Step]:
        """Yield steps of all unfinished sequences until every sequence is finished."""
        new: list[Path] = [()] * len(prompts)
        history: list[deque[Step]] = [deque(maxlen=LONGEST_HISTORY) for _ in prompts]
        running = list(range(len(prompts)))
        parents: list[int] | None = None
        # PyTorch forbids changes to a cache outside the inference mode that created it.
        inference = in_inference_mode()
        for call in itertools.count():
            start = self.clock()
            contexts = [prompts[b] + new[b] for b in running]
            gammas = [as_gamma(self.policy(history[b])) for b in running]
            remaining = [self.limit - len(new[b]) - 1 for b in running]
            depths = list(map(min, gammas, remaining))
            batch = Batch(contexts, depths, parents, [sources[b] for b in running])
            with inference_mode(inference):
                outcomes = self.rounds.step(batch)
            total, draft, target = (self.clock() - start).tolist()
            seconds = Seconds(draft, target, total - draft - target)
            unfinished = []
            for i, b in enumerate(running):
                drafts, verified, probs = outcomes[i]
                output, finish_reason = self.cut(new[b], verified)
                step = Step(
                    sequence=b,
                    call=call,
                    position=len(contexts[i]),
                    gamma=gammas[i],
                    drafts=drafts,
                    output=output,
                    accepted=min(len(verified) - 1, len(output)),
                    finish_reason=finish_reason,
                    seconds=seconds,
                    probs=None if probs is None else probs[: len(output)],
                )
                new[b] += output
                history[b].append(
                    step if self.rounds.steps_are_independent else _without_unreached_drafts(step)
                )
                if finish_reason is None:
                    unfinished.append(i)
                yield step
            parents = unfinished
            running = [running[i] for i in unfinished]
            if not running:
                return

    def clock(self) -> npt.NDArray[np.float64]:
        """Return in seconds the time now, and the times spent in drafter and target: array [3]."""
        return np.array([time.perf_counter(), *self.rounds.seconds])

    def cut(self, before: Path, output: Path) -> tuple[Path, FinishReason | None]:
        """Return the output up to the first token that ends the sequence, and the finish reason."""
        for i, token in enumerate(output, start=1):
            if token in self.end:
                return output[:i], "eos"
            if self.stop is not None and self.stop((*before, *output[:i])):
                return output[:i], "stop"
            if len(before) + i == self.limit:
                return output[:i], "length"
        return output, None


def _without_unreached_drafts(step: Step) -> Step:
    """Remove the drafts that verification did not reach, because a policy must not know them.

    Later steps read the same random numbers again; a γ that depends on these numbers would change
    the output's distribution.
    """
    return replace(step, drafts=tuple(path[: step.accepted + 1] for path in step.drafts))
