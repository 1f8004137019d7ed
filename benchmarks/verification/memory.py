"""Peak memory of a call."""

import json
import tempfile
from collections.abc import Callable
from itertools import accumulate
from pathlib import Path

import torch

from benchmarks.chain.clocks import wait

__all__ = ["COUNTED_BY", "peak_bytes"]

COUNTED_BY = {
    "cuda": "torch.cuda.max_memory_allocated",
    "cpu": "allocations and releases in torch.profiler",
}


def peak_bytes(call: Callable[[], object], device: torch.device) -> int:
    """Return the peak bytes of a call, with its result and without its arguments."""
    if device.type != "cuda":
        return _peak_of_profile(call)
    call()
    wait(device)
    torch.cuda.reset_peak_memory_stats(device)
    before = torch.cuda.memory_allocated(device)
    call()
    wait(device)
    return int(torch.cuda.max_memory_allocated(device)) - before


def _peak_of_profile(call: Callable[[], object]) -> int:
    cpu = [torch.profiler.ProfilerActivity.CPU]
    with torch.profiler.profile(activities=cpu, profile_memory=True) as profile:
        result = call()
    del result
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "trace.json"
        profile.export_chrome_trace(str(file))
        events = json.loads(file.read_text(encoding="utf-8"))["traceEvents"]
    changes = [
        (event["ts"], event["args"]["Ev Idx"], event["args"]["Bytes"])
        for event in events
        if event["name"] == "[memory]"
    ]
    return max(accumulate((size for *_, size in sorted(changes)), initial=0))
