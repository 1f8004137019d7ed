"""Compare the time to verify chains of drafts with the time to copy the same bytes.

    python -m benchmarks.kernels [--quick] [--device cuda] [--output FOLDER]

There are five separate tiers: probabilities to tokens; logits to tokens; logits to tokens for one
sequence, with Hugging Face transformers; several chains, from probabilities and from logits, with
"typical" rejections.  Each contestant's output distribution is checked before it is timed.  Other
projects are measured if they are installed, and otherwise reported as absent.

In the tables, "kernel" is the time of a call in the replay of a CUDA graph, without launch costs.
"wall" is the time of a call from Python until the device is done.  Inputs rotate, so that they come
from memory and not from a cache.  "traffic" counts the bytes that torch's operations read and
write, including intermediate results.  These may come from a cache, so traffic may be faster than a
copy.  "read" counts the bytes that every verifier must read ("floor bytes" in the results).  "copy
time" is the time to copy these bytes as a share of the contestant's time ("of floor").

Two contestants are special.  "otm block" must read every row, but is compared with the bytes of
chain verification.  "otm sigmoid" does not follow the target's distribution, so its distance is
reported instead of a check.  The results go to benchmarks/results/kernels-<device>.json.
"""

import argparse
import importlib.metadata
import itertools
import json
import math
import platform
import re
import sys
import time
from collections.abc import Collection, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

if not __package__:
    # The file was run by its path.  Python must not search this folder for modules, because
    # transformers imports a package named "kernels".
    sys.path[0] = str(Path(__file__).resolve().parents[1])

try:
    import torch
except ImportError:
    sys.exit("the benchmark of kernels needs torch: pip install 'otm[torch]'")

from benchmarks.chain import clocks, gate, several
from benchmarks.chain.contestants import (
    CONTESTANTS,
    LOGITS,
    ONE_SEQUENCE,
    PROBABILITIES,
    Contestant,
    Entry,
)
from benchmarks.chain.inputs import REJECTIONS, make_inputs
from benchmarks.chain.measure import Effort, Machine, in_short, measure, show
from otm.kernels import sigmoid_distance

RESULTS = Path(__file__).parent / "results"
TIERS = (PROBABILITIES, LOGITS, ONE_SEQUENCE)
TYPES = (torch.float32, torch.bfloat16)  # of logits; probabilities are float32


class Plan(NamedTuple):
    """Sizes and effort of the measurements."""

    sizes: tuple[int, ...]  # vocabulary sizes
    batches: tuple[int, ...]
    gamma: int
    rejections: tuple[str, ...]
    types: tuple[torch.dtype, ...]
    effort: Effort
    draws: int  # number of draws for the check of distributions
    draws_one_by_one: int
    chains: tuple[int, ...]  # numbers of chains K


QUICK = Plan(
    (1_024,),
    (1, 2),
    4,
    ("first", "typical"),
    TYPES[:1],
    Effort(3, 2, 8, 2**22),
    2**12,
    1_500,
    (4,),
)
ON_CPU = Plan(
    (32_000,), (1, 8), 4, REJECTIONS, TYPES, Effort(30, 5, 1500, 2**30), 2**18, 20_000, (2, 8)
)
ON_GPU = Plan(
    (32_000, 151_936),
    (1, 8, 64),
    4,
    REJECTIONS,
    TYPES,
    Effort(50, 5, 1500, 2**34),
    2**18,
    20_000,
    (2, 4, 8),
)


def look_at(device: torch.device, plan: Plan) -> Machine:
    """Measure and describe the machine."""
    cache = clocks.cache_bytes(device)
    size = 2**30 if device.type == "cuda" else min(5 * cache, plan.effort.memory)
    rate = clocks.copy_rate(device, size)
    machine = Machine(device, cache, rate, clocks.launch_cost(device))
    print(f"{name_of(device)}, {torch.get_num_threads()} threads, torch {torch.__version__}")
    if device.type != "cuda":
        print("These are times of a CPU: they say nothing about a GPU, and no Triton kernel runs.")
    graph = machine.launch["graph"]
    print(
        f"copy rate {rate / 1e9:.1f} GB/s ({size / 2**20:.0f} MiB), last cache "
        f"{cache / 2**20:.0f} MiB, one operation {machine.launch['eager'] * 1e6:.2f} µs"
        + (f", in a graph {graph * 1e6:.2f} µs" if graph else "")
    )
    return machine


