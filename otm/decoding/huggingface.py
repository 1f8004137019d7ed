"""The `generate` method of Hugging Face transformers, with the drafts and verifiers of OTM.

transformers prepares the call as ever: prompts, padding, sampling parameters, stopping criteria.
What cannot be honoured is refused.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from otm.coupling.rules import Rule
from otm.decoding.branching import Branching
from otm.decoding.drafting import ModelDrafter
from otm.decoding.generate import verifier_of
from otm.decoding.huggingface_arguments import (
    as_endings,
    as_output,
    as_prompts,
    as_sampling,
    as_sources,
    check_config,
    seed_from_torch,
)
from otm.decoding.loop import stream
from otm.decoding.models.huggingface import HuggingFaceModel, check_same_vocabulary
from otm.decoding.policies import GammaPolicy
from otm.decoding.trace import Generation, Step
from otm.errors import InvalidInputError, InvalidParameterError

__all__ = ["AssistedDecoding", "plug"]


class AssistedDecoding:
    """A decoding loop for `generate` of transformers, given to it as `custom_generate`.

    The output is that of `generate` without an assistant: token for token if `do_sample` is false,
    up to ties that rounding decides, and otherwise in law.  Seeds come from `torch.manual_seed`.

    Parameters
    ----------
    assistant : PreTrainedModel
        The draft model.
    k : int or tuple of int, optional
        Number of chains of drafts, or the numbers of children at the levels of a prefix tree; with
        one chain and the rule "k-Seq" this is speculative sampling as transformers knows it.
    gamma : int or GammaPolicy, optional
        Length of the chains, or depth of the tree.
    rule : str or callable, optional
        As for `otm.decoding.spectr`.
    vocabulary : int, optional
        Number of tokens, if the two models pad it to different sizes.
    streamer : BaseStreamer, optional
        Where to put tokens as soon as they are known; for one prompt.

    Attributes
    ----------
    generation : Generation or None
        All steps of the last call, such as for its `block_efficiency`.

    Notes
    -----
    Sampling parameters are `temperature`, `top_k`, `top_p` and `min_p`, and act on the assistant
    too.  Beams, penalties and all other processors of logits are refused, and so are scores and
    hidden states as output.  Stopping criteria see one sequence at a time, after each token.
    `generate` does not pass on a streamer, a tokenizer, or an `assistant_model`; `plug` does.

    Examples
    --------
    ::

        decoding = AssistedDecoding(draft, k=8, gamma=5)
        target.generate(**inputs, custom_generate=decoding, do_sample=True, max_new_tokens=100)
        decoding.generation.block_efficiency
    """

    def __init__(
        self,
        assistant: Any,
        *,
        k: Branching = 8,
        gamma: int | GammaPolicy = 5,
        rule: str | Rule = "k-Seq",
        vocabulary: int | None = None,
        streamer: Any = None,
    ) -> None:
        self.assistant = assistant
        self.k = k
        self.gamma = gamma
        self.verifier = verifier_of(rule)
        self.vocabulary = vocabulary
        self.streamer = streamer
        self.generation: Generation | None = None

    def __call__(
        self,
        model: Any,
        input_ids: Any,
        *,
        logits_processor: Sequence[Any],
        stopping_criteria: Sequence[Any],
        generation_config: Any,
        inputs_tensor: Any = None,
        **model_kwargs: Any,
    ) -> Any:
        """Decode; called by `generate`, which gives what it has prepared.

        Returns
        -------
        LongTensor [B, L], or ModelOutput
            Prompts and new tokens, padded behind the shorter ones.

        Raises
        ------
        InvalidInputError, InvalidParameterError
            If something of the call cannot be honoured.
        """
        check_config(generation_config)
        prompts = as_prompts(model, input_ids, model_kwargs)
        if self.streamer is not None and len(prompts) > 1:
            raise InvalidInputError(
                f"a streamer for {len(prompts)} sequences, which do not grow alike; stream one"
            )
        sources = as_sources(model, self.assistant, input_ids, inputs_tensor, model_kwargs)
        target, draft = (
            HuggingFaceModel(
                each,
                vocabulary=self.vocabulary,
                source=source,
                cache=generation_config.use_cache is not False,
            )
            for each, source in zip((model, self.assistant), sources, strict=True)
        )
        check_same_vocabulary(target, draft)
        sampling = as_sampling(generation_config, logits_processor)
        limit, end, others = as_endings(stopping_criteria)
        steps = stream(
            target,
            prompts,
            ModelDrafter(draft, self.k, sampling),
            self.verifier,
            gamma=self.gamma,
            sampling=sampling,
            max_tokens=limit - input_ids.shape[1],
            end=end,
            seed=seed_from_torch() if generation_config.do_sample else 0,
        )
        new = self._collect(steps, prompts, input_ids, others)
        return as_output(model, input_ids, new, generation_config)

    def _collect(
        self,
        steps: Iterator[Step],
        prompts: Sequence[Sequence[int]],
        input_ids: Any,
        criteria: Sequence[Any],
    ) -> list[list[int]]:
        """Gather the new tokens of each sequence, up to where a criterion stops it."""
        import torch

        if self.streamer is not None:
            self.streamer.put(input_ids.cpu())
        new: list[list[int]] = [[] for _ in prompts]
        stopped = [False] * len(prompts)
        made: list[Step] = []
        for step in steps:
            made.append(step)
            b = step.sequence
            for token in step.output if not stopped[b] else ():
                new[b].append(token)
                if self.streamer is not None:
                    self.streamer.put(torch.tensor([token]))
                if criteria:
                    tokens = torch.tensor([new[b]], device=input_ids.device)
                    so_far = torch.cat([input_ids[b : b + 1], tokens], dim=1)
                    stopped[b] = any(bool(stop(so_far, None)) for stop in criteria)
                if stopped[b]:
                    break
            if all(stopped):
                break
        if self.streamer is not None:
            self.streamer.end()
        self.generation = Generation(tuple(map(tuple, prompts)), tuple(made))
        return new


@contextmanager
def plug(model: Any, assistant: Any = None, **options: Any) -> Iterator[Any]:
    """Let calls of ``model.generate(...)`` with an assistant run on OTM, also within other code.

    Parameters
    ----------
    model : PreTrainedModel
        The target model.
    assistant : PreTrainedModel, optional
        The draft model of calls that have no `assistant_model`; without one these stay as they are.
    **options
        Of `AssistedDecoding`.

    Yields
    ------
    PreTrainedModel
        The model, whose `generate` is its own again afterwards.

    Raises
    ------
    InvalidInputError, InvalidParameterError
        In a call, as for `AssistedDecoding`.

    Examples
    --------
    ::

        with plug(target, k=8, gamma=5):
            target.generate(**inputs, assistant_model=draft, do_sample=True, max_new_tokens=100)
    """
    original = model.generate

    @functools.wraps(original)
    def generate(*args: Any, **kwargs: Any) -> Any:
        drafting = kwargs.get("assistant_model")
        drafting = assistant if drafting is None else drafting
        if drafting is None:
            return original(*args, **kwargs)
        for name in "custom_generate", "assistant_tokenizer", "synced_gpus":
            if kwargs.get(name):
                raise InvalidParameterError(f"{name} cannot be given to a model that is plugged")
        kwargs.pop("assistant_model", None)
        decoding = AssistedDecoding(drafting, streamer=kwargs.pop("streamer", None), **options)
        return original(*args, custom_generate=decoding, **_with_stop_strings(kwargs))

    model.generate = generate
    try:
        yield model
    finally:
        del model.generate


def _with_stop_strings(kwargs: dict[str, Any]) -> dict[str, Any]:
    """Turn strings into a criterion, since `generate` loses the tokenizer with its own loops."""
    tokenizer, strings = kwargs.pop("tokenizer", None), kwargs.get("stop_strings")
    if tokenizer is None or strings is None:
        return kwargs
    from transformers import StoppingCriteriaList, StopStringCriteria

    criterion = StopStringCriteria(stop_strings=kwargs.pop("stop_strings"), tokenizer=tokenizer)
    given = kwargs.get("stopping_criteria") or []
    return kwargs | {"stopping_criteria": StoppingCriteriaList([*given, criterion])}
