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
    pytest.importorskip("triton")
    path = tmp_path / "found.json"
    command = [sys.executable, "-m", "benchmarks.compile_kernels", "--quick", "--output", path]
    environment = {**os.environ, "TRITON_CACHE_DIR": str(tmp_path / "cache")}
    subprocess.run(command, cwd=ROOT, env=environment, check=True, capture_output=True)
    rows = json.loads(path.read_text(encoding="utf-8"))["results"]
    from_probabilities = ["add_up", "draw"]
    from_logits = ["peaks_and_weights", "laws_of_rows", "add_up", "draw"]
    k_seq = [*["look_at"] * 4, "add_up", "draw"]
    levels = [*["look_at", "make_tables"] * 4, "add_up", "draw"]
    of_chains = from_probabilities + k_seq + levels
    assert [row["kernel"] for row in rows] == of_chains + 2 * from_logits
    assert all(row["spilled bytes"] == 0 and row["registers"] <= 160 for row in rows)
