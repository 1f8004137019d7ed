"""``python -m otm.models.hidden_states.train TARGET --out FILE`` trains a draft layer for a target.

First the target answers requests, which come from templates and from itself; these texts stay in a
folder, and a second run continues there.  Then the layer is trained on the target's hidden states
along these texts, and measured on answers to requests about other topics.
"""

from __future__ import annotations

import argparse
import math
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from otm._core.display.progress import watching
from otm._core.files.paths import check_writable
from otm._core.optional import require
from otm.errors import InvalidParameterError, OTMError
from otm.models.hidden_states.attention import register
from otm.models.hidden_states.files import LayerFile, save_layer
from otm.models.hidden_states.layer import Layer, LayerConfig, random_weights
from otm.models.hidden_states.objective import Objective
from otm.models.hidden_states.optimiser import Muon
from otm.models.hidden_states.text import KINDS, Text, load_text, text_file, write_text
from otm.models.huggingface.model import HuggingFaceModel

ROWS, HELD_OUT_ROWS = 192, 32
"""Numbers of answers in a file for training, and in a file for evaluation."""

GAMMA = 4
"""Number of drafts at the evaluation."""


class Plan(NamedTuple):
    """Settings of a training run."""

    updates: int
    # Each update uses this number of texts, and of rows of each of them.
    texts: int = 3
    rows: int = 6
    # Passes over each text; the last two fifths of the updates use one pass more.
    passes: int = 2
    # Step size of the matrices; vectors have half of it.  It rises over 30 updates, and then falls
    # to a twentieth along a cosine.
    rate: float = 1e-2
    # Weights of the cross entropy at the beginning, and after three quarters of the updates.
    entropy: tuple[float, float] = (1.0, 0.1)
    # Share of the entries of the target's states that are set to zero: texts are few.
    dropped: float = 0.1


def train(layer: Layer, objective: Objective, texts: Sequence[Text], plan: Plan, seed: int) -> None:
    """Train a layer with float32 weights in place, for the acceptance of its drafts."""
    torch = require("torch")
    generator = torch.Generator().manual_seed(seed)
    weights = list(layer.weights.values())
    for weight in weights:
        weight.requires_grad_()
    matrices = [w for name, w in layer.weights.items() if w.ndim == 2 and "norm" not in name]
    vectors = [w for name, w in layer.weights.items() if w.ndim < 2 or "norm" in name]
    muon, adam = Muon(matrices), torch.optim.AdamW(vectors, betas=(0.9, 0.97), weight_decay=0.0)
    first, last = plan.entropy
    with watching(None, "training") as watch:
        for update in range(plan.updates):
            done = update / plan.updates
            entropy = first * (last / first) ** min(1.0, 1.3 * done)
            for _ in range(plan.texts):
                text = texts[int(torch.randint(len(texts), (), generator=generator))]
                rows = torch.randperm(len(text.tokens), generator=generator)[: plan.rows]
                with torch.autocast("cpu", torch.bfloat16):
                    slots = objective.slots(text, rows)
                    slots = slots._replace(states=_dropped(slots.states, plan.dropped, generator))
                    passes = plan.passes + (done > 0.6)
                    loss = objective.loss(layer, slots, passes, entropy)
                (loss / plan.texts).backward()
            torch.nn.utils.clip_grad_norm_(weights, 1.0)
            rate = plan.rate * min(1.0, (update + 1) / 30)
            rate *= 0.05 + 0.475 * (1 + math.cos(math.pi * done))
            muon.step(rate)
            for group in adam.param_groups:
                group["lr"] = rate / 2
            adam.step()
            adam.zero_grad()
            watch.tell(f"loss {loss.item():.2f}, update", update + 1, plan.updates)
    for weight in weights:
        weight.requires_grad_(False)


def _dropped(states: Any, share: float, generator: Any) -> Any:
    """Set a share of the entries to zero, and scale the others so that their mean remains."""
    kept = states.new_empty(states.shape).bernoulli_(1 - share, generator=generator)
    return states * kept / (1 - share)


def held_out(
    layer: Layer, objective: Objective, text: Text, rows: int, gamma: int = GAMMA
) -> tuple[list[float], float]:
    """Return α of each draft of a step, and the tokens of a step, along texts of the target."""
    torch = require("torch")
    parts = torch.arange(min(rows, len(text.tokens))).split(8)
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
        found = [objective.acceptance(layer, objective.slots(text, part), gamma) for part in parts]
    share = np.array([len(part) for part in parts]) / sum(map(len, parts))
    alphas = share @ np.array([alpha for alpha, _ in found])
    return alphas.tolist(), float(share @ np.array([tokens for _, tokens in found]))


