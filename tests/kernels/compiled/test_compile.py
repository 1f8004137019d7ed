"""The kernels compile for GPUs that are not there, and keep their values in registers."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[3]


FROM_PROBABILITIES = ["add_up", "draw"]
OF_ROWS = ["peaks_and_weights", "finish_softmaxes"]
K_SEQ = [*["add_up"] * 5, "draw"]
CLOCKS = ["ring_in_blocks", "first_of_blocks"]
TREE = ["add_up", "step"]
TREE_OF_LOGITS = ["peak_and_weight", "finish_softmax", *TREE, *TREE]
BINS = [*["add_up", "make_tables"] * 4, "add_up", "draw"]
PATHS = [*["add_left", "step"] * 2, "draw"]
PATHS_OF_DRAWN = ["add_steps", *PATHS]
OF_LEVEL = ["peak_and_weight", "finish_softmax"]
PATHS_OF_LOGITS = [
    *OF_LEVEL,
    "add_steps",
    "add_left",
    "step",
    *OF_LEVEL,
    "add_left",
    "step",
    "draw",
]

KERNELS: dict[str, dict[str, list[str]]] = {
    "one chain": {
        "chain, probabilities, drawn, fp32, V = 128,256": FROM_PROBABILITIES,
        "block, logits, one-hot, bf16, V = 128,256": OF_ROWS + FROM_PROBABILITIES,
        "block, logits, drawn, fp32, V = 1": OF_ROWS + FROM_PROBABILITIES,
        "chain, probabilities, sparse and packed, fp32, V = 128,256": FROM_PROBABILITIES,
        "block, logits, sparse and packed, bf16, V = 128,256": OF_ROWS + FROM_PROBABILITIES,
        "block, probabilities, drawn, fp64, V = 128,256": FROM_PROBABILITIES,
    },
    "grid k-Seq": {
        "grid k-Seq, probabilities, drawn, fp32, V = 128,256": K_SEQ,
        "grid k-Seq, logits, sparse tree, bf16, V = 128,256": OF_ROWS + K_SEQ,
        "grid k-Seq, probabilities, drawn, fp64, V = 128,256": K_SEQ,
    },
    "grid optimal": {"grid optimal, probabilities, drawn, fp32, V = 128,256": BINS},
    "grid optimal, 64 chains": {"grid optimal, probabilities, 64 chains, fp32, V = 128,256": BINS},
    "grid optimal, logits": {
        "grid optimal, logits, sparse tree, bf16, V = 128,256": OF_ROWS + BINS
    },
    "clocks": {
        "clocks, probabilities, one list, fp32, V = 128,256": CLOCKS,
        "clocks, probabilities, 64 lists, bf16, V = 128,256": CLOCKS,
        "clocks, probabilities, one list, fp32, V = 1": CLOCKS,
    },
    "trees": {
        "tree, probabilities, certain, bf16, V = 128,256": TREE,
        "tree, probabilities, certain, fp64, V = 128,256": TREE,
        "tree, logits, sampled, fp32, V = 128,256": 2 * TREE_OF_LOGITS,
        "tree, logits, sampled, fp32, V = 1": 2 * TREE_OF_LOGITS,
    },
    "whole paths of trees": {
        "tree walk and keep, probabilities, certain, bf16, V = 128,256": PATHS,
        "tree walk and keep, probabilities, sampled, fp64, V = 128,256": PATHS_OF_DRAWN,
        "tree walk and keep, logits, sampled, fp32, V = 128,256": PATHS_OF_LOGITS,
        "tree walk and keep, logits, sampled, fp32, V = 1": PATHS_OF_LOGITS,
    },
    "grid walk and keep": {"grid walk and keep, probabilities, drawn, fp32, V = 128,256": BINS},
    "grid walk and keep, logits": {
        "grid walk and keep, logits, sparse tree, bf16, V = 128,256": OF_ROWS + BINS,
    },
}
"""Kernels of each use, in the order in which they are launched."""


OTHERS: dict[str, dict[str, list[str]]] = {
    "one token of several": {
        "grid optimal, probabilities, drawn, fp32, V = 128,256": BINS,
        "grid k-Seq, logits, 64 chains, fp32, V = 128,256": OF_ROWS + K_SEQ,
    },
    "whole paths": {
        "grid walk and keep, probabilities, drawn, fp32, V = 128,256": BINS,
        "tree walk and keep, probabilities, sampled, fp32, V = 128,256": PATHS_OF_DRAWN,
    },
    "reductions": {
        "block, logits, drawn, fp32, V = 128,256": OF_ROWS + FROM_PROBABILITIES,
        "clocks, probabilities, 64 lists, fp32, V = 128,256": CLOCKS,
        "tree, logits, sampled, fp32, V = 128,256": 2 * TREE_OF_LOGITS,
    },
}
"""Every kernel once for the other targets, with drawn drafts and one type."""

ON_OTHERS = [
    *[("gfx942", group) for group in OTHERS],
    ("sm_80", "whole paths"),
    ("sm_80", "reductions"),
    ("sm_100", "reductions"),
]
"""Another compiler compiles all; an older target the largest; sm_100 has instructions to reduce."""

REGISTERS = 65_536
"""Of a multiprocessor."""

FEW = 32
"""Bytes that ptxas may spill of a thread where one more program then fits on a multiprocessor."""

COMPILE = """
import json, sys
from benchmarks.compile_kernels import main
for line in sys.stdin:
    main(json.loads(line))
    print("compiled", flush=True)
