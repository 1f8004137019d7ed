"""Answers of the target to prompts in its chat template, for a report on an instruct model."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from otm._core.display.progress import watching
from otm.decoding.generate import autoregressive
from otm.decoding.sampling_parameters import SamplingParameters
from otm.gain.reports.score_files import Ints
from otm.models.huggingface.chat import chat_tokens, end_tokens
from otm.models.huggingface.loading import LoadedPair
from otm.models.huggingface.model import HuggingFaceModel

TOGETHER = 8
"""Number of prompts that the target answers together."""


def answer_prompts(
    pair: LoadedPair,
    messages: Sequence[str],
    longest: int,
    sampling: SamplingParameters,
    seed: int,
) -> tuple[list[Ints], list[int]]:
    """Sample the target's answers; return prompts with answers, and the sizes of the prompts.

    An answer ends with an end token or after `longest` tokens. Its tokens depend on the seed and on
    the place of its message.
    """
    target = HuggingFaceModel(pair.target, vocabulary=pair.vocabulary)
    prompts = [chat_tokens(pair.tokenizer, message) for message in messages]
    ends = end_tokens(pair.target, pair.tokenizer)
    seeds = np.random.SeedSequence(seed).generate_state(len(prompts)).tolist()
    windows: list[Ints] = []
    with watching(None, "answers") as watch:
        for start in range(0, len(prompts), TOGETHER):
            some = prompts[start : start + TOGETHER]
            watch.tell("prompt", start + len(some), len(prompts))
            generation = autoregressive(
                target,
                some,
                sampling=sampling,
                max_tokens=longest,
                eos_token_id=ends,
                seed=seeds[start],
            )
            for prompt, answer in zip(some, generation.sequences, strict=True):
                windows.append(np.array([*prompt, *answer], dtype=np.int64))
    return windows, [len(prompt) for prompt in prompts]