def frequent_tokens(texts: Sequence[Text], count: int, vocabulary: int) -> Any:
    """Return the `count` most frequent tokens of the answers, ascending; the smaller id wins."""
    torch = require("torch")
    counts = torch.zeros(vocabulary, dtype=torch.int64)
    for text in texts:
        place = torch.arange(text.tokens.shape[1])
        answer = (place >= text.prompts[:, None]) & (place < text.lengths[:, None])
        counts += torch.bincount(text.tokens[answer], minlength=vocabulary)
    order = (counts * vocabulary - torch.arange(vocabulary)).argsort(descending=True)
    return order[:count].sort().values


def main(arguments: Sequence[str] | None = None) -> int:
    """Train a layer, write it to a file, and return the exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m otm.models.hidden_states.train",
        description="Train a draft layer on the hidden states of a target of Hugging Face.",
    )
    add = parser.add_argument
    add("target", metavar="TARGET", help="folder or name of the target, with a chat template")
    add("--out", type=Path, required=True, metavar="FILE", help="file to write")
    add("--texts", type=Path, default=Path("texts"), metavar="FOLDER",
        help="folder of the target's answers, about 200 MB each (default: texts)")  # fmt: skip
    add("--files", type=int, default=18, help="number of files of answers (default: 18)")
    add("--updates", type=int, default=500, help="number of updates (default: 500)")
    add("--tokens", type=int, default=6144, help="tokens of the output head (default: 6144)")
    add("--hidden", type=int, default=1536, help="width of the perceptron (default: 1536)")
    add("--seed", type=int, default=0, help="seed of weights and batches (default: 0)")
    add("--notice", default="", help="licence notice to store in the file")
    options = parser.parse_args(arguments)
    try:
        if min(options.files, options.updates, options.tokens, options.hidden) < 1:
            raise InvalidParameterError("all numbers must be at least 1")
        check_writable(options.out)
        options.texts.mkdir(parents=True, exist_ok=True)
        _run(options)
    except (OTMError, OSError) as error:
        print(f"{parser.prog}: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print(f"{parser.prog}: interrupted", file=sys.stderr)
        return 130
    return 0


def _run(options: argparse.Namespace) -> None:
    torch, transformers = require("torch"), require("transformers")
    start = time.perf_counter()
    model = transformers.AutoModelForCausalLM.from_pretrained(
        options.target, dtype=torch.bfloat16, attn_implementation=register()
    ).eval()
    tokenizer = transformers.AutoTokenizer.from_pretrained(options.target)
    target = HuggingFaceModel(model, tokenizer=tokenizer)
    config = model.config
    count = config.num_hidden_layers
    states = (count // 10, count // 2, count - 4, count)
    folder, held = options.texts, range(min(len(KINDS), options.files))
    with watching(None, "texts") as watch:
        jobs = [(b, False) for b in range(options.files)] + [(b, True) for b in held]
        for i, (batch, is_held) in enumerate(jobs):
            watch.tell("file", i + 1, len(jobs))
            rows = HELD_OUT_ROWS if is_held else ROWS
            write_text(target, states, folder, batch, rows, held_out=is_held)
    texts = [load_text(text_file(folder, b, held_out=False)) for b in range(options.files)]
    answers = sum(int((text.lengths - text.prompts).sum()) for text in texts)
    print(f"{answers:,} tokens of answers after {time.perf_counter() - start:.0f} s", flush=True)
    embedding = model.get_input_embeddings().weight.detach()
    head = model.get_output_embeddings().weight.detach()
    tokens = frequent_tokens(texts, options.tokens, target.vocabulary)
    sizes = LayerConfig(
        states,
        config.hidden_size,
        config.num_attention_heads,
        config.num_key_value_heads,
        options.hidden,
    )
    layer = Layer(sizes, random_weights(sizes, len(tokens), options.seed))
    objective = Objective(embedding, head, tokens)
    train(layer, objective, texts, Plan(options.updates), options.seed)
    save_layer(options.out, LayerFile(sizes, layer.weights, tokens), options.notice)
    for batch in held:
        text = load_text(text_file(folder, batch, held_out=True))
        alphas, per_step = held_out(layer, objective, text, HELD_OUT_ROWS)
        shown = " ".join(f"{alpha:.3f}" for alpha in alphas)
        print(f"{KINDS[batch]:<8} alpha by draft {shown}, {per_step:.2f} tokens a step")
    print(f"{time.perf_counter() - start:.0f} s in all", flush=True)


if __name__ == "__main__":
    sys.exit(main())
