"""Measure contestants on one set of inputs, and print the results."""

from typing import Any, NamedTuple

import torch

from benchmarks.chain import clocks
from benchmarks.chain.contestants import Contestant, Entry, reference
from benchmarks.chain.inputs import Inputs


class Machine(NamedTuple):
    """The machine of a measurement, and its speed.

    Attributes
    ----------
    device : torch.device
        The device.
    cache : int
        Size of its last cache in bytes.
    copy_rate : float
        Bytes per second that a copy reads and writes.
    launch : dict
        Seconds of the smallest operation, "eager" and in a CUDA "graph".
    """

    device: torch.device
    cache: int
    copy_rate: float
    launch: dict[str, float | None]


class Effort(NamedTuple):
    """Number of repetitions and amount of memory of a measurement.

    Attributes
    ----------
    rounds : int
        Number of calls of each contestant; the median time counts.
    replays : int
        Number of replays of a graph with one call per copy of the inputs; the median counts.
    copies : int
        Maximum number of copies of the inputs.
    memory : int
        Maximum number of bytes of all copies.
    """

    rounds: int
    replays: int
    copies: int
    memory: int


def measure(
    machine: Machine, effort: Effort, inputs: Inputs, contestants: dict[Contestant, Entry]
) -> list[dict[str, Any]]:
    """Measure all contestants, and return one row for each."""
    accepted = reference(machine.device).verify(inputs)[1]
    to_read = inputs.bytes_to_read(accepted)
    sets = rotated(inputs, to_read, machine.cache, effort)
    rows: dict[str, dict[str, Any]] = {}
    calls = {}
    for contestant, entry in contestants.items():
        row = rows[contestant.name] = {
            "contestant": contestant.name,
            "accepted": float(accepted.double().mean()),
            "copies": len(sets),
            "floor bytes": to_read,
        }
        try:
            ready = [entry.prepare(each) for each in sets]
            mine = [lambda e=entry, r=each: e.verify(r) for each in ready]
            mine[0]()
            if contestant.plain_torch:
                with clocks.Traffic() as traffic:
                    mine[0]()
                row |= {"operations": traffic.operations, "traffic bytes": traffic.bytes}
            calls[contestant.name] = mine
        except Exception as error:  # continue with the other contestants
            row["failed"] = in_short(error)
    for name, seconds in clocks.wall_times(calls, machine.device, effort.rounds).items():
        row = rows[name]
        try:
            kernel = clocks.graph_time(calls[name], machine.device, effort.replays)
        except Exception as error:  # a call that waits for the device cannot be captured
            kernel, row["no graph"] = None, in_short(error)
        moved, best = row.get("traffic bytes", to_read), kernel or seconds
        row |= {
            "kernel s": kernel,
            "wall s": seconds,
            "GB/s": moved / best / 1e9,
            "of copy rate": moved / best / machine.copy_rate,
            "of floor": to_read / best / machine.copy_rate,
        }
    return list(rows.values())


def rotated(inputs: Inputs, to_read: int, cache: int, effort: Effort) -> list[Inputs]:
    """Copy the inputs until their required bytes fill the last cache five times, if possible."""
    enough = -(-5 * cache // to_read)
    count = max(1, min(enough, effort.copies, effort.memory // inputs.bytes))
    return [inputs, *(inputs.copy() for _ in range(count - 1))]


def in_short(error: Exception) -> str:
    """Return the type and first line of an error."""
    return f"{type(error).__name__}: {str(error).strip().partition(chr(10))[0]}"[:200]


def show(title: str, rows: list[dict[str, Any]]) -> None:
    """Print the rows of one measurement."""
    print(
        f"\n{title}\n  {'':<14}{'kernel µs':>11}{'wall µs':>11}{'torch ops':>11}"
        f"{'traffic MB':>12}{'read MB':>10}{'GB/s':>9}{'of copy':>9}{'copy time':>10}"
    )
    for row in rows:
        if "failed" in row:
            print(f"  {row['contestant']:<14}failed: {row['failed']}")
            continue
        kernel = f"{row['kernel s'] * 1e6:.1f}" if row["kernel s"] else "-"
        traffic = f"{row['traffic bytes'] / 1e6:.2f}" if "traffic bytes" in row else "-"
        print(
            f"  {row['contestant']:<14}{kernel:>11}{row['wall s'] * 1e6:>11.1f}"
            f"{row.get('operations', '-'):>11}{traffic:>12}{row['floor bytes'] / 1e6:>10.2f}"
            f"{row['GB/s']:>9.1f}{row['of copy rate']:>9.1%}{row['of floor']:>10.1%}"
        )
