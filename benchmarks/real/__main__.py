"""Measure real language models in stages, and save a record of each.

    make real [ARGS="..."]       or       python -m benchmarks.real [options]

The stages run one after another, each in a separate process, and write
benchmarks/results/real-<stage>.json with the machine and the versions.  A stage with a record of
this code and this processor does not run again, so an interrupted run continues where it stopped.
With --quick each stage runs in small and saves nothing.

    make real ARGS="--only identities-smollm2 pairs-smollm2"

compares texts instead of speeds: greedy texts token by token with those of `generate`, sampled ones
with their exact distribution.  `rounding-smollm2` compares greedy texts in bfloat16.
"""

import argparse
import json
import os
import resource
import subprocess
import sys
import time
from pathlib import Path

from benchmarks.command import keep
from benchmarks.layout import RESULTS
from benchmarks.machine import machine
from benchmarks.real.models import code
from benchmarks.real.stages import STAGES, Size

QUICK = Size(prompts=1, tokens=4)


def options_of(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.real", description=(__doc__ or "").partition("\n")[0]
    )
    parser.add_argument("--list", action="store_true", help="list the stages")
    parser.add_argument("--only", nargs="+", metavar="STAGE", choices=STAGES, help="some stages")
    parser.add_argument("--force", action="store_true", help="also run stages that are done")
    parser.add_argument("--quick", action="store_true", help="run in small, and save nothing")
    parser.add_argument("--prompts", type=int, help="prompts of each kind, at most 10")
    parser.add_argument("--tokens", type=int, help="new tokens of each prompt")
    parser.add_argument("--threads", type=int, default=2, help="threads of torch (default 2)")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    return parser.parse_args(arguments)


def main(arguments: list[str] | None = None) -> int:
    """Run the stages; return 1 if one of them failed."""
    options = options_of(arguments)
    if options.list:
        for name, stage in STAGES.items():
            print(f"{name:<22}{stage.title}")
        return 0
    if options.child:
        perform(options.child, options)
        return 0
    chosen = options.only or [name for name, stage in STAGES.items() if stage.is_usual]
    failed = []
    for name in chosen:
        if not options.force and not options.quick and is_done(path_of(name)):
            print(f"{name}: done before", flush=True)
            continue
        print(f"{name}: {STAGES[name].title}", flush=True)
        command = [sys.executable, "-m", "benchmarks.real", *(arguments or sys.argv[1:])]
        if subprocess.run([*command, "--child", name], check=False).returncode:
            failed.append(name)
    if failed:
        print(f"failed: {', '.join(failed)}")
    return int(bool(failed))


def perform(name: str, options: argparse.Namespace) -> None:
    """Run one stage in this process, and save its record."""
    import torch

    torch.set_num_threads(options.threads)
    stage = STAGES[name]
    usual = QUICK if options.quick else stage.size
    size = Size(options.prompts or usual.prompts, options.tokens or usual.tokens)
    digest, load, begun = code(), os.getloadavg()[0], time.perf_counter()
    found = stage.measure(size)
    used = {
        "code": digest,
        "threads": options.threads,
        "prompts of a kind": size.prompts,
        "tokens": size.tokens,
        "load before": load,
        "seconds": time.perf_counter() - begun,
        "peak MiB": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**10,
    }
    print(f"  {used['seconds']:.0f} s, at most {used['peak MiB']:,.0f} MiB", flush=True)
    if not options.quick:
        keep({**machine("numpy", "torch", "transformers"), **used, **found}, path_of(name))


def path_of(name: str) -> Path:
    return RESULTS / f"real-{name}.json"


def is_done(path: Path) -> bool:
    """Whether a record comes from this code and this processor."""
    if not path.exists():
        return False
    found = json.loads(path.read_text(encoding="utf-8"))
    return bool(found["code"] == code() and found["cpu"] == machine()["cpu"])


if __name__ == "__main__":
    sys.exit(main())
