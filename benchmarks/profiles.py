"""Measure seconds, bytes and memory of three verification methods (Wagner et al. 2024).

    python -m benchmarks.profiles [--quick] [--device cuda] [--save] [--output FOLDER]

"baseline", "exact" and "sigmoid" (`benchmarks.verification.methods`) verify one chain of one
sequence from float32 logits.  The vocabularies have the sizes of the paper's models.

- texts: every step of whole texts, with γ by the heuristic of transformers (Tables 1 and 6);
- chains: γ = 1 to 20, with the moved bytes and the peak memory (Table 3, Figures 3 to 5);
- loops: whole decoding loops with the forward passes of both models (Table 5).

The output distributions of "baseline" and "exact" are checked first.  Seconds run from the call
until the device is done.  Chains are cut from a pool, which may stay in a cache, like logits that a
model has just computed.  On a CPU torch uses one thread, and the numbers say nothing about a GPU.
With --save the results go to benchmarks/results/profiles-<device>.json, or profiles-cpu.json for a
CPU.  `figures.wagner` makes its tables and figures from these files.
"""

import os
import re
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

# Silence torch's profiler, which reports each of its stages.
os.environ.setdefault("KINETO_LOG_LEVEL", "99")

import torch

from benchmarks.chain import clocks, gate
from benchmarks.chain.inputs import NOISE, SPREAD, make_inputs
from benchmarks.command import command, keep, options_of
from benchmarks.machine import machine
from benchmarks.verification.chains import chains
from benchmarks.verification.loops import loops
from benchmarks.verification.memory import COUNTED_BY
from benchmarks.verification.methods import BASELINE, EXACT, MODELS, Model, entries
from benchmarks.verification.texts import MOST_DRAFTS, texts

RESULTS = Path(__file__).parent / "results"


class Plan(NamedTuple):
    """Sizes and effort of the measurements."""

    models: tuple[Model, ...]
    texts: int
    gammas: range
    rounds: int  # repetitions of each chain
    pool: int  # number of drafts from which chains are cut
    layers: int  # layers of the target with random weights
    tokens: int  # tokens of a text in the loops
    loops: tuple[int, int]  # numbers of texts of the shipped and of the random pair
    draws: int  # number of single draws for the check of distributions


QUICK = Plan(
    tuple(model._replace(vocabulary=model.vocabulary // 16, length=24) for model in MODELS),
    2,
    range(1, 21, 4),
    3,
    MOST_DRAFTS,
    2,
    12,
    (2, 2),
    1_500,
)
FULL = Plan(MODELS, 8, range(1, 21), 7, 64, 16, 100, (16, 8), 20_000)


def main() -> None:
    parser = command(__doc__)
    parser.add_argument(
        "--device", help="torch name of the device; the default is the GPU if there is one"
    )
    parser.add_argument("--output", type=Path, help="another folder for the results")
    options = options_of(parser)
    device = torch.device(options.device or ("cuda" if torch.cuda.is_available() else "cpu"))
    torch.set_num_threads(1)
    begun = time.perf_counter()
    record = run(QUICK if options.quick else FULL, device)
    print(f"\n{time.perf_counter() - begun:.0f} s")
    folder = options.output or (RESULTS if options.save else None)
    if folder:
        path = folder / f"profiles-{slug(device)}.json"
        keep(record, path)
        print(f"written to {path}")


def run(plan: Plan, device: torch.device) -> dict[str, Any]:
    """Run all measurements, print a summary, and return the record."""
    cache = clocks.cache_bytes(device)
    size = 2**30 if device.type == "cuda" else min(5 * cache, 2**28)
    found = machine("torch", "triton")
    record: dict[str, Any] = {
        "device": name_of(device, found),
        "kind": device.type,
        **found,
        "date": datetime.now(UTC).date().isoformat(),
        "threads": torch.get_num_threads(),
        "copy bytes/s": clocks.copy_rate(device, size),
        "cache bytes": cache,
        "memory counted by": COUNTED_BY[device.type],
        "spread": SPREAD,
        "noise": NOISE,
        "gate": pass_gate(plan.draws, device),
        "texts": [],
        "chains": [],
    }
    print(f"{record['device']}, copy rate {record['copy bytes/s'] / 1e9:.1f} GB/s")
    for model in plan.models:
        print(f"\n{model.name}, V = {model.vocabulary:,}: texts of {model.length} tokens")
        shape = (1, plan.pool, model.vocabulary)
        pool = make_inputs(shape, torch.float32, "typical", logits=True, device=device)
        methods = entries(device, model.scale)
        of_texts = texts(model, pool, methods, device, plan.texts)
        for row in of_texts:
            rate = sum(row["accepted"]) / sum(row["gammas"])
            mean = sum(row["s"]) / len(row["s"])
            print(f"  {row['method']:<10}{1e3 * mean:9.3f} ms per step  {rate:.2f} accepted")
        record["texts"] += of_texts
        record["chains"] += chains(
            model, pool, methods, device, gammas=plan.gammas, rounds=plan.rounds
        )
    record["loops"] = loops(device, plan.layers, plan.tokens, *plan.loops)
    print("\nLoops: seconds of all texts, for verification and in total")
    for row in record["loops"]:
        total = sum(row["text s"])
        print(f"  {row['pair']:<28}{row['method']:<10}{row['verification s']:8.3f}{total:8.3f}")
    return record


def name_of(device: torch.device, found: dict[str, Any]) -> str:
    """Return a device's name for display."""
    if device.type == "cuda":
        return str(torch.cuda.get_device_name(device))
    return f"CPU, one thread of {found['cpu']}"


def slug(device: torch.device) -> str:
    """Return a device's name in the form used for file names."""
    if device.type != "cuda":
        return device.type
    return re.sub(r"[^a-z0-9]+", "-", torch.cuda.get_device_name(device).lower()).strip("-")


def pass_gate(draws: int, device: torch.device) -> dict[str, Any]:
    """Exit if a lossless method does not follow the target, or if the test misses an error."""
    if gate.check(
        gate.Entry(gate.slip), logits=False, one_by_one=False, draws=draws, device=device
    ).passed:
        raise SystemExit(f"the check is too weak: {draws} draws do not reject a wrong distribution")
    methods = entries(device, MODELS[0].scale)
    for name in (BASELINE, EXACT):
        verdict = gate.check(
            methods[name], logits=True, one_by_one=True, draws=draws, device=device
        )
        if not verdict.passed:
            raise SystemExit(
                f"{name} does not follow the target: G = {verdict.statistic:.1f}, limit "
                f"{verdict.limit:.1f}; it is not timed"
            )
    return {"draws": draws, "level": gate.LEVEL, "slip TV": gate.SLIP, "passed": [BASELINE, EXACT]}


if __name__ == "__main__":
    main()