"""

Compile = Callable[[dict[str, list[str]], str], list[Any]]


@pytest.fixture(scope="module")
def compiled(
    tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest
) -> Iterator[Compile]:
    """Give what compiles uses for a target, in one process that does not interpret kernels.

    It loads torch once.  Uses share kernels, also with other workers and, as Triton finds what it
    has compiled by a digest of the sources and of itself, with later runs.
    """
    pytest.importorskip("torch")
    pytest.importorskip("triton", minversion="3.7", reason="kernels are for Triton 3.7 on")
    folder = tmp_path_factory.mktemp("compile")
    errors, base = folder / "errors.txt", tmp_path_factory.getbasetemp()
    cache = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "compiled"
    if request.config.pluginmanager.hasplugin("cacheprovider"):
        cache = request.config.cache.mkdir("compiled kernels")
    with (
        errors.open("w") as file,
        subprocess.Popen(
            [sys.executable, "-c", COMPILE],
            cwd=ROOT,
            # lines of the source are not looked at, and take a tenth of the time
            env={
                **os.environ,
                "TRITON_CACHE_DIR": str(cache),
                "TRITON_DISABLE_LINE_INFO": "1",
            },
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=file,
            encoding="utf-8",
        ) as process,
    ):

        def compile_uses(uses: dict[str, list[str]], target: str) -> list[Any]:
            assert process.stdin is not None
            assert process.stdout is not None
            arguments = ["--targets", target, "--output", str(folder), "--uses", *uses]
            print(json.dumps(arguments), file=process.stdin, flush=True)
            if "compiled\n" not in iter(process.stdout.readline, ""):
                pytest.fail(errors.read_text(encoding="utf-8"))  # it has ended
            path = folder / f"kernels-{target.replace('_', '')}.json"
            rows: list[Any] = json.loads(path.read_text(encoding="utf-8"))["results"]
            kernels: dict[str, list[str]] = {}
            for row in rows:
                kernels.setdefault(row["use"], []).append(row["kernel"])
            assert kernels == uses
            return rows

        yield compile_uses


def fits(row: Any, most: int) -> bool:
    """Whether a kernel has all its values in registers, or spills few by choice alone.

    ptxas 12.8, which Triton 3.7.1 has, spills other kernels than 12.9: both stop at the registers
    with which one more program fits, and take all values back if that is not their aim.
    """
    if row["spilled bytes"] == 0:
        return bool(row["registers"] <= most)
    steps = {REGISTERS // (row["threads"] * programs) // 8 * 8 for programs in (2, 3, 4)}
    roomy = row.get("with all registers", {"spilled bytes": math.inf})
    return (
        row["spilled bytes"] <= FEW
        and row["registers"] in steps
        and roomy["spilled bytes"] == 0
        and roomy["registers"] <= most
    )


def test_a_kernel_that_needs_its_spills_does_not_fit() -> None:
    """Negative control: too many values, too many bytes, or nothing gained by spilling."""
    row = {"threads": 256, "registers": 64, "spilled bytes": 8}
    assert fits({**row, "with all registers": {"registers": 72, "spilled bytes": 0}}, 160)
    assert not fits(row, 160)
    assert not fits({**row, "with all registers": {"registers": 168, "spilled bytes": 0}}, 160)
    assert not fits({**row, "with all registers": {"registers": 155, "spilled bytes": 8}}, 160)
    enough = {"with all registers": {"registers": 72, "spilled bytes": 0}}
    assert not fits({**row, **enough, "registers": 72}, 160)
    assert not fits({**row, **enough, "spilled bytes": 64}, 160)
    assert not fits({**row, "registers": 168, "spilled bytes": 0}, 160)


@pytest.mark.parametrize("group", KERNELS)
def test_every_kernel_keeps_its_values_in_registers(group: str, compiled: Compile) -> None:
    rows = compiled(KERNELS[group], "sm_90")
    most = 255 if "64 chains" in group else 160  # then the table of a node takes half of them
    assert [row for row in rows if not fits(row, most)] == []
    # no multiplication and addition with one rounding, where the reference has two; nothing
    # approximate: decisions are compared bit for bit
    assert all(row["inexact"] == [] for row in rows)


@pytest.mark.parametrize(("target", "group"), ON_OTHERS)
def test_other_targets(target: str, group: str, compiled: Compile) -> None:
    """Catches a kernel that only one architecture compiles, or keeps in registers."""
    rows = compiled(OTHERS[group], target)
    # steps: a program for each sequence, not for each block: they do not compete for registers
    most = [192 if row["kernel"] == "step" else 160 for row in rows]
    pairs = zip(rows, most, strict=True)
    if target == "gfx942":
        assert all(row["spilled bytes"] == 0 and row["registers"] <= n for row, n in pairs)
    else:
        assert [row for row, n in pairs if not fits(row, n)] == []
    assert all(row.get("inexact", []) == [] for row in rows)
    assert all(("inexact" in row) == target.startswith("sm_") for row in rows)
