"""Tokens per second of SmolLM2 by the number of requests in flight, with drafts and without.

    python -m benchmarks.load [--quick] [--requests 1 2 4 8 16] [--ks 1 4] [--gammas 1 3 5]

The block efficiencies come from recorded drafts of the prompts of `benchmarks.real`; the times of
both models are measured for every load.  The command prints the best setup and the fastest tree of
the draft model's most probable tokens at each load, and writes benchmarks/results/load.json.  With
--quick it runs in small and saves nothing.
"""

import argparse
import os
import sys
from typing import Any

from benchmarks.command import keep
from benchmarks.layout import RESULTS
from benchmarks.machine import machine
from otm.gain import (
    FastestTree,
    Latency,
    LoadTable,
    fastest_tree,
    measure_latency,
    rank_hits,
    rates_under_load,
)
from otm.gain.fastest_tree import widths_of
from otm.models import LanguageModel

RULES = ("block", "walk and keep")
"""Rules for one chain, and for several chains."""

CHILDREN, LEVELS = 8, 8
"""Largest numbers of children of a node, and of levels, of a tree."""


def options_of(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.load", description=(__doc__ or "").partition("\n")[0]
    )
    parser.add_argument("--requests", type=int, nargs="+", default=[1, 2, 4, 8, 16])
    parser.add_argument("--ks", type=int, nargs="+", default=[1, 4], help="chains of a request")
    parser.add_argument(
        "--gammas", type=int, nargs="+", default=[1, 3, 5], help="drafts of a chain"
    )
    parser.add_argument("--prompts", type=int, default=2, help="prompts of each of four kinds")
    parser.add_argument("--tokens", type=int, default=24, help="new tokens of each prompt")
    parser.add_argument("--length", type=int, default=128, help="tokens of a prompt in the timing")
    parser.add_argument("--repeats", type=int, default=10)
    parser.add_argument("--threads", type=int, default=2, help="threads of torch (default 2)")
    parser.add_argument(
        "--dtype",
        default="bfloat16",
        help="type of the weights; on a processor without bfloat16 "
        "instructions float32 is faster (default bfloat16)",
    )
    parser.add_argument("--quick", action="store_true", help="run in small, and save nothing")
    return parser.parse_args(arguments)


def main(arguments: list[str] | None = None) -> int:
    """Measure, print the table, and save it."""
    import torch

    from benchmarks.real.models import load_real

    options = options_of(arguments)
    if options.quick:
        options.requests, options.ks, options.gammas = [1, 4], [1], [1, 3]
        options.prompts, options.tokens, options.length, options.repeats = 1, 8, 32, 2
    torch.set_num_threads(options.threads)
    load = os.getloadavg()[0]
    real = load_real("SmolLM2", getattr(torch, options.dtype))
    target = real.target_of("trained layer")
    draft = real.draft_model("trained layer")
    prompts = [row for rows in real.prompts(options.prompts).values() for row in rows]
    tokens, hits = efficiencies(target, draft, prompts, options)
    times = measure_latency(
        target,
        draft,
        options.length,
        options.gammas,
        options.ks,
        requests=options.requests,
        repeats=options.repeats,
    )
    table = rates_under_load(tokens, times, options.requests)
    print(table)
    trees = {
        requests: fastest_tree(
            hits, times, requests=requests, nodes=max(options.gammas), depth=LEVELS
        )
        for requests in options.requests
    }
    for requests, tree in trees.items():
        print(f"{requests} requests: {tree}")
    if not options.quick:
        used = {
            "threads": options.threads,
            "dtype": options.dtype,
            "load before": load,
            **record(tokens, times, table),
            "hits": hits.tolist(),
            "trees": [row_of(requests, tree) for requests, tree in trees.items()],
        }
        keep({**machine("numpy", "torch", "transformers"), **used}, RESULTS / "load.json")
    return 0


def efficiencies(
    target: LanguageModel, draft: LanguageModel, prompts: Any, options: argparse.Namespace
) -> tuple[dict[Any, float], Any]:
    """Return tokens per step by rule, K and γ, and hits by rank, where steps of a loop begin."""
    from otm.decoding import ModelDrafter, spectr
    from otm.gain import block_efficiency, contexts_from, record

    drafter = ModelDrafter(draft, max(options.ks))
    loop = spectr(
        target, drafter, prompts, rule="walk and keep", gamma=3, max_tokens=options.tokens, seed=0
    )
    recordings = record(target, drafter, contexts_from(loop, every=2), max(options.gammas), seed=0)
    means = block_efficiency(recordings, ["traversal", RULES[1]], options.ks, options.gammas)
    # for one chain traversal is block verification
    tokens = {
        (RULES[0] if setup.k == 1 else setup.rule, setup.k, setup.gamma): means[setup].mean
        for setup in means.values
        if (setup.rule == "traversal") == (setup.k == 1)
    }
    return tokens, rank_hits(recordings, CHILDREN)


def record(tokens: dict[Any, float], times: Latency, table: LoadTable) -> dict[str, Any]:
    """Return tokens per step, measured times and rates for the file."""
    return {
        "tokens per step": [[*setup, mean] for setup, mean in tokens.items()],
        "rows": times.rows,
        "tokens": times.tokens,
        "draft": times.draft,
        "target": times.target,
        "rates": [rate._asdict() for rate in table.rates],
    }


def row_of(requests: int, tree: FastestTree) -> dict[str, Any]:
    """Return the size and the speed of a tree for the file."""
    widths = widths_of(tree.shape)
    size = {"nodes": sum(widths), "levels": len(widths)}
    return {"requests": requests, **size, "accepted": tree.accepted, "speedup": tree.speedup}


if __name__ == "__main__":
    sys.exit(main())
