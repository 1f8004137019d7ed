"""Two real models with different tokenizers: OTM against the assisted decoding of transformers.

    python -m benchmarks.real.two_tokenizers [--quick] [--save] [--tokens N]

SmolLM2 drafts for Gemma, and Gemma for SmolLM2, at temperature 0 and 1 on ten prompts.  The methods
take turns in one process.  OTM drafts by shared tokens and by strings; transformers drafts by
strings at temperature 0, and by shared tokens at temperature 1.
"""

import copy
import time
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from benchmarks.command import command, keep, options_of
from benchmarks.layout import RESULTS
from benchmarks.machine import machine
from otm.integrations.huggingface import AssistedDecoding
from otm.models import HuggingFaceModel, load

__all__ = ["two_tokenizers"]

GAMMA = 5
NAMES = "gemma-3-270m", "SmolLM2-135M"
COUNTS = {"chat": 3, "story": 3, "code": 2, "summary": 2}


class Run(NamedTuple):
    """New tokens, target steps and seconds of a method on one prompt, and the new tokens."""

    tokens: int
    steps: int
    seconds: float
    text: list[int]


def two_tokenizers(tokens: int, quick: bool = False) -> dict[str, Any]:
    """Measure tokens per step and tokens per second of each method, for both directions."""
    models = {name: load(name) for name in NAMES}
    prompts = frozen_prompts({"chat": 1} if quick else COUNTS)
    rows = []
    for target_name, draft_name in (NAMES, NAMES[::-1]):
        target, draft = models[target_name], models[draft_name]
        for temperature in (0.0, 1.0):
            methods = methods_of(target, draft, temperature)
            runs: dict[str, list[Run]] = {name: [] for name in methods}
            for number, prompt in enumerate(prompts):
                ids = text_of(target, prompt)
                # every prompt begins with another method
                order = [*methods][number % len(methods) :] + [*methods][: number % len(methods)]
                for name in order:
                    if not number:
                        methods[name](ids, 4, 0)
                    runs[name].append(methods[name](ids, tokens, number))
            for name, found in runs.items():
                row = {
                    "target": target_name,
                    "draft": draft_name,
                    "temperature": temperature,
                    "method": name,
                    "tokens per step": ratio(found, lambda run: run.tokens / run.steps),
                    "tokens per second": ratio(found, lambda run: run.tokens / run.seconds),
                    "same text as plain": None
                    if temperature
                    else sum(a.text == b.text for a, b in zip(found, runs["plain"], strict=True)),
                }
                rows.append(row)
                print(
                    f"{target_name} with {draft_name}, T {temperature:.0f}, {name:<24}"
                    f"{row['tokens per step']['mean']:.3f} tokens a step "
                    f"{row['tokens per second']['mean']:.2f} tokens/s "
                    f"same {row['same text as plain']}",
                    flush=True,
                )
    return {"gamma": GAMMA, "tokens": tokens, "prompts": len(prompts), "rows": rows}


def frozen_prompts(counts: dict[str, int] | None = None) -> list[str]:
    """Return the first prompts of some kinds, by default ten prompts of four kinds."""
    frozen = tomllib.loads((Path(__file__).parent / "prompts.toml").read_text(encoding="utf-8"))
    return [prompt for kind, count in (counts or COUNTS).items() for prompt in frozen[kind][:count]]


def ratio(runs: list[Run], of: Callable[[Run], float]) -> dict[str, Any]:
    """Return the mean over prompts of a number of each run, with its values."""
    values = [of(run) for run in runs]
    return {"mean": float(np.mean(values)), "values": values}


def text_of(target: HuggingFaceModel, prompt: str) -> Any:
    """Return the prompt as a tensor of tokens, through the chat template if there is one."""
    if target.tokenizer.chat_template is None:
        return target.tokenizer(prompt, return_tensors="pt").input_ids
    message = [{"role": "user", "content": prompt}]
    made = target.tokenizer.apply_chat_template(
        message, add_generation_prompt=True, return_dict=True, return_tensors="pt"
    )
    return made["input_ids"]


def methods_of(
    target: HuggingFaceModel, draft: HuggingFaceModel, temperature: float
) -> dict[str, Callable[[Any, int, int], Run]]:
    """Return a function of prompt, number of new tokens and seed for every method."""
    import torch

    tokenizers = target.tokenizer, draft.tokenizer
    # transformers prunes the output layer of its assistant in place
    assistant = copy.deepcopy(draft.model)
    assistant.generation_config.num_assistant_tokens = GAMMA
    assistant.generation_config.num_assistant_tokens_schedule = "constant"
    assistant.generation_config.assistant_confidence_threshold = 0.0
    shared = AssistedDecoding(draft.model, k=1, gamma=GAMMA, tokenizers=tokenizers)
    strings = AssistedDecoding(
        draft.model,
        k=1,
        gamma=GAMMA,
        rule="target-only",
        tokenizers=tokenizers,
        match="strings",
    )
    theirs = {
        "assistant_model": assistant,
        "tokenizer": target.tokenizer,
        "assistant_tokenizer": draft.tokenizer,
    }
    sampling: dict[str, Any] = {"do_sample": temperature > 0}
    if temperature:
        sampling |= {"temperature": temperature, "top_k": 0}

    def run(extra: dict[str, Any], ours: AssistedDecoding | None, ids: Any, n: int, s: int) -> Run:
        calls = 0

        def count(*_: object) -> None:
            nonlocal calls
            calls += 1

        torch.manual_seed(s)
        hook = target.model.register_forward_pre_hook(count)
        begun = time.perf_counter()
        made = target.model.generate(
            ids, attention_mask=torch.ones_like(ids), max_new_tokens=n, **sampling, **extra
        )
        seconds = time.perf_counter() - begun
        hook.remove()
        text = made[0, ids.shape[1] :].tolist()
        # a step of ours can read the prompt in a call before it
        steps = calls if ours is None or ours.generation is None else len(ours.generation.steps)
        return Run(len(text), steps, seconds, text)

    return {
        "plain": lambda ids, n, s: run({}, None, ids, n, s),
        "OTM, shared tokens": lambda ids, n, s: run({"custom_generate": shared}, shared, ids, n, s),
        "OTM, strings": lambda ids, n, s: run({"custom_generate": strings}, strings, ids, n, s),
        "transformers": lambda ids, n, s: run(theirs, None, ids, n, s),
    }


def main() -> None:
    """Measure, print a table, and save the record on request."""
    import torch

    parser = command(__doc__ or "")
    parser.add_argument("--tokens", type=int, default=64, help="new tokens of a prompt")
    parser.add_argument("--threads", type=int, default=2, help="threads of torch")
    options = options_of(parser)
    torch.set_num_threads(options.threads)
    begun = time.perf_counter()
    record = two_tokenizers(4 if options.quick else options.tokens, options.quick)
    if options.save:
        about = machine("numpy", "torch", "transformers", "tokenizers")
        seconds = {"seconds": time.perf_counter() - begun, "threads": options.threads}
        keep({**about, **seconds, **record}, RESULTS / "real-two-tokenizers.json")


if __name__ == "__main__":
    main()
