"""Replacements for CUDA in a rehearsal, so that every line for a GPU runs before it meets one.

A graph is replayed by repeating its calls, events read the processor's clock, and torch replaces
the contestants that are kernels, because Triton's interpreter would take minutes.  Times measured
in this way have no meaning.
"""

import contextlib
import time
from collections.abc import Iterator, Sequence
from types import SimpleNamespace
from typing import Any
from unittest import mock

import torch

from benchmarks.chain import clocks, contestants, gate, several
from otm.kernels.common import runtime

REAL = clocks.Graph


class Event:
    """An event that records the processor's clock."""

    def __init__(self, *, enable_timing: bool) -> None:
        self.at = 0.0

    def record(self) -> None:
        self.at = time.perf_counter()

    def synchronize(self) -> None:
        pass

    def elapsed_time(self, end: "Event") -> float:
        return max(1e3 * (end.at - self.at), 1e-6)


class Stream:
    """A stream on which no operation waits."""

    def wait_stream(self, other: "Stream") -> None:
        pass


class CUDAGraph:
    """A graph that repeats the calls from which it was captured."""

    def __init__(self) -> None:
        self.replay = lambda: None


class Graph(REAL):
    """A `clocks.Graph` whose replay writes new results into the memory of the first results."""

    def __init__(self, calls: Sequence[Any]) -> None:
        super().__init__(calls)

        def replay() -> None:
            for call, result in zip(self.calls, self.results, strict=True):
                for old, new in zip(*map(clocks.tensors, (result, call())), strict=True):
                    old.copy_(new)

        self.graph.replay = replay


def all_wrong(inputs: Any) -> tuple[torch.Tensor, torch.Tensor]:
    """Output a token of target probability zero, which the check rejects after a few draws."""
    return torch.zeros(len(inputs.tokens), gate.GAMMA + 1), torch.zeros(len(inputs.tokens))


@contextlib.contextmanager
def stand_in() -> Iterator[None]:
    """Replace CUDA by the CPU, and use blocks of few tokens."""
    nothing = contextlib.nullcontext
    of_cuda = {
        "Event": Event,
        "Stream": Stream,
        "CUDAGraph": CUDAGraph,
        "graph": lambda graph: nothing(),
        "stream": lambda stream: nothing(),
        "current_stream": Stream,
        "synchronize": lambda device: None,
        "set_sync_debug_mode": lambda mode: None,
        "get_device_properties": lambda device: SimpleNamespace(
            L2_cache_size=2**10, total_memory=2**20, multi_processor_count=1
        ),
    }
    with contextlib.ExitStack() as stack:
        for name, value in of_cuda.items():
            stack.enter_context(mock.patch.object(torch.cuda, name, value))
        for module, name, value in (
            (clocks, "on_gpu", lambda device: True),
            (clocks, "Graph", Graph),
            (gate, "slip", all_wrong),
            (contestants, "KERNELS", "torch"),
            (contestants, "compiles", lambda: True),
            (several, "KERNELS", "torch"),
            (several, "compiles", lambda: True),
            (runtime, "BLOCK", 16),
        ):
            stack.enter_context(mock.patch.object(module, name, value))
        yield
