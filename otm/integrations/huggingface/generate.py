"""The `generate` method of Hugging Face transformers, with the drafters and verifiers of OTM.

transformers prepares the call as usual: prompts, padding, sampling parameters, stopping criteria.
Arguments that are not supported raise an error.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

from otm._core.display.text import shown
from otm._core.files.paths import AnyPath
from otm.coupling.build import PlanBuilder
from otm.decoding.checks import as_device_backend
from otm.decoding.drafters.base import Branching
from otm.decoding.loop import stream
from otm.decoding.policies import GammaPolicy, as_policy
from otm.decoding.rounds import Rounds, RoundsTask
from otm.decoding.trace import Generation
from otm.errors import InvalidParameterError
from otm.integrations.huggingface import arguments
from otm.integrations.huggingface.drafting import Drafting
from otm.integrations.huggingface.filled_cache import ContinuedModel, as_past
from otm.integrations.huggingface.output import as_output
from otm.integrations.huggingface.processors import BatchProcessor, check_processors
from otm.integrations.huggingface.report_settings import Reported
from otm.integrations.huggingface.streaming import (
    arguments_of_generate,
    check_streamer,
    check_unused,
    streaming,
)
from otm.integrations.huggingface.vocabularies import OtherVocabulary, check_match


class AssistedDecoding:
    """A decoding loop for `generate` of transformers, passed as its argument `custom_generate`.

    With `do_sample=True`, the output has the same distribution as that of `generate` without an
    assistant.  With `do_sample=False`, the tokens are the same, up to ties that rounding decides.
    `torch.manual_seed` sets the seed.

    Parameters
    ----------
    assistant : PreTrainedModel, LanguageModel, Drafter or callable
        The source of the drafts.

        - A model of transformers or of `otm.models`, such as an `NGramModel`.  It drafts with the
          sampling parameters and logits processors of the call.
        - A drafter of `otm.decoding`, such as `PromptLookup`.  It drafts as it was created, so `k`,
          `nodes` and `tokenizers` raise an error.
        - A function from the target to a model or a drafter, for drafts that need the target.  Each
          call of `generate` calls the function once, with the target as `HuggingFaceModel`.
    k : int or tuple of int, optional
        For a model: the number of draft chains, or the number of children at each level of a prefix
        tree.  The default is 8 chains, or one chain if the rule or `match` needs this.  One chain
        with the rule "k-Seq" is the speculative sampling of transformers.
    gamma : int or GammaPolicy, optional
        Number of speculative tokens γ of a chain, or depth of the tree.
    rule : str or callable, optional
        As for `otm.decoding.spectr`, with the same default; with k = 1, also as for `speculative`.

        - On a GPU, chains of the default, of the grid rules and of "list coupling" are verified on
          the device, and so are trees of `nodes`, if there is no logits processor and the target
          reads trees (no sliding windows, attention by "sdpa" or "eager").
        - Everything else is verified on the host, which copies all scores to the host in each step.
          `verified_on` says where a call verified.
        - "list coupling" decodes as `otm.coupled.decode_coupled`, with one list per draft of a
          token; for a drafter, `k` is the number of lists.  With list coupling, the text of a seed
          is the same for every assistant and every γ, up to rounding of the scores.
    nodes : int, optional
        Draft budget of a step: draft likely paths as one tree instead of k chains.  With the rule
        "target-only", these are the most probable paths, as in EAGLE-2 and OPT-Tree
        (`BestFirstDrafter`).  With "walk and keep" and the default, a node may also draw a child
        (`DrawnTreeDrafter`), except at temperature 0.
    vocabulary : int, optional
        Number of tokens, if the models pad the vocabulary to different sizes.
    process_drafts : bool, optional
        Whether logits processors also apply to the draft model; otherwise fewer drafts are
        accepted.  Temperature, top-k, top-p and min-p always apply.
    streamer : BaseStreamer, optional
        Receives tokens when they are verified, for one prompt only.  The argument `streamer` of
        `generate` does the same for one call.
    tokenizers : tuple of two PreTrainedTokenizerBase, optional
        The target's tokenizer and the assistant's, if they differ.
    match : {"tokens", "strings"}, optional
        How an assistant with another tokenizer drafts.  "tokens" uses only tokens whose text is in
        both vocabularies (`IntersectionModel`).  "strings" uses any text (`StringDrafter`); it
        needs k = 1 and the rule "target-only", and accepts tokens while the target draws the same
        tokens.
    backend : {"auto", "torch", "triton"}, optional
        Kernels that verify on a GPU, as for `otm.kernels.verify_probs`.
    report : str or Path, optional
        A report of `otm report` about these models (`report.json`, or its folder).  If a call
        has other sampling parameters, a warning says that its acceptance and its tokens per step
        differ from the report.

    Raises
    ------
    InvalidParameterError
        If the assistant is not a source of drafts, a parameter is out of range, or two parameters
        exclude each other.
    InvalidInputError
        If the report is invalid, or `tokenizers` is not a pair of transformers tokenizers.
    InvalidDraftCountError
        If a number of chains or children is not an integer of at least 1.
    ProblemTooLargeError
        If the tree has more than 65,536 paths, or 4,096 nodes.
    UnknownMethodError
        If no rule for these drafts has the given name, or no backend has the given name.

    Attributes
    ----------
    generation : Generation or None
        All steps of the last call; its `block_efficiency` is the mean number of tokens per step.
    verified_on : {"host", "device"} or None
        Where the last call verified its drafts.

    Notes
    -----
    Supported arguments are all sampling parameters, logits processors that depend only on the
    tokens of a row (also custom ones), batches with padding on either side, and stopping criteria.
    Criteria receive one sequence at a time, after each token.  Scores and logits are available as
    output; they cost another pass of the target over the output.

    The target does not read tokens in `past_key_values` again, except for caches with layers other
    than `DynamicLayer`, such as sliding windows.  The assistant reads all tokens of the input.  The
    call does not change `past_key_values`, and its output contains no cache.

    These arguments raise an error:

    - beams;
    - processors that keep a state between calls (`guidance_scale`, SynthID), because rejected
      drafts would change the state;
    - drafts of transformers, such as `use_mtp`, and a second source of drafts, such as
      `prompt_lookup_num_tokens`, which `patch_generate` reads;
    - an assistant whose output layer transformers has pruned in place;
    - attentions and hidden states as output, and embeddings as input;
    - quantized caches;
    - tokens that are in `past_key_values` but not in the input, because the assistant must read
      them.

    For an encoder–decoder model, a drafter receives the tokens of the decoder only.

    `generate` passes no tokenizer or `assistant_model` to this class; `patch_generate` reads both.
    With `AssistedDecoding` and with `patch_generate`, a streamer receives the prompt, each token
    and the end, even after an error.

    A custom processor must have no state; OTM cannot check this, and a state would make the output
    wrong.  A custom processor receives B rows at a time, as in `generate`, so it runs more often
    than known processors.  Each call of a custom processor waits for the device, to exclude tokens
    after an end token.

    Examples
    --------
    ::

        decoding = AssistedDecoding(draft, k=8, gamma=5)
        target.generate(**inputs, custom_generate=decoding, do_sample=True, max_new_tokens=100)
        decoding.generation.block_efficiency

    Without a draft model, and with drafts of the most probable paths by the target itself::

        AssistedDecoding(PromptLookup(), gamma=10, rule="chain")
        AssistedDecoding(lambda target: BestFirstDrafter(target, 16), rule="target-only")
    """

    def __init__(
        self,
        assistant: Any,
        *,
        k: Branching | None = None,
        gamma: int | GammaPolicy = 5,
        rule: str | PlanBuilder | None = None,
        nodes: int | None = None,
        vocabulary: int | None = None,
        process_drafts: bool = True,
        streamer: Any = None,
        tokenizers: tuple[Any, Any] | None = None,
        match: str = "tokens",
        backend: str = "auto",
        report: AnyPath | None = None,
    ) -> None:
        check_match(match, rule, k, nodes)
        if tokenizers is None and match != "tokens":
            raise InvalidParameterError(
                f"match = {shown(match)} without tokenizers; pass tokenizers=(the target's, the "
                "assistant's)"
            )
        other = None if tokenizers is None else OtherVocabulary(tokenizers, match)
        self.assistant, self.rule, self.k = assistant, rule, k
        self.drafting = Drafting.of(assistant, rule, k, nodes, other)
        self.gamma = as_policy(gamma)
        self.vocabulary = vocabulary
        self.process_drafts = process_drafts
        check_streamer(streamer)
        self.streamer = streamer
        self.backend = as_device_backend(backend)
        self.reported = None if report is None else Reported.read(report)
        self.generation: Generation | None = None
        self.verified_on: str | None = None

    def __call__(
        self, model: Any, input_ids: Any, *, inputs_tensor: Any = None, **prepared: Any
    ) -> Any:
        """Decode; `generate` calls this method with its prepared arguments.

        Parameters
        ----------
        model : PreTrainedModel
            The target.
        input_ids : LongTensor [B, L]
            Prompts, padded on either side.
        inputs_tensor : Tensor, optional
            Input of an encoder.
        **prepared
            Logits processors, stopping criteria, the generation configuration, and arguments of
            the model.

        Returns
        -------
        LongTensor [B, L], or ModelOutput
            Prompts and new tokens; shorter rows are padded at the end.

        Raises
        ------
        InvalidInputError, InvalidParameterError
            If the call has an unsupported argument.
        """
        call_arguments = arguments_of_generate()
        with streaming(self.streamer, call_arguments.get("streamer"), input_ids) as put:
            check_unused(call_arguments, self.assistant)
            return self._decode(model, input_ids, put, inputs_tensor=inputs_tensor, **prepared)

    def rounds(self, task: RoundsTask) -> Rounds:
        """Return the object that runs the steps of a call, and note where it verifies.

        Parameters
        ----------
        task : RoundsTask
            The models and settings of a batch.

        Returns
        -------
        Rounds
            The object whose steps `stream` calls.
        """
        made = self.drafting.verifier.rounds(task)
        self.verified_on = made.place
        return made

    def _decode(
        self,
        model: Any,
        input_ids: Any,
        put: Callable[[Sequence[int]], None],
        *,
        logits_processor: Sequence[Any],
        stopping_criteria: Sequence[Any],
        generation_config: Any,
        inputs_tensor: Any,
        **model_kwargs: Any,
    ) -> Any:
        """Decode, and send new tokens to the streamers when they are verified."""
        import torch

        arguments.check_config(generation_config)
        check_processors(logits_processor)
        mask = arguments.as_mask(model, input_ids, model_kwargs, generation_config)
        prompts = [row[kept > 0].tolist() for row, kept in zip(input_ids, mask, strict=True)]
        source, of_assistant = arguments.as_sources(
            model, self.assistant, input_ids, inputs_tensor, model_kwargs
        )
        cached = generation_config.use_cache is not False
        target = ContinuedModel(model, vocabulary=self.vocabulary, source=source, cache=cached)
        size = self.vocabulary if self.drafting.other is None else None
        loaded = {"vocabulary": size, "source": of_assistant, "cache": cached}
        target.past = as_past(model, input_ids, mask, model_kwargs.get("past_key_values"))
        limit, end, others = arguments.as_endings(stopping_criteria)
        before, sampling = arguments.split_processors(generation_config, logits_processor)
        if self.reported is not None:
            self.reported.compare(sampling, len(before))
        processor = None
        if before:
            size = model.config.get_text_config(decoder=True).vocab_size
            processor = BatchProcessor(before, input_ids, prompts, end or (), size)
        turns = deque(range(len(prompts)))
        draft_processor = processor if self.process_drafts else None
        drafter = self.drafting.drafter(target, sampling, draft_processor, **loaded)
        steps = stream(
            target,
            prompts,
            drafter,
            self,
            gamma=self.gamma,
            sampling=sampling,
            logits_processor=processor,
            max_tokens=limit - input_ids.shape[1],
            eos_token_id=end,
            stop=_stop(others, input_ids, turns) if others else None,
            backend=self.backend,
            # `torch.manual_seed` determines this seed.
            seed=int(torch.randint(2**63 - 1, ())) if generation_config.do_sample else 0,
        )
        done = []
        for step in steps:
            done.append(step)
            turns.popleft()
            if step.finish_reason is None:
                turns.append(step.sequence)
            put(step.output)
        self.generation = Generation(tuple(map(tuple, prompts)), tuple(done))
        return as_output(
            target,
            input_ids,
            prompts,
            self.generation.sequences,
            processors=logits_processor,
            config=generation_config,
        )


def _stop(
    criteria: Sequence[Any], input_ids: Any, turns: Sequence[int]
) -> Callable[[Sequence[int]], bool]:
    """Return a stop function for the new tokens of the sequence whose turn it is.

    The loop visits its sequences in turn, and calls this function just before it yields the step of
    a sequence.
    """
    import torch

    def stop(new: Sequence[int]) -> bool:
        tokens = torch.tensor([new], device=input_ids.device)
        so_far = torch.cat([input_ids[turns[0]][None], tokens], dim=1)
        return any(bool(criterion(so_far, None)) for criterion in criteria)

    return stop
