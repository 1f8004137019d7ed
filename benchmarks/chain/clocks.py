"""Clocks and reference values: copy rate, launch cost, wall time, kernel time, traffic."""

import itertools
import statistics
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

GATHERS = {"gather", "index", "index_select", "searchsorted"}
"""Operations that read only as much of their first argument as they write."""


def on_gpu(device: torch.device) -> bool:
    return device.type == "cuda"


def wait(device: torch.device) -> None:
    if on_gpu(device):
        torch.cuda.synchronize(device)


def cache_bytes(device: torch.device) -> int:
    """Return the size of the last cache before memory; 32 MiB if the system does not report it."""
    if on_gpu(device):
        return int(torch.cuda.get_device_properties(device).L2_cache_size)
    units = {"K": 2**10, "M": 2**20}
    folders = sorted(Path("/sys/devices/system/cpu/cpu0/cache").glob("index*/size"))
    sizes = [path.read_text(encoding="utf-8").strip() for path in folders]
    return max((int(size[:-1]) * units[size[-1]] for size in sizes), default=32 * 2**20)


def median_time(call: Callable[[], object], device: torch.device, rounds: int) -> float:
    """Return the median seconds from the call until the device is done."""
    times = []
    for _ in range(rounds + 1):
        wait(device)
        start = time.perf_counter()
        call()
        wait(device)
        times.append(time.perf_counter() - start)
    return statistics.median(times[1:])


def copy_rate(device: torch.device, size: int, rounds: int = 10) -> float:
    """Return the bytes per second, read and written, of a copy of `size` bytes."""
    source = torch.zeros(size, dtype=torch.uint8, device=device)
    copy = torch.empty_like(source)
    return 2 * size / median_time(lambda: copy.copy_(source), device, rounds)


def launch_cost(device: torch.device) -> dict[str, float | None]:
    """Return the seconds of an operation on one number, launched singly and in a graph."""
    x = torch.zeros(1, device=device)

    def many() -> None:
        for _ in range(500):
            x.add_(1)

    return {
        "eager": median_time(many, device, 10) / 500,
        "graph": graph_time([lambda: x.add_(1)] * 500, device, 10),
    }


class Graph:
    """Calls that one CUDA graph replays together.

    Attributes
    ----------
    results : list
        Results of the calls; a replay writes to the same memory.
    calls : sequence of callable
        The calls, kept because a replay reads and writes their memory.
    """

    def __init__(self, calls: Sequence[Callable[[], Any]]) -> None:
        # An operation that waits would break the capture and leave torch in an invalid state, so
        # the calls are checked first.
        torch.cuda.set_sync_debug_mode("error")
        try:
            calls[0]()
        finally:
            torch.cuda.set_sync_debug_mode("default")
        aside = torch.cuda.Stream()
        aside.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(aside):
            for call in calls[:3]:
                call()
        torch.cuda.current_stream().wait_stream(aside)
        self.calls, self.graph = calls, torch.cuda.CUDAGraph()
        with torch.cuda.graph(self.graph):
            self.results = [call() for call in calls]

    def seconds(self) -> float:
        """Replay the graph, and return the seconds on the device."""
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        self.graph.replay()
        end.record()
        end.synchronize()
        return start.elapsed_time(end) / 1e3


def graph_time(
    calls: Sequence[Callable[[], object]], device: torch.device, replays: int
) -> float | None:
    """Return the median seconds per call in replays of one CUDA graph with all calls."""
    if not on_gpu(device):
        return None
    graph = Graph(calls)
    times = [graph.seconds() for _ in range(replays + 1)]
    return statistics.median(times[1:]) / len(calls)


def wall_times(
    contestants: dict[str, Sequence[Callable[[], object]]], device: torch.device, rounds: int
) -> dict[str, float]:
    """Return the median seconds of one call per contestant, in turns, with rotated inputs."""
    times: dict[str, list[float]] = {name: [] for name in contestants}
    rotated = {name: itertools.cycle(calls) for name, calls in contestants.items()}
    for calls in rotated.values():
        median_time(next(calls), device, 1)
    for _ in range(rounds):
        for name, calls in rotated.items():
            call = next(calls)
            start = time.perf_counter()
            call()
            wait(device)
            times[name].append(time.perf_counter() - start)
    return {name: statistics.median(values) for name, values in times.items()}


class Traffic(TorchDispatchMode):
    """Counts torch's computing operations, and the bytes that they read and write."""

    def __init__(self) -> None:
        super().__init__()
        self.operations = 0
        self.bytes = 0

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        result = func(*args, **(kwargs or {}))
        written, read = tensors(result), tensors([args, kwargs])
        name = func.overloadpacket.__name__
        places = {x.untyped_storage().data_ptr() for x in read}
        views = all(x.untyped_storage().data_ptr() in places for x in written)
        if (views and not func._schema.is_mutable) or name.startswith("empty"):
            return result  # the operation did not compute
        self.operations += 1
        if name in GATHERS:
            read = [*read[1:], *written]
        for x in [*read, *written]:  # an expanded tensor counts once
            self.bytes += min(x.numel() * x.element_size(), x.untyped_storage().nbytes())
        return result


def tensors(nested: Any) -> list[torch.Tensor]:
    """Yield all tensors in nested lists, tuples and dictionaries."""
    if isinstance(nested, torch.Tensor):
        return [nested]
    if isinstance(nested, dict):
        nested = nested.values()
    elif not isinstance(nested, list | tuple):
        return []
    return [x for part in nested for x in tensors(part)]