def name_of(device: torch.device) -> str:
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    return f"CPU {platform.machine()}"


def slug(device: torch.device) -> str:
    """Return a device's name in the form used for file names."""
    return re.sub(r"[^a-z0-9]+", "-", name_of(device).lower()).strip("-")


def load(
    device: torch.device, without: Collection[str] = ()
) -> tuple[dict[Contestant, Entry], dict[str, str]]:
    """Return the installed contestants, and the reason why each other one is absent."""
    present, absent = {}, {}
    for contestant in CONTESTANTS:
        if contestant.name in without:
            continue
        try:
            present[contestant] = contestant.load(device)
        except Exception as error:  # continue with the other contestants
            absent[contestant.name] = in_short(error)
            print(f"absent: {contestant.name} ({absent[contestant.name]})")
    return present, absent


def pass_gate(
    present: dict[Contestant, Entry],
    plan: Plan,
    device: torch.device,
    tiers: tuple[str, ...] = TIERS,
) -> list[dict[str, Any]]:
    """Check all output distributions by tier, and that the check detects a wrong one."""
    print(f"\nCheck of output distributions (it detects a wrong verifier with TV {gate.SLIP:.3f})")
    rows = []
    for tier in tiers:
        single = tier == ONE_SEQUENCE
        draws = plan.draws_one_by_one if single else plan.draws
        blind = gate.check(
            Entry(gate.slip), logits=False, one_by_one=False, draws=draws, device=device
        )
        if blind.passed:
            raise SystemExit(
                f"the check is too weak: {draws} draws do not reject a wrong distribution"
            )
        for contestant, entry in present.items():
            if tier not in contestant.tiers:
                continue
            row: dict[str, Any] = {"tier": tier, "contestant": contestant.name, "passed": False}
            if contestant.rule == "inexact":
                distance = distance_of_sigmoid(plan.sizes[0], device)
                print(
                    f"  {contestant.name:<14}{tier:<32}{'inexact':<12}TV {distance:.2f} to target"
                )
                rows.append({**row, "passed": True, "exact": False, "TV": distance})
                continue
            try:
                verdict = gate.check(
                    entry,
                    logits=tier != PROBABILITIES,
                    one_by_one=single,
                    draws=draws,
                    device=device,
                    rule=contestant.rule,
                )
                row |= {**verdict._asdict(), "statistic": finite(verdict.statistic)}
                why = f"G = {verdict.statistic:.1f}, limit {verdict.limit:.1f}, {draws:,} draws"
            except Exception as error:
                why = row["failed"] = in_short(error)
            outcome = "passed" if row["passed"] else "NOT PASSED"
            print(f"  {contestant.name:<14}{tier:<32}{outcome:<12}{why}")
            rows.append(row)
    return rows


def distance_of_sigmoid(size: int, device: torch.device) -> float:
    """Return the distance of sigmoid verification from the target for "typical" rejections."""
    inputs = make_inputs((1, 1, size), torch.float32, "typical", logits=True, device=device)
    return sigmoid_distance(inputs.target[0, 0], inputs.draft[0, 0])


def measure_one(
    plan: Plan,
    machine: Machine,
    present: dict[Contestant, Entry],
    gates: list[dict[str, Any]],
    tiers: tuple[str, ...] = TIERS,
) -> Iterator[dict[str, Any]]:
    """Time the contestants that passed on one chain, and yield the rows."""
    through = {(row["tier"], row["contestant"]) for row in gates if row["passed"]}
    for case in cases(plan, tiers):
        tier, dtype = case["tier"], case["dtype"]
        shape = (case["B"], case["gamma"], case["V"])
        of_rows = {"logits": tier != PROBABILITIES, "device": machine.device}
        inputs = make_inputs(shape, dtype, case["rejection"], **of_rows)
        measured = {c: entry for c, entry in present.items() if (tier, c.name) in through}
        rows = measure(machine, plan.effort, inputs, measured)
        case["dtype"] = str(dtype).removeprefix("torch.")
        title = "{tier}: B = {B}, γ = {gamma}, V = {V:,}, {dtype}, rejection: {rejection}"
        show(title.format(**case), rows)
        yield from ({**case, **row} for row in rows)


