"""The kernels compile for a GPU that is not there, and keep their values in registers."""

from __future__ import annotations

import json
import os
import subprocess
import sys
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
        "chain, probabilities, sparse and packed, fp32, V = 128,256": FROM_PROBABILITIES,
        "block, logits, sparse and packed, bf16, V = 128,256": OF_ROWS + FROM_PROBABILITIES,
    },
    "sparse trees": {
        "grid k-Seq, probabilities, sparse tree, fp32, V = 128,256": K_SEQ,
        "grid optimal, logits, sparse tree, bf16, V = 128,256": OF_ROWS + BINS,
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


@pytest.mark.parametrize("group", KERNELS)
def test_every_kernel_compiles_without_spilling(group: str, tmp_path: Path) -> None:
    pytest.importorskip("torch")
    pytest.importorskip("triton", minversion="3.7", reason="kernels are for Triton 3.7 on")
    path = tmp_path / "found.json"
    command = [sys.executable, "-m", "benchmarks.compile_kernels", "--output", path, "--uses"]
    environment = {**os.environ, "TRITON_CACHE_DIR": str(tmp_path / "cache")}
    subprocess.run(
        [*command, *KERNELS[group]], cwd=ROOT, env=environment, check=True, capture_output=True
    )
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
