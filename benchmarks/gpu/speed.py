"""The times of `benchmarks.kernels`, a tier in each stage, and the record that they make together."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

from benchmarks import kernels
from benchmarks.chain import several
from benchmarks.chain.contestants import LOGITS, ONE_SEQUENCE, PROBABILITIES
from benchmarks.gpu.environment import PEERS, Row
from benchmarks.gpu.settings import Setting

OURS = "otm"
TIERS = {
    "speed-probabilities": PROBABILITIES,
    "speed-logits": LOGITS,
    "speed-one-sequence": ONE_SEQUENCE,
}
CHAINS = "speed-chains"


def one_chain(setting: Setting, tier: str) -> Iterator[Row]:
    """Measure one chain in a tier: everyone that passes the check of the distributions."""
    torch.manual_seed(0)
    plan, device = setting.plan, setting.device
    machine = kernels.look_at(device, plan)
    present, absent = kernels.load(device, () if setting.peers else (*PEERS, "vllm v1"))
    yield heading(kernels.record_of(machine, absent, [], []))
    checks = kernels.pass_gate(present, plan, device, (tier,))
    yield from map(of_check, checks)
    for row in kernels.measure_one(plan, machine, present, checks, (tier,)):
        yield of_result(row, row["contestant"].startswith(OURS))


def chains(setting: Setting) -> Iterator[Row]:
    """Measure several chains."""
    torch.manual_seed(0)
    machine = kernels.look_at(setting.device, setting.plan)
    yield heading(kernels.record_of(machine, {}, [], []))
    for tier in several.TIERS:
        checks, present = kernels.check_several(tier, setting.plan, setting.device)
        yield from map(of_check, checks)
        for row in kernels.measure_several(tier, present, setting.plan, setting.device):
            yield of_result(row, row["contestant"].endswith("triton"))


def heading(record: dict[str, Any]) -> Row:
    rate, absent = record["copy bytes/s"], ", ".join(record["absent"])
    note = f"copy rate {rate / 1e9:,.1f} GB/s" + (f"; absent: {absent}" if absent else "")
    return {"case": "machine", "passed": True, "note": note, "record": record}


def of_check(check: Row) -> Row:
    """A check of a distribution; that of another project is no failure of ours."""
    ours = "tier" in check and not check["contestant"].startswith((*PEERS, "vllm"))
    passed = check["passed"] or (False if ours else None)
    case = f"distribution of {check['contestant']}"
    return {"case": case, "passed": passed, "note": check.get("failed", ""), "check": check}


def of_result(result: Row, ours: bool) -> Row:
    """A measurement; a kernel of ours must run, and in a graph."""
    wrong = result.get("failed") or result.get("no graph")
    passed = not wrong if ours else (None if "failed" in result else True)
    parts = (f"{name} = {result[name]:,}" for name in ("B", "K", "V") if name in result)
    note = wrong or ""
    if "wall s" in result:
        best = result["kernel s"] or result["wall s"]
        note = f"{1e6 * best:,.1f} µs {note}"
        note += f"{result['of floor']:.0%} of the copy rate" if "of floor" in result else ""
    case = ", ".join((result["contestant"], *parts, result["dtype"]))
    return {"case": case, "passed": passed, "note": note, "result": result}


def merge(folder: Path, found: dict[str, Any], device: torch.device) -> bool:
    """Write the record that `benchmarks.tables` reads, once all stages for speed are there."""
    if not all(name in found for name in (*TIERS, CHAINS)):
        return False
    rows = [row for name in (*TIERS, CHAINS) for row in found[name]["rows"]]
    records = [row["record"] for row in rows if "record" in row]
    if not records:
        return False
    record = records[0]
    record["gate"]["checks"] = [row["check"] for row in rows if "check" in row]
    record["results"] = [row["result"] for row in rows if "result" in row]
    kernels.write(folder, device, record)
    return True
