"""Measure the acceptance of coupled decoding, its memory for draft rows, and its cost.

    python -m benchmarks.coupled [--quick] [--save]

- accepted: tokens per step on the shipped pairs with γ = 4, in loops from the same prompts.
  Intervals are over prompts, and differences to chain verification are paired.  Also the bytes of
  draft probabilities that a step must keep until verification, at V = 151,936 with 4 bytes a
  number.
- flips: texts of coupled decoding that differ with and without a drafter.  A model's scores of
  several tokens at once differ in their last digits from its scores of one token at a time.
- selection: the time of eight coupled drafts and their output at 32,000 tokens, on the host and by
  the torch operations that a device would run.

With --save the results go to benchmarks/results/coupled.json.
"""

import timeit
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import torch

from benchmarks.command import command, keep, options_of
from benchmarks.machine import machine
from figures.shipped_pairs import prompts_of_text
from otm._core.means import clustered_mean
from otm._core.probs.sparse import SparseProbs
from otm.coupled import decode_coupled
from otm.coupled.clocks.first_rings import first_rings
from otm.coupled.clocks.numpy import SharedClocks
from otm.decoding import Generation, SamplingParameters, spectr, speculative
from otm.models import load

RESULTS = Path(__file__).parent / "results" / "coupled.json"
GAMMA, CHAINS, TOP = 4, 4, 8
VOCABULARY = 151_936
ROW = 4 * VOCABULARY
ROWS_OF_CHAINS = 1 + CHAINS * (GAMMA - 1)
"""Number of draft rows; the chains share the row of their first token."""

Decode = Callable[..., Generation]


def ways() -> dict[str, tuple[Decode, dict[str, Any], int]]:
    """Return each decoding method with its options and its bytes per step."""
    chains = {"k": CHAINS}
    return {
        "exact match": (spectr, {"k": 1, "rule": "naive target sampling"}, 0),
        "argmax drafts": (speculative, {"draft_sampling": SamplingParameters(temperature=0)}, 0),
        "coupled": (decode_coupled, {}, 0),
        f"sparse, top {TOP}": (
            speculative, {"draft_sampling": SamplingParameters(top_k=TOP)}, 8 * TOP * GAMMA,
        ),
        "chain": (speculative, {}, GAMMA * ROW),
        "block": (speculative, {"rule": "block"}, GAMMA * ROW),
        f"exact match, K = {CHAINS}": (spectr, {**chains, "rule": "naive target sampling"}, 0),
        f"coupled, K = {CHAINS}": (decode_coupled, chains, 0),
        f"optimal, K = {CHAINS}": (spectr, {**chains, "rule": "optimal"}, ROWS_OF_CHAINS * ROW),
        f"walk and keep, K = {CHAINS}": (
            spectr, {**chains, "rule": "walk and keep"}, ROWS_OF_CHAINS * ROW,
        ),
    }  # fmt: skip


def accepted(drafts: tuple[str, ...], prompts: int, tokens: int) -> dict[str, Any]:
    """Measure tokens per step of each method, by draft model."""
    target, given = load("target"), prompts_of_text(prompts, 64)
    clusters, results = np.arange(prompts), {}
    for name in drafts:
        per_prompt = {}
        for way, (decode, options, _) in ways().items():
            run = decode(
                target, load(name), given, gamma=GAMMA, max_tokens=tokens, seed=0, **options
            )
            steps = np.bincount([step.sequence for step in run.steps], minlength=prompts)
            per_prompt[way] = np.array([len(text) for text in run.sequences]) / steps
        rows = []
        for way, (_, _, size) in ways().items():
            mean = clustered_mean(per_prompt[way], clusters)
            less = clustered_mean(per_prompt[way] - per_prompt["chain"], clusters)
            rows.append({"way": way, "bytes": size, **mean._asdict(), "less_chain": less._asdict()})
            print(f"{name}, {way}: {mean}, {size:,} bytes; minus chain {less}", flush=True)
        results[name] = rows
    return results


def flips(prompts: int, tokens: int) -> dict[str, Any]:
    """Count the texts that change if the target reads several draft tokens at once."""
    target, given = load("target"), prompts_of_text(prompts, 64)
    alone = decode_coupled(target, None, given, max_tokens=tokens, seed=0).sequences
    results: dict[str, Any] = {"texts": prompts, "tokens": tokens}
    for gamma in (1, GAMMA, 8):
        run = decode_coupled(target, load("small"), given, gamma=gamma, max_tokens=tokens, seed=0)
        found = sum(a != b for a, b in zip(run.sequences, alone, strict=True))
        results[f"γ = {gamma}"] = found
        print(f"flips at γ = {gamma}: {found} of {prompts} texts of {tokens} tokens", flush=True)
    return results


def selection(size: int, lists: int) -> dict[str, float]:
    """Measure the milliseconds of coupled drafts and of their output."""
    rng = np.random.default_rng(0)
    draft, target = (SparseProbs(range(size), rng.dirichlet(np.full(size, 0.1))) for _ in range(2))
    clocks = SharedClocks(1, lists)
    drafts = timeit.repeat(lambda: [clocks.draft(0, m, draft) for m in range(lists)], number=1)
    output = timeit.repeat(lambda: clocks.output(0, target), number=1)
    times = {"drafts_ms": 1e3 * min(drafts), "output_ms": 1e3 * min(output)}
    rows = torch.from_numpy(np.stack([x.dense(size) for x in (draft, target)]))[:, None]
    key, nothing = torch.tensor([1]), torch.zeros(1, 1, dtype=torch.int64)
    of_lists = torch.arange(lists)[None]
    arguments = {
        "drafts": (rows[0].expand(1, lists, -1), key, 0 * of_lists, of_lists, 1),
        "output": (rows[1:], key, nothing, nothing, lists),
    }
    # Force torch's operations; at this size the backend would use NumPy on a CPU.
    with mock.patch("otm.coupled.clocks.torch.LEAST_VOCABULARY", size + 1):
        for name, each in arguments.items():
            seconds = timeit.repeat(partial(first_rings, *each), number=1)
            times[f"torch_{name}_ms"] = 1e3 * min(seconds)
    print(f"n = {size:,}, k = {lists}: {times}")
    return times


def main() -> None:
    """Run the benchmark from the command line."""
    arguments = options_of(command(__doc__))
    quick = arguments.quick
    record = {
        "selection": selection(1_000 if quick else 32_000, 8),
        "flips": flips(2 if quick else 60, 4 if quick else 256),
        "accepted": accepted(*((("small",), 2, 3) if quick else (("large", "small"), 60, 96))),
    }
    if arguments.save:
        keep({**machine("numpy", "torch"), **record}, RESULTS)


if __name__ == "__main__":
    main()
