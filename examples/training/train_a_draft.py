"""Train a draft model for acceptance, and measure the gain.

The smallest model of the package drafts for its target.  Copies of it are trained side by side on
the same windows of text, each for another objective: the text itself, the target's distribution, or
the acceptance that `otm.alpha` computes.  All copies are evaluated on the end of the text, which no
model has seen.  The run takes two to three minutes on one core; ``--steps`` changes this.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import cross_entropy, kl_div

import otm
from otm.decoding import spectr
from otm.gain import clustered_mean
from otm.models import GPT, load
from otm.models.gpt.train import default_text, split

LEARNING_RATE, BATCH, LENGTH = 3e-3, 4, 256
LARGEST_GRADIENT = 1.0
PROMPTS, GAMMA, TOKENS = 24, 4, 64

Objective = Callable[[Tensor, Tensor, Tensor], Tensor]
"""A loss as a function of draft logits, target distributions, and next tokens."""


def text(logits: Tensor, target: Tensor, tokens: Tensor) -> Tensor:
    """Return the cross entropy with the text, the objective of the draft's first training."""
    return cross_entropy(logits.flatten(0, 1), tokens.flatten())


def distillation(logits: Tensor, target: Tensor, tokens: Tensor) -> Tensor:
    """Return the Kullback-Leibler divergence of the draft from the target distribution."""
    return kl_div(logits.log_softmax(-1).flatten(0, 1), target.flatten(0, 1), reduction="batchmean")


def acceptance(*ks: int) -> Objective:
    """Return an objective: one minus the mean of α_k over positions and k."""

    def objective(logits: Tensor, target: Tensor, tokens: Tensor) -> Tensor:
        laws = logits.softmax(-1)[..., None, :], target[..., None, :]
        return 1 - otm.alpha(*laws, list(ks)).mean()

    return objective


def log_acceptance(logits: Tensor, target: Tensor, tokens: Tensor) -> Tensor:
    """Return the mean of −log α_1, which gives more weight to contexts of low acceptance."""
    return -otm.alpha(logits.softmax(-1), target, 1).log().mean()


OBJECTIVES: dict[str, Objective] = {
    "text": text,
    "KL": distillation,
    "1 - alpha_1": acceptance(1),
    "-log alpha_1": log_acceptance,
    "1 - alpha_4": acceptance(4),
    "both alphas": acceptance(1, 4),
}


def train(target: GPT, tokens: Tensor, steps: int, seed: int) -> dict[str, GPT]:
    """Train a copy of the smallest draft model for each objective, on the same windows."""
    drafts = {name: load("small") for name in OBJECTIVES}
    optimisers = {}
    for name, draft in drafts.items():
        weights = [weight.requires_grad_() for weight in draft.weights.values()]
        optimisers[name] = torch.optim.AdamW(weights, weight_decay=0.0)
    generator = torch.Generator().manual_seed(seed)
    for step in range(steps):
        starts = torch.randint(len(tokens) - LENGTH, (BATCH, 1), generator=generator)
        windows = tokens[starts + torch.arange(LENGTH + 1)]
        with torch.no_grad():
            laws = target.logits(windows[:, :-1]).softmax(-1)  # computed once for all copies
        rate = LEARNING_RATE * (0.5 + 0.5 * math.cos(math.pi * step / steps))
        for name, draft in drafts.items():
            optimisers[name].param_groups[0]["lr"] = rate
            loss = OBJECTIVES[name](draft.logits(windows[:, :-1]), laws, windows[:, 1:])
            optimisers[name].zero_grad()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(list(draft.weights.values()), LARGEST_GRADIENT)
            optimisers[name].step()
    for draft in drafts.values():
        for weight in draft.weights.values():
            weight.requires_grad_(False)
    return drafts


def judge(target: GPT, draft: GPT, tokens: Tensor) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Return each quantity's values with their clusters, which are windows or prompts."""
    values: dict[str, list[np.ndarray]] = {"alpha_1": [], "alpha_4": []}
    windows = tokens.split(target.context_length)
    for window in windows:
        p, q = (model.logits(window[None]).double().softmax(-1)[0] for model in (draft, target))
        for k in (1, 4):
            values[f"alpha_{k}"].append(otm.alpha(p, q, k).numpy())
    clusters = np.repeat(np.arange(len(windows)), [len(window) for window in windows])
    found = {name: (np.concatenate(rows), clusters) for name, rows in values.items()}
    starts = np.linspace(0, len(tokens) - 100, PROMPTS).astype(int)
    prompts = [tokens[start : start + 100].tolist() for start in starts]
    for k in (1, 4):
        made = spectr(
            target, draft, prompts, k=k, gamma=GAMMA, rule="optimal", max_tokens=TOKENS, seed=1
        )
        steps = [[len(step.output) for step in made.steps_of(b)] for b in range(PROMPTS)]
        of_prompt = np.repeat(np.arange(PROMPTS), [len(row) for row in steps])
        found[f"tokens, K = {k}"] = np.concatenate(steps), of_prompt
    return found


def short(values: np.ndarray, clusters: np.ndarray, sign: str = "") -> str:
    """Format a mean with half of its 95 % interval."""
    mean, _, high = clustered_mean(values, clusters)
    return f"{mean:{sign}.3f} ± {high - mean:.3f}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--steps", type=int, default=500, help="updates (default: 500)")
    parser.add_argument("--seed", type=int, default=0, help="draws the windows (default: 0)")
    options = parser.parse_args()
    torch.set_num_threads(1)  # more threads are slower with such small models
    seen, held_out = split(default_text())
    target = load("target")
    drafts = {"as shipped": load("small"), **train(target, seen, options.steps, options.seed)}
    judged = {name: judge(target, draft, held_out) for name, draft in drafts.items()}
    before = judged["as shipped"]
    print(f"{options.steps} updates, seed {options.seed}; {len(held_out):,} bytes held out")
    print(f"{'objective':<13}", *(f"{name:<14}" for name in before), "alpha_1 - before")
    for name, found in judged.items():
        means = (f"{short(*pair):<14}" for pair in found.values())
        values, windows = found["alpha_1"]
        gain = short(
            values - before["alpha_1"][0], windows, "+"
        )  # paired differences at the same contexts
        print(f"{name:<13}", *means, gain)


if __name__ == "__main__":
    main()
