"""The kernels compile for a GPU that is not there, and keep their values in registers."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


def test_every_kernel_compiles_without_spilling(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    pytest.importorskip("triton", minversion="3.7", reason="kernels are for Triton 3.7 on")
    path = tmp_path / "found.json"
    command = [sys.executable, "-m", "benchmarks.compile_kernels", "--quick", "--output", path]
    environment = {**os.environ, "TRITON_CACHE_DIR": str(tmp_path / "cache")}
    subprocess.run(command, cwd=ROOT, env=environment, check=True, capture_output=True)
    rows = json.loads(path.read_text(encoding="utf-8"))["results"]
    from_probabilities = ["add_up", "draw"]
    of_rows = ["peaks_and_weights", "finish_softmaxes"]
    k_seq = [*["add_up"] * 5, "draw"]
    levels = [*["add_up", "make_tables"] * 4, "add_up", "draw"]
    of_chain, of_block = from_probabilities, of_rows + from_probabilities
    of_drafts = k_seq + levels
    of_drafts_from_logits = of_rows + k_seq + of_rows + levels
    expected = of_chain + of_drafts + of_block + of_drafts_from_logits + of_block
    assert [row["kernel"] for row in rows] == expected
    assert all(row["spilled bytes"] == 0 and row["registers"] <= 160 for row in rows)
    # no multiplication and addition with one rounding, where the reference has two; nothing
    # approximate: decisions are compared bit for bit
    assert all(row["inexact"] == [] for row in rows)
