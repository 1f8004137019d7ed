"""Measure the overhead of the decoding loops outside the models, and their speed-up.

    python -m benchmarks.decoding [--quick] [--save]

All measurements run in one process with one torch thread, in the printed order:

- overhead: the share of time outside of the two models.  One pair has random weights and a
  vocabulary of 50,257 tokens (top-k 1,000); the other is the byte-level pair of the package.
- efficiency: first-step acceptance and block efficiency of each rule on the shipped pairs, computed
  from recorded distributions.  Intervals are over prompts, and differences are paired.
- speed: the measured speed-up over decoding without drafts, the prediction of the cost model from
  measured times, and the prediction of Theorem 3.8.
- transformers: tokens per second compared with assisted generation of transformers, for the same
  models and the same policy for γ, in turns.  It is left out if transformers is not installed.

With --save the results go to benchmarks/results/decoding.json.
"""

import importlib.util
from pathlib import Path
from typing import Any

from benchmarks.command import command, keep, options_of
from benchmarks.loops.efficiency import efficiency
from benchmarks.loops.overhead import (
    overhead_of_random_pair,
    overhead_of_random_trees,
    overhead_of_shipped_pair,
)
from benchmarks.loops.speed import speed
from benchmarks.machine import machine

LAYERS = (16, 48)
"""Numbers of layers of the targets with random weights."""

RESULTS = Path(__file__).parent / "results" / "decoding.json"


def run(*, quick: bool) -> dict[str, Any]:
    """Run all measurements, print them, and return the record."""
    import torch

    torch.set_num_threads(1)
    results = machine("numpy", "torch", "transformers")
    for layers in (2,) if quick else LAYERS:
        print(f"overhead, random weights, {layers} layers, V = 50,257, top-k 1,000")
        results[f"overhead_{layers}"] = overhead_of_random_pair(layers, 2 if quick else 150)
    print("overhead, random weights, 16 layers, trees of 32 drafts")
    results["overhead_trees"] = overhead_of_random_trees(*((2, 2) if quick else (LAYERS[0], 100)))
    print("overhead, shipped pair")
    results["overhead_shipped"] = overhead_of_shipped_pair(2 if quick else 400)
    print("efficiency")
    results["efficiency"] = efficiency(*((2, 2) if quick else (32, 64)))
    print("speed")
    results["speed"] = speed(*((2, 1, 3) if quick else (300, 3, 50)))
    if importlib.util.find_spec("transformers"):
        from benchmarks.loops.peers import against_transformers

        print("against transformers, tokens per second")
        results["transformers"] = against_transformers(*((2, 1, 2) if quick else (128, 7, 16)))
    return results


def main() -> None:
    """Run from the command line."""
    arguments = options_of(command("Measure the decoding loops."))
    results = run(quick=arguments.quick)
    if arguments.save:
        keep(results, RESULTS)


if __name__ == "__main__":
    main()
