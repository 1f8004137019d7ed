"""Compute how far the kernels' distributions are from exact, and their acceptance from optimal.

    python -m benchmarks.distances [--quick] [--save]

- TV between a token by the kernels' float32 softmax and a token by the float64 softmax, for a token
  from the target and for the output that replaces one draft.
- TV of a token by the sigmoid variant from the target, for several scales.
- Difference between the optimal acceptance and that of the two rules for several drafts.

The distributions are softmaxes of normal logits; the target's logits are the draft's logits plus
normal noise.  All numbers are computed, not sampled.  The benchmark needs no GPU, because the plain
versions make the kernels' decisions.  With --save the results go to
benchmarks/results/distances.json.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

import otm
from benchmarks.chain.inputs import NOISE, SPREAD
from benchmarks.command import command, keep, options_of
from benchmarks.machine import machine
from otm.coupling import KSeq
from otm.kernels import sigmoid_distance
from otm.kernels.common import softmax
from otm.kernels.common.distributions.numpy import mass
from otm.kernels.k_seq.numpy import find_split
from otm.kernels.optimal.numpy import STEPS, bin_tokens, deterministic_count, winner_probs

RESULTS = Path(__file__).parent / "results" / "distances.json"
VOCABULARY = 128_256
NODE_VOCABULARY = 32_000  # for positions with several drafts
SOFTMAX_CASES = (  # spread of the logits, temperature, type
    (0.5, 1.0, torch.float32),
    (3.0, 1.0, torch.float32),
    (3.0, 0.6, torch.bfloat16),
    (10.0, 2.0, torch.bfloat16),
)
POWERS = (1, 2, 3, 4, 5)
NOISES = (0.3, 1.0, 2.0)
DRAFTS = (2, 4, 8, 64)
GRIDS = (32, STEPS, 1024)  # bins for each octave of the ratio


def pair_of_logits(size: int, spread: float, noise: float) -> tuple[Tensor, Tensor]:
    """Draw logits of target and draft, with a fixed seed."""
    rng = torch.Generator().manual_seed(2)
    draft = spread * torch.randn(size, generator=rng)
    return draft + noise * torch.randn(size, generator=rng), draft


def distance(probs: Tensor, exact: Tensor) -> float:
    return float((probs.double() - exact).abs().sum() / 2)


def softmaxes(size: int) -> Iterator[dict[str, Any]]:
    """Yield the float32 errors (TV) of a token from the target, and of an output after a draft."""
    for spread, temperature, dtype in SOFTMAX_CASES:
        logits = [x.to(dtype) for x in pair_of_logits(size, spread, NOISE)]
        exact_target, exact_draft = ((x.double() / temperature).softmax(-1) for x in logits)
        warm = torch.full((), temperature, dtype=torch.float64)
        target, draft = (softmax.softmax(x, warm) for x in logits)
        masses, subtracted = mass(target), mass(draft)
        accepted = exact_draft * (target.double() / draft.double()).clamp(max=1)
        left = (masses - subtracted).clamp(min=0).double()
        output = accepted + (1 - accepted.sum()) * left / left.sum()
        yield {
            "logits": f"σ = {spread:g}, {str(dtype).removeprefix('torch.')}",
            "temperature": temperature,
            "token": distance(masses.double() / masses.sum(), exact_target),
            "in the place of a draft": distance(output, exact_target),
        }


def sigmoids(size: int) -> dict[str, Any]:
    """Return the distances of sigmoid verification and of the draft itself from the target."""
    target, draft = pair_of_logits(size, SPREAD, NOISE)
    probs = [x.double().softmax(-1) for x in (target, draft)]
    found = {str(n): sigmoid_distance(target, draft, (-(10.0**n), 10.0**n)) for n in POWERS}
    return {"by power of ten": found, "draft distribution": distance(probs[1], probs[0])}


def pairs_of_laws(size: int) -> Iterator[tuple[str, Any, Any]]:
    """Yield named pairs of target and draft: noisy logits, random, and in reverse order."""
    for noise in NOISES:
        target, draft = (
            x.double().softmax(-1).numpy() for x in pair_of_logits(size, SPREAD, noise)
        )
        yield f"noise {noise:g}", target, draft
    target, draft = np.random.default_rng(2).dirichlet(np.ones(size), 2)
    yield "random", target, draft
    yield "reversed", np.sort(draft)[::-1].copy(), np.sort(draft)


def lost(size: int) -> Iterator[dict[str, Any]]:
    """Yield how far the acceptance of the rules for several drafts is below the optimum."""
    for pair, target, draft in pairs_of_laws(size):
        for count in DRAFTS:
            best = float(otm.alpha(draft, target, count))
            split = find_split(target, draft, count, count)
            mixture = (split.factor * split.one_draft(target, draft).sum()).item()
            plan = KSeq(otm.Problem(draft, target, count))
            yield {
                "pair": pair,
                "k": count,
                "optimum": best,
                "bins": {
                    str(steps): best - by_bins(target, draft, count, steps) for steps in GRIDS
                },
                "k-Seq": best - mixture,
                "k-Seq at ρ*": best - plan.acceptance_by_test,
            }


def by_bins(target: Any, draft: Any, count: int, steps: int) -> float:
    """Return the acceptance of grid optimal: Σ min(q, v'), with the winner's distribution v'."""
    numbers = deterministic_count(count)
    won = winner_probs(draft, *bin_tokens(target, draft, numbers, count, steps))
    return float(np.minimum(target, won).sum())


def main() -> None:
    options = options_of(command(__doc__))
    size, node_size = (2_000, 1_000) if options.quick else (VOCABULARY, NODE_VOCABULARY)
    record = {
        **machine("numpy", "torch"),
        "V": size,
        "V of a node": node_size,
        "spread": SPREAD,
        "noise": NOISE,
        "softmax": list(softmaxes(size)),
        "sigmoid": sigmoids(size),
        "lost": list(lost(node_size)),
    }
    print(json.dumps(record, indent=1, ensure_ascii=False))
    if options.save:
        keep(record, RESULTS)


if __name__ == "__main__":
    main()
