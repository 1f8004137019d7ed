"""The loop: draft, let the target read the drafts, verify them, go on after the output."""

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
from otm.decoding.checks import as_device_backend, as_end, as_sources, check_options, check_task
from otm.decoding.draft_tree import Randomness
from otm.decoding.drafters.base import Drafter
from otm.decoding.policies import GammaPolicy, as_gamma, as_policy
from otm.decoding.reading import Context, LogitsProcessor, Path
from otm.decoding.rounds import AnyVerifier, Batch, Rounds, RoundsTask, maker_of_rounds
from otm.decoding.sampling_parameters import SamplingParameters
from otm.decoding.trace import FinishReason, Seconds, Step
from otm.models.base import LanguageModel

Prompts = Sequence[Sequence[int]]
LONGEST_HISTORY = 256
"""Most steps of a sequence that a policy for γ sees, the last ones."""


class DecodingOptions(TypedDict, total=False):
    """What every way of decoding takes; all of it may be left out.

    Attributes
    ----------
    sampling : SamplingParameters
        How to sample from the target model; if left out, as the model says.
    logits_processor : LogitsProcessor
        Called with token ids [M, L], scores [M, V] of the tokens that follow, and the number [M] of
        the prompt of each row; returns the scores that are sampled from (`sampling` comes after
        it).  Ids and scores are tensors on the model's device if it has one; scores may be changed
        in place.  It must be a function of each row alone.
    max_tokens : int
        Most new tokens of a sequence, at least 1; 64 if left out.
    eos_token_id : int or collection of int
        Tokens that end a sequence; they are output.
    stop : callable
        Called with the new tokens of a sequence after each of them; true ends the sequence there.
    seed : int
        Seed of the randomness.  Sequence b draws from child b of the seed alone, so that it does
        not depend on what else is in the batch.
    uniforms : sequence of Randomness
        In place of a seed, a source of uniforms for each sequence, such as `rng.random`.
    backend : {"auto", "torch", "triton"}
        Backend of verification on a device, as for `otm.kernels.verify_probs`.

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


def stream(
    target: LanguageModel,
    prompts: Prompts,
    drafter: Drafter | None = None,
    verifier: AnyVerifier | None = None,
    *,
    gamma: int | GammaPolicy = 5,
    **options: Unpack[DecodingOptions],
) -> Iterator[Step]:
    """Decode with any drafter and verifier, and yield each step as soon as it is made.

    Parameters
    ----------
    target : LanguageModel
        The model to sample from.
    prompts : sequence of sequences of int
        Tokens to go on from, at least one in each; a single prompt is given as [prompt].
    drafter : Drafter, optional
        What drafts; without one the target decodes alone.
    verifier : Verifier or RoundsVerifier, optional
        A function such as `verify_chain`, the default, or a verifier that makes its own rounds:
        `DeviceVerifier`, `GreedyBlockVerifier`, `otm.coupled.CoupledVerifier` or
        `otm.coupled.WatermarkVerifier`.
    gamma : int or GammaPolicy, optional
        Most drafts γ of a path.
    **options
        See `DecodingOptions`.

    Yields
    ------
    Step
        One for each sequence that is not finished, in the order of the prompts, again and again.

    Raises
    ------
    InvalidInputError
        If the drafter is none, a prompt is empty or holds no tokens, a model cannot take prompt and
        new tokens, or the vocabularies differ.
    InvalidParameterError
        If γ or an option is outside its range.
    InvalidDistributionError
        While decoding, if a model returns too few logits, or such that give no distribution.
    InvalidDraftsError
        While decoding, if a drafter returns no such trees, or drafts that it cannot have drawn.
    InvalidUniformsError
        While decoding, if a source of uniforms returns something else than m uniforms.

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
    given, limit = check_task(target, drafter, prompts, options.get("max_tokens", 64))
    end = as_end(options.get("eos_token_id"), target.vocabulary)
    sources = as_sources(options.get("seed"), options.get("uniforms"), len(given))
    task = RoundsTask(
        target,
        drafter,
        options.get("sampling"),
        options.get("logits_processor"),
        len(given),
        backend,
    )
    make_rounds = maker_of_rounds(verifier)
    rounds = make_rounds(task)
    loop = _Loop(rounds, as_policy(gamma), limit, end, options.get("stop"))
    return loop.steps(given, sources)


@dataclass(frozen=True)
class _Loop:
    """All that the steps of one batch share."""

    rounds: Rounds
    policy: GammaPolicy
    limit: int
    end: frozenset[int]
    stop: Callable[[Sequence[int]], bool] | None

    def steps(self, prompts: Sequence[Context], sources: Sequence[Randomness]) -> Iterator[Step]:
        """Step with all sequences that are not finished, until all are."""
        new: list[Path] = [()] * len(prompts)
        history: list[deque[Step]] = [deque(maxlen=LONGEST_HISTORY) for _ in prompts]
        running = list(range(len(prompts)))
        parents: list[int] | None = None
        inference = in_inference_mode()  # what models keep can be changed in one mode alone
        for call in itertools.count():
            begun = self.clock()
            contexts = [prompts[b] + new[b] for b in running]
            gammas = [as_gamma(self.policy(history[b])) for b in running]
            left = [self.limit - len(new[b]) - 1 for b in running]
            depths = list(map(min, gammas, left))
            batch = Batch(contexts, depths, parents, [sources[b] for b in running])
            with inference_mode(inference):
                outcomes = self.rounds.step(batch)
            total, draft, target = (self.clock() - begun).tolist()
            seconds = Seconds(draft, target, total - draft - target)
            going = []
            for i, b in enumerate(running):
                drafts, verified = outcomes[i]
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
                )
                new[b] += output
                history[b].append(step if self.rounds.draws_afresh else _seen(step))
                if finish_reason is None:
                    going.append(i)
                yield step
            parents = going
            running = [running[i] for i in going]
            if not running:
                return

    def clock(self) -> npt.NDArray[np.float64]:
        """Seconds until now: in all, of the drafter, of the target."""
        return np.array([time.perf_counter(), *self.rounds.seconds])

    def cut(self, before: Path, output: Path) -> tuple[Path, FinishReason | None]:
        """Cut the output after new tokens off at the first ending, and say which it is."""
        for i, token in enumerate(output, start=1):
            if token in self.end:
                return output[:i], "eos"
            if self.stop is not None and self.stop((*before, *output[:i])):
                return output[:i], "stop"
            if len(before) + i == self.limit:
                return output[:i], "length"
        return output, None


def _seen(step: Step) -> Step:
    """Leave out the drafts that were not reached, which a policy must not know.

    Their random numbers are read again: a γ that follows from them would change the distribution.
    """
    return replace(step, drafts=tuple(path[: step.accepted + 1] for path in step.drafts))
