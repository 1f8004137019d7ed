"""Description of the machine and the code of a run, and the machine's copy rate."""

import hashlib
import platform
import subprocess
from collections.abc import Iterator
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch

from benchmarks.chain import clocks
from benchmarks.gpu.settings import Setting
from benchmarks.kernels import name_of
from benchmarks.machine import machine
from otm.kernels.common.runtime import capability

ROOT = Path(__file__).resolve().parents[2]
ASKED = (
    "name",
    "driver_version",
    "clocks.sm",
    "clocks.max.sm",
    "clocks.mem",
    "power.limit",
    "temperature.gpu",
)
PEERS = ("transformers", "flashinfer", "vllm")
HELPERS = ("pytest", "hypothesis", "scipy", "xdist", "safetensors", *PEERS)
Row = dict[str, Any]


@cache
def describe(setting: Setting) -> Row:
    """Return device, driver and versions, which every result records."""
    found = machine("torch", "triton", "numpy", *PEERS[:1], "flashinfer-python", "vllm")
    found |= {
        "device": device_of(setting),
        "rehearsal": setting.rehearsal,
        "capability": capability(setting.device),
        "cuda": torch.version.cuda or torch.version.hip,
        "kernel": platform.release(),
        "nvidia-smi": ask_driver(setting.nvidia_smi),
        "commit": commit(),
        "code": code(),
    }
    if clocks.on_gpu(setting.device):
        properties = torch.cuda.get_device_properties(setting.device)
        found |= {
            "memory bytes": properties.total_memory,
            "multiprocessors": properties.multi_processor_count,
            "L2 bytes": clocks.cache_bytes(setting.device),
        }
    return found


def device_of(setting: Setting) -> str:
    return "rehearsal on a CPU" if setting.rehearsal else name_of(setting.device)


def ask_driver(command: tuple[str, ...]) -> dict[str, str]:
    """Return the output of nvidia-smi for the first GPU; empty without this program."""
    command = tuple(part.replace("{}", ",".join(ASKED)) for part in command)
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    except (OSError, subprocess.SubprocessError):
        return {}
    lines = done.stdout.splitlines()
    values = [value.strip() for value in lines[0].split(",")] if lines else []
    return dict(zip(ASKED, values, strict=False))


def commit() -> str | None:
    """Return the commit, marked if files have changed since; None outside of a repository."""
    command = ("git", "-C", str(ROOT), "describe", "--always", "--dirty", "--abbrev=40")
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip()


def code() -> str:
    """Return a digest of the code of the stages; a new digest makes old results invalid."""
    whole = hashlib.sha256()
    for folder, names in (("otm", "*.py"), ("otm", "*.json"), ("benchmarks", "*.py")):
        for path in sorted((ROOT / folder).rglob(names)):
            whole.update(path.relative_to(ROOT).as_posix().encode())
            whole.update(path.read_bytes())
    for path in sorted((ROOT / "tests" / "kernels").rglob("*.py")):
        whole.update(path.read_bytes())
    return whole.hexdigest()[:16]


def environment(setting: Setting) -> Iterator[Row]:
    """Yield a row per package, and name the stages that need a missing one."""
    for name, why in (("torch", "all stages"), ("triton", "the kernels")):
        there = find_spec(name) is not None
        note = "" if there else f"missing; needed for {why}"
        yield {"case": name, "passed": there, "note": note}
    for name in HELPERS:
        yield {"case": name, "passed": True if find_spec(name) else None, "note": ""}


def copies(setting: Setting) -> Iterator[Row]:
    """Measure copy rates by size, single and in a graph, and the cost of launches."""
    device = setting.device
    for size in setting.copies:
        source = torch.zeros(size, dtype=torch.uint8, device=device)
        copy = torch.empty_like(source)
        calls = [lambda source=source, copy=copy: copy.copy_(source)] * 10
        in_graph = clocks.graph_time(calls, device, 9) or float("nan")
        row = {
            "case": f"{size / 2**20:g} MiB",
            "bytes/s": clocks.copy_rate(device, size),
            "bytes/s in a graph": 2 * size / in_graph,
        }
        note = f"{row['bytes/s'] / 1e9:,.1f} GB/s, in a graph {2e-9 * size / in_graph:,.1f}"
        yield {**row, "passed": True, "note": note}
    cost = clocks.launch_cost(device)
    note = ", ".join(f"{name} {1e6 * (s or 0):.2f} µs" for name, s in cost.items())
    yield {"case": "one operation", "passed": True, "note": note, "seconds": cost}
