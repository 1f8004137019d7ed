"""``otm decode`` with a Hugging Face model: its text appears while drafts are accepted."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

from otm.decoding import (
    Drafter,
    Generation,
    ModelDrafter,
    PromptLookup,
    SamplingParameters,
    Step,
)
from otm.decoding.loop import stream
from otm.decoding.rendering import ACCEPTED
from otm.decoding.verifiers.by_rule import RuleVerifier
from otm.errors import InvalidInputError
from otm.models import HuggingFaceModel
from otm.models.huggingface.chat import chat_tokens, end_tokens, uses_template
from otm.models.huggingface.loading import load_one, load_pair
from otm.rules import RULES

MESSAGE, TEXT = "Write a short story about a lighthouse keeper.", "And it came to pass"
"""Default prompt with and without a chat template."""

PLAIN, WARM_UP = "without drafts", 4


class Loaded(NamedTuple):
    """A target with its tokenizer, the tokens of the prompt, and a draft model, if there is one."""

    target: HuggingFaceModel
    draft: HuggingFaceModel | None
    tokenizer: Any
    prompt: list[int]
    chat: bool

    def text_of(self, tokens: Sequence[int]) -> str:
        """Return text without special tokens, and without characters that control a terminal."""
        # a cleaned text may change before its end
        text = self.tokenizer.decode(
            list(tokens), skip_special_tokens=True, clean_up_tokenization_spaces=False
        )
        return "".join(c if c.isprintable() or c in "\n\t" else "\ufffd" for c in text)


def load_models(
    target: str, draft: str | None, prompt: str | None, *, chat: bool | None, dtype: str | None
) -> Loaded:
    """Load the models, and say on standard error how far this is."""
    begin = time.perf_counter()
    _tell(f"Loading {target}" + (f" and {draft}" if draft else "") + " …")
    if draft is None:
        tokenizer, model = load_one(target, "the target model", dtype)
        models = [HuggingFaceModel(model, tokenizer=tokenizer)]
    else:
        pair = load_pair(draft, target, dtype=dtype)
        tokenizer = pair.tokenizer
        models = [
            HuggingFaceModel(each, vocabulary=pair.vocabulary) for each in (pair.target, pair.draft)
        ]
    _tell(f"Loaded in {time.perf_counter() - begin:.1f} s")
    in_template = uses_template(tokenizer, chat)
    default = MESSAGE if in_template else TEXT
    message = default if prompt is None else prompt
    tokens = chat_tokens(tokenizer, message) if in_template else list(tokenizer(message).input_ids)
    if not message or not tokens:
        raise InvalidInputError("the prompt is empty; give a text by --prompt")
    return Loaded(models[0], models[1] if draft else None, tokenizer, tokens, in_template)


def demonstrate(
    loaded: Loaded,
    *,
    gamma: int,
    max_tokens: int,
    sampling: SamplingParameters,
    seed: int,
    show: bool,
    colour: bool,
) -> dict[str, Generation]:
    """Decode the prompt without and with drafts; print the text of each method as it grows."""
    ends = end_tokens(loaded.target.model, loaded.tokenizer)

    def steps_of(drafter: Drafter | None, limit: int) -> Iterator[Step]:
        rule = "block" if isinstance(drafter, ModelDrafter) else "chain"
        return stream(
            loaded.target,
            [loaded.prompt],
            drafter,
            RuleVerifier(RULES[rule]),
            gamma=0 if drafter is None else gamma,
            sampling=sampling,
            max_tokens=limit,
            eos_token_id=ends,
            seed=seed,
        )

    def drafter_of(name: str) -> Drafter | None:
        if name == PLAIN:
            return None
        if loaded.draft is None:
            return PromptLookup()
        return ModelDrafter(loaded.draft, 1, sampling)

    drafts = "prompt lookup" if loaded.draft is None else "block verification of a draft model"
    generations = {}
    for name in (PLAIN, drafts):
        # a short run warms up the models, and raises errors before the text
        list(steps_of(drafter_of(name), min(WARM_UP, max_tokens)))
        steps = steps_of(drafter_of(name), max_tokens)
        if show:
            print(f"\n{name}\n", flush=True)
            steps = print_steps(steps, loaded.text_of, colour=colour)
        generations[name] = Generation((tuple(loaded.prompt),), tuple(steps))
        if show:
            print(f"\n\n{summary_line(generations[name])}", flush=True)
    return generations


def print_steps(
    steps: Iterator[Step], text_of: Callable[[Sequence[int]], str], *, colour: bool
) -> Iterator[Step]:
    """Print the text of each step when it is complete, and pass the step on.

    Accepted drafts are green. A character of several tokens appears with its last token.
    """
    tokens: list[int] = []
    shown = 0
    for step in steps:
        for drafted, part in (
            (True, step.output[: step.accepted]),
            (False, step.output[step.accepted :]),
        ):
            tokens += part
            text = text_of(tokens).rstrip("\ufffd")
            new, shown = text[shown:], max(shown, len(text))
            marked = colour and drafted and new
            print(f"\x1b[{ACCEPTED.colour}m{new}\x1b[0m" if marked else new, end="", flush=True)
        yield step


def summary_line(generation: Generation) -> str:
    """Write the numbers of a method: tokens, time, tokens a step and tokens per second."""
    seconds = generation.seconds.total
    return (
        f"{generation.tokens} tokens in {seconds:.1f} s: {generation.block_efficiency:.2f} tokens "
        f"a step, {generation.tokens / seconds:.1f} tokens per second"
    )


def _tell(line: str) -> None:
    print(line, file=sys.stderr, flush=True)