def check_several(
    tier: str, plan: Plan, device: torch.device
) -> tuple[list[dict[str, Any]], dict[str, several.Contestant]]:
    """Check the distributions of several chains; return checks and contestants that passed."""
    present = several.contestants(tier, device)
    print(f"\nCheck of output distributions of several chains: {tier}")
    found = [
        {**row, "statistic": finite(row["statistic"])}
        for row in several.pass_gate(tier, present, plan.draws // 4, device)
    ]
    for row in found:
        print(f"  {row['contestant']:<16}{'passed' if row['passed'] else 'NOT PASSED'}")
    through = {row["contestant"] for row in found if row["passed"]} | {several.ONE_CHAIN}
    return found, {name: verify for name, verify in present.items() if name in through}


def measure_several(
    tier: str, present: dict[str, several.Contestant], plan: Plan, device: torch.device
) -> Iterator[dict[str, Any]]:
    """Time the contestants that passed on several chains, and yield the rows."""
    dtype = plan.types[-1] if tier == several.LOGITS else TYPES[0]
    for size, batch, count in itertools.product(plan.sizes, plan.batches, plan.chains):
        shape = (batch, count, plan.gamma, size)
        rows = several.measure(device, plan.effort, shape, present, tier=tier, dtype=dtype)
        several.show(rows)
        yield from rows


def finite(number: float) -> float | None:
    """Replace an infinite number by None, since JSON has no infinity."""
    return number if math.isfinite(number) else None


def cases(plan: Plan, tiers: tuple[str, ...]) -> Iterator[dict[str, Any]]:
    """Yield the cases: tier, shape, type, and position of the rejection."""
    for tier in tiers:
        for dtype in plan.types if tier == LOGITS else TYPES[:1]:
            for size in plan.sizes:
                for batch in (1,) if tier == ONE_SEQUENCE else plan.batches:
                    for rejection in plan.rejections:
                        shape = {"B": batch, "gamma": plan.gamma, "V": size}
                        yield {"tier": tier, **shape, "dtype": dtype, "rejection": rejection}


def versions() -> dict[str, str]:
    found = {"python": platform.python_version(), "cuda": str(torch.version.cuda)}
    for name in ("torch", "numpy", "triton", "transformers", "flashinfer-python", "vllm"):
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            found[name] = "absent"
    return found


def record_of(
    machine: Machine,
    absent: dict[str, str],
    checks: list[dict[str, Any]],
    results: list[dict[str, Any]],
) -> dict[str, Any]:
    """Build the record of a device."""
    return {
        "device": name_of(machine.device),
        "threads": torch.get_num_threads(),
        "date": datetime.now(UTC).date().isoformat(),
        "versions": versions(),
        "cache bytes": machine.cache,
        "copy bytes/s": machine.copy_rate,
        "launch s": machine.launch,
        "absent": absent,
        "gate": {"slip TV": gate.SLIP, "level": gate.LEVEL, "checks": checks},
        "results": results,
    }


def write(folder: Path, device: torch.device, record: dict[str, Any]) -> None:
    """Write the record of a device."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"kernels-{slug(device)}.json"
    path.write_text(json.dumps(record, indent=1, allow_nan=False) + "\n", encoding="utf-8")
    print(f"written to {path}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="small sizes; do not save results")
    parser.add_argument(
        "--device", help="torch name of the device; the default is the GPU if there is one"
    )
    parser.add_argument("--output", type=Path, help="folder for the results")
    options = parser.parse_args()
    device = torch.device(options.device or ("cuda" if torch.cuda.is_available() else "cpu"))
    plan = QUICK if options.quick else ON_GPU if device.type == "cuda" else ON_CPU

    start = time.perf_counter()
    torch.manual_seed(0)
    machine = look_at(device, plan)
    present, absent = load(device)
    gates = pass_gate(present, plan, device)
    results = list(measure_one(plan, machine, present, gates))
    for tier in several.TIERS:
        checks, through = check_several(tier, plan, device)
        gates += checks
        results += measure_several(tier, through, plan, device)
    print(f"\n{time.perf_counter() - start:.0f} s")
    folder = options.output or (None if options.quick else RESULTS)
    if folder:
        write(folder, device, record_of(machine, absent, gates, results))


if __name__ == "__main__":
    main()
