"""The best number of warps of each kernel, for `otm/kernels/triton/warps.json`.

One kernel at a time has another number, while whole verifications that run it are timed; the
decisions must stay.  The number of tokens that a program looks at is not searched: the sum of a
softmax is rounded by block, so that the block is a part of the definition.
"""

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
from otm.kernels.triton import runtime

TABLE = Path(runtime.__file__).with_name("warps.json")
GAIN = 0.03
"""Share of the time that another number must save, in the middle over the uses of a kernel."""

ONE = (("chain", False), ("block", False), ("chain", True), ("block", True))
SEVERAL = tuple((rule, logits) for rule in ("grid k-Seq", "grid optimal") for logits in (False, True))
USES = {
    "one_chain.add_up": ONE,
    "one_chain.draw": ONE,
    "distributions.peaks_and_weights": (("chain", True), ("grid k-Seq", True)),
    "distributions.finish_softmaxes": (("chain", True), ("grid k-Seq", True)),
    "multi_draft.add_up": SEVERAL,
    "multi_draft.make_tables": SEVERAL[2:],
    "multi_draft.draw": SEVERAL,
}
"""Kernels, and the rules that launch them, from logits or not."""


def tuning(setting: Setting) -> Iterator[Row]:
    """Measure each number of warps of each kernel, and name the best."""
    kind = runtime.capability(setting.device)
    table: dict[str, int] = {}
    for kernel, launched_by in USES.items():
        uses = [use for use in launched_by if use[0] in setting.few]
        if not uses:
            continue
        row: Row = {"case": kernel, "passed": True, "ratios": {}}
        try:
            row["ratios"] = ratios(setting, kind, kernel, uses)
            count = min(row["ratios"], key=row["ratios"].get)
            saves = row["ratios"][count] <= 1 - GAIN
            row["warps"] = int(count) if saves else runtime.WARPS
            if saves:
                table[kernel] = int(count)
            row["note"] = ", ".join(f"{n}: {ratio:.2f}" for n, ratio in row["ratios"].items())
        except Exception as error:
            row |= {"passed": False, "note": in_short(error)}
        yield row
    yield {"case": "table", "passed": True, "table": {kind: table}, "note": json.dumps(table)}


def ratios(
    setting: Setting, kind: str, kernel: str, uses: Sequence[tuple[str, bool]]
) -> dict[str, float]:
    """Return the median over uses and sizes of the time beside that with the usual number."""
    found: dict[str, list[float]] = {str(count): [] for count in setting.candidates}
    for rule, logits in uses:
        for batch, size in setting.tuned:
            shape = (batch, setting.chains, setting.gamma, size)
            dtype = TYPES["bf16" if logits else "fp32"]
            inputs = make(rule, shape, dtype, setting.device, logits=logits)
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
    """Copy inputs to so many places that they come from memory, if there is enough of it."""
    one = sum(x.untyped_storage().nbytes() for x in inputs)
    effort, enough = setting.effort, -(-5 * clocks.cache_bytes(setting.device) // one)
    count = max(1, min(enough, effort.copies, effort.memory // one))
    return [inputs, *(list(map(copy_of, inputs)) for _ in range(count - 1))]


def copy_of(tensor: Tensor) -> Tensor:
    """Copy a tensor; rows that chains share are copied once."""
    if tensor.ndim == 4 and tensor.stride(1) == 0:
        return tensor[:, :1].clone().expand_as(tensor)
    return tensor.clone()


def captured(setting: Setting, rule: str, sets: list[list[Tensor]]) -> clocks.Graph:
    """Capture a call with each set of inputs."""
    workspace = Workspace()
    by_kernels(rule, sets[0], workspace)  # compiles
    clocks.wait(setting.device)
    graph = clocks.Graph([lambda s=each: by_kernels(rule, s, workspace) for each in sets])
    graph.seconds()
    return graph


def adopt(found: Row, table: Path = TABLE) -> dict[str, dict[str, int]]:
    """Put the numbers of a kind of device into the table that the kernels read."""
    measured = next(row["table"] for row in found["rows"] if "table" in row)
    merged = {**json.loads(table.read_text(encoding="utf-8")), **measured}
    table.write_text(json.dumps(merged, indent=1, sort_keys=True) + "\n", encoding="utf-8")
    return merged
