"""Compare the trained draft of a real model with drafts that need no training.

    python -m benchmarks.real.compared_drafts TARGET TEXTS [--prompts 2] [--tokens 100]

TARGET is a folder of SmolLM2-135M-Instruct, and TEXTS the folder that
`otm.models.hidden_states.train` has filled.  The prompts are of the files for evaluation: the
trained draft has not seen their topics.  The n-grams are of the target's own answers.  The early
layers are the first 14 of 30, followed by the target's output layer, without training.  All draft
one chain for block verification at temperature 1, in bfloat16, with the target's weights.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
import transformers

from otm.decoding import Generation, PromptLookup, autoregressive, speculative
from otm.models import HiddenStateModel, HuggingFaceModel, NGramModel
from otm.models.hidden_states.text import KINDS, load_text, text_file

GAMMA = 4
LAYERS = 14


def main() -> None:
    """Print one line for each draft."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.real.compared_drafts")
    parser.add_argument("target", metavar="TARGET")
    parser.add_argument("texts", metavar="TEXTS", type=Path)
    parser.add_argument("--layer", default="SmolLM2-135M", help="name or file of the layer")
    parser.add_argument("--prompts", type=int, default=2, help="prompts of each of six files")
    parser.add_argument("--tokens", type=int, default=100, help="new tokens of each text")
    parser.add_argument("--threads", type=int, default=2, help="threads of torch")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    # The model of early layers leaves weights unused.
    transformers.utils.logging.set_verbosity_error()
    model = transformers.AutoModelForCausalLM.from_pretrained(
        options.target, dtype=torch.bfloat16
    ).eval()
    target = HuggingFaceModel(model)
    prompts = [
        text.tokens[row, : text.prompts[row]].tolist()
        for batch in range(len(KINDS))
        for text in [load_text(text_file(options.texts, batch, held_out=True))]
        for row in range(options.prompts)
    ]
    # Reads the whole model again: a copy would share its modules.
    early = transformers.AutoModelForCausalLM.from_pretrained(
        options.target, dtype=torch.bfloat16, num_hidden_layers=LAYERS
    ).eval()
    answers = np.concatenate(
        [
            row[prompt:length].numpy()
            for path in sorted(options.texts.glob("text_*.safetensors"))
            for text in [load_text(path)]
            for row, prompt, length in zip(text.tokens, text.prompts, text.lengths, strict=True)
        ]
    )
    ngrams = NGramModel.witten_bell(answers, 3, target.vocabulary)

    def drafted(draft: object) -> Callable[[list[int], int], Generation]:
        def decode(prompt: list[int], seed: int) -> Generation:
            return speculative(
                target, draft, [prompt], rule="block", gamma=GAMMA,
                max_tokens=options.tokens, seed=seed, eos_token_id=model.config.eos_token_id,
            )  # fmt: skip

        return decode

    def plain(prompt: list[int], seed: int) -> Generation:
        return autoregressive(
            target, [prompt], max_tokens=options.tokens, seed=seed,
            eos_token_id=model.config.eos_token_id,
        )  # fmt: skip

    methods = {
        "none": plain,
        "trained": drafted(HiddenStateModel(target, options.layer)),
        "prompt lookup": drafted(PromptLookup()),
        "3-grams": drafted(ngrams),
        f"first {LAYERS} layers": drafted(HuggingFaceModel(early)),
    }
    print(f"{len(prompts)} prompts, gamma {GAMMA}, {options.threads} threads")
    print(f"{'draft':<16} tokens a step  ms target  ms draft  ms other  tokens/s")
    results: dict[str, list[Generation]] = {name: [] for name in methods}
    start = time.perf_counter()
    # All methods in turns, so that other load on the machine meets them alike.
    for seed, prompt in enumerate(prompts):
        for name, decode in methods.items():
            results[name].append(decode(prompt, seed))
    for name, found in results.items():
        each = np.array([g.block_efficiency for g in found])
        steps = sum(len(g.steps) for g in found)
        tokens = sum(g.tokens for g in found)
        spent = np.array([[g.seconds.target, g.seconds.draft, g.seconds.other] for g in found])
        target_ms, draft_ms, other_ms = 1e3 * spent.sum(0) / steps
        half = 1.96 * each.std(ddof=1) / len(each) ** 0.5
        print(
            f"{name:<16} {tokens / steps:5.2f} ± {half:.2f}   {target_ms:9.1f} {draft_ms:9.1f} "
            f"{other_ms:9.1f} {tokens / spent.sum():9.1f}"
        )
    print(f"{time.perf_counter() - start:.0f} s")


if __name__ == "__main__":
    main()
