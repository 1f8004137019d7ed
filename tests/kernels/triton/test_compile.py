"""The kernels compile for a GPU that is not there, and keep their values in registers."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


FROM_PROBABILITIES = ["add_up", "draw"]
OF_ROWS = ["peaks_and_weights", "finish_softmaxes"]
K_SEQ = [*["add_up"] * 5, "draw"]
BINS = [*["add_up", "make_tables"] * 4, "add_up", "draw"]

KERNELS: dict[str, dict[str, list[str]]] = {
    "one chain": {
        "chain, probabilities, drawn, fp32, V = 128,256": FROM_PROBABILITIES,
        "block, logits, one-hot, bf16, V = 128,256": OF_ROWS + FROM_PROBABILITIES,
        "block, logits, drawn, fp32, V = 1": OF_ROWS + FROM_PROBABILITIES,
    },
    "grid k-Seq": {
        "grid k-Seq, probabilities, drawn, fp32, V = 128,256": K_SEQ,
        "grid k-Seq, logits, drawn, bf16, V = 128,256": OF_ROWS + K_SEQ,
    },
    "grid optimal": {"grid optimal, probabilities, drawn, fp32, V = 128,256": BINS},
    "grid optimal, 64 chains": {"grid optimal, probabilities, 64 chains, fp32, V = 128,256": BINS},
    "grid optimal, logits": {"grid optimal, logits, drawn, bf16, V = 128,256": OF_ROWS + BINS},
}
"""Kernels of each use, in the order in which they are launched."""


COMPILE = """
import json, sys
from benchmarks.compile_kernels import main
for line in sys.stdin:
    main(json.loads(line))
    print("compiled", flush=True)
"""


@pytest.fixture(scope="module")
def compile_uses(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[..., None]]:
    """Give what compiles the uses of these names into a file, in one process for all groups.

    In this one Triton interprets.  The other loads torch once, and groups share kernels.
    """
    pytest.importorskip("torch")
    pytest.importorskip("triton", minversion="3.7", reason="kernels are for Triton 3.7 on")
    folder = tmp_path_factory.mktemp("compile")
    errors = folder / "errors.txt"
    with (
        errors.open("w") as file,
        subprocess.Popen(
            [sys.executable, "-c", COMPILE],
            cwd=ROOT,
            env={**os.environ, "TRITON_CACHE_DIR": str(folder / "cache")},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=file,
            encoding="utf-8",
        ) as process,
    ):

        def compile_uses(path: Path, uses: Iterable[str]) -> None:
            assert process.stdin is not None
            assert process.stdout is not None
            print(json.dumps(["--output", str(path), "--uses", *uses]), file=process.stdin)
            process.stdin.flush()
            for line in process.stdout:
                if line == "compiled\n":
                    return
            pytest.fail(errors.read_text(encoding="utf-8"))  # it has ended

        yield compile_uses


@pytest.mark.parametrize("group", KERNELS)
def test_every_kernel_compiles_without_spilling(
    group: str, compile_uses: Callable[..., None], tmp_path: Path
) -> None:
    path = tmp_path / "found.json"
    compile_uses(path, KERNELS[group])
    rows = json.loads(path.read_text(encoding="utf-8"))["results"]
    compiled: dict[str, list[str]] = {}
    for row in rows:
        compiled.setdefault(row["use"], []).append(row["kernel"])
    assert compiled == KERNELS[group]
    most = 255 if "64 chains" in group else 160  # then the table of a node takes half of them
    assert all(row["spilled bytes"] == 0 and row["registers"] <= most for row in rows)
    # no multiplication and addition with one rounding, where the reference has two; nothing
    # approximate: decisions are compared bit for bit
    assert all(row["inexact"] == [] for row in rows)
