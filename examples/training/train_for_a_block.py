"""Train a draft model for the tokens of a whole step, and measure its gain over distillation.

The target generates texts.  Copies of a draft model of the package are trained along these texts
side by side, each for another objective: the target's distributions, one accepted draft, or the
expected accepted drafts of a step (`otm.gain.accepted_along_text`).  All copies are evaluated along
other texts of the target.  The run takes about ten minutes on one core; ``--steps`` changes this.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable
from typing import Literal

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import kl_div

from otm.decoding import autoregressive
from otm.gain import accepted_along_text, clustered_mean
from otm.models import GPT, load
from otm.models.gpt.train import default_text, split

LEARNING_RATE, BATCH = 3e-3, 4
LARGEST_GRADIENT = 1.0
PROMPT, LENGTH = 32, 256
JUDGED = (("chain", 4), ("block", 4), ("chain", 8), ("block", 8))

Objective = Callable[[Tensor, Tensor, Tensor], Tensor]
"""A loss as a function of draft logits, target distributions, and the target's tokens."""


def distillation(logits: Tensor, target: Tensor, tokens: Tensor) -> Tensor:
    """Return the Kullback-Leibler divergence of the draft from the target distribution."""
    return kl_div(logits.log_softmax(-1).flatten(0, 1), target.flatten(0, 1), reduction="batchmean")


def rejected(rule: str, gamma: int) -> Objective:
    """Return an objective: the mean rejected share of γ drafts; 1 − α_1 for γ = 1."""

    def objective(logits: Tensor, target: Tensor, tokens: Tensor) -> Tensor:
        laws = logits.softmax(-1), target
        return (
            1 - accepted_along_text(*laws, tokens, gamma, rule=rule, validate=False).mean() / gamma
        )

    return objective


def both(logits: Tensor, target: Tensor, tokens: Tensor) -> Tensor:
    """Return 1 − α_1, which uses every position, plus the rejected share of 8 drafts."""
    return sum(
        each(logits, target, tokens) for each in (rejected("chain", 1), rejected("block", 8))
    )


OBJECTIVES: dict[str, Objective] = {
    "KL": distillation,
    "1 - alpha_1": rejected("chain", 1),
    "chain of 8": rejected("chain", 8),
    "block of 8": rejected("block", 8),
    "both": both,
}


def texts(target: GPT, tokens: Tensor, count: int, seed: int) -> Tensor:
    """Let the target continue prompts from a text; return prompts with continuations."""
    starts = np.linspace(0, len(tokens) - PROMPT, count).astype(int)
    prompts = [tokens[start : start + PROMPT].tolist() for start in starts]
    made = autoregressive(target, prompts, max_tokens=LENGTH, seed=seed)
    return torch.tensor([(*a, *b) for a, b in zip(prompts, made.sequences, strict=True)])


def laws(model: GPT, rows: Tensor) -> Tensor:
    """Return the logits for each token that the target generated, `[B, L, V]`."""
    return model.logits(rows[:, :-1])[:, PROMPT - 1 :]


def train(
    target: GPT,
    name: Literal["large", "medium", "small"],
    drawn: Tensor,
    steps: int,
    seed: int,
) -> dict[str, GPT]:
    """Train a copy of a draft model for each objective, along the same texts."""
    drafts = {objective: load(name) for objective in OBJECTIVES}
    optimisers = {}
    for objective, draft in drafts.items():
        weights = [weight.requires_grad_() for weight in draft.weights.values()]
        optimisers[objective] = torch.optim.AdamW(weights, weight_decay=0.0)
    generator = torch.Generator().manual_seed(seed)
    for step in range(steps):
        rows = drawn[torch.randint(len(drawn), (BATCH,), generator=generator)]
        with torch.no_grad():
            of_target = laws(target, rows).softmax(-1)  # computed once for all copies
        rate = LEARNING_RATE * (0.5 + 0.5 * math.cos(math.pi * step / steps))
        for objective, draft in drafts.items():
            optimisers[objective].param_groups[0]["lr"] = rate
            loss = OBJECTIVES[objective](laws(draft, rows), of_target, rows[:, PROMPT:])
            optimisers[objective].zero_grad()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(list(draft.weights.values()), LARGEST_GRADIENT)
            optimisers[objective].step()
    for draft in drafts.values():
        for weight in draft.weights.values():
            weight.requires_grad_(False)
    return drafts


def judge(target: GPT, draft: GPT, drawn: Tensor) -> dict[str, np.ndarray]:
    """Return α_1 and tokens per step by rule and γ, as means for each text."""
    found: dict[str, list[float]] = {}
    for rows in drawn.split(1):
        p, q = (laws(model, rows).double().softmax(-1) for model in (draft, target))
        for rule, gamma in (("chain", 1), *JUDGED):
            accepted = accepted_along_text(p, q, rows[:, PROMPT:], gamma, rule=rule).mean().item()
            name = "alpha_1" if gamma == 1 else f"{rule}, {gamma}"
            found.setdefault(name, []).append(accepted + (gamma > 1))
    return {name: np.array(values) for name, values in found.items()}


def short(values: np.ndarray, sign: str = "") -> str:
    """Format a mean with half of its 95 % interval over texts."""
    mean, _, high = clustered_mean(values, np.arange(values.size))
    return f"{mean:{sign}.3f} ± {high - mean:.3f}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--draft", default="small", help="small, medium or large (default: small)")
    parser.add_argument("--steps", type=int, default=2000, help="updates (default: 2000)")
    parser.add_argument("--texts", type=int, default=1000, help="texts to train on (default: 1000)")
    parser.add_argument("--seed", type=int, default=0, help="draws the texts (default: 0)")
    options = parser.parse_args()
    torch.set_num_threads(1)  # more threads are slower with such small models
    seen, held_out = split(default_text())
    target = load("target")
    drawn = texts(target, seen, options.texts, options.seed)
    others = texts(target, held_out, options.texts // 4, options.seed + 1)
    drafts = train(target, options.draft, drawn, options.steps, options.seed)
    judged = {
        name: judge(target, draft, others)
        for name, draft in {"as shipped": load(options.draft), **drafts}.items()
    }
    print(f"{options.draft}, {options.steps} updates, seed {options.seed}; {len(others)} texts")
    columns = [*judged["KL"], "block, 8 - KL", "- (1 - alpha_1)"]
    print(f"{'objective':<12}", *(f"{name:<14}" for name in columns))
    for name, found in judged.items():
        # Differences are paired, because the texts are the same.
        less = (found["block, 8"] - judged[other]["block, 8"] for other in ("KL", "1 - alpha_1"))
        cells = [*map(short, found.values()), *(short(values, "+") for values in less)]
        print(f"{name:<12}", *(f"{cell:<14}" for cell in cells))


if __name__ == "__main__":
    main()
