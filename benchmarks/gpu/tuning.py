"""Search for the best number of warps of each kernel, for `otm/kernels/common/warps.json`.

One kernel at a time gets another number, and whole verifications that use it are timed; the
decisions must not change.  The number of tokens of a block is not searched: softmax sums are
rounded by block, so the block size is part of the definition.
"""

import itertools
import json
import statistics
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any
from unittest import mock

from torch import Tensor

from benchmarks.chain import clocks
from benchmarks.chain.measure import in_short
from benchmarks.gpu.decisions import different
from benchmarks.gpu.environment import Row
from benchmarks.gpu.inputs import by_kernels, make
from benchmarks.gpu.settings import TYPES, Setting
from otm.kernels import Workspace
from otm.kernels.common import runtime
from otm.rules import named

TABLE = Path(runtime.__file__).with_name("warps.json")
GAIN = 0.02
"""Minimum saving of another number of warps, as the median share over a kernel's uses."""

FORMS = {"fp32": False, "bf16": True}
"""Measured types of rows, and whether these are logits."""


def tuning(setting: Setting) -> Iterator[Row]:
    """Measure each number of warps of each kernel, and name the best."""
    kind = runtime.capability(setting.device)
    for kernel in setting.kernels:
        row: Row = {"case": kernel, "passed": True, "kind": kind}
        try:
            row["ratios"] = ratios(setting, kind, kernel)
            count = min(row["ratios"], key=row["ratios"].get)
            row["warps"] = int(count) if row["ratios"][count] <= 1 - GAIN else runtime.WARPS
            row["note"] = ", ".join(f"{n}: {ratio:.2f}" for n, ratio in row["ratios"].items())
        except Exception as error:
            row |= {"passed": False, "note": in_short(error)}
        yield row


def launched_by(kernel: str, rules: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Yield the rules and row types that launch a kernel."""
    module, _, name = kernel.rpartition(".")
    for rule, dtype in itertools.product(rules, FORMS):
        if module == "common.distributions.triton":
            fits = FORMS[dtype]
        elif module == "common.one_chain":
            fits = not named(rule, "kernel").several
        else:
            fits = named(rule, "kernel").several
            if name == "make_tables":  # all rules with bins share this kernel
                fits = fits and rule != "grid k-Seq"
            else:
                fits = fits and (rule == "grid walk and keep") == module.startswith(
                    "walk_and_keep."
                )
        if fits:
            yield rule, dtype


def ratios(setting: Setting, kind: str, kernel: str) -> dict[str, float]:
    """Return, by number of warps, the median ratio to the time with the default number."""
    found: dict[str, list[float]] = {str(count): [] for count in setting.candidates}
    for rule, dtype in launched_by(kernel, setting.few):
        for batch, size in setting.tuned:
            shape = (batch, setting.chains, setting.gamma, size)
            options = {"logits": FORMS[dtype], "alike": True}
            inputs = make(rule, shape, TYPES[dtype], setting.device, **options)
            sets = copied(setting, inputs)
            graphs: dict[int, Any] = {}
            for count in (runtime.WARPS, *setting.candidates):
                if count not in graphs:
                    with mock.patch.dict(runtime.TUNED, {kind: {kernel: count}}, clear=True):
                        graphs[count] = captured(setting, rule, sets)
            usual = graphs[runtime.WARPS]
            if any(different(x.results[0], usual.results[0]) for x in graphs.values()):
                raise RuntimeError(f"the decisions of {rule} depend on the warps of {kernel}")
            times: dict[int, list[float]] = {count: [] for count in graphs}
            for _ in range(setting.effort.replays):
                for count, graph in graphs.items():  # in turns
                    times[count].append(graph.seconds())
            one = statistics.median(times[runtime.WARPS])
            for count in setting.candidates:
                found[str(count)].append(statistics.median(times[count]) / one)
    return {count: statistics.median(values) for count, values in found.items()}


def copied(setting: Setting, inputs: list[Tensor]) -> list[list[Tensor]]:
    """Copy inputs so often that reads come from memory and not a cache, if memory suffices."""
    one = sum(x.untyped_storage().nbytes() for x in inputs)
    effort, enough = setting.effort, -(-5 * clocks.cache_bytes(setting.device) // one)
    count = max(1, min(enough, effort.copies, effort.memory // one))
    return [inputs, *(list(map(copy_of, inputs)) for _ in range(count - 1))]


def copy_of(tensor: Tensor) -> Tensor:
    """Copy a tensor; copy rows that chains share only once."""
    if tensor.ndim == 4 and tensor.stride(1) == 0:
        return tensor[:, :1].clone().expand_as(tensor)
    return tensor.clone()


def captured(setting: Setting, rule: str, sets: list[list[Tensor]]) -> clocks.Graph:
    """Capture one call per set of inputs in a graph."""
    workspace = Workspace()
    by_kernels(rule, sets[0], workspace)  # this call compiles
    clocks.wait(setting.device)
    graph = clocks.Graph([lambda s=each: by_kernels(rule, s, workspace) for each in sets])
    graph.seconds()
    return graph


def adopt(found: Row, table: Path = TABLE) -> dict[str, dict[str, int]]:
    """Write the numbers for a kind of device into the table that the kernels read."""
    rows = [row for row in found["rows"] if "warps" in row]
    best = {row["case"]: row["warps"] for row in rows if row["warps"] != runtime.WARPS}
    merged = json.loads(table.read_text(encoding="utf-8"))
    if rows:
        merged[rows[0]["kind"]] = best
    table.write_text(json.dumps(merged, indent=1, sort_keys=True) + "\n", encoding="utf-8")
    return merged
