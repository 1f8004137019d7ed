"""Times of `benchmarks.kernels`, one tier per stage, and the record of all tiers."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

from benchmarks import kernels
from benchmarks.chain import several
from benchmarks.chain.contestants import LOGITS, ONE_SEQUENCE, PROBABILITIES
from benchmarks.gpu.environment import Row
from benchmarks.gpu.settings import Setting

OURS = "otm"
ABSENT = ("flashinfer", "vllm v1", "transformers")
"""Other projects, which a rehearsal skips."""

KERNELS = ("triton", "otm block", "otm sigmoid", several.ONE_CHAIN)
"""Endings of the names of OTM's kernels."""

TIERS = {
    "speed-probabilities": PROBABILITIES,
    "speed-logits": LOGITS,
    "speed-one-sequence": ONE_SEQUENCE,
}
CHAINS = "speed-chains"


def one_chain(setting: Setting, tier: str) -> Iterator[Row]:
    """Measure one chain in a tier, for all contestants that pass the check of distributions."""
    torch.manual_seed(0)
    plan, device = setting.plan, setting.device
    machine = kernels.look_at(device, plan)
    present, absent = kernels.load(device, () if setting.peers else ABSENT)
    yield heading(kernels.record_of(machine, absent, [], []))
    checks = kernels.pass_gate(present, plan, device, (tier,))
    yield from map(of_check, checks)
    for row in kernels.measure_one(plan, machine, present, checks, (tier,)):
        yield of_result(row)


def chains(setting: Setting) -> Iterator[Row]:
    """Measure several chains in a tier."""
    torch.manual_seed(0)
    plan, device = setting.plan, setting.device
    machine = kernels.look_at(device, plan)
    few = plan._replace(sizes=(plan.sizes[0], plan.sizes[-1]), batches=plan.batches[:3])
    few = few._replace(sizes=tuple(dict.fromkeys(few.sizes)))
    yield heading(kernels.record_of(machine, {}, [], []))
    for tier in several.TIERS:
        checks, present = kernels.check_several(tier, plan, device)
        yield from map(of_check, checks)
        for row in kernels.measure_several(tier, present, few, device):
            yield of_result(row)


def heading(record: dict[str, Any]) -> Row:
    rate, absent = record["copy bytes/s"], ", ".join(record["absent"])
    note = f"copy rate {rate / 1e9:,.1f} GB/s" + (f"; absent: {absent}" if absent else "")
    return {"case": "machine", "passed": True, "note": note, "record": record}


def of_check(check: Row) -> Row:
    """Make a row for a check of a distribution; a failure of another project does not count."""
    failed = None if check["contestant"].startswith(ABSENT) else False
    case = f"distribution of {check['contestant']}"
    note = check.get("failed", "")
    return {"case": case, "passed": check["passed"] or failed, "note": note, "check": check}


def of_result(result: Row) -> Row:
    """Make a row for a measurement; OTM's contestants must run, and its kernels also in a graph."""
    name: str = result["contestant"]
    passed: bool | None = True
    if "failed" in result:
        passed = None if name.startswith(ABSENT) else False
    elif "no graph" in result:
        passed = False if name.endswith(KERNELS) else None
    wrong = result.get("failed") or result.get("no graph")
    parts = (f"{x} = {result[x]:,}" for x in ("B", "K", "V") if x in result)
    note = wrong or ""
    if "wall s" in result:
        best = result["kernel s"] or result["wall s"]
        note = f"{1e6 * best:,.1f} µs {note}"
        note += f"{result['of floor']:.0%} of the copy rate" if "of floor" in result else ""
    case = ", ".join((name, *parts, result["dtype"]))
    return {"case": case, "passed": passed, "note": note, "result": result}


def merge(folder: Path, found: dict[str, Any], device: torch.device) -> bool:
    """Write the record that `benchmarks.tables` reads, with the tiers that passed."""
    passed = [name for name in (*TIERS, CHAINS) if name in found]
    passed = [name for name in passed if found[name]["status"] == "passed"]
    if len({found[name]["machine"]["code"] for name in passed}) != 1:
        return False
    rows = [row for name in passed for row in found[name]["rows"]]
    first = next(row["record"] for row in rows if "record" in row)
    checks = [row["check"] for row in rows if "check" in row]
    record = {
        **first,
        "rehearsal": device.type == "cpu",
        "not measured": [name for name in (*TIERS, CHAINS) if name not in passed],
        "gate": {**first["gate"], "checks": checks},
        "results": [row["result"] for row in rows if "result" in row],
    }
    kernels.write(folder, device, record)
    return True
